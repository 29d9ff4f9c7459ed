/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranges in order of their first byte, in chunks of a few dozen. A search reads the chunks' first bytes, which stay in
 * the processor's cache, and then one chunk. Each chunk stores the highest end of its ranges and all before, so that a
 * range that begins far before is found.
 */
#include "memory/range_set.h"

#define CHUNK_MAX 32u

struct pl_range_set_chunk {
	unsigned count;
	uintptr_t begins[CHUNK_MAX];
	uintptr_t ends[CHUNK_MAX];
	void *owners[CHUNK_MAX];
};

void pl_range_set_init(struct pl_range_set *ranges, const struct pl_allocator *allocator)
{
	*ranges = (struct pl_range_set){ .allocator = *allocator };
}

void pl_range_set_clear(struct pl_range_set *ranges)
{
	for (size_t i = 0; i < ranges->chunk_count; i++)
		pl_free(&ranges->allocator, ranges->chunks[i]);
	pl_free(&ranges->allocator, ranges->firsts);
	pl_free(&ranges->allocator, ranges->reaches);
	pl_free(&ranges->allocator, ranges->chunks);
	*ranges = (struct pl_range_set){ .allocator = ranges->allocator };
}

/* Returns the number of sorted numbers that are at most `value`; without unpredictable branches. */
static size_t up_to(const uintptr_t *numbers, size_t count, uintptr_t value)
{
	const uintptr_t *base = numbers;

	if (!count)
		return 0;
	while (count > 1) {
		size_t half = count / 2;

		base = base[half] <= value ? base + half : base;
		count -= half;
	}
	return (size_t)(base - numbers) + (*base <= value);
}

/* Updates the reaches of all chunks from a changed one on. */
static void reach_again(struct pl_range_set *ranges, size_t from)
{
	uintptr_t reach = from ? ranges->reaches[from - 1] : 0;

	for (size_t i = from; i < ranges->chunk_count; i++) {
		const struct pl_range_set_chunk *chunk = ranges->chunks[i];

		for (unsigned j = 0; j < chunk->count; j++)
			reach = PL_MAX(reach, chunk->ends[j]);
		if (i > from && reach == ranges->reaches[i])
			return;
		ranges->reaches[i] = reach;
	}
}

/* Inserts a chunk at an index. */
static int insert_chunk(struct pl_range_set *ranges, size_t at)
{
	struct pl_range_set_chunk *made;

	if (ranges->chunk_count == ranges->chunk_room) {
		size_t room = PL_MAX(ranges->chunk_room * 2, (size_t)16);
		uintptr_t *firsts = pl_realloc(&ranges->allocator, ranges->firsts, room * sizeof(*firsts));
		uintptr_t *reaches;
		struct pl_range_set_chunk **chunks;

		if (!firsts)
			return -ENOMEM;
		ranges->firsts = firsts;
		reaches = pl_realloc(&ranges->allocator, ranges->reaches, room * sizeof(*reaches));
		if (!reaches)
			return -ENOMEM;
		ranges->reaches = reaches;
		chunks = pl_realloc(&ranges->allocator, ranges->chunks, room * sizeof(*chunks));
		if (!chunks)
			return -ENOMEM;
		ranges->chunks = chunks;
		ranges->chunk_room = room;
	}
	made = pl_zalloc(&ranges->allocator, sizeof(*made));
	if (!made)
		return -ENOMEM;
	memmove(ranges->firsts + at + 1, ranges->firsts + at, (ranges->chunk_count - at) * sizeof(*ranges->firsts));
	memmove(ranges->reaches + at + 1, ranges->reaches + at, (ranges->chunk_count - at) * sizeof(*ranges->reaches));
	memmove(ranges->chunks + at + 1, ranges->chunks + at, (ranges->chunk_count - at) * sizeof(*ranges->chunks));
	ranges->chunks[at] = made;
	ranges->firsts[at] = 0;
	ranges->reaches[at] = at ? ranges->reaches[at - 1] : 0;
	ranges->chunk_count++;
	return 0;
}

static void move_ranges(struct pl_range_set_chunk *to, unsigned to_at, const struct pl_range_set_chunk *from,
			unsigned from_at, unsigned count)
{
	memmove(to->begins + to_at, from->begins + from_at, count * sizeof(*to->begins));
	memmove(to->ends + to_at, from->ends + from_at, count * sizeof(*to->ends));
	memmove(to->owners + to_at, from->owners + from_at, count * sizeof(*to->owners));
}

static int split(struct pl_range_set *ranges, size_t at)
{
	struct pl_range_set_chunk *full = ranges->chunks[at], *half;
	int rc = insert_chunk(ranges, at + 1);

	if (rc < 0)
		return rc;
	half = ranges->chunks[at + 1];
	half->count = CHUNK_MAX / 2;
	full->count = CHUNK_MAX - half->count;
	move_ranges(half, 0, full, full->count, half->count);
	ranges->firsts[at + 1] = half->begins[0];
	reach_again(ranges, at);
	return 0;
}

/* Returns the chunk for a range that begins there. */
static size_t chunk_of(const struct pl_range_set *ranges, uintptr_t begin)
{
	size_t index = up_to(ranges->firsts, ranges->chunk_count, begin);

	return index ? index - 1 : 0;
}

int pl_range_set_insert(struct pl_range_set *ranges, uintptr_t begin, uintptr_t end, void *owner)
{
	size_t index = chunk_of(ranges, begin);
	struct pl_range_set_chunk *chunk;
	unsigned at;
	int rc = 0;

	if (!ranges->chunk_count)
		rc = insert_chunk(ranges, 0);
	else if (ranges->chunks[index]->count == CHUNK_MAX)
		rc = split(ranges, index);
	if (rc < 0)
		return rc;
	index = chunk_of(ranges, begin);
	chunk = ranges->chunks[index];
	at = (unsigned)up_to(chunk->begins, chunk->count, begin);
	move_ranges(chunk, at + 1, chunk, at, chunk->count - at);
	chunk->begins[at] = begin;
	chunk->ends[at] = end;
	chunk->owners[at] = owner;
	chunk->count++;
	ranges->firsts[index] = chunk->begins[0];
	for (size_t i = index; i < ranges->chunk_count && ranges->reaches[i] < end; i++)
		ranges->reaches[i] = end;
	ranges->count++;
	return 0;
}

static void remove_at(struct pl_range_set *ranges, size_t index, unsigned at)
{
	struct pl_range_set_chunk *chunk = ranges->chunks[index];

	ranges->count--;
	chunk->count--;
	move_ranges(chunk, at, chunk, at + 1, chunk->count - at);
	if (chunk->count) {
		ranges->firsts[index] = chunk->begins[0];
	} else {
		pl_free(&ranges->allocator, chunk);
		ranges->chunk_count--;
		memmove(ranges->firsts + index, ranges->firsts + index + 1,
			(ranges->chunk_count - index) * sizeof(*ranges->firsts));
		memmove(ranges->reaches + index, ranges->reaches + index + 1,
			(ranges->chunk_count - index) * sizeof(*ranges->reaches));
		memmove(ranges->chunks + index, ranges->chunks + index + 1,
			(ranges->chunk_count - index) * sizeof(*ranges->chunks));
	}
	reach_again(ranges, index);
}

void pl_range_set_remove(struct pl_range_set *ranges, uintptr_t begin, const void *owner)
{
	for (size_t index = chunk_of(ranges, begin);; index--) {
		const struct pl_range_set_chunk *chunk = ranges->chunks[index];

		for (unsigned at = 0; at < chunk->count; at++) {
			if (chunk->owners[at] == owner) {
				remove_at(ranges, index, at);
				return;
			}
		}
		/* Ranges with equal beginnings may be in two adjacent chunks. */
		if (index == 0)
			return;
	}
}

void *pl_range_set_find(const struct pl_range_set *ranges, uintptr_t begin, uintptr_t end)
{
	size_t index = up_to(ranges->firsts, ranges->chunk_count, begin);

	while (index-- && ranges->reaches[index] >= end) {
		const struct pl_range_set_chunk *chunk = ranges->chunks[index];

		for (size_t at = up_to(chunk->begins, chunk->count, begin); at--;)
			if (chunk->ends[at] >= end)
				return chunk->owners[at];
	}
	return NULL;
}

void pl_range_set_each(const struct pl_range_set *ranges, void (*call)(void *owner, void *user), void *user)
{
	for (size_t i = 0; i < ranges->chunk_count; i++)
		for (unsigned at = 0; at < ranges->chunks[i]->count; at++)
			call(ranges->chunks[i]->owners[at], user);
}
