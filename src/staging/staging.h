/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The way of bytes between memory that neither sockets nor cards reach and those: slots of locked host
 * memory from a bounded pool, and copies that an engine begins and asks about.
 */
#ifndef PL_STAGING_H
#define PL_STAGING_H

#include "engine/engine.h"
#include "memory/memory.h"

/* A slot holds one chunk. */
#define PL_SLOT_SIZE (1u << 20)
/* The pool grows by this many at a time. */
#define PL_SLOT_BLOCK 8u

struct pl_slot {
	struct pl_list link;
	uint8_t *bytes;
	int node;
	bool pinned; /* copies go on by themselves; otherwise it is ordinary memory, and they are waited for */
};

/* A context's. */
struct pl_slots {
	const struct pl_allocator *allocator;
	pthread_mutex_t lock;
	struct pl_list blocks, free;
	size_t limit, used;      /* bytes locked, at most and now */
	size_t taken, taken_max; /* locked slots that are in use, now and at most ever */
	uint64_t retry;          /* locking failed: not again before */
};

void pl_slots_open(struct pl_slots *pool, const struct pl_allocator *allocator, size_t limit);
/* All slots have been given back. */
void pl_slots_close(struct pl_slots *pool);
/* A slot for memory's bytes, near its device if there is one; an ordinary one if none can be locked; NULL: no memory. */
struct pl_slot *pl_slots_take(struct pl_slots *pool, const struct pl_memory *memory);
void pl_slots_give(struct pl_slots *pool, struct pl_slot *slot);
/* Memory that somebody else locks for a device's copies counts as the pool's own.  false: it would be too much. */
bool pl_slots_reserve(struct pl_slots *pool, size_t bytes);
void pl_slots_return(struct pl_slots *pool, size_t bytes);
void pl_slots_count(struct pl_slots *pool, struct pl_staging_info *info);

/* A copy under way.  Embedded in its owner, which must live until done() was called, under the engine's lock. */
struct pl_copy {
	struct pl_list link;
	uint64_t sequence, number; /* of its queue's, and of the copier's */
	void (*done)(struct pl_copy *copy, int status);
};

/* A copy of a few bytes, which goes with others.  Embedded in its owner, which must live as long. */
struct pl_small {
	void (*done)(struct pl_small *small, int status);
};

/* An engine's copies. */
struct pl_copier;

int pl_copier_open(struct pl_engine *engine, struct pl_copier **copier);
/* Waits for what is under way. */
void pl_copier_close(struct pl_copier *copier);
/*
 * Copies between memory and a slot: `done` is called later if the slot is locked, and before this returns
 * otherwise.  Under the engine's lock.
 */
void pl_copier_start(struct pl_copier *copier, struct pl_copy *copy, struct pl_memory *memory, size_t offset,
		     struct pl_slot *slot, size_t length, bool into);
/* The same with locked memory of anybody's, and between two ranges of the device's; done() is called later, or now. */
void pl_copier_host(struct pl_copier *copier, struct pl_copy *copy, struct pl_memory *memory, size_t offset, void *host,
		    size_t length, bool into);
struct pl_across {
	struct pl_memory *to, *from;
	size_t to_offset, from_offset, length;
	bool into; /* `to` is the device's own, else `from` */
};
void pl_copier_across(struct pl_copier *copier, struct pl_copy *copy, const struct pl_across *across);
/*
 * Copies up to PL_SMALL_MAX bytes into a device's memory, or out of it: all that are asked for in one round of the engine's
 * go together.  Bytes that go into it are the caller's again at once; they are in their place, those that come out of it in
 * `bytes`, when done() is called, which is later.  False: it must be copied in another way.
 */
#define PL_SMALL_MAX 8192u
bool pl_copier_small(struct pl_copier *copier, struct pl_slots *pool, struct pl_small *small, struct pl_memory *memory,
		     size_t offset, void *bytes, size_t length, bool into);
/*
 * Copies out of a device's memory at once if nobody else did so lately, as a copy that is waited for is done sooner than one
 * that waits for company: 1; 0: others did; or a negative errno.
 */
int pl_copier_alone(struct pl_copier *copier, struct pl_memory *memory, size_t offset, void *bytes, size_t length);
/* Waits for all copies that began before, the calls of `done` included. Under the engine's lock. */
void pl_copier_drain(struct pl_copier *copier);
/* Waits for the oldest copy in one direction. */
void pl_copier_wait_one(struct pl_copier *copier, bool into);

#endif
