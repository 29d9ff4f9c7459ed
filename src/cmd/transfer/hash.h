/* SPDX-License-Identifier: BSD-2-Clause */
/* XXH3-128 of memory and of files. */
#ifndef PL_CLI_HASH_H
#define PL_CLI_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

#define HASH_TEXT_MAX 33

struct hash {
	uint64_t low, high;
};

struct hash_state; /* of a hash under way */

struct hash_state *hash_begin(void); /* NULL: no memory */
void hash_add(struct hash_state *state, const void *data, size_t length);
/* Adds a range of a file by read calls, which, unlike a mapping, survive that it is cut.  -ESTALE if it is shorter. */
int hash_add_file(struct hash_state *state, int fd, uint64_t offset, uint64_t length);
struct hash hash_end(struct hash_state *state);
void hash_discard(struct hash_state *state); /* NULL is accepted */

struct hash hash_memory(const void *data, size_t length);
bool hash_equal(struct hash a, struct hash b);
/* 32 hexadecimal digits, as xxhsum -H2 prints it. Returns buffer. */
const char *hash_format(struct hash hash, char buffer[HASH_TEXT_MAX]);
/* For identities: 64 bits of a few bytes. */
uint64_t hash_small(const void *data, size_t length);

#endif
