/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/wire.h"

void pl_reader_init(struct pl_reader *reader, const void *data, size_t length)
{
	static const uint8_t nothing[1];

	/* NULL means no bytes, but arithmetic on it is undefined. */
	reader->at = data ? data : nothing;
	reader->end = data ? reader->at + length : reader->at;
	reader->bad = false;
}

/* Returns the next bytes, or NULL. After a failure all calls fail. */
static const uint8_t *take(struct pl_reader *reader, size_t length)
{
	const uint8_t *at = reader->at;

	if (reader->bad || length > (size_t)(reader->end - at)) {
		reader->bad = true;
		return NULL;
	}
	reader->at += length;
	return at;
}

void pl_get_bytes(struct pl_reader *reader, void *to, size_t length)
{
	const uint8_t *from = take(reader, length);

	if (!length)
		return;
	if (from)
		memcpy(to, from, length);
	else
		memset(to, 0, length);
}

uint8_t pl_get_u8(struct pl_reader *reader)
{
	uint8_t value;

	pl_get_bytes(reader, &value, sizeof(value));
	return value;
}

uint16_t pl_get_u16(struct pl_reader *reader)
{
	uint16_t value;

	pl_get_bytes(reader, &value, sizeof(value));
	return le16toh(value);
}

uint32_t pl_get_u32(struct pl_reader *reader)
{
	uint32_t value;

	pl_get_bytes(reader, &value, sizeof(value));
	return le32toh(value);
}

uint64_t pl_get_u64(struct pl_reader *reader)
{
	uint64_t value;

	pl_get_bytes(reader, &value, sizeof(value));
	return le64toh(value);
}

void pl_get_string(struct pl_reader *reader, char *to, size_t size)
{
	uint16_t length = pl_get_u16(reader);
	const uint8_t *from = take(reader, length);

	memset(to, 0, size);
	if (!from)
		return;
	if (length >= size || memchr(from, 0, length)) {
		reader->bad = true;
		return;
	}
	memcpy(to, from, length);
}

void pl_writer_init(struct pl_writer *writer, void *data, size_t length)
{
	writer->begin = writer->at = data;
	writer->end = writer->begin + length;
	writer->full = false;
}

void pl_put_bytes(struct pl_writer *writer, const void *from, size_t length)
{
	if (writer->full || length > (size_t)(writer->end - writer->at)) {
		writer->full = true;
		return;
	}
	if (length)
		memcpy(writer->at, from, length);
	writer->at += length;
}

void pl_put_u8(struct pl_writer *writer, uint8_t value)
{
	pl_put_bytes(writer, &value, sizeof(value));
}

void pl_put_u16(struct pl_writer *writer, uint16_t value)
{
	value = htole16(value);
	pl_put_bytes(writer, &value, sizeof(value));
}

void pl_put_u32(struct pl_writer *writer, uint32_t value)
{
	value = htole32(value);
	pl_put_bytes(writer, &value, sizeof(value));
}

void pl_put_u64(struct pl_writer *writer, uint64_t value)
{
	value = htole64(value);
	pl_put_bytes(writer, &value, sizeof(value));
}

void pl_put_string(struct pl_writer *writer, const char *from)
{
	size_t length = strlen(from);

	if (length > UINT16_MAX) {
		writer->full = true;
		return;
	}
	pl_put_u16(writer, (uint16_t)length);
	pl_put_bytes(writer, from, length);
}
