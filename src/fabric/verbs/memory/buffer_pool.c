/* SPDX-License-Identifier: BSD-2-Clause */
/* Buffers of one size in registered memory. */
#include <unistd.h>

#include "fabric/verbs/verbs.h"

static int fill_pool(struct verbs_buffer_pool *pool, const struct verbs_state *state, unsigned count, size_t size)
{
	const struct pl_allocator *allocator = &state->context->allocator;
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	pool->buffers = pl_zalloc(allocator, count * sizeof(*pool->buffers));
	pool->room = pl_zalloc(allocator, count * size + page);
	if (!pool->buffers || !pool->room)
		return -ENOMEM;
	pool->slab = (uint8_t *)(((uintptr_t)pool->room + page - 1) & ~(uintptr_t)(page - 1));
	return verbs_reg_buffers(state->library, pool->device->pd, pool->slab, count * size, &pool->mr);
}

int verbs_buffer_pool_open(struct verbs_buffer_pool *pool, const struct verbs_state *state, struct verbs_device *device,
			   unsigned count, size_t size)
{
	int rc;

	pl_list_init(&pool->free);
	pool->count = count;
	pool->device = device;
	rc = fill_pool(pool, state, count, size);
	if (rc < 0) {
		verbs_buffer_pool_close(pool, state);
		return rc;
	}
	for (unsigned i = 0; i < count; i++) {
		pool->buffers[i] = (struct verbs_buffer){ .pool = pool, .bytes = pool->slab + i * size };
		pl_list_append(&pool->free, &pool->buffers[i].link);
	}
	return 0;
}

void verbs_buffer_pool_shut(struct verbs_buffer_pool *pool)
{
	if (pool->mr)
		verbs_object_end(pool->device, VERBS_MR, pool->mr);
	pool->mr = NULL;
}

void verbs_buffer_pool_close(struct verbs_buffer_pool *pool, const struct verbs_state *state)
{
	const struct pl_allocator *allocator = &state->context->allocator;

	verbs_buffer_pool_shut(pool);
	if (!pool->device || !atomic_load(&pool->device->silent))
		pl_free(allocator, pool->room);
	pl_free(allocator, pool->buffers);
	*pool = (struct verbs_buffer_pool){ 0 };
}
