/* SPDX-License-Identifier: BSD-2-Clause */
/* Buffers of one size in registered memory. */
#include "fabric/verbs/verbs.h"

static int fill_pool(struct verbs_buffer_pool *pool, const struct verbs_state *state, const struct verbs_device *device,
		     unsigned count, size_t size)
{
	const struct pl_allocator *allocator = &state->context->allocator;

	pool->buffers = pl_zalloc(allocator, count * sizeof(*pool->buffers));
	pool->slab = pl_zalloc(allocator, count * size);
	if (!pool->buffers || !pool->slab)
		return -ENOMEM;
	return verbs_reg_mr(state->library, device->pd, pool->slab, count * size, IBV_ACCESS_LOCAL_WRITE, &pool->mr);
}

int verbs_buffer_pool_open(struct verbs_buffer_pool *pool, const struct verbs_state *state,
			   const struct verbs_device *device, unsigned count, size_t size)
{
	int rc;

	pl_list_init(&pool->free);
	pool->count = count;
	rc = fill_pool(pool, state, device, count, size);
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

void verbs_buffer_pool_shut(struct verbs_buffer_pool *pool, const struct verbs_state *state)
{
	if (pool->mr)
		state->library->ibv_dereg_mr(pool->mr);
	pool->mr = NULL;
}

void verbs_buffer_pool_close(struct verbs_buffer_pool *pool, const struct verbs_state *state)
{
	const struct pl_allocator *allocator = &state->context->allocator;

	verbs_buffer_pool_shut(pool, state);
	pl_free(allocator, pool->slab);
	pl_free(allocator, pool->buffers);
	*pool = (struct verbs_buffer_pool){ 0 };
}
