/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for secrets: pages of their own, which core dumps leave out (MADV_DONTDUMP). Slots are wiped when they are freed.
 * Thread-safe. Not for the path of operations.
 */
#ifndef PL_SECRET_POOL_H
#define PL_SECRET_POOL_H

#include <pthread.h>

#include "base/base.h"

#define PL_SECRET_SLOT 128

/* Mapping of several slots; the first slot has the link to the next mapping. */
struct pl_secret_chunk;

struct pl_secret_pool {
	pthread_mutex_t lock;
	struct pl_secret_chunk *chunks;
	void *free; /* the first slot that is not in use; each has the address of the next */
};

void pl_secret_pool_init(struct pl_secret_pool *pool);
/* Unmaps everything. No slot is in use. */
void pl_secret_pool_destroy(struct pl_secret_pool *pool);

/* Returns PL_SECRET_SLOT zeros, or NULL without memory. */
void *pl_secret_alloc(struct pl_secret_pool *pool);
/* Wipes and frees a slot. Accepts NULL. */
void pl_secret_free(struct pl_secret_pool *pool, void *slot);

#endif
