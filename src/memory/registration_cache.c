/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All entries are in a set of ranges, under a lock. In front of it is a table of recent hits by page (page_hints.c).
 * Entries are never freed while the cache exists, so even an outdated hint can be followed without a lock; an entry
 * taken into use is compared with the request. Only a miss needs the set.
 *
 * A hundred thousand entries are found fast as long as the memory read for that stays in the processor's caches: one
 * cache miss costs more than all else together. So a hit reads twelve bytes of an entry, apart from the rest: its
 * range, which is only read, and a state word, which is written. Both are fetched together.
 */
#include "memory/registration_cache.h"

#include <limits.h>
#include <pthread.h>

#include "memory/packed_range.h"
#include "memory/page_hints.h"
#include "memory/range_set.h"

/* Fields of a state: number of users, */
#define USERS 0x0fffffffu
#define PRESENT 0x10000000u  /* in the set, */
#define RECENT 0x20000000u   /* used since the last eviction round, */
#define QUEUED 0x40000000u   /* in cache->unused, */
#define NUMBERED 0x80000000u /* has an identity. */

/* Entries from a number on, which is a power of two, and as many. */
struct block {
	atomic_uint *_Atomic states;
	uint64_t *ranges; /* packed ranges; constant while entries are used */
	struct pl_cached *entries;
	void *memory;
};

#define FIRST_BITS 6u
#define BLOCKS (32 - FIRST_BITS)
#define COUNTERS 8u

struct counter {
	_Alignas(PL_LINE) atomic_uint_fast64_t count;
};

struct pl_registration_cache {
	/* Written rarely, read for each hit. */
	struct pl_page_hints recent;
	size_t limit;
	struct block blocks[BLOCKS];

	struct counter hits[COUNTERS];       /* each for some threads */
	_Alignas(PL_LINE) atomic_llong idle; /* bytes without users; may be negative for moments */

	_Alignas(PL_LINE) pthread_mutex_t lock; /* protects the members below */
	struct pl_allocator allocator;
	void *self;
	void (*release)(void *owner);
	struct pl_range_set ranges;
	struct pl_list unused; /* entries without users, and some in use again; the first is evicted next */
	size_t queued;
	struct pl_list free;
	uint32_t next; /* number of the next new entry */
	size_t bytes;
	uint64_t misses, evictions, invalidations;
};

/* -- entries ------------------------------------------------------------------------------------------- */

static unsigned block_of(uint32_t number)
{
	return 31 - FIRST_BITS - (unsigned)__builtin_clz(number);
}

static uint32_t index_in(uint32_t number, unsigned block)
{
	return number - (1u << (FIRST_BITS + block));
}

static atomic_uint *entry_state(struct pl_registration_cache *cache, uint32_t number)
{
	unsigned block = block_of(number);

	return atomic_load_explicit(&cache->blocks[block].states, memory_order_acquire) + index_in(number, block);
}

static uint64_t *packed_range_of(struct pl_registration_cache *cache, uint32_t number)
{
	unsigned block = block_of(number);

	return cache->blocks[block].ranges + index_in(number, block);
}

static struct pl_cached *entry_of(struct pl_registration_cache *cache, uint32_t number)
{
	unsigned block = block_of(number);

	return cache->blocks[block].entries + index_in(number, block);
}

const struct pl_cached *pl_registration_cache_entry(struct pl_registration_cache *cache, uint32_t number)
{
	return entry_of(cache, number);
}

static int block_new(struct pl_registration_cache *cache, struct block *block, size_t count)
{
	uint64_t *ranges =
		pl_room_new(&cache->allocator, count * (sizeof(*ranges) + sizeof(atomic_uint)), &block->memory);

	block->entries = pl_alloc(&cache->allocator, count * sizeof(*block->entries));
	if (!block->entries || !ranges) {
		pl_free(&cache->allocator, block->entries);
		pl_free(&cache->allocator, block->memory);
		block->memory = NULL;
		return -ENOMEM;
	}
	block->ranges = ranges;
	/* No other thread knows numbers of the block yet; later ones come from the table or from callers. */
	atomic_store_explicit(&block->states, (atomic_uint *)(ranges + count), memory_order_release);
	return 0;
}

static struct pl_cached *entry_new(struct pl_registration_cache *cache)
{
	struct pl_cached *cached;
	unsigned block = block_of(cache->next);

	if (!pl_list_empty(&cache->free)) {
		cached = pl_list_first(&cache->free, struct pl_cached, link);
		pl_list_remove(&cached->link);
		return cached;
	}
	if (index_in(cache->next, block) == 0 && block_new(cache, &cache->blocks[block], cache->next) < 0)
		return NULL;
	cached = entry_of(cache, cache->next);
	cached->number = cache->next++;
	atomic_init(entry_state(cache, cached->number), 0);
	pl_list_init(&cached->link);
	return cached;
}

struct pl_registration_cache *pl_registration_cache_new(const struct pl_allocator *allocator, size_t limit,
							void (*release)(void *owner))
{
	void *self;
	struct pl_registration_cache *cache = pl_room_new(allocator, sizeof(*cache), &self);

	if (!cache)
		return NULL;
	memset(cache, 0, sizeof(*cache));
	cache->allocator = *allocator;
	cache->self = self;
	cache->release = release;
	cache->limit = PL_MIN(limit, (size_t)LLONG_MAX);
	cache->next = 1u << FIRST_BITS;
	pl_range_set_init(&cache->ranges, allocator);
	pthread_mutex_init(&cache->lock, NULL);
	pl_list_init(&cache->unused);
	pl_list_init(&cache->free);
	return cache;
}

/* -- table of hints ------------------------------------------------------------------------------------ */

static bool is_present(void *user, uint32_t number)
{
	return atomic_load(entry_state(user, number)) & PRESENT;
}

/* Makes a page's next search begin with an entry. */
static void note_entry(struct pl_registration_cache *cache, uintptr_t address, const struct pl_cached *cached)
{
	if (*packed_range_of(cache, cached->number))
		pl_page_hints_note(&cache->recent, address, cached->number, is_present, cache);
}

static void note_again(void *owner, void *user)
{
	const struct pl_cached *cached = owner;

	note_entry(user, cached->begin, cached);
}

/* -- uses ---------------------------------------------------------------------------------------------- */

static long long range_length(const struct pl_cached *cached)
{
	return (long long)(cached->end - cached->begin);
}

/* Takes an entry into use, whatever its range. Returns false if the entry is not in the set any more. */
static bool hold_entry(struct pl_registration_cache *cache, uint32_t number, unsigned *found)
{
	atomic_uint *word = entry_state(cache, number);
	unsigned state;

	__builtin_prefetch(packed_range_of(cache, number));
	state = atomic_load_explicit(word, memory_order_relaxed);
	do {
		if (!(state & PRESENT))
			return false;
	} while (!atomic_compare_exchange_weak(word, &state, (state + 1) | RECENT));
	if (!(state & USERS))
		atomic_fetch_sub(&cache->idle, range_length(entry_of(cache, number)));
	*found = state;
	return true;
}

static void hit(struct pl_registration_cache *cache)
{
	atomic_uint_fast64_t *count = &cache->hits[(uintptr_t)pthread_self() >> 12 & (COUNTERS - 1)].count;

	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* For an entry in use. */
static bool entry_fits(struct pl_registration_cache *cache, uint32_t number, unsigned state, uintptr_t begin,
		       uintptr_t end, uint64_t identity)
{
	if (!packed_range_holds(*packed_range_of(cache, number), begin, end))
		return false;
	return state & NUMBERED ? entry_of(cache, number)->identity == identity : !identity;
}

/* -- eviction; the lock is held ------------------------------------------------------------------------ */

/* Queues an entry without users for eviction. */
static void queue(struct pl_registration_cache *cache, struct pl_cached *cached)
{
	atomic_fetch_or(entry_state(cache, cached->number), QUEUED);
	pl_list_append(&cache->unused, &cached->link);
	cache->queued++;
}

/* Removes an entry from the set, and adds it to `gone` if it has no users; else its last user does. */
static void outdate(struct pl_registration_cache *cache, struct pl_cached *cached, struct pl_list *gone)
{
	unsigned state = atomic_fetch_and(entry_state(cache, cached->number), USERS);

	pl_range_set_remove(&cache->ranges, cached->begin, cached);
	cache->bytes -= cached->end - cached->begin;
	if (state & QUEUED) {
		pl_list_remove(&cached->link);
		cache->queued--;
	}
	if (state & USERS)
		return;
	atomic_fetch_sub(&cache->idle, range_length(cached));
	pl_list_append(gone, &cached->link);
}

/* Evicts an entry, unless it was used since the last round. An entry in use returns when its last use ends. */
static void consider(struct pl_registration_cache *cache, struct pl_cached *cached, struct pl_list *gone)
{
	atomic_uint *word = entry_state(cache, cached->number);
	unsigned state = atomic_load(word);

	if (!(state & USERS) && !(state & RECENT)) {
		/* A new user keeps the entry while it is used. */
		cache->evictions++;
		outdate(cache, cached, gone);
		return;
	}
	pl_list_remove(&cached->link);
	if (!(state & USERS)) {
		atomic_fetch_and(word, ~RECENT);
		pl_list_append(&cache->unused, &cached->link);
		return;
	}
	cache->queued--;
	state = atomic_fetch_and(word, ~QUEUED);
	if (!(state & USERS))
		queue(cache, cached);
}

static void shrink(struct pl_registration_cache *cache, struct pl_list *gone)
{
	/* Two rounds at most: other threads may be using entries, and evict when they are done. */
	for (size_t rounds = 2 * cache->queued; rounds && !pl_list_empty(&cache->unused); rounds--) {
		if (atomic_load(&cache->idle) <= (long long)cache->limit)
			return;
		consider(cache, pl_list_first(&cache->unused, struct pl_cached, link), gone);
	}
}

/* Called without the lock. */
static void release_all(struct pl_registration_cache *cache, struct pl_list *gone)
{
	while (!pl_list_empty(gone)) {
		struct pl_cached *cached = pl_list_first(gone, struct pl_cached, link);
		void *owner = cached->owner;

		pthread_mutex_lock(&cache->lock);
		pl_list_remove(&cached->link);
		pl_list_append(&cache->free, &cached->link);
		pthread_mutex_unlock(&cache->lock);
		cache->release(owner);
	}
}

/* -- public functions --------------------------------------------------------------------------------- */

static uint32_t search_hints(struct pl_registration_cache *cache, uintptr_t begin, uintptr_t end, uint64_t identity)
{
	struct pl_cached *found;
	struct pl_list gone;
	unsigned state;

	pl_list_init(&gone);
	pthread_mutex_lock(&cache->lock);
	while ((found = pl_range_set_find(&cache->ranges, begin, end)) && found->identity != identity) {
		cache->invalidations++;
		outdate(cache, found, &gone);
	}
	if (found) {
		hold_entry(cache, found->number, &state);
		hit(cache);
		note_entry(cache, begin, found);
	} else {
		cache->misses++;
	}
	pthread_mutex_unlock(&cache->lock);
	release_all(cache, &gone);
	return found ? found->number : 0;
}

uint32_t pl_registration_cache_take(struct pl_registration_cache *cache, const void *address, size_t length,
				    uint64_t identity)
{
	uintptr_t begin = (uintptr_t)address, end = begin + length;
	struct pl_page_hints_search recent;
	uint32_t number;
	unsigned state;

	pl_page_hints_search(&cache->recent, begin, &recent);
	while ((number = pl_page_hints_next(&recent))) {
		if (!hold_entry(cache, number, &state))
			continue;
		if (entry_fits(cache, number, state, begin, end, identity)) {
			hit(cache);
			return number;
		}
		pl_registration_cache_give(cache, number);
	}
	return search_hints(cache, begin, end, identity);
}

/* Adds an entry to the set; the table has room. */
static int enter_entry(struct pl_registration_cache *cache, struct pl_cached *cached)
{
	int rc = pl_range_set_insert(&cache->ranges, cached->begin, cached->end, cached);

	if (rc == 0 && pl_page_hints_grow(&cache->recent, &cache->allocator, cache->ranges.count))
		pl_range_set_each(&cache->ranges, note_again, cache);
	return rc;
}

uint32_t pl_registration_cache_add(struct pl_registration_cache *cache, void *owner, const void *address, size_t length,
				   uint64_t identity)
{
	struct pl_cached *cached;

	pthread_mutex_lock(&cache->lock);
	cached = entry_new(cache);
	if (cached) {
		cached->owner = owner;
		cached->begin = (uintptr_t)address;
		cached->end = cached->begin + length;
		cached->identity = identity;
		*packed_range_of(cache, cached->number) = packed_range_new(cached->begin, length);
		if (enter_entry(cache, cached) < 0) {
			pl_list_append(&cache->free, &cached->link);
			cached = NULL;
		} else {
			atomic_store(entry_state(cache, cached->number), PRESENT | (identity ? NUMBERED : 0u) | 1u);
			cache->bytes += length;
			note_entry(cache, cached->begin, cached);
		}
	}
	pthread_mutex_unlock(&cache->lock);
	return cached ? cached->number : 0;
}

/* The last use has ended. */
static void unused(struct pl_registration_cache *cache, struct pl_cached *cached, bool present)
{
	struct pl_list gone;

	pl_list_init(&gone);
	pthread_mutex_lock(&cache->lock);
	if (!present)
		pl_list_append(&gone, &cached->link);
	else if ((atomic_load(entry_state(cache, cached->number)) & (PRESENT | QUEUED)) == PRESENT)
		queue(cache, cached);
	shrink(cache, &gone);
	pthread_mutex_unlock(&cache->lock);
	release_all(cache, &gone);
}

void pl_registration_cache_give(struct pl_registration_cache *cache, uint32_t number)
{
	atomic_uint *word = entry_state(cache, number);
	unsigned state = atomic_load_explicit(word, memory_order_relaxed);
	struct pl_cached *cached = entry_of(cache, number);
	long long length = 0, idle;

	do {
		/* Afterwards another thread may own the entry. */
		if ((state & USERS) == 1)
			length = range_length(cached);
	} while (!atomic_compare_exchange_weak(word, &state, state - 1));
	if ((state & USERS) != 1)
		return;
	if (!(state & PRESENT)) {
		unused(cache, cached, false);
		return;
	}
	idle = atomic_fetch_add(&cache->idle, length) + length;
	if (!(state & QUEUED) || idle > (long long)cache->limit)
		unused(cache, cached, true);
}

void pl_registration_cache_drop(struct pl_registration_cache *cache, uint32_t number)
{
	pthread_mutex_lock(&cache->lock);
	if (is_present(cache, number))
		outdate(cache, entry_of(cache, number), NULL);
	pthread_mutex_unlock(&cache->lock);
}

void pl_registration_cache_invalidate(struct pl_registration_cache *cache, const void *address, size_t length)
{
	uintptr_t begin = (uintptr_t)address, end = begin + length;
	struct pl_cached *found;
	struct pl_list gone;

	pl_list_init(&gone);
	pthread_mutex_lock(&cache->lock);
	/* One common byte is enough. */
	while (end > begin && (found = pl_range_set_find(&cache->ranges, end - 1, begin + 1))) {
		cache->invalidations++;
		outdate(cache, found, &gone);
	}
	pthread_mutex_unlock(&cache->lock);
	release_all(cache, &gone);
}

void pl_registration_cache_count(struct pl_registration_cache *cache, struct pl_registration_cache_counts *counts)
{
	long long idle = atomic_load(&cache->idle);

	pthread_mutex_lock(&cache->lock);
	*counts = (struct pl_registration_cache_counts){
		.misses = cache->misses,
		.evictions = cache->evictions,
		.invalidations = cache->invalidations,
		.entries = cache->ranges.count,
		.bytes = cache->bytes,
		.idle_bytes = (size_t)PL_MAX(idle, 0),
	};
	for (unsigned i = 0; i < COUNTERS; i++)
		counts->hits += atomic_load_explicit(&cache->hits[i].count, memory_order_relaxed);
	pthread_mutex_unlock(&cache->lock);
}

void pl_registration_cache_close(struct pl_registration_cache *cache)
{
	if (!cache)
		return;
	pl_registration_cache_invalidate(cache, NULL, SIZE_MAX);
	pthread_mutex_destroy(&cache->lock);
	pl_range_set_clear(&cache->ranges);
	pl_page_hints_close(&cache->recent, &cache->allocator);
	for (unsigned i = 0; i < BLOCKS && cache->blocks[i].memory; i++) {
		pl_free(&cache->allocator, cache->blocks[i].entries);
		pl_free(&cache->allocator, cache->blocks[i].memory);
	}
	pl_free(&cache->allocator, cache->self);
}
