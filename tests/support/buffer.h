/* SPDX-License-Identifier: BSD-2-Clause */
/* Registered buffers with guard bytes around them, and contents that can be told from any other. */
#ifndef TEST_BUFFER_H
#define TEST_BUFFER_H

#include "support/check.h"

#define BUFFER_GUARD 256
/* A value that no pattern byte has: patterns keep their high bit clear. */
#define POISON 0xee

struct buffer {
	uint8_t *bytes; /* aligned to 64; of a buffer on a GPU its mirror, which only the functions below may touch */
	size_t length;
	struct pl_region *region;
	uint8_t *memory;
	void *address; /* what is registered: bytes, or where they are on the GPU */
	void *device;  /* GPU memory, or NULL */
};

/*
 * Whether buffer_open() has the library allocate the memory, in whole pages, instead of registering what was
 * allocated here.  It then goes with its region.  Set before anything is opened.
 */
extern bool buffers_allocated;

/* Allocates, fills with POISON and registers. */
void buffer_open(struct buffer *buffer, struct pl_context *context, size_t length, unsigned access);
/* The same without a registration. */
void buffer_open_bare(struct buffer *buffer, size_t length);
/* Checks the guard bytes, deregisters (which must succeed) and frees. */
void buffer_close(struct buffer *buffer);
/* The same for a buffer whose context is closed already. */
void buffer_close_bare(struct buffer *buffer);
void buffer_check_guards(const struct buffer *buffer);

/* Byte `position + i` of the endless pattern number `seed` goes to bytes[i]. */
void pattern_fill(uint8_t *bytes, size_t length, uint64_t seed, uint64_t position);
void pattern_check_at(const char *file, int line, const uint8_t *bytes, size_t length, uint64_t seed,
		      uint64_t position);
bool pattern_matches(const uint8_t *bytes, size_t length, uint64_t seed, uint64_t position);
void value_check_at(const char *file, int line, const uint8_t *bytes, size_t length, uint8_t value);

#define pattern_check(bytes, length, seed, position) pattern_check_at(__FILE__, __LINE__, bytes, length, seed, position)
#define value_check(bytes, length, value) value_check_at(__FILE__, __LINE__, bytes, length, value)

/* memset(3), memcpy(3) into and out of it, and memcmp(3), for buffers anywhere. */
void bytes_set(uint8_t *bytes, uint8_t value, size_t length);
void bytes_put(uint8_t *bytes, const void *from, size_t length);
void bytes_get(const uint8_t *bytes, void *to, size_t length);
bool bytes_equal(const uint8_t *bytes, const void *with, size_t length);

/* Whether a byte has the value; memory that others write meanwhile may be looked at. */
bool bytes_contain(const uint8_t *bytes, size_t length, uint8_t value);

/* Tells contents apart without keeping a copy. */
uint64_t bytes_digest(const uint8_t *bytes, size_t length);

/* A small deterministic generator: the same seed gives the same numbers everywhere. */
uint64_t random_next(uint64_t *state);

#endif
