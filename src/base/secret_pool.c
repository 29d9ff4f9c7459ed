/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/secret_pool.h"

#include <sys/mman.h>

/* Bytes of a mapping: a multiple of the page size of all supported processors. */
#define CHUNK (64u << 10)

struct pl_secret_chunk {
	struct pl_secret_chunk *next;
};

void pl_secret_pool_init(struct pl_secret_pool *pool)
{
	*pool = (struct pl_secret_pool){ .free = NULL };
	pthread_mutex_init(&pool->lock, NULL);
}

void pl_secret_pool_destroy(struct pl_secret_pool *pool)
{
	while (pool->chunks) {
		struct pl_secret_chunk *chunk = pool->chunks;

		pool->chunks = chunk->next;
		explicit_bzero(chunk, CHUNK);
		munmap(chunk, CHUNK);
	}
	pthread_mutex_destroy(&pool->lock);
}

static void add_free_slot(struct pl_secret_pool *pool, void *slot)
{
	*(void **)slot = pool->free;
	pool->free = slot;
}

/* Maps more slots. A kernel without MADV_DONTDUMP still gives the memory. */
static void map_secret_slots(struct pl_secret_pool *pool)
{
	struct pl_secret_chunk *chunk =
		mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (chunk == MAP_FAILED)
		return;
	madvise(chunk, CHUNK, MADV_DONTDUMP);
	chunk->next = pool->chunks;
	pool->chunks = chunk;
	for (size_t at = CHUNK - PL_SECRET_SLOT; at; at -= PL_SECRET_SLOT)
		add_free_slot(pool, (uint8_t *)chunk + at);
}

void *pl_secret_alloc(struct pl_secret_pool *pool)
{
	void *slot;

	pthread_mutex_lock(&pool->lock);
	if (!pool->free)
		map_secret_slots(pool);
	slot = pool->free;
	if (slot)
		pool->free = *(void **)slot;
	pthread_mutex_unlock(&pool->lock);
	if (slot)
		memset(slot, 0, PL_SECRET_SLOT);
	return slot;
}

void pl_secret_free(struct pl_secret_pool *pool, void *slot)
{
	if (!slot)
		return;
	explicit_bzero(slot, PL_SECRET_SLOT);
	pthread_mutex_lock(&pool->lock);
	add_free_slot(pool, slot);
	pthread_mutex_unlock(&pool->lock);
}
