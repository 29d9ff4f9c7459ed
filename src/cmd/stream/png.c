/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/png.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "stream/ring.h"

/* Longest data of a chunk, less what is around the pixels. */
#define PNG_PIXELS_MAX (1ull << 30)
/* Longest stored block of the deflate format. */
#define DEFLATE_BLOCK 65535u
#define ADLER_MODULUS 65521u
/* Bytes that can be summed before the sums exceed 32 bits. */
#define ADLER_RUN 5552u
#define PNG_GREY 0
#define PNG_COLOUR 2

struct png_image {
	uint32_t width, height, depth; /* depth: bits of a sample */
	uint8_t kind;
	size_t row; /* bytes */
};

/* File under construction. */
struct png_file {
	uint8_t *at;
	uint32_t crc_table[256];
	uint32_t block;     /* bytes that the present stored block still takes */
	size_t left;        /* bytes of rows that are not in a block yet */
	uint32_t low, high; /* sums of Adler-32 */
};

static bool png_describe(const struct pl_layout *layout, struct png_image *image)
{
	bool colour = layout->lanes == 3 || (layout->dimensions == 3 && layout->shape[2] == 3);
	unsigned dimensions = layout->lanes == 1 && colour ? 3 : 2;

	if (layout->code != PL_ELEMENT_UINT || (layout->bits != 8 && (layout->bits != 16 || colour)) ||
	    (layout->lanes != 1 && layout->lanes != 3) || layout->dimensions != dimensions || layout->shape[0] == 0 ||
	    layout->shape[1] == 0 || layout->shape[0] > INT32_MAX || layout->shape[1] > INT32_MAX ||
	    pl_layout_bytes(layout) + layout->shape[0] > PNG_PIXELS_MAX)
		return false;
	*image = (struct png_image){ .width = (uint32_t)layout->shape[1],
				     .height = (uint32_t)layout->shape[0],
				     .depth = layout->bits,
				     .kind = colour ? PNG_COLOUR : PNG_GREY };
	image->row = (size_t)image->width * (layout->bits / 8u) * (colour ? 3 : 1);
	return true;
}

bool png_supports(const struct pl_layout *layout)
{
	struct png_image image;

	return png_describe(layout, &image);
}

static void png_put_u32(struct png_file *file, uint32_t value)
{
	for (int shift = 24; shift >= 0; shift -= 8)
		*file->at++ = (uint8_t)(value >> shift);
}

static void png_fill_crc_table(uint32_t table[256])
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t value = i;

		for (int bit = 0; bit < 8; bit++)
			value = value & 1 ? 0xedb88320u ^ value >> 1 : value >> 1;
		table[i] = value;
	}
}

static uint32_t png_crc(const uint32_t table[256], const uint8_t *bytes, size_t length)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < length; i++)
		crc = table[(crc ^ bytes[i]) & 0xff] ^ crc >> 8;
	return ~crc;
}

/* Begins a chunk, and returns the place of its name, where its checksum begins. */
static uint8_t *png_begin_chunk(struct png_file *file, const char *name, uint32_t length)
{
	uint8_t *begin;

	png_put_u32(file, length);
	begin = file->at;
	memcpy(file->at, name, 4);
	file->at += 4;
	return begin;
}

static void png_end_chunk(struct png_file *file, const uint8_t *begin)
{
	png_put_u32(file, png_crc(file->crc_table, begin, (size_t)(file->at - begin)));
}

static void png_add_to_sum(struct png_file *file, const uint8_t *bytes, size_t length)
{
	while (length) {
		size_t run = length < ADLER_RUN ? length : ADLER_RUN;

		for (size_t i = 0; i < run; i++) {
			file->low += bytes[i];
			file->high += file->low;
		}
		file->low %= ADLER_MODULUS;
		file->high %= ADLER_MODULUS;
		bytes += run;
		length -= run;
	}
}

/* Appends bytes of rows, in stored blocks. */
static void png_store(struct png_file *file, const uint8_t *bytes, size_t length)
{
	png_add_to_sum(file, bytes, length);
	while (length) {
		size_t part;

		if (!file->block) {
			file->block = file->left < DEFLATE_BLOCK ? (uint32_t)file->left : DEFLATE_BLOCK;
			file->left -= file->block;
			*file->at++ = file->left == 0; /* the last block */
			*file->at++ = (uint8_t)file->block;
			*file->at++ = (uint8_t)(file->block >> 8);
			*file->at++ = (uint8_t)~file->block;
			*file->at++ = (uint8_t)(~file->block >> 8);
		}
		part = length < file->block ? length : file->block;
		memcpy(file->at, bytes, part);
		file->at += part;
		file->block -= (uint32_t)part;
		bytes += part;
		length -= part;
	}
}

/* Stores the rows, each after the number of its filter: none.  Samples of 16 bits become big-endian in `row`. */
static void png_store_rows(struct png_file *file, const struct png_image *image, const uint8_t *pixels, uint8_t *row)
{
	row[0] = 0;
	for (uint32_t y = 0; y < image->height; y++, pixels += image->row) {
		if (image->depth == 8)
			memcpy(row + 1, pixels, image->row);
		for (size_t x = 0; image->depth == 16 && x < image->row; x += 2) {
			row[1 + x] = pixels[x + 1];
			row[2 + x] = pixels[x];
		}
		png_store(file, row, image->row + 1);
	}
}

void *png_encode(const struct pl_layout *layout, const void *pixels, size_t *size)
{
	static const uint8_t signature[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
	struct png_file file = { .low = 1 };
	struct png_image image;
	uint8_t *begin, *bytes, *row;
	size_t raw, packed;

	if (!png_describe(layout, &image))
		return NULL;
	raw = (image.row + 1) * image.height;
	packed = 2 + raw + (raw + DEFLATE_BLOCK - 1) / DEFLATE_BLOCK * 5 + 4;
	/* The signature, IHDR with 13 bytes, IDAT and IEND, each with 12 bytes around its data. */
	*size = sizeof(signature) + 13 + packed + 3 * 12;
	bytes = file.at = malloc(*size);
	row = malloc(image.row + 1);
	if (bytes && row) {
		png_fill_crc_table(file.crc_table);
		file.left = raw;
		memcpy(file.at, signature, sizeof(signature));
		file.at += sizeof(signature);
		begin = png_begin_chunk(&file, "IHDR", 13);
		png_put_u32(&file, image.width);
		png_put_u32(&file, image.height);
		memcpy(file.at, (uint8_t[]){ (uint8_t)image.depth, image.kind, 0, 0, 0 }, 5);
		file.at += 5;
		png_end_chunk(&file, begin);
		begin = png_begin_chunk(&file, "IDAT", (uint32_t)packed);
		*file.at++ = 0x78; /* zlib: deflate with a window of 32 KiB, the fastest compression */
		*file.at++ = 0x01;
		png_store_rows(&file, &image, pixels, row);
		png_put_u32(&file, file.high << 16 | file.low);
		png_end_chunk(&file, begin);
		png_end_chunk(&file, png_begin_chunk(&file, "IEND", 0));
	} else {
		free(bytes);
		bytes = NULL;
	}
	free(row);
	return bytes;
}
