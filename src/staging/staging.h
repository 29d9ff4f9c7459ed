/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Staging: copies through host memory, for memory that neither sockets nor cards can access. A bounded pool provides
 * slots of locked host memory. An engine starts the copies and polls them.
 */
#ifndef PL_STAGING_H
#define PL_STAGING_H

#include "engine/engine.h"
#include "memory/memory.h"

/* Bytes of a slot, which holds one chunk. */
#define PL_SLOT_SIZE (1u << 20)
/* Slots by which the pool grows. */
#define PL_SLOT_BLOCK 8u

struct pl_slot {
	struct pl_list link;
	uint8_t *bytes;
	int node;
	bool pinned; /* true if the slot is locked memory: copies are asynchronous; with ordinary memory they are not */
};

/* Slot pool of a context. */
struct pl_slots {
	const struct pl_allocator *allocator;
	pthread_mutex_t lock;
	struct pl_list blocks, free;
	size_t limit, used;      /* bytes: limit, and locked now */
	size_t slots_limit;      /* of `limit`, for the pool's own blocks */
	size_t reserved;         /* of `used`, by other owners */
	size_t taken, taken_max; /* locked slots in use: now, and the maximum so far */
	uint64_t retry;          /* locking failed: no new attempt before this time */
};

/* limit: of the pool and of other owners together, in bytes; 0: defaults. */
void pl_slots_open(struct pl_slots *pool, const struct pl_allocator *allocator, size_t limit);
/* Frees the pool's memory. All slots must have been returned. */
void pl_slots_close(struct pl_slots *pool);
/*
 * Returns a slot for bytes of this memory, near its device if it has one. An ordinary slot if no memory can be locked;
 * NULL: no memory.
 */
struct pl_slot *pl_slots_take(struct pl_slots *pool, const struct pl_memory *memory);
/*
 * The same for a caller that has slots, and rather waits for them than uses ordinary memory. Returns a locked slot, or NULL: there
 * is none now, or others need the last quarter of the pool.
 */
struct pl_slot *pl_slots_take_more(struct pl_slots *pool, const struct pl_memory *memory);
void pl_slots_give(struct pl_slots *pool, struct pl_slot *slot);
/* Counts memory that another owner locks for device copies against the limit. Returns false above it. */
bool pl_slots_reserve(struct pl_slots *pool, size_t bytes);
void pl_slots_return(struct pl_slots *pool, size_t bytes);
void pl_slots_count(struct pl_slots *pool, struct pl_staging_info *info);

/* Copy under way. Embedded in its owner, which must live until done() was called, under the engine's lock. */
struct pl_copy {
	struct pl_list link;
	uint64_t sequence, number; /* number in its queue, and in the copier */
	void (*done)(struct pl_copy *copy, int status);
};

/* Small copy, batched with others. Embedded in its owner, which must live as long. */
struct pl_small {
	void (*done)(struct pl_small *small, int status);
};

/* Copies of an engine. */
struct pl_copier;

int pl_copier_open(struct pl_engine *engine, struct pl_copier **copier);
/* Waits for copies under way. */
void pl_copier_close(struct pl_copier *copier);
/* Opens the queue of a memory's device, which the first copy would open. Under the engine's lock. */
void pl_copier_prepare(struct pl_copier *copier, const struct pl_memory *memory);
/*
 * Copies between memory and a slot. `done` is called later if the slot is locked, else before this returns. Under the
 * engine's lock.
 */
void pl_copier_start(struct pl_copier *copier, struct pl_copy *copy, struct pl_memory *memory, size_t offset,
		     struct pl_slot *slot, size_t length, bool into);
/* Copy between a device and other locked memory, or between two ranges of a device; done() is called later, or now. */
void pl_copier_host(struct pl_copier *copier, struct pl_copy *copy, struct pl_memory *memory, size_t offset, void *host,
		    size_t length, bool into);
struct pl_across {
	struct pl_memory *to, *from;
	size_t to_offset, from_offset, length;
	bool into; /* true if `to` is device memory; else `from` is device memory */
};
void pl_copier_across(struct pl_copier *copier, struct pl_copy *copy, const struct pl_across *across);
/* Kernel that copies many ranges. Embedded in its owner, as pl_copy is. */
struct pl_gather_copy {
	struct pl_copy copy;
	struct pl_gather *gather; /* given back before done() */
};
/*
 * Starts a gather with at most so many blocks; done() is called later, or now, with its status: -ECANCELED if the kernel could
 * not be started, or was withdrawn.
 */
void pl_copier_gather(struct pl_copier *copier, struct pl_gather_copy *copy, unsigned blocks);
/*
 * Copies up to PL_SMALL_MAX bytes into device memory, or out of it, in one batch with all others of an engine's round.
 * Bytes for device memory are read before this returns: the caller may reuse them. done() is called later, when the
 * bytes are in device memory or in `bytes`. Returns false if the caller must use another kind of copy.
 */
#define PL_SMALL_MAX 8192u
bool pl_copier_small(struct pl_copier *copier, struct pl_slots *pool, struct pl_small *small, struct pl_memory *memory,
		     size_t offset, void *bytes, size_t length, bool into);
/*
 * Copies out of device memory synchronously if no other small copy was made lately. A synchronous copy ends sooner than
 * a copy that waits for its batch. Returns 1 if it copied, 0 if not, or a negative errno.
 */
int pl_copier_alone(struct pl_copier *copier, struct pl_memory *memory, size_t offset, void *bytes, size_t length);
/*
 * Waits for all copies that began before, including their calls of done(). Cancelled operations that wait for a turn end. Under the
 * engine's lock.
 */
void pl_copier_drain(struct pl_copier *copier);
/* Ends the copies in one direction that are done. Under the engine's lock. */
void pl_copier_finish(struct pl_copier *copier, bool into);
/* Waits for the oldest copy in one direction. */
void pl_copier_wait_one(struct pl_copier *copier, bool into);

/*
 * Work of the program on a device, whose end only polling shows. Embedded in its owner. poll() returns true if anything
 * happened, and is called until pl_watch_remove(). Under the engine's lock.
 */
struct pl_watch {
	struct pl_list link;
	bool (*poll)(struct pl_watch *watch);
};

static inline void pl_watch_init(struct pl_watch *watch, bool (*poll)(struct pl_watch *))
{
	pl_list_init(&watch->link);
	watch->poll = poll;
}
/* Does nothing if the watch is added already. */
void pl_watch_add(struct pl_copier *copier, struct pl_watch *watch);
static inline void pl_watch_remove(struct pl_watch *watch)
{
	pl_list_remove(&watch->link);
}

/*
 * Most bytes of a copy of host memory that is not locked, and bytes after which a round of an engine begins no further one. The
 * driver copies them while the caller waits, with the engine's lock, and other peers of the engine wait, too. On an H200, copies of
 * 512 KiB to 4 MiB have the same rate.
 */
#define PL_BLOCKING_MAX (1u << 20)
/*
 * True if the caller may start such a copy now. Otherwise calls the watch's poll() once in a later round, in the order of these
 * calls; until then pl_watch_remove() takes the request back. Under the engine's lock.
 */
bool pl_copier_may_block(struct pl_copier *copier, struct pl_watch *watch, size_t length);

#endif
