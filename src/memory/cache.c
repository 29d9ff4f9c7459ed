/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranges in order of their first byte, in chunks of a few dozen: a search touches the chunks' first bytes, which
 * the processor has in its cache, and then one chunk.  Ranges may overlap; each chunk knows how far its ranges
 * reach, so that a range that begins long before is found, too.
 *
 * Before that search a table is asked which range held a page when it was last found.  It forgets what falls out of
 * it; what is forgotten is found by the search.
 */
#include <sys/mman.h>

#include "base/lock.h"
#include "memory/cache.h"

#define CHUNK_MAX 32u

struct chunk {
	unsigned count;
	uintptr_t begins[CHUNK_MAX];
	uintptr_t ends[CHUNK_MAX];
	struct pl_cached *entries[CHUNK_MAX];
};

/* Of pages, in buckets that fill a line of the processor's cache. */
#define PAGE_SHIFT 12
#define WAYS 4u
#define BUCKETS_MIN 64u

struct bucket {
	struct {
		uintptr_t page;
		struct pl_cached *cached; /* NULL: none */
	} ways[WAYS];
} __attribute__((aligned(64)));

struct pl_cache {
	struct pl_allocator allocator;
	void (*release)(struct pl_cached *);
	size_t limit, idle, count;
	struct pl_lock lock;
	struct bucket *buckets; /* a power of two; NULL: none yet, or no memory */
	void *bucket_memory;
	size_t bucket_count;
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
	pl_lock_init(&cache->lock);
	pl_list_init(&cache->unused);
	return cache;
}

/* -- pages of which it is known what held them; under the lock ------------------------------------------- */

static size_t bucket_of(uintptr_t page, size_t count)
{
	return (size_t)((page * 0x9e3779b97f4a7c15ull) >> 32) & (count - 1);
}

/* What held the range the last time, if it does, and is of that allocation. */
static struct pl_cached *recall(const struct pl_cache *cache, uintptr_t begin, uintptr_t end, uint64_t identity)
{
	uintptr_t page = begin >> PAGE_SHIFT;
	const struct bucket *bucket;

	if (!cache->buckets)
		return NULL;
	bucket = &cache->buckets[bucket_of(page, cache->bucket_count)];
	for (unsigned i = 0; i < WAYS; i++) {
		struct pl_cached *cached = bucket->ways[i].cached;

		if (bucket->ways[i].page == page && cached && cached->begin <= begin && end <= cached->end &&
		    cached->identity == identity)
			return cached;
	}
	return NULL;
}

static void remember(struct pl_cache *cache, uintptr_t begin, struct pl_cached *cached)
{
	uintptr_t page = begin >> PAGE_SHIFT;
	struct bucket *bucket;
	unsigned way = 0;

	if (!cache->buckets)
		return;
	bucket = &cache->buckets[bucket_of(page, cache->bucket_count)];
	while (way < WAYS && bucket->ways[way].cached && bucket->ways[way].page != page)
		way++;
	if (way == WAYS)
		way = page % WAYS;
	bucket->ways[way].page = page;
	bucket->ways[way].cached = cached;
}

static void forget_pages(struct pl_cache *cache, const struct pl_cached *cached)
{
	uintptr_t first = cached->begin >> PAGE_SHIFT, last = (cached->end - 1) >> PAGE_SHIFT;

	if (!cache->buckets)
		return;
	if (last - first >= cache->bucket_count) {
		memset(cache->buckets, 0, cache->bucket_count * sizeof(*cache->buckets));
		return;
	}
	for (uintptr_t page = first; page <= last; page++) {
		struct bucket *bucket = &cache->buckets[bucket_of(page, cache->bucket_count)];

		for (unsigned i = 0; i < WAYS; i++)
			if (bucket->ways[i].cached == cached)
				bucket->ways[i].cached = NULL;
	}
}

/* Where they are pages of the processor's: what is asked at random costs little only if the TLB has it. */
static void use_large_pages(void *memory, size_t size)
{
	const uintptr_t large = (uintptr_t)2 << 20;
	uintptr_t begin = ((uintptr_t)memory + large - 1) & ~(large - 1),
		  end = ((uintptr_t)memory + size) & ~(large - 1);

	if (end > begin)
		madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

/* As many pages as there are ranges at least, or none if there is no memory. */
static void grow_pages(struct pl_cache *cache)
{
	size_t count = PL_MAX(cache->bucket_count * 2, (size_t)BUCKETS_MIN);
	void *memory;

	if (cache->count * 2 < cache->bucket_count * WAYS)
		return;
	memory = pl_alloc(&cache->allocator, (count + 1) * sizeof(struct bucket));
	if (!memory)
		return;
	use_large_pages(memory, (count + 1) * sizeof(struct bucket));
	memset(memory, 0, (count + 1) * sizeof(struct bucket));
	pl_free(&cache->allocator, cache->bucket_memory);
	cache->bucket_memory = memory;
	cache->buckets = (struct bucket *)(((uintptr_t)memory + sizeof(struct bucket) - 1) &
					   ~(uintptr_t)(sizeof(struct bucket) - 1));
	cache->bucket_count = count;
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
	grow_pages(cache);
	return 0;
}

static void remove_at(struct pl_cache *cache, size_t place, unsigned at)
{
	struct chunk *chunk = cache->chunks[place];

	chunk->entries[at]->present = false;
	forget_pages(cache, chunk->entries[at]);
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
	pl_lock_take(&cache->lock);
	found = recall(cache, begin, end, identity);
	if (!found) {
		while ((found = find(cache, begin, end)) && found->identity != identity)
			outdate(cache, found, &gone);
		if (found)
			remember(cache, begin, found);
	}
	if (found && found->users++ == 0) {
		pl_list_remove(&found->link);
		cache->idle -= found->end - found->begin;
	}
	pl_lock_release(&cache->lock);
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
	pl_lock_take(&cache->lock);
	rc = insert(cache, cached);
	pl_lock_release(&cache->lock);
	return rc;
}

void pl_cache_give(struct pl_cache *cache, struct pl_cached *cached)
{
	struct pl_list gone;

	pl_list_init(&gone);
	pl_lock_take(&cache->lock);
	if (--cached->users == 0) {
		pl_list_append(&cache->unused, &cached->link);
		cache->idle += cached->end - cached->begin;
		if (!cached->present)
			evict(cache, cached, &gone);
		while (cache->idle > cache->limit)
			outdate(cache, pl_list_first(&cache->unused, struct pl_cached, link), &gone);
	}
	pl_lock_release(&cache->lock);
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
	pl_lock_take(&cache->lock);
	while ((found = overlapping(cache, begin, begin + length)))
		outdate(cache, found, &gone);
	pl_lock_release(&cache->lock);
	release_all(cache, &gone);
}

size_t pl_cache_count(struct pl_cache *cache)
{
	size_t count;

	pl_lock_take(&cache->lock);
	count = cache->count;
	pl_lock_release(&cache->lock);
	return count;
}

size_t pl_cache_idle_bytes(struct pl_cache *cache)
{
	size_t bytes;

	pl_lock_take(&cache->lock);
	bytes = cache->idle;
	pl_lock_release(&cache->lock);
	return bytes;
}

void pl_cache_close(struct pl_cache *cache)
{
	if (!cache)
		return;
	pl_cache_invalidate(cache, NULL, SIZE_MAX);
	pl_free(&cache->allocator, cache->bucket_memory);
	pl_free(&cache->allocator, cache->firsts);
	pl_free(&cache->allocator, cache->reaches);
	pl_free(&cache->allocator, cache->chunks);
	pl_free(&cache->allocator, cache);
}
