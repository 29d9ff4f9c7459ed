/* SPDX-License-Identifier: BSD-2-Clause */
/* Registered buffers with guard bytes around them and distinguishable contents. */
#ifndef TEST_BUFFER_H
#define TEST_BUFFER_H

#include "support/check.h"

#define BUFFER_GUARD 256
/* Byte value that no pattern contains: pattern bytes have their high bit clear. */
#define POISON 0xee

struct buffer {
	uint8_t *bytes; /* aligned to 64; for a GPU buffer its host mirror, which only the functions below may touch */
	size_t length;
	struct pl_region *region;
	uint8_t *memory;
	void *address; /* registered address: `bytes`, or the GPU address */
	void *device;  /* GPU memory, or NULL */
};

/*
 * True if buffer_open() lets the library allocate the memory, in whole pages.  False if buffer_open() allocates and
 * registers the memory.  Library memory goes with its region.  Set this variable before the first buffer_open().
 */
extern bool buffers_allocated;

/* Allocates, fills with POISON and registers a buffer. */
void buffer_open(struct buffer *buffer, struct pl_context *context, size_t length, unsigned access);
/* Allocates and fills a buffer, without registration. */
void buffer_open_bare(struct buffer *buffer, size_t length);
/* Checks the guard bytes, deregisters the region, which must succeed, and frees the buffer. */
void buffer_close(struct buffer *buffer);
/* Checks the guard bytes and frees a buffer of a closed context. */
void buffer_close_bare(struct buffer *buffer);
void buffer_check_guards(const struct buffer *buffer);

/* Fills bytes[i] with byte `position + i` of the endless pattern number `seed`. */
void pattern_fill(uint8_t *bytes, size_t length, uint64_t seed, uint64_t position);
/* Same from position 0, for memory that a transfer may read at the same time. ThreadSanitizer does not see the stores. */
void pattern_fill_shared(uint8_t *bytes, size_t length, uint64_t seed);
void pattern_check_at(const char *file, int line, const uint8_t *bytes, size_t length, uint64_t seed,
		      uint64_t position);
bool pattern_matches(const uint8_t *bytes, size_t length, uint64_t seed, uint64_t position);
void value_check_at(const char *file, int line, const uint8_t *bytes, size_t length, uint8_t value);

#define pattern_check(bytes, length, seed, position) pattern_check_at(__FILE__, __LINE__, bytes, length, seed, position)
#define value_check(bytes, length, value) value_check_at(__FILE__, __LINE__, bytes, length, value)

/* Replace memset(3), memcpy(3) in both directions and memcmp(3), for buffers in host or GPU memory. */
void bytes_set(uint8_t *bytes, uint8_t value, size_t length);
void bytes_put(uint8_t *bytes, const void *from, size_t length);
void bytes_get(const uint8_t *bytes, void *to, size_t length);
bool bytes_equal(const uint8_t *bytes, const void *with, size_t length);

/* Returns true if a byte has the value.  Other threads may write the memory meanwhile. */
bool bytes_contain(const uint8_t *bytes, size_t length, uint8_t value);

/* Returns a digest that tells contents apart without a copy of them. */
uint64_t bytes_digest(const uint8_t *bytes, size_t length);

/* Returns the next number of a small deterministic generator: a seed gives the same numbers on every machine. */
uint64_t random_next(uint64_t *state);

#endif
