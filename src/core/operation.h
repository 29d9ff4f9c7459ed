/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations: from submission to delivery.  Everything happens under the home engine unless a comment says otherwise. */
#ifndef PL_CORE_OPERATION_H
#define PL_CORE_OPERATION_H

#include "core/region.h"
#include "core/remote.h"

struct pl_listener;

#define PL_OPERATION_FABRIC_SPACE 192

/* A contiguous part of an operation. */
struct pl_segment {
	struct pl_remote *remote;
	struct pl_region *region;
	uint64_t remote_offset, offset, length;
};

/* An operation of one segment that a fabric does at once. */
struct pl_sync_op {
	enum pl_kind kind;
	struct pl_segment segment;
	uint64_t operand, compare; /* atomics */
	uint64_t *old;             /* where what was there is wanted, too; or NULL */
	/* From the fabric: */
	uint64_t value;  /* atomics: what was there */
	const char *route_reason; /* why its bytes went as they did */
};

enum pl_operation_state { PL_RUNNING, PL_AWAITED, PL_DONE, PL_SPARE /* context->instant only */ };

struct pl_operation {
	struct pl_peer *connecting;   /* connect */
	struct pl_listener *listener; /* accept */
	struct pl_operation *parent;  /* internal: on whose behalf */
	struct pl_operation *child;   /* receive: the read that fetches a large message */
	void (*before_delivery)(struct pl_operation *operation);
	struct pl_error *error; /* of the first failure; may be NULL */
	const char *route_reason;        /* why its bytes went as they did; NULL: for the peer's reason */
	atomic_ullong staged;   /* bytes that went through memory of the fabric's own, and why */
	const char *_Atomic staged_reason;
	uint64_t total;
	uint8_t *copy;       /* pl_send_copy(): the message */
	uint64_t source_key; /* large send: the key that the peer reads through */
	atomic_int pending;  /* parts not done, plus one while it is being split */
	atomic_int status;   /* first failure wins */
	atomic_uint rails;   /* which carried a part, a bit each */
	unsigned segment_count;
	atomic_bool canceled;  /* parts must be dropped */
	bool has_handle;       /* pl_wait() collects it, not pl_poll() */
	bool internal;         /* neither: finished() takes it */
	bool counted;          /* in peer->running */
	bool plain;            /* one segment, for pl_poll(), and nothing is asked for but that its bytes move */
	bool cancel_requested; /* pl_cancel() was called */
	bool settled;          /* as visible as asked for, or the fabric sees to that */
	bool landing, placed;  /* in peer->landing; and where it belongs */
	bool leaving;          /* in peer->unsent, while its bytes are copied out of a device's memory */
	bool gathered;         /* send: the fabric takes the bytes from where they are */
	bool credit_due;       /* notification: collecting it makes a credit due */

	/* From here on set when it is made or used, and not cleared; first, side by side, what is set in each. */
	struct pl_receipt receipt;
	atomic_int state; /* enum pl_operation_state */
	struct pl_context *context;
	struct pl_peer *peer; /* NULL for accept and connect */
	struct pl_engine *home;
	struct pl_segment *segments; /* &single, or an array */
	uint64_t *old;               /* atomics */
	struct pl_attributes attributes;
	struct pl_list peer_link;  /* peer->operations; home */
	struct pl_list queue_link; /* whatever it waits in; home.  Later context->completed */
	struct pl_list handle_link;
	uint64_t deadline;
	struct pl_segment single;
	uint64_t operand, compare;                        /* atomics */
	uint64_t tag, mask;                               /* messages */
	uint32_t cookie;                                  /* large send: names it in FINISH */
	uint64_t request;                                 /* connect, accept, import */
	void (*finished)(struct pl_operation *operation); /* internal: instead of delivery */
	struct pl_task task;                              /* submission, later the finish */
	struct pl_task cancel_task;
	struct pl_small small;                                  /* copy of a message from or into a device's memory */
	struct pl_timer timer;                                  /* of one without a peer */
	_Alignas(16) uint8_t fabric[PL_OPERATION_FABRIC_SPACE]; /* the fabric's own */
};

/* Whether that is more than an acknowledgement promises. */
static inline bool pl_visible_more(enum pl_visible visible)
{
	return visible == PL_VISIBLE_PLACED || visible == PL_VISIBLE_GPU_VISIBLE;
}

/* immediate.c: the context's own operation. */
int pl_sync_open(struct pl_context *context, struct pl_error *error);
/* Before what the program did not collect is freed. */
void pl_sync_close(struct pl_context *context);
/*
 * immediate.c: does an operation of one segment at once, over a fabric that may, if nothing has to be waited for.
 * True: it is done, and delivered.
 */
bool pl_sync_try(struct pl_peer *peer, struct pl_sync_op *instant, const struct pl_attributes *attributes,
		  struct pl_operation **handle);

/* Notes that bytes of an operation go through staging, and why (static storage). */
static inline void pl_operation_staged(struct pl_operation *operation, uint64_t bytes, const char *why)
{
	atomic_fetch_add(&operation->staged, bytes);
	atomic_store(&operation->staged_reason, why);
}

struct pl_operation *pl_operation_new(struct pl_context *context, struct pl_peer *peer, enum pl_kind kind,
				      const struct pl_attributes *attributes, struct pl_error *error);
/* Of an operation that was not submitted. */
void pl_operation_discard(struct pl_operation *operation);
/* The program gets a handle of it. */
void pl_operation_hold(struct pl_operation *operation, struct pl_operation **handle);
/* Takes it from those of which the program has a handle, and its memory back; nothing hangs on it. */
void pl_operation_unhold(struct pl_context *context, struct pl_operation *operation);
/* Hands it to its home engine, which calls `run`; gives the program its handle if it wants one. */
void pl_operation_submit(struct pl_operation *operation, void (*run)(struct pl_task *), struct pl_operation **handle);
/* Puts it in the peer's list and starts its timer; false if it must not go on (it is finished then). Home. */
bool pl_operation_begin(struct pl_operation *operation);
/* The peer is lost, which it did not know when it began. */
void pl_operation_lost(struct pl_operation *operation);
/* A deadline of one of the peer's operations has come: stops those whose time is over. */
void pl_operations_expire(struct pl_timer *timer);
/* Records a failure; the first one wins. Any engine. `error` is copied. */
void pl_operation_fail(struct pl_operation *operation, int status, const struct pl_error *error);
/* Delivers: to its waiter, to pl_poll(), to finished(). Home. */
void pl_operation_complete(struct pl_operation *operation);
/* Has its home do so. */
void pl_operation_finish(struct pl_operation *operation);
/* One part is done (or was dropped). The last one finishes the operation. Any engine. */
static inline void pl_operation_pending_done(struct pl_operation *operation)
{
	/* Only who has a part adds others, so that the last one needs no atomic instruction. */
	if (atomic_load_explicit(&operation->pending, memory_order_acquire) == 1)
		atomic_store_explicit(&operation->pending, 0, memory_order_relaxed);
	else if (atomic_fetch_sub(&operation->pending, 1) != 1)
		return;
	if (pl_engine_held(operation->home))
		pl_operation_complete(operation);
	else
		pl_operation_finish(operation);
}
/* Stops an operation: records the status, takes it from the queue it waits in. Home. */
void pl_operation_stop(struct pl_operation *operation, int status, const struct pl_error *error);
void pl_operation_free(struct pl_operation *operation);
static inline struct pl_operation *pl_operation_of_task(struct pl_task *task)
{
	return pl_container_of(task, struct pl_operation, task);
}

/* Fails an operation that must not be staged, but would be, and why. */
void pl_operation_not_direct(struct pl_operation *operation, const char *why);

/* Adds to what pl_poll() delivers. */
void pl_completion_push(struct pl_context *context, struct pl_operation *operation);
void pl_completions_forget_peer(struct pl_context *context, struct pl_peer *peer);

#endif
