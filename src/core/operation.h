/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations: from submission to delivery. The home engine's lock is held unless a comment says otherwise. */
#ifndef PL_CORE_OPERATION_H
#define PL_CORE_OPERATION_H

#include "core/region.h"
#include "core/remote.h"

struct pl_listener;

#define PL_OPERATION_FABRIC_SPACE 192

/* Contiguous range of an operation. */
struct pl_segment {
	struct pl_remote *remote;
	struct pl_region *region;
	uint64_t remote_offset, offset, length;
};

/*
 * True if segment `number` of an array has another region, or remote region, than the one before it. An operation counts as one
 * user of a region for segments in a row.
 */
static inline bool pl_segment_changes_region(const struct pl_segment *segments, size_t number)
{
	return number == 0 || segments[number].region != segments[number - 1].region;
}

static inline bool pl_segment_changes_remote(const struct pl_segment *segments, size_t number)
{
	return number == 0 || segments[number].remote != segments[number - 1].remote;
}

/* Operation of one segment that a fabric does synchronously. */
struct pl_sync_op {
	enum pl_kind kind;
	struct pl_segment segment;
	uint64_t operand, compare; /* atomics */
	uint64_t *old;             /* receives the old value; may be NULL */
	bool no_wait;              /* PL_NO_WAIT */
	/* Set by the fabric: */
	uint64_t value;           /* atomics: old value */
	const char *route_reason; /* reason of the route */
};

/* Values of user_data of operations to cancel, in ascending order. NULL instead of a set means all. */
struct pl_cancel_set {
	const uint64_t *values;
	size_t count;
};

static inline bool pl_cancel_set_has(const struct pl_cancel_set *set, uint64_t value)
{
	size_t begin = 0, end = set ? set->count : 0;

	while (begin < end) {
		size_t middle = begin + (end - begin) / 2;

		if (set->values[middle] == value)
			return true;
		if (set->values[middle] < value)
			begin = middle + 1;
		else
			end = middle;
	}
	return !set;
}

/* Which comes first: the stop of a fetch, or FINISH of its last lane, after which the message counts as received. */
enum pl_fetch_end { PL_FETCH_OPEN, PL_FETCH_STOPPED, PL_FETCH_FINISHED };

enum pl_operation_state { PL_RUNNING, PL_AWAITED, PL_DONE, PL_SPARE /* of struct pl_thread_state only */ };

struct pl_operation {
	struct pl_peer *connecting;   /* connect */
	struct pl_listener *listener; /* accept */
	struct pl_stream_mark
		*after;              /* PL_AFTER_STREAM: begins when the stream has reached it; NULL: it has, or none */
	struct pl_operation *parent; /* internal: the receive for which this read fetches a large message */
	struct pl_operation *child;  /* receive: the read that fetches a large message */
	void (*deliver)(struct pl_operation *operation);
	struct pl_error *error;   /* of the first failure; may be NULL */
	const char *route_reason; /* reason of the route; NULL: that of the peer */
	atomic_ullong staged;     /* bytes that went through staging memory, and the reason */
	const char *_Atomic staged_reason;
	uint64_t total;
	struct pl_vector *vector; /* owner of `segments`; NULL: the operation */
	uint8_t *copy;            /* pl_send_copy(): the message */
	uint64_t source_key;      /* large send: the key that the peer reads through */
	atomic_int pending;       /* unfinished chunks, plus one while the operation is being split */
	atomic_int status;        /* the first failure wins */
	atomic_uint rails;        /* rails that carried a chunk, one bit each */
	unsigned segment_count;
	atomic_bool canceled;  /* chunks must be dropped */
	bool has_handle;       /* pl_wait() collects it, not pl_poll() */
	bool of_thread;        /* it is the spare operation of a thread's state: */
	atomic_uchar fetch_end; /* fetch of a large message: enum pl_fetch_end */
	unsigned closed_before; /* peers of the context that had been closed when it was posted */
	bool internal;         /* finished() takes it */
	bool counted;          /* counted in peer->running */
	bool plain;            /* of the program: one segment, no flags or higher visibility */
	bool of_home;          /* its memory is from the home engine's pool; it owns `copy` and `error` at most */
	bool used_at_home;     /* counted in `used` of the region and remote region of `single` */
	bool cancel_requested; /* pl_cancel() was called */
	bool settled;          /* the requested visibility is reached, or the fabric handles it */
	bool landing, placed;  /* in peer->landing; its bytes are in their memory */
	bool leaving;          /* in peer->unsent, while its bytes are copied out of device memory */
	/* send: first in peer->unsent, while its bytes are being registered, or the control channel has no room for it */
	bool held_back;
	bool gathered;         /* send: the fabric takes the bytes from their place */
	bool credit_due;       /* notification: its collection requires a credit */
	bool one_memory;       /* all segments of a vector have one region and one remote region */
	bool has_turn;         /* write: its notification has its place in the peer's window, and is not sent */
	bool notifies;         /* of the program: it is a notification, or ends with one */
	bool held_at_end;      /* message: has one more pending count until its peer is closed */
	bool wait_over;        /* the time limit of pl_wait() has passed: cancel_task ends it for this reason */

	/*
	 * Members from here on are set when the operation is created or used, and never cleared. The first ones, set by
	 * every operation, share cache lines.
	 */
	struct pl_completion completion;
	atomic_int state; /* enum pl_operation_state */
	struct pl_context *context;
	struct pl_peer *peer; /* NULL for accept and connect */
	/*
	 * Of most operations, lanes on other engines use only the next four members, `pending` and its neighbours, `single` and `fabric`.
	 * These lie in few cache lines: each line moves from home's processor to the lane's, and back.
	 */
	struct pl_engine *home;
	struct pl_operation *finished_before; /* next entry of home->finished */
	uint32_t cookie;                      /* large send: names it in FINISH */
	struct pl_segment *segments;          /* &single, or an array */
	uint64_t *old;               /* atomics */
	struct pl_attributes attributes;
	struct pl_list peer_link;  /* peer->operations; home */
	struct pl_list queue_link; /* the queue in which it waits (home), later context->completed */
	uint64_t deadline;
	struct pl_segment single;
	uint64_t operand, compare;                        /* atomics */
	uint64_t tag, mask;                               /* messages */
	uint64_t request;                                 /* connect, accept, import */
	void (*finished)(struct pl_operation *operation); /* internal: called in place of delivery */
	struct pl_task task;                              /* submission */
	struct pl_task cancel_task;
	struct pl_list handle_link;
	uint64_t wait_time; /* `wait_over`: that time limit, in nanoseconds */
	/* batched copy of a message from or into device memory */
	struct pl_small small;
	struct pl_timer timer;                                  /* of an operation without a peer */
	_Alignas(16) uint8_t fabric[PL_OPERATION_FABRIC_SPACE]; /* state of the fabric */
};

/* True if this level promises more than an acknowledgement. */
static inline bool pl_visible_more(enum pl_visible visible)
{
	return visible >= PL_VISIBLE_PLACED;
}

/* sync_op.c: returns the peer of a completed operation with `of_thread`; NULL if it was closed meanwhile. */
struct pl_peer *pl_sync_peer(const struct pl_operation *operation);
/*
 * sync_op.c: does an operation of one segment synchronously if its fabric can, and nothing must be waited for. Returns
 * true if the operation is done and delivered.
 */
bool pl_sync_try(struct pl_peer *peer, struct pl_sync_op *instant, const struct pl_attributes *attributes,
		 struct pl_operation **handle);

/* Records bytes that go through staging, and the reason (static storage). */
static inline void pl_operation_staged(struct pl_operation *operation, uint64_t bytes, const char *why)
{
	atomic_fetch_add(&operation->staged, bytes);
	atomic_store(&operation->staged_reason, why);
}

struct pl_operation *pl_operation_new(struct pl_context *context, struct pl_peer *peer, enum pl_kind kind,
				      const struct pl_attributes *attributes, struct pl_error *error);
/* Frees an operation that was not submitted. */
void pl_operation_discard(struct pl_operation *operation);
/* Takes what the attributes refer to: copies notification data, marks the stream. */
int pl_operation_take_attributes(struct pl_operation *operation, const char *call, struct pl_error *error);
/* Gives the program a handle of the operation. */
void pl_operation_hold(struct pl_operation *operation, struct pl_operation **handle);
/* Removes the operation from the handles of its home, and frees it. It owns no other memory any more. */
void pl_operation_unhold(struct pl_engine *home, struct pl_operation *operation);
/* Queues the operation at its home engine, which calls `run`. Gives the program a handle if it wants one. */
void pl_operation_submit(struct pl_operation *operation, void (*run)(struct pl_task *), struct pl_operation **handle);
/* The same, but this thread does not run it, and the home engine's own thread does so soon. */
void pl_operation_leave(struct pl_operation *operation, void (*run)(struct pl_task *), struct pl_operation **handle);
/*
 * Adds the operation to the peer's list and starts its timer. Returns false if the operation must not go on; it is
 * finished then. Home.
 */
bool pl_operation_begin(struct pl_operation *operation);
/* Gives the program a handle if it wants one, begins and starts the operation, which has a peer. Home. */
void pl_operation_submit_held(struct pl_operation *operation, struct pl_operation **handle);
/* Begins an operation with a peer, and starts it. Home. */
void pl_operation_run(struct pl_operation *operation);
/* Fails an operation that began after the loss of its peer. */
void pl_operation_lost(struct pl_operation *operation);
/* A deadline of the peer's operations has passed: stops all operations whose time is over. */
void pl_operations_expire(struct pl_timer *timer);
/* Records a failure, and copies `error`. The first failure wins. Any engine. */
void pl_operation_fail(struct pl_operation *operation, int status, const struct pl_error *error);
/* Delivers the operation to its waiter, to pl_poll() or to finished(). Home. */
void pl_operation_complete(struct pl_operation *operation);
/* Delivers a completed operation. Home. */
void pl_operation_deliver(struct pl_operation *operation);
/* Makes the home engine call pl_operation_complete(), in the order of these calls. Any engine. */
void pl_operation_finish(struct pl_operation *operation);
/* Completes the operations of home->finished. A task of a home engine. */
void pl_operations_finish_run(struct pl_task *task);
/* Ends one pending count. Returns true if it was the last one. Any engine. */
PL_ALWAYS_INLINE bool pl_operation_pending_last(struct pl_operation *operation)
{
	/* Only the owner of a pending count adds others, so the last one needs no atomic instruction. */
	if (atomic_load_explicit(&operation->pending, memory_order_acquire) == 1) {
		atomic_store_explicit(&operation->pending, 0, memory_order_relaxed);
		return true;
	}
	return atomic_fetch_sub(&operation->pending, 1) == 1;
}
/* Finishes an operation whose last pending count has ended. Any engine. */
static inline void pl_operation_all_done(struct pl_operation *operation)
{
	if (pl_engine_held(operation->home))
		pl_operation_complete(operation);
	else
		pl_operation_finish(operation);
}
/* Ends one pending count. The last one finishes the operation. Any engine. */
static inline void pl_operation_pending_done(struct pl_operation *operation)
{
	if (pl_operation_pending_last(operation))
		pl_operation_all_done(operation);
}
/* Decides the end of a fetch, unless that is decided. Returns true if it is `end` now. Any engine. */
static inline bool pl_fetch_decide(struct pl_operation *fetch, enum pl_fetch_end end)
{
	unsigned char decided = PL_FETCH_OPEN;

	return atomic_compare_exchange_strong(&fetch->fetch_end, &decided, (unsigned char)end) || decided == end;
}
/* Stops an operation: records the status, and removes it from the queue in which it waits. Home. */
void pl_operation_stop(struct pl_operation *operation, int status, const struct pl_error *error);
void pl_operation_free(struct pl_operation *operation);
static inline struct pl_operation *pl_operation_of_task(struct pl_task *task)
{
	return pl_container_of(task, struct pl_operation, task);
}

/* Fails an operation that would be staged and forbids staging. */
void pl_operation_not_direct(struct pl_operation *operation, const char *why);

/* Makes the queue of pl_poll(), which is empty. */
void pl_completion_init(struct pl_context *context);
/* Queues the completions that a batch of the engine has gathered. Home. */
void pl_completions_queue(struct pl_engine *home);
static inline void pl_completions_publish(struct pl_engine *home)
{
	if (home->gathered_count)
		pl_completions_queue(home);
}
/* Adds an operation to the queue of pl_poll(): at once, or together with others of the home engine's batch. */
void pl_completion_push(struct pl_context *context, struct pl_operation *operation);
/* Adds an event of the peer, with the peer's user data of this moment. */
void pl_completion_push_event(struct pl_peer *peer, struct pl_operation *event);
/* Queues the events of an accepted peer that came before its accept was delivered, and all later ones. */
void pl_completion_release_events(struct pl_peer *peer);
void pl_completions_forget_peer(struct pl_context *context, struct pl_peer *peer);

#endif
