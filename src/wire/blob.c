/* SPDX-License-Identifier: BSD-2-Clause */
/* Blobs of regions. */
/* Inlined, as the token's: the library needs no other for this. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "wire/wire.h"

#define BLOB_MAGIC 0x31534c50u /* "PLS1" */
#define BLOB_VERSION 1
#define HEADER 16
#define ENTRY (8 + PL_TOKEN_SIZE)

_Static_assert(PL_REGIONS_BLOB_SIZE(3) == HEADER + 3 * ENTRY + 4, "the public size is right");

void pl_blob_begin(struct pl_blob_writer *blob, void *buffer, size_t count)
{
	pl_writer_init(&blob->writer, buffer, PL_REGIONS_BLOB_SIZE(count));
	pl_put_u32(&blob->writer, BLOB_MAGIC);
	pl_put_u16(&blob->writer, BLOB_VERSION);
	pl_put_u16(&blob->writer, 0);
	pl_put_u32(&blob->writer, (uint32_t)count);
	pl_put_u32(&blob->writer, 0);
}

void pl_blob_add(struct pl_blob_writer *blob, uint64_t address, const uint8_t token[PL_TOKEN_SIZE])
{
	pl_put_u64(&blob->writer, address);
	pl_put_bytes(&blob->writer, token, PL_TOKEN_SIZE);
}

size_t pl_blob_end(struct pl_blob_writer *blob)
{
	struct pl_writer *writer = &blob->writer;

	pl_put_u32(writer, XXH32(writer->begin, (size_t)(writer->at - writer->begin), 0));
	return (size_t)(writer->at - writer->begin);
}

int pl_blob_decode(const void *data, size_t length)
{
	struct pl_reader reader;
	uint32_t count, reserved;

	pl_reader_init(&reader, data, length);
	if (pl_get_u32(&reader) != BLOB_MAGIC || pl_get_u16(&reader) != BLOB_VERSION)
		return -EPROTO;
	reserved = pl_get_u16(&reader);
	count = pl_get_u32(&reader);
	reserved |= pl_get_u32(&reader);
	if (reserved || count == 0 || count > PL_REGIONS_MAX || length != PL_REGIONS_BLOB_SIZE(count))
		return -EPROTO;
	pl_reader_init(&reader, (const uint8_t *)data + length - 4, 4);
	return pl_get_u32(&reader) == XXH32(data, length - 4, 0) ? (int)count : -EBADMSG;
}

uint64_t pl_blob_address(const void *data, size_t index)
{
	struct pl_reader reader;

	pl_reader_init(&reader, (const uint8_t *)data + HEADER + index * ENTRY, 8);
	return pl_get_u64(&reader);
}

const uint8_t *pl_blob_token(const void *data, size_t index)
{
	return (const uint8_t *)data + HEADER + index * ENTRY + 8;
}
