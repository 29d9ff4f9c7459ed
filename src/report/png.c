/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PNG pictures with a palette, in base64.  The pixels are stored without compression (RFC 1951, 3.2.4): a picture of
 * 200 x 200 is 54 kB, and needs no library.
 */
#include <stdlib.h>
#include <string.h>

#include "report/fleet.h"

#define BLOCK_MAX 65535u /* bytes of a stored block */
#define ADLER 65521u

/* Bytes of a file in memory. */
struct bytes {
	uint8_t *data;
	size_t count;
};

static void put_byte(struct bytes *bytes, unsigned value)
{
	bytes->data[bytes->count++] = (uint8_t)value;
}

static void put_bytes(struct bytes *bytes, const void *data, size_t count)
{
	memcpy(bytes->data + bytes->count, data, count);
	bytes->count += count;
}

static void put_number(struct bytes *bytes, uint32_t value)
{
	for (int shift = 24; shift >= 0; shift -= 8)
		put_byte(bytes, value >> shift & 0xff);
}

/* Computes the CRC-32 of a chunk (ISO 3309). */
static uint32_t chunk_crc(const uint8_t *data, size_t count)
{
	uint32_t crc = 0xffffffff;

	for (size_t i = 0; i < count; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return ~crc;
}

/* Begins a chunk, and returns the position of its type. */
static size_t begin_chunk(struct bytes *bytes, const char *type, size_t length)
{
	put_number(bytes, (uint32_t)length);
	put_bytes(bytes, type, 4);
	return bytes->count - 4;
}

static void end_chunk(struct bytes *bytes, size_t begin)
{
	put_number(bytes, chunk_crc(bytes->data + begin, bytes->count - begin));
}

/* Writes the lines, each behind a byte for "no filter", as stored blocks of zlib's format (RFC 1950). */
static void put_pixels(struct bytes *bytes, const uint8_t *lines, size_t count)
{
	size_t blocks = (count + BLOCK_MAX - 1) / BLOCK_MAX,
	       begin = begin_chunk(bytes, "IDAT", 2 + 5 * blocks + count + 4);
	uint32_t low = 1, high = 0;

	put_byte(bytes, 0x78);
	put_byte(bytes, 0x01);
	for (size_t at = 0; at < count; at += BLOCK_MAX) {
		unsigned length = (unsigned)CLI_MIN(count - at, (size_t)BLOCK_MAX);

		put_byte(bytes, at + length == count);
		put_byte(bytes, length & 0xff);
		put_byte(bytes, length >> 8);
		put_byte(bytes, ~length & 0xff);
		put_byte(bytes, ~length >> 8 & 0xff);
		put_bytes(bytes, lines + at, length);
	}
	for (size_t i = 0; i < count; i++) {
		low = (low + lines[i]) % ADLER;
		high = (high + low) % ADLER;
	}
	put_number(bytes, high << 16 | low);
	end_chunk(bytes, begin);
}

static void put_head(struct bytes *bytes, uint32_t width, uint32_t height, const struct report_colour *palette,
		     uint32_t colours)
{
	size_t begin;

	put_bytes(bytes, "\x89PNG\r\n\x1a\n", 8);
	begin = begin_chunk(bytes, "IHDR", 13);
	put_number(bytes, width);
	put_number(bytes, height);
	/* 8 bits, a palette; the usual compression and filter, not interlaced. */
	put_bytes(bytes, "\x08\x03\x00\x00\x00", 5);
	end_chunk(bytes, begin);
	begin = begin_chunk(bytes, "PLTE", 3 * (size_t)colours);
	for (uint32_t i = 0; i < colours; i++) {
		put_byte(bytes, palette[i].red);
		put_byte(bytes, palette[i].green);
		put_byte(bytes, palette[i].blue);
	}
	end_chunk(bytes, begin);
	begin = begin_chunk(bytes, "tRNS", 1);
	put_byte(bytes, 0);
	end_chunk(bytes, begin);
}

static void write_base64(FILE *file, const uint8_t *data, size_t count)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < count; i += 3) {
		uint32_t bits = (uint32_t)data[i] << 16;

		bits |= i + 1 < count ? (uint32_t)data[i + 1] << 8 : 0;
		bits |= i + 2 < count ? data[i + 2] : 0;
		fputc(digits[bits >> 18], file);
		fputc(digits[bits >> 12 & 63], file);
		fputc(i + 1 < count ? digits[bits >> 6 & 63] : '=', file);
		fputc(i + 2 < count ? digits[bits & 63] : '=', file);
	}
}

int report_write_png(FILE *file, const uint8_t *pixels, uint32_t width, uint32_t height,
		     const struct report_colour *palette, uint32_t colours)
{
	size_t count = ((size_t)width + 1) * height;
	uint8_t *lines = calloc(count, 1);
	struct bytes bytes = { .data = malloc(count + count / BLOCK_MAX * 5 + 3 * (size_t)colours + 200) };
	int rc = lines && bytes.data ? 0 : -ENOMEM;

	for (uint32_t y = 0; rc == 0 && y < height; y++)
		memcpy(lines + y * ((size_t)width + 1) + 1, pixels + y * (size_t)width, width);
	if (rc == 0) {
		put_head(&bytes, width, height, palette, colours);
		put_pixels(&bytes, lines, count);
		end_chunk(&bytes, begin_chunk(&bytes, "IEND", 0));
		write_base64(file, bytes.data, bytes.count);
	}
	free(lines);
	free(bytes.data);
	return rc;
}
