/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Small enough to stay in the CPU cache between pread(2) and the hash. */
#define PIECE (256 * 1024)
/* Bytes between two looks for a hole. */
#define DATA_PIECE (4ull << 20)

struct hash_state {
	XXH3_state_t *state;
	uint8_t piece[PIECE];
};

struct hash_state *hash_begin(void)
{
	struct hash_state *state = malloc(sizeof(*state));

	if (!state)
		return NULL;
	state->state = XXH3_createState();
	if (!state->state) {
		free(state);
		return NULL;
	}
	XXH3_128bits_reset(state->state);
	return state;
}

void hash_add(struct hash_state *state, const void *data, size_t length)
{
	XXH3_128bits_update(state->state, data, length);
}

void hash_add_zeros(struct hash_state *state, uint64_t length)
{
	static const uint8_t zeros[PIECE];

	for (; length > PIECE; length -= PIECE)
		hash_add(state, zeros, PIECE);
	hash_add(state, zeros, length);
}

/* True if a file ends before this offset, also if it has none. */
static bool file_ends_before(int fd, uint64_t offset)
{
	struct stat status;

	return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (uint64_t)status.st_size < offset;
}

/* Returns the number of bytes of a hole at an offset, at most `most`.  0: there is data, or nobody knows. */
static uint64_t hole_length(int fd, uint64_t offset, uint64_t most)
{
	off_t data = lseek(fd, (off_t)offset, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? most : 0;
	return (uint64_t)data <= offset ? 0 : (uint64_t)data - offset < most ? (uint64_t)data - offset : most;
}

/* Adds bytes up to the next hole, or more. */
static int hash_add_data(struct hash_state *state, int fd, uint64_t offset, uint64_t length)
{
	while (length) {
		ssize_t got = pread(fd, state->piece, length < PIECE ? length : PIECE, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -ESTALE;
		hash_add(state, state->piece, (size_t)got);
		offset += (uint64_t)got;
		length -= (uint64_t)got;
	}
	return 0;
}

int hash_add_file(struct hash_state *state, int fd, uint64_t offset, uint64_t length)
{
	uint64_t end = offset + length;
	int rc = 0;

	/* Behind its end, a file looks like one with a hole. */
	if (file_ends_before(fd, end))
		return -ESTALE;
	while (offset < end && rc == 0) {
		uint64_t hole = hole_length(fd, offset, end - offset);
		uint64_t data = end - offset - hole < DATA_PIECE ? end - offset - hole : DATA_PIECE;

		hash_add_zeros(state, hole);
		offset += hole;
		if (offset < end)
			rc = hash_add_data(state, fd, offset, data);
		offset += data;
	}
	return rc == 0 && file_ends_before(fd, end) ? -ESTALE : rc;
}

struct hash hash_end(struct hash_state *state)
{
	XXH128_hash_t hash = XXH3_128bits_digest(state->state);

	hash_discard(state);
	return (struct hash){ hash.low64, hash.high64 };
}

void hash_discard(struct hash_state *state)
{
	if (!state)
		return;
	XXH3_freeState(state->state);
	free(state);
}

struct hash hash_memory(const void *data, size_t length)
{
	XXH128_hash_t hash = XXH3_128bits(data, length);

	return (struct hash){ hash.low64, hash.high64 };
}

bool hash_equal(struct hash a, struct hash b)
{
	return a.low == b.low && a.high == b.high;
}

const char *hash_format(struct hash hash, char buffer[HASH_TEXT_MAX])
{
	snprintf(buffer, HASH_TEXT_MAX, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
	return buffer;
}

uint64_t hash_small(const void *data, size_t length)
{
	return XXH64(data, length, 0);
}
