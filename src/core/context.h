/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A context: its engines, tables of peers and grants, locks, and queue of completions.
 *
 * Order of locks: an engine, then context->lock, then one of the small ones (grant_lock, queue_lock,
 * the latch of spare_operations), which never nest.
 */
#ifndef PL_CORE_CONTEXT_H
#define PL_CORE_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/lock.h"
#include "base/pool.h"
#include "engine/engine.h"
#include "profile/profile.h"
#include "staging/staging.h"
#include "wire/wire.h"

struct pl_fabric_ops;
struct pl_grant;
struct pl_peer;

#define PL_ENGINES_MAX 64

/* Where pl_poll() wants what completes while it makes progress. */
struct pl_sink {
	struct pl_completion *completions;
	int count, most;
};

struct pl_context {
	struct pl_allocator allocator;
	struct pl_options options; /* defaults filled in; pointers in it are not valid */
	char *devices;             /* options.devices; NULL: all */
	struct pl_profile routes;  /* grant_lock, but for pl_routes_open() */
	bool routes_known;
	uint8_t id[16], boot_id[16];
	struct pl_tls *tls; /* NULL: no key */
	struct pl_engine *engines[PL_ENGINES_MAX];
	struct pl_copier *copiers[PL_ENGINES_MAX]; /* of engines that needed one; the engine's lock */
	unsigned engine_count;
	atomic_uint next_engine;
	struct pl_slots slot_pool; /* of locked memory, for bytes that sockets and cards do not reach */
	const struct pl_fabric_ops *fabrics[PL_FABRICS_MAX]; /* those to choose from, the best first */
	unsigned fabric_count;
	pthread_mutex_t fabric_lock;         /* making the states */
	void *fabric_states[PL_FABRICS_MAX]; /* what a fabric keeps for the context; in the order above */

	pthread_mutex_t lock; /* the lists, and slots */
	struct pl_list peers, listeners, regions, remotes;
	struct pl_peer **peer_table; /* peers by index, for sockets that join them */
	size_t peer_table_size;

	pthread_mutex_t grant_lock; /* grants and every peer's keys */
	struct pl_grant **grants;
	size_t grant_count;
	struct pl_task expiry_task; /* of grants, on the first engine */
	struct pl_timer expiry_timer;

	struct pl_lock queue_lock; /* completions for pl_poll() */
	struct pl_list completed;
	atomic_bool any_completed; /* it is not empty: to be asked without the lock */
	struct pl_sink *sink;      /* NULL: the list; of the only engine of a context without threads, its lock */
	int event_fd;              /* readable while `completed` is not empty; -1 until pl_fd() */
	int poll_fd;               /* what pl_fd() gave; -1 until then */

	struct pl_pool spare_operations;
	struct pl_list handles; /* operations that the program holds a handle of; the pool's latch */
	/* For operations that are done at once; the pool's latch. */
	struct pl_clock clock;
	/*
	 * For one of which the program has a handle.  It stays in the list of these, and is spare by a plain store, as an
	 * atomic instruction would wait until all that the operation copied is out of the processor's buffers.
	 * NULL: there is none.
	 */
	struct pl_operation *instant;
};

static inline bool pl_context_manual(const struct pl_context *context)
{
	return context->options.progress == PL_PROGRESS_MANUAL;
}

/* Drives all engines once; for contexts without threads. Returns whether anything happened. */
bool pl_context_progress(struct pl_context *context);

/*
 * The copier of an engine of the context's, made when it is first asked for; NULL: no memory.  Under the
 * engine's lock.
 */
struct pl_copier *pl_context_copier(struct pl_context *context, struct pl_engine *engine);

/* Returns when no engine, and no copy of one, is in the middle of anything that began before the call. */
void pl_context_barrier(struct pl_context *context);

struct pl_engine *pl_context_pick_engine(struct pl_context *context);

/* routes.c: the profile that says how to reach GPUs' memory; read when it is first asked for, if it has no name. */
int pl_routes_open(struct pl_context *context, const char *file, struct pl_error *error);
/* NULL: there is none. grant_lock */
const struct pl_profile *pl_routes_get(struct pl_context *context);
void pl_routes_close(struct pl_context *context);

#endif
