/* SPDX-License-Identifier: BSD-2-Clause */
/* XXH3-128 hashes of memory and files. */
#ifndef PL_CMD_TRANSFER_HASH_H
#define PL_CMD_TRANSFER_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

#define HASH_TEXT_MAX 33

struct hash {
	uint64_t low, high;
};

struct hash_state; /* unfinished hash */

/* Returns NULL if out of memory. */
struct hash_state *hash_begin(void);
void hash_add(struct hash_state *state, const void *data, size_t length);
/* Adds zeros: the bytes of a hole. */
void hash_add_zeros(struct hash_state *state, uint64_t length);
/*
 * Adds a range of a file with pread(2), which does not fault on a truncated file.  Holes are not read.  Returns -ESTALE if
 * the file is too short.
 */
int hash_add_file(struct hash_state *state, int fd, uint64_t offset, uint64_t length);
/* Returns the hash and frees the state. */
struct hash hash_end(struct hash_state *state);
/* Frees the state; accepts NULL. */
void hash_discard(struct hash_state *state);

struct hash hash_memory(const void *data, size_t length);
bool hash_equal(struct hash a, struct hash b);
/* Formats the hash as 32 hexadecimal digits, like `xxhsum -H2`.  Returns buffer. */
const char *hash_format(struct hash hash, char buffer[HASH_TEXT_MAX]);
/* Returns a hash of 64 bits, for short keys. */
uint64_t hash_small(const void *data, size_t length);

#endif
