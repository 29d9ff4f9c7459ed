/* SPDX-License-Identifier: BSD-2-Clause */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "staging/staging.h"

#define BLOCK_SIZE ((size_t)PL_SLOT_BLOCK * PL_SLOT_SIZE)
#define RETRY_AFTER PL_NS_PER_S
/*
 * Default limit of the pool's own blocks, in bytes: 128 slots, well under the usual RLIMIT_MEMLOCK. All lanes share them, and a
 * lane that uses some leaves the last quarter to others: pl_slots_take_more().
 */
#define SLOTS_DEFAULT ((size_t)128 << 20)
/* Default limit of other owners: this part of the machine's memory. Their memory exists anyhow; locked, it stays in place. */
#define RESERVED_PART 8
#define PREFER_NODE 1 /* MPOL_PREFERRED */

struct block {
	struct pl_list link;
	const struct pl_memory_ops *ops;
	void *bytes, *holder;
	struct pl_slot slots[PL_SLOT_BLOCK];
};

static size_t machine_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
}

void pl_slots_open(struct pl_slots *pool, const struct pl_allocator *allocator, size_t limit)
{
	pool->allocator = allocator;
	pool->slots_limit = limit ? limit : SLOTS_DEFAULT;
	pool->limit = limit ? limit : SLOTS_DEFAULT + machine_memory() / RESERVED_PART;
	pthread_mutex_init(&pool->lock, NULL);
	pl_list_init(&pool->blocks);
	pl_list_init(&pool->free);
}

void pl_slots_close(struct pl_slots *pool)
{
	while (!pl_list_empty(&pool->blocks)) {
		struct block *block = pl_list_first(&pool->blocks, struct block, link);

		pl_list_remove(&block->link);
		block->ops->unpin(block->holder, block->bytes);
		munmap(block->bytes, BLOCK_SIZE);
		pl_free(pool->allocator, block);
	}
	pthread_mutex_destroy(&pool->lock);
}

static void *map_near(int node)
{
	void *bytes = mmap(NULL, BLOCK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long mask[16] = { 0 };

	if (bytes == MAP_FAILED)
		return NULL;
	madvise(bytes, BLOCK_SIZE, MADV_HUGEPAGE);
	madvise(bytes, BLOCK_SIZE, MADV_DONTFORK);
	if (node >= 0 && (size_t)node < sizeof(mask) * 8) {
		mask[(size_t)node / (8 * sizeof(*mask))] = 1ul << ((size_t)node % (8 * sizeof(*mask)));
		/* Without the binding the memory works too, only slower. */
		syscall(SYS_mbind, bytes, BLOCK_SIZE, PREFER_NODE, mask, sizeof(mask) * 8, 0);
	}
	return bytes;
}

/* Locks one more block. Returns false if none is available. pool->lock is held. */
static bool grow_slot_pool(struct pl_slots *pool, const struct pl_memory *memory)
{
	struct block *block;

	if (!memory->ops->pin || pool->limit - pool->used < BLOCK_SIZE ||
	    pool->slots_limit - (pool->used - pool->reserved) < BLOCK_SIZE || pl_now() < pool->retry)
		return false;
	block = pl_zalloc(pool->allocator, sizeof(*block));
	if (block)
		block->bytes = map_near(memory->node);
	if (!block || !block->bytes || memory->ops->pin(memory, block->bytes, BLOCK_SIZE, false, &block->holder) < 0) {
		pool->retry = pl_now() + RETRY_AFTER;
		if (block && block->bytes)
			munmap(block->bytes, BLOCK_SIZE);
		pl_free(pool->allocator, block);
		return false;
	}
	block->ops = memory->ops;
	pl_list_append(&pool->blocks, &block->link);
	for (unsigned i = 0; i < PL_SLOT_BLOCK; i++) {
		struct pl_slot *slot = &block->slots[i];

		*slot = (struct pl_slot){
			.bytes = (uint8_t *)block->bytes + (size_t)i * PL_SLOT_SIZE,
			.node = memory->node,
			.pinned = true,
		};
		pl_list_append(&pool->free, &slot->link);
	}
	pool->used += BLOCK_SIZE;
	return true;
}

/* The slot used last is still in the processor's cache, so it is used first. */
static struct pl_slot *find_free_slot(const struct pl_slots *pool, int node)
{
	pl_list_for_each(at, &pool->free) {
		struct pl_slot *slot = pl_list_entry(at, struct pl_slot, link);

		if (slot->node == node || node < 0)
			return slot;
	}
	return NULL;
}

static struct pl_slot *allocate_ordinary_slot(struct pl_slots *pool)
{
	struct pl_slot *slot = pl_alloc(pool->allocator, sizeof(*slot) + PL_SLOT_SIZE);

	if (slot) {
		*slot = (struct pl_slot){ .bytes = (uint8_t *)(slot + 1) };
		pl_list_init(&slot->link);
	}
	return slot;
}

/* Returns a locked slot, or NULL. pool->lock is held. */
static struct pl_slot *take_locked_slot(struct pl_slots *pool, const struct pl_memory *memory)
{
	struct pl_slot *slot = find_free_slot(pool, memory->node);

	if (!slot && grow_slot_pool(pool, memory))
		slot = find_free_slot(pool, memory->node);
	if (!slot)
		slot = find_free_slot(pool, -1); /* a remote slot is better than ordinary memory */
	if (slot) {
		pl_list_remove(&slot->link);
		pool->taken++;
		pool->taken_max = PL_MAX(pool->taken_max, pool->taken);
	}
	return slot;
}

struct pl_slot *pl_slots_take(struct pl_slots *pool, const struct pl_memory *memory)
{
	struct pl_slot *slot;

	pthread_mutex_lock(&pool->lock);
	slot = take_locked_slot(pool, memory);
	pthread_mutex_unlock(&pool->lock);
	return slot ? slot : allocate_ordinary_slot(pool);
}

struct pl_slot *pl_slots_take_more(struct pl_slots *pool, const struct pl_memory *memory)
{
	struct pl_slot *slot = NULL;
	size_t most;

	pthread_mutex_lock(&pool->lock);
	most = PL_MIN(pool->slots_limit, pool->limit - pool->reserved) / PL_SLOT_SIZE;
	if (pool->taken < most - most / 4)
		slot = take_locked_slot(pool, memory);
	pthread_mutex_unlock(&pool->lock);
	return slot;
}

void pl_slots_give(struct pl_slots *pool, struct pl_slot *slot)
{
	if (!slot)
		return;
	if (!slot->pinned) {
		pl_free(pool->allocator, slot);
		return;
	}
	pthread_mutex_lock(&pool->lock);
	pl_list_prepend(&pool->free, &slot->link);
	pool->taken--;
	pthread_mutex_unlock(&pool->lock);
}

void pl_slots_count(struct pl_slots *pool, struct pl_staging_info *info)
{
	pthread_mutex_lock(&pool->lock);
	info->limit = pool->limit;
	info->locked = pool->used;
	info->in_use = (uint64_t)pool->taken * PL_SLOT_SIZE;
	info->in_use_max = (uint64_t)pool->taken_max * PL_SLOT_SIZE;
	pthread_mutex_unlock(&pool->lock);
}

bool pl_slots_reserve(struct pl_slots *pool, size_t bytes)
{
	bool room;

	pthread_mutex_lock(&pool->lock);
	room = pool->limit - pool->used >= bytes;
	if (room) {
		pool->used += bytes;
		pool->reserved += bytes;
	}
	pthread_mutex_unlock(&pool->lock);
	return room;
}

void pl_slots_return(struct pl_slots *pool, size_t bytes)
{
	pthread_mutex_lock(&pool->lock);
	pool->used -= bytes;
	pool->reserved -= bytes;
	pthread_mutex_unlock(&pool->lock);
}

void pl_copier_start(struct pl_copier *copier, struct pl_copy *copy, struct pl_memory *memory, size_t offset,
		     struct pl_slot *slot, size_t length, bool into)
{
	if (slot->pinned)
		pl_copier_host(copier, copy, memory, offset, slot->bytes, length, into);
	else
		copy->done(copy, into ? pl_memory_copy_in(memory, offset, slot->bytes, length)
				      : pl_memory_copy_out(memory, offset, slot->bytes, length));
}
