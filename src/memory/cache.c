/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranges in order of their first byte, in chunks of a few dozen: a search touches the chunks' first bytes, which
 * the processor has in its cache, and then one chunk.  Ranges may overlap; each chunk knows how far its ranges
 * reach, so that a range that begins long before is found, too.
 */
#include "memory/cache.h"

#define CHUNK_MAX 32u

struct chunk {
	unsigned count;
	uintptr_t begins[CHUNK_MAX];
	uintptr_t ends[CHUNK_MAX];
	struct pl_cached *entries[CHUNK_MAX];
};

struct pl_cache {
	struct pl_allocator allocator;
	void (*release)(struct pl_cached *);
	size_t limit, idle, count;
	pthread_mutex_t lock;
	struct pl_list unused; /* the oldest first */
	uintptr_t *firsts;     /* of each chunk: where its first range begins, */
	uintptr_t *reaches;    /* and the highest end of a range in it or in a chunk before */
	struct chunk **chunks;
	size_t chunk_count, chunk_room;
};

struct pl_cache *pl_cache_new(const struct pl_allocator *allocator, size_t limit, void (*release)(struct pl_cached *))
{
	struct pl_cache *cache = pl_zalloc(allocator, sizeof(*cache));

	if (!cache)
		return NULL;
	cache->allocator = *allocator;
	cache->release = release;
	cache->limit = limit;
	pthread_mutex_init(&cache->lock, NULL);
	pl_list_init(&cache->unused);
	return cache;
}

/* -- the ranges; under the lock ----------------------------------------------------------------------- */

/* How many of `count` sorted numbers are at most `value`; without branches that the processor would guess. */
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

/* The reaches of chunks from one on, after it changed. */
static void reach_again(struct pl_cache *cache, size_t from)
{
	uintptr_t reach = from ? cache->reaches[from - 1] : 0;

	for (size_t i = from; i < cache->chunk_count; i++) {
		const struct chunk *chunk = cache->chunks[i];

		for (unsigned j = 0; j < chunk->count; j++)
			reach = PL_MAX(reach, chunk->ends[j]);
		if (i > from && reach == cache->reaches[i])
			return;
		cache->reaches[i] = reach;
	}
}

/* Makes room for one more chunk at a place. */
static int insert_chunk(struct pl_cache *cache, size_t at)
{
	struct chunk *made;

	if (cache->chunk_count == cache->chunk_room) {
		size_t room = PL_MAX(cache->chunk_room * 2, (size_t)16);
		uintptr_t *firsts = pl_realloc(&cache->allocator, cache->firsts, room * sizeof(*firsts));
		uintptr_t *reaches;
		struct chunk **chunks;

		if (!firsts)
			return -ENOMEM;
		cache->firsts = firsts;
		reaches = pl_realloc(&cache->allocator, cache->reaches, room * sizeof(*reaches));
		if (!reaches)
			return -ENOMEM;
		cache->reaches = reaches;
		chunks = pl_realloc(&cache->allocator, cache->chunks, room * sizeof(*chunks));
		if (!chunks)
			return -ENOMEM;
		cache->chunks = chunks;
		cache->chunk_room = room;
	}
	made = pl_zalloc(&cache->allocator, sizeof(*made));
	if (!made)
		return -ENOMEM;
	memmove(cache->firsts + at + 1, cache->firsts + at, (cache->chunk_count - at) * sizeof(*cache->firsts));
	memmove(cache->reaches + at + 1, cache->reaches + at, (cache->chunk_count - at) * sizeof(*cache->reaches));
	memmove(cache->chunks + at + 1, cache->chunks + at, (cache->chunk_count - at) * sizeof(*cache->chunks));
	cache->chunks[at] = made;
	cache->firsts[at] = 0;
	cache->reaches[at] = at ? cache->reaches[at - 1] : 0;
	cache->chunk_count++;
	return 0;
}

static void move_entries(struct chunk *to, unsigned to_at, const struct chunk *from, unsigned from_at, unsigned count)
{
	memmove(to->begins + to_at, from->begins + from_at, count * sizeof(*to->begins));
	memmove(to->ends + to_at, from->ends + from_at, count * sizeof(*to->ends));
	memmove(to->entries + to_at, from->entries + from_at, count * sizeof(*to->entries));
}

static int split(struct pl_cache *cache, size_t at)
{
	struct chunk *full = cache->chunks[at], *half;
	int rc = insert_chunk(cache, at + 1);

	if (rc < 0)
		return rc;
	half = cache->chunks[at + 1];
	half->count = CHUNK_MAX / 2;
	full->count = CHUNK_MAX - half->count;
	move_entries(half, 0, full, full->count, half->count);
	cache->firsts[at + 1] = half->begins[0];
	reach_again(cache, at);
	return 0;
}

/* The chunk that a range which begins there belongs into. */
static size_t chunk_of(const struct pl_cache *cache, uintptr_t begin)
{
	size_t place = up_to(cache->firsts, cache->chunk_count, begin);

	return place ? place - 1 : 0;
}

static int insert(struct pl_cache *cache, struct pl_cached *cached)
{
	size_t place = chunk_of(cache, cached->begin);
	struct chunk *chunk;
	unsigned at;
	int rc = 0;

	if (!cache->chunk_count)
		rc = insert_chunk(cache, 0);
	else if (cache->chunks[place]->count == CHUNK_MAX)
		rc = split(cache, place);
	if (rc < 0)
		return rc;
	place = chunk_of(cache, cached->begin);
	chunk = cache->chunks[place];
	at = (unsigned)up_to(chunk->begins, chunk->count, cached->begin);
	move_entries(chunk, at + 1, chunk, at, chunk->count - at);
	chunk->begins[at] = cached->begin;
	chunk->ends[at] = cached->end;
	chunk->entries[at] = cached;
	chunk->count++;
	cache->firsts[place] = chunk->begins[0];
	for (size_t i = place; i < cache->chunk_count && cache->reaches[i] < cached->end; i++)
		cache->reaches[i] = cached->end;
	cached->present = true;
	cache->count++;
	return 0;
}

static void remove_at(struct pl_cache *cache, size_t place, unsigned at)
{
	struct chunk *chunk = cache->chunks[place];

	chunk->entries[at]->present = false;
	cache->count--;
	chunk->count--;
	move_entries(chunk, at, chunk, at + 1, chunk->count - at);
	if (chunk->count) {
		cache->firsts[place] = chunk->begins[0];
	} else {
		pl_free(&cache->allocator, chunk);
		cache->chunk_count--;
		memmove(cache->firsts + place, cache->firsts + place + 1,
			(cache->chunk_count - place) * sizeof(*cache->firsts));
		memmove(cache->reaches + place, cache->reaches + place + 1,
			(cache->chunk_count - place) * sizeof(*cache->reaches));
		memmove(cache->chunks + place, cache->chunks + place + 1,
			(cache->chunk_count - place) * sizeof(*cache->chunks));
	}
	reach_again(cache, place);
}

static void forget(struct pl_cache *cache, struct pl_cached *cached)
{
	for (size_t place = chunk_of(cache, cached->begin);; place--) {
		const struct chunk *chunk = cache->chunks[place];

		for (unsigned at = 0; at < chunk->count; at++) {
			if (chunk->entries[at] == cached) {
				remove_at(cache, place, at);
				return;
			}
		}
		/* Equal beginnings may lie on both sides of a seam. */
		if (place == 0)
			return;
	}
}

/* Takes an unused entry out, to be released. */
static void evict(struct pl_cache *cache, struct pl_cached *cached, struct pl_list *gone)
{
	pl_list_remove(&cached->link);
	cache->idle -= cached->end - cached->begin;
	pl_list_append(gone, &cached->link);
}

/* Found no more; released now or by the last who uses it. */
static void outdate(struct pl_cache *cache, struct pl_cached *cached, struct pl_list *gone)
{
	forget(cache, cached);
	if (!cached->users)
		evict(cache, cached, gone);
}

static void release_all(struct pl_cache *cache, struct pl_list *gone)
{
	while (!pl_list_empty(gone)) {
		struct pl_cached *cached = pl_list_first(gone, struct pl_cached, link);

		pl_list_remove(&cached->link);
		cache->release(cached);
	}
}

/* The last entry, in order, that ends after `end` of those that begin up to `begin`; NULL: there is none. */
static struct pl_cached *find(const struct pl_cache *cache, uintptr_t begin, uintptr_t end)
{
	size_t place = up_to(cache->firsts, cache->chunk_count, begin);

	while (place-- && cache->reaches[place] >= end) {
		const struct chunk *chunk = cache->chunks[place];

		for (size_t at = up_to(chunk->begins, chunk->count, begin); at--;)
			if (chunk->ends[at] >= end)
				return chunk->entries[at];
	}
	return NULL;
}

/* -- calls -------------------------------------------------------------------------------------------- */

struct pl_cached *pl_cache_take(struct pl_cache *cache, const void *address, size_t length, uint64_t identity)
{
	uintptr_t begin = (uintptr_t)address, end = begin + length;
	struct pl_cached *found;
	struct pl_list gone;

	pl_list_init(&gone);
	pthread_mutex_lock(&cache->lock);
	while ((found = find(cache, begin, end)) && found->identity != identity)
		outdate(cache, found, &gone);
	if (found && found->users++ == 0) {
		pl_list_remove(&found->link);
		cache->idle -= found->end - found->begin;
	}
	pthread_mutex_unlock(&cache->lock);
	release_all(cache, &gone);
	return found;
}

int pl_cache_add(struct pl_cache *cache, struct pl_cached *cached, const void *address, size_t length,
		 uint64_t identity)
{
	int rc;

	*cached = (struct pl_cached){
		.begin = (uintptr_t)address,
		.end = (uintptr_t)address + length,
		.identity = identity,
		.users = 1,
	};
	pl_list_init(&cached->link);
	pthread_mutex_lock(&cache->lock);
	rc = insert(cache, cached);
	pthread_mutex_unlock(&cache->lock);
	return rc;
}

void pl_cache_give(struct pl_cache *cache, struct pl_cached *cached)
{
	struct pl_list gone;

	pl_list_init(&gone);
	pthread_mutex_lock(&cache->lock);
	if (--cached->users == 0) {
		pl_list_append(&cache->unused, &cached->link);
		cache->idle += cached->end - cached->begin;
		if (!cached->present)
			evict(cache, cached, &gone);
		while (cache->idle > cache->limit)
			outdate(cache, pl_list_first(&cache->unused, struct pl_cached, link), &gone);
	}
	pthread_mutex_unlock(&cache->lock);
	release_all(cache, &gone);
}

/* An entry that has a byte in common with a range; NULL: none. */
static struct pl_cached *overlapping(const struct pl_cache *cache, uintptr_t begin, uintptr_t end)
{
	return end > begin ? find(cache, end - 1, begin + 1) : NULL;
}

void pl_cache_invalidate(struct pl_cache *cache, const void *address, size_t length)
{
	uintptr_t begin = (uintptr_t)address;
	struct pl_cached *found;
	struct pl_list gone;

	pl_list_init(&gone);
	pthread_mutex_lock(&cache->lock);
	while ((found = overlapping(cache, begin, begin + length)))
		outdate(cache, found, &gone);
	pthread_mutex_unlock(&cache->lock);
	release_all(cache, &gone);
}

size_t pl_cache_count(struct pl_cache *cache)
{
	size_t count;

	pthread_mutex_lock(&cache->lock);
	count = cache->count;
	pthread_mutex_unlock(&cache->lock);
	return count;
}

size_t pl_cache_idle_bytes(struct pl_cache *cache)
{
	size_t bytes;

	pthread_mutex_lock(&cache->lock);
	bytes = cache->idle;
	pthread_mutex_unlock(&cache->lock);
	return bytes;
}

void pl_cache_close(struct pl_cache *cache)
{
	if (!cache)
		return;
	pl_cache_invalidate(cache, NULL, SIZE_MAX);
	pthread_mutex_destroy(&cache->lock);
	pl_free(&cache->allocator, cache->firsts);
	pl_free(&cache->allocator, cache->reaches);
	pl_free(&cache->allocator, cache->chunks);
	pl_free(&cache->allocator, cache);
}
