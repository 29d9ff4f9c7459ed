/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/page_hints.h"

#include <sys/mman.h>

#define LARGE_PAGE ((size_t)2 << 20)
#define PAGE_SHIFT 12
#define BUCKETS_FIRST 16u
#define LOAD 8u /* average limit of numbers in a bucket of 12, and its neighbour */
#define EACH_BYTE 0x0101010101010101ull

struct pl_page_hints_table {
	struct pl_page_hints_table *before; /* smaller tables, which other threads may still read */
	size_t count;                       /* a power of two */
	struct pl_page_hints_bucket *buckets;
	void *memory;
};

void *pl_room_new(const struct pl_allocator *allocator, size_t size, void **all)
{
	size_t align = size >= LARGE_PAGE ? LARGE_PAGE : 2 * PL_LINE;
	void *room;

	*all = pl_alloc(allocator, size + align);
	if (!*all)
		return NULL;
	room = (void *)(((uintptr_t)*all + align - 1) & ~(uintptr_t)(align - 1));
	/* If large pages are refused, the processor walks its page tables more often. */
	if (align == LARGE_PAGE)
		madvise(room, size & ~(LARGE_PAGE - 1), MADV_HUGEPAGE);
	return room;
}

/* Buffers often lie at equal distances, which a single multiplication keeps equal. */
static uint64_t hash_of(uintptr_t address)
{
	uint64_t hash = (uint64_t)(address >> PAGE_SHIFT) * 0x9e3779b97f4a7c15u;

	return (hash ^ hash >> 32) * 0xd6e8feb86659fd93u;
}

/* Tag 0 marks an empty slot, and next_match() could mistake 1 for others. */
static uint64_t tag_of(uint64_t hash)
{
	return 2 + (hash >> 24 & 0xff) * 253 / 255;
}

static struct pl_page_hints_bucket *bucket_of(const struct pl_page_hints_table *table, uint64_t hash)
{
	return table->buckets + (hash >> 32 & (table->count - 1));
}

/* Numbers that do not fit into a bucket are in its neighbour, the other half of a pair of cache lines. */
static struct pl_page_hints_bucket *neighbour(const struct pl_page_hints_table *table,
					      const struct pl_page_hints_bucket *bucket)
{
	return table->buckets + ((size_t)(bucket - table->buckets) ^ 1);
}

/* Returns the top bits of the bytes of a word that equal the tag, and possibly of some above these. */
static uint64_t matching(const struct pl_page_hints_bucket *bucket, unsigned word, uint64_t tags)
{
	uint64_t differ = atomic_load_explicit(&bucket->tags[word], memory_order_acquire) ^ tags;

	return (differ - EACH_BYTE) & ~differ & EACH_BYTE << 7;
}

static void load_bucket(struct pl_page_hints_search *search, const struct pl_page_hints_bucket *bucket)
{
	search->bucket = bucket;
	search->matches[0] = matching(bucket, 0, search->tags);
	search->matches[1] = matching(bucket, 1, search->tags);
}

void pl_page_hints_search(struct pl_page_hints *recent, uintptr_t address, struct pl_page_hints_search *search)
{
	const struct pl_page_hints_table *table = atomic_load_explicit(&recent->table, memory_order_acquire);
	uint64_t hash = hash_of(address);

	*search = (struct pl_page_hints_search){ .tags = tag_of(hash) * EACH_BYTE };
	if (!table)
		return;
	search->left = 1;
	load_bucket(search, bucket_of(table, hash));
}

uint32_t pl_page_hints_next(struct pl_page_hints_search *search)
{
	for (;;) {
		for (unsigned word = 0; word < 2; word++) {
			uint64_t matches = search->matches[word];
			unsigned index = word * 8 + (unsigned)(matches ? __builtin_ctzll(matches) / 8 : 0);

			if (!matches)
				continue;
			search->matches[word] = matches & (matches - 1);
			if (index < PL_RECENT_NUMBERS)
				return atomic_load_explicit(&search->bucket->numbers[index], memory_order_acquire);
		}
		if (!search->left)
			return 0;
		search->left--;
		load_bucket(search, (const struct pl_page_hints_bucket *)((uintptr_t)search->bucket ^ PL_LINE));
	}
}

/* -- adding ------------------------------------------------------------------------------------------------ */

static unsigned tag_at(const struct pl_page_hints_bucket *bucket, unsigned index)
{
	return atomic_load_explicit(&bucket->tags[index / 8], memory_order_relaxed) >> index % 8 * 8 & 0xff;
}

static void put_hint(struct pl_page_hints_bucket *bucket, unsigned index, uint64_t tag, uint32_t number)
{
	uint64_t tags = atomic_load_explicit(&bucket->tags[index / 8], memory_order_relaxed);
	unsigned shift = index % 8 * 8;

	atomic_store_explicit(&bucket->numbers[index], number, memory_order_release);
	atomic_store_explicit(&bucket->tags[index / 8], (tags & ~((uint64_t)0xff << shift)) | tag << shift,
			      memory_order_release);
}

/* Returns a slot for a number, which may be there already; PL_RECENT_NUMBERS: none. */
static unsigned place_for(const struct pl_page_hints_bucket *bucket, uint64_t tag, uint32_t number,
			  bool (*is_good)(void *user, uint32_t number), void *user)
{
	unsigned index = PL_RECENT_NUMBERS;

	for (unsigned i = PL_RECENT_NUMBERS; i--;) {
		unsigned there = tag_at(bucket, i);
		uint32_t other = atomic_load_explicit(&bucket->numbers[i], memory_order_relaxed);

		if (there == tag && other == number)
			return i;
		if (!there || !is_good(user, other))
			index = i;
	}
	return index;
}

void pl_page_hints_note(struct pl_page_hints *recent, uintptr_t address, uint32_t number,
			bool (*is_good)(void *user, uint32_t number), void *user)
{
	struct pl_page_hints_table *table = atomic_load(&recent->table);
	uint64_t hash = hash_of(address), tag = tag_of(hash);
	struct pl_page_hints_bucket *bucket;
	unsigned index;

	if (!table)
		return;
	bucket = bucket_of(table, hash);
	index = place_for(bucket, tag, number, is_good, user);
	if (index == PL_RECENT_NUMBERS) {
		bucket = neighbour(table, bucket);
		index = place_for(bucket, tag, number, is_good, user);
	}
	if (index == PL_RECENT_NUMBERS)
		index = recent->turn++ % PL_RECENT_NUMBERS;
	put_hint(bucket, index, tag, number);
}

bool pl_page_hints_grow(struct pl_page_hints *recent, const struct pl_allocator *allocator, size_t count)
{
	struct pl_page_hints_table *old = atomic_load(&recent->table), *table;

	if (old && count <= old->count * LOAD)
		return false;
	/* Without memory the smaller table stays in use. */
	table = pl_zalloc(allocator, sizeof(*table));
	if (!table)
		return false;
	table->before = old;
	table->count = old ? old->count * 2 : BUCKETS_FIRST;
	table->buckets = pl_room_new(allocator, table->count * sizeof(*table->buckets), &table->memory);
	if (!table->buckets) {
		pl_free(allocator, table);
		return false;
	}
	memset(table->buckets, 0, table->count * sizeof(*table->buckets));
	atomic_store_explicit(&recent->table, table, memory_order_release);
	return true;
}

void pl_page_hints_close(struct pl_page_hints *recent, const struct pl_allocator *allocator)
{
	struct pl_page_hints_table *table = atomic_load(&recent->table);

	while (table) {
		struct pl_page_hints_table *before = table->before;

		pl_free(allocator, table->memory);
		pl_free(allocator, table);
		table = before;
	}
}
