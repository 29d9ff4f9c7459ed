/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Subscriber: reads the ring of a peer's publisher.
 *
 * Order of locks: an engine, then subscriber->lock. The home engine of the present peer drives all reads:
 * pl_subscriber_pump() takes one step after another, and posts reads without subscriber->lock, because a read may finish
 * within its post.
 */
#ifndef PL_STREAM_SUBSCRIBER_H
#define PL_STREAM_SUBSCRIBER_H

#include "core/fabric.h"
#include "core/stream_ops.h"
#include "stream/check.h"
#include "stream/frame_marks.h"
#include "stream/frame_memory.h"
#include "stream/presented_token.h"
#include "stream/ring_view.h"
#include "stream/turn.h"
#include "wire/stream_message.h"

/* Most bytes of frames that a subscriber fetches beyond its queue, and most frames: each step looks at all frames of the window. */
#define PL_AHEAD_BYTES ((uint64_t)8 << 20)
#define PL_AHEAD_FRAMES 64u

/*
 * Life cycle of a subscriber's connection. subscriber->lock protects `phase`; changed at home. A publisher that lets subscribers
 * prepare is asked twice: for its keys, and, once the first copies are done, for the first sequence.
 *
 *   phase                changed by                 when
 *   away -> asked        subscriber_ask()           pl_subscriber_open(), pl_subscriber_attach(): SUBSCRIBE is sent
 *   asked -> answered    pl_subscriber_subscribed()
 *   answered -> asked    ask_to_begin()             the subscriber has prepared
 *   answered -> live     subscriber_begin()         the keys are imported, and the memory is there
 *   any -> away          pl_subscriber_leave()      the peer is lost, or the program leaves it
 *   live -> over         pl_subscriber_closed(), pl_subscriber_fail()
 */
enum pl_subscriber_phase {
	PL_SUBSCRIBER_AWAY,
	PL_SUBSCRIBER_ASKED,
	PL_SUBSCRIBER_ANSWERED,
	PL_SUBSCRIBER_LIVE,
	PL_SUBSCRIBER_OVER, /* nothing more will be read */
};

struct pl_subscriber {
	struct pl_list link; /* context->subscribers; context->lock */
	struct pl_context *context;
	char name[PL_STREAM_NAME_SIZE];
	enum pl_start start;
	uint64_t from;
	enum pl_overflow overflow;
	unsigned queue, held_limit, every;
	size_t memory_bytes;
	bool in_place; /* asked for */
	bool push;     /* the publisher writes the frames */
	bool events;   /* for pl_poll() */
	uint64_t user_data;
	struct pl_turn turn;
	struct pl_task task;         /* runs the pump */
	struct pl_batch_end wake;    /* wakes the program; home */
	struct pl_frame_marks marks; /* held frames that wait for streams */
	struct pl_task promise_task; /* watches the times of promises */

	char memory_kind[16]; /* of the payloads */
	struct pl_frame_memory memory;

	/* Home. */
	struct pl_list peer_link; /* peer->subscribers */
	struct pl_remote *control, *payload;
	uint32_t number;
	bool pumping, pump_again;
	struct pl_timer promise_timer;
	struct pl_watch promise_watch; /* the engine polls while a stream waits, until this time: */
	uint64_t promise_poll_end;
	struct pl_timer credit_timer; /* push: the control channel was full */
	uint32_t arrived; /* announcements of this subscription */
	uint64_t reported_taken;
	uint32_t reported_arrived;
	bool reported_end;
	bool shared;                                  /* push: the publisher has a key of the slots */
	bool told_paused;                             /* push: the publisher knows of the pause */
	bool maps_slots;                              /* the publisher's process has mapped them */
	uint8_t token[PL_TOKEN_SIZE];                 /* of that key */
	struct pl_push_fates pushed_fates;            /* as the publisher has told last */
	const struct pl_stream_message *announcement; /* being handled: has the newest descriptors; else NULL */

	struct pl_lock lock;      /* all below */
	struct pl_presented_token presented; /* token of the next SUBSCRIBE */
	struct pl_engine *engine; /* home of the present or last peer */
	uint64_t earlier_homes;   /* other engines that were homes: a bit of each, by its index */
	struct pl_peer *peer;     /* NULL: none */
	enum pl_subscriber_phase phase;
	struct pl_stream_message *answer;      /* SUBSCRIBED, while it is awaited */
	struct pl_stream_entry entry;          /* of the present instance */
	uint64_t layout_bytes;                 /* of its layout */
	struct pl_ring_geometry geometry;      /* of the present memory; slots 0: there is none */
	uint64_t claimed, published;           /* newest known */
	uint64_t history_end;                  /* the present subscription began after the sequences below it */
	uint64_t read_claimed, read_published; /* newest that checks have read */
	uint64_t subscription;   /* counts the subscriptions of all connections; the present one has this number */
	uint64_t part_published; /* newest that reads of parts have found, in the subscription `part_subscription` */
	uint64_t part_subscription;
	struct pl_stream_check checks[PL_CHECKS_MAX + 1]; /* the last one is that of pl_checks_look() */
	uint64_t check_count; /* checks that have begun */
	/* By the last announcement of the present subscription. Before the subscriber is live they are all that it knows. */
	uint64_t announced_claimed, announced_published, announced_skipped;
	uint64_t counted_skipped; /* part of `announced_skipped` that the accounts have */
	enum pl_stream_state announced_state;
	enum pl_stream_state state;
	bool blocks, demoted, paused;
	bool restarted;         /* the program must learn of the new instance before its first frame */
	uint64_t restart_first; /* first sequence of that instance */
	uint64_t restart_next;  /* of the last answer: those before were published while there was no connection */
	struct pl_accounts accounts;
	uint64_t last_delivered; /* sequence after the last delivered frame; or the first sequence */
	uint64_t absent; /* sequences behind the window, or the last delivered frame, that were aborted or unwanted */
	struct pl_list window, spare;
	unsigned ahead;            /* frames that are fetched beyond the queue while the subscriber blocks */
	struct pl_list placed;     /* frames in a view that the program holds */
	struct pl_ring_view *view; /* of the present subscription, while frames are used in place; else NULL */
	bool closing;              /* all frames become invalid */
	bool attaching;            /* a thread is in pl_subscriber_attach() */
	bool leaving;              /* push: true after UNSUBSCRIBE was sent */
	uint64_t leave_end;        /* time at which the wait for CLOSED ends, in ns */
	bool written;              /* push: the publisher has answered that: no write is under way */
	bool unclean;              /* push: a process that was stopped and cut off may still write into the slots */
	unsigned credited;         /* slots that the publisher may write into */
	bool report_due;           /* the publisher waits for a report */
	/* ring_poll.c */
	bool may_be_quiet;                     /* the publisher asks for reports, and threads of this context poll */
	bool polls;                            /* the program has looked into the ring of the present view */
	unsigned sleeping;                     /* threads in a take that rely on announcements */
	bool awaited;                          /* the publisher has asked for free slots */
	unsigned released;                     /* frames in place since the last report */
	uint64_t view_claimed, view_published; /* last seen in the view */
	struct pl_list parts;      /* calls of pl_subscriber_read() with reads under way; changed at home */
	struct pl_list spare_parts;
	struct pl_list promises;   /* frames that streams wait for, and that no sequence has yet */
	struct pl_stream_frame *arming; /* promised, while a thread tells its stream to wait; NULL: none */
	bool promises_take_long;   /* the last stream has waited for longer than the engine polls */
	unsigned window_count, held;
	unsigned memory_users; /* calls of pl_subscriber_take_on() that may use the memory */
	struct pl_laps laps; /* of frames that were being read */
	unsigned reading;    /* reads under way, with those of the cursors */
	enum pl_route route; /* of the last payload that was read, and the reason */
	const char *reason;
	struct pl_error failure; /* code 0: none */
	int event_fd;            /* -1: not asked for */
	bool event_set;
	bool told; /* an event for pl_poll() has told of what a take would return */
};

/* subscriber.c: handle messages of the publisher. Return 0 or -EPROTO. Home. */
int pl_subscriber_subscribed(struct pl_peer *peer, const struct pl_stream_message *message);
int pl_subscriber_announced(struct pl_peer *peer, const struct pl_stream_message *message);
int pl_subscriber_closed(struct pl_peer *peer, const struct pl_stream_message *message);
/* Returns the subscriber of a number, or NULL. Home. */
struct pl_subscriber *pl_subscriber_find(struct pl_peer *peer, uint32_t number);
/* Takes over what was announced. subscriber->lock is held. */
void pl_subscriber_follow(struct pl_subscriber *subscriber);
/*
 * Counts all sequences that are known and have no fate as missed or unwanted, in accounts of the subscriber or a copy of them.
 * subscriber->lock is held.
 */
static inline void pl_subscriber_miss_known(const struct pl_subscriber *subscriber, struct pl_accounts *accounts)
{
	if (subscriber->restarted || accounts->next >= subscriber->published)
		return;
	pl_accounts_miss(accounts, subscriber->published, accounts->first, subscriber->every);
}

/* Counts the sequences before `end` in the subscriber's accounts alike. subscriber->lock is held. */
static inline void pl_subscriber_miss(struct pl_subscriber *subscriber, uint64_t end)
{
	struct pl_accounts *accounts = &subscriber->accounts;
	uint64_t unwanted = accounts->unwanted;

	pl_accounts_miss(accounts, end, accounts->first, subscriber->every);
	subscriber->absent += accounts->unwanted - unwanted;
}

/*
 * True if the caller is at home. It is not if another thread has attached the subscriber to a peer of another engine meanwhile:
 * then that thread has done the work.
 */
static inline bool pl_subscriber_at_home(struct pl_subscriber *subscriber)
{
	bool held;

	pl_lock_take(&subscriber->lock);
	held = pl_engine_held(subscriber->engine);
	pl_lock_release(&subscriber->lock);
	return held;
}

/*
 * The same for a task of the subscriber, which is posted at home otherwise: a post there may have found it queued at this engine,
 * and left.
 */
static inline bool pl_subscriber_task_at_home(struct pl_subscriber *subscriber, struct pl_task *task)
{
	struct pl_engine *home;

	pl_lock_take(&subscriber->lock);
	home = subscriber->engine;
	pl_lock_release(&subscriber->lock);
	if (pl_engine_held(home))
		return true;
	pl_engine_post(home, task);
	return false;
}

/* Leaves the peer: nothing more is read from it. Home. */
void pl_subscriber_leave(struct pl_subscriber *subscriber);
void pl_subscriber_close_all(struct pl_context *context);
/* Ends reading for good, with a reason. subscriber->lock is held. */
void pl_subscriber_fail(struct pl_subscriber *subscriber, int code, const char *id, const char *fact);
/* The same for values in the ring that cannot be. subscriber->lock is held. */
void pl_subscriber_fail_protocol(struct pl_subscriber *subscriber);

/* fetch.c: does all steps that can be done now. Home; subscriber->lock is not held. */
void pl_subscriber_pump(struct pl_subscriber *subscriber);
void pl_subscriber_task(struct pl_task *task);
/* True if no thread waits for the copy of such a read (PL_NO_WAIT). */
bool pl_subscriber_reads_without_wait(const struct pl_segment *segment);
/* Returns a read of the ring that pl_subscriber_post_read() posts, or NULL without memory. Home. */
struct pl_operation *pl_subscriber_new_read(struct pl_peer *peer, const struct pl_segment *segment, void *user,
					    void (*finished)(struct pl_operation *operation));
/* Posts it. It may finish meanwhile. Home; subscriber->lock is not held. */
static inline void pl_subscriber_post_read(struct pl_peer *peer, struct pl_operation *operation)
{
	if (pl_operation_begin(operation))
		pl_peer_start(peer, operation);
}
/*
 * Drops the oldest frame. Returns false while it is being read, or a stream takes it: so frames are dropped in the order of their
 * sequences. subscriber->lock is held.
 */
bool pl_subscriber_drop_oldest(struct pl_subscriber *subscriber);
/* Frees a frame that cannot be read, and counts it as missed. subscriber->lock is held. */
void pl_subscriber_give_up(struct pl_subscriber *subscriber, struct pl_stream_frame *frame);
/*
 * Frees a whole frame if its descriptor is wrong or the publisher aborted it. Returns 0 if the frame stays, 1 if it is free, or
 * -EPROTO if it is free and the caller has to fail the subscriber. subscriber->lock is held.
 */
int pl_subscriber_reject(struct pl_subscriber *subscriber, struct pl_stream_frame *frame);
/*
 * Ends a read that could not begin, or that failed: the connection is lost, or the publisher has been closed. `frame`: gives it up;
 * NULL: the read was a check. subscriber->lock is held.
 */
void pl_subscriber_read_failed(struct pl_subscriber *subscriber, struct pl_stream_frame *frame, int status);
/* Gives up all frames of which a part has not been read, because nothing can be read now. subscriber->lock is held. */
void pl_subscriber_stop_reading(struct pl_subscriber *subscriber);
/* Removes a frame from the window. subscriber->lock is held. */
void pl_subscriber_free_frame(struct pl_subscriber *subscriber, struct pl_stream_frame *frame);

/* take.c: keeps promises, and sets the event descriptor. subscriber->lock is held. */
void pl_subscriber_tell(struct pl_subscriber *subscriber);
/* Does that, and wakes waiting threads. subscriber->lock is held, on which these threads then wait: for rare events. */
void pl_subscriber_wake(struct pl_subscriber *subscriber);
/* Releases subscriber->lock, then wakes waiting threads, which need the lock at once. */
void pl_subscriber_leave_turn(struct pl_subscriber *subscriber);
/* Returns 0 if a frame may still come after those of the window, or the result of a take. subscriber->lock is held. */
int pl_subscriber_end_of_frames(const struct pl_subscriber *subscriber);
/* Returns the first accounts of an instance that the program has not seen yet. subscriber->lock is held. */
struct pl_accounts pl_subscriber_restart_accounts(const struct pl_subscriber *subscriber);
/* Begins the accounts of the new instance. subscriber->lock is held. */
void pl_subscriber_begin_instance(struct pl_subscriber *subscriber);
/*
 * Puts a free frame back, or leaves that to the end of the reads that copy from its slot. The next frame uses the memory of the last
 * free one, which may still be in the processor's cache. subscriber->lock is held.
 */
static inline void pl_subscriber_add_spare(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	if (frame->reads == 0)
		pl_list_prepend(&subscriber->spare, &frame->link);
}
/* Gives the first frame of the window, which is ready, to the program. `now`: wall clock. subscriber->lock is held. */
void pl_subscriber_hold(struct pl_subscriber *subscriber, struct pl_stream_frame *frame, uint64_t now);
/* Puts a frame that the program held back. subscriber->lock is held. */
void pl_subscriber_unhold(struct pl_subscriber *subscriber, struct pl_stream_frame *frame);
int pl_subscriber_fail_take(const struct pl_subscriber *subscriber, const char *call, int rc, struct pl_error *error);

/* promise.c: init; ends the wait for a frame of the window that will not be ready. subscriber->lock is held. */
void pl_promises_init(struct pl_subscriber *subscriber);
void pl_promise_miss(struct pl_subscriber *subscriber, struct pl_stream_frame *frame);
/* Gives ready frames to the streams that wait for them, and ends waits that are in vain. subscriber->lock is held. */
void pl_promises_keep(struct pl_subscriber *subscriber);
/* Stops to watch the times. Home. */
void pl_promises_forget(struct pl_subscriber *subscriber, struct pl_engine *engine);
/* Ends all waits without frames. No read is under way. */
void pl_promises_cancel(struct pl_subscriber *subscriber);

/* promise_poll.c: init. */
void pl_promises_poll_init(struct pl_subscriber *subscriber);
/* Makes the engine poll while a stream waits. Home. */
void pl_promises_poll(struct pl_subscriber *subscriber);
/* Notes that a stream has got its frame. subscriber->lock is held. */
void pl_promise_kept(struct pl_subscriber *subscriber, const struct pl_stream_frame *frame);

/* Bytes of a frame that pl_subscriber_read() is asked for, and the place that receives them. */
struct pl_part_range {
	uint64_t sequence, offset, length;
	struct pl_region *region;
	uint64_t region_offset;
};

/* part.c: describes a frame of which a part was read. `own`: layout of a frame that has none in its descriptor. */
/* Returns 0, or the reason for which no part can be read. subscriber->lock is held. */
int pl_part_refuse(const struct pl_subscriber *subscriber, struct pl_error *error);
void pl_part_describe(uint64_t sequence, const struct pl_ring_descriptor *descriptor, const struct pl_layout *own,
		      struct pl_frame_info *info);
/* Stops the reads of pl_subscriber_read(). Home. */
void pl_parts_cancel(struct pl_subscriber *subscriber);
/* Frees the memory of calls that have returned. */
void pl_parts_close(struct pl_subscriber *subscriber);

/*
 * fetch.c: gives the next sequence a fate, or begins to read it. Returns false if it must wait. `announcement`: has
 * descriptors; NULL: none is being handled. subscriber->lock is held.
 */
bool pl_subscriber_admit(struct pl_subscriber *subscriber, const struct pl_stream_message *announcement);

/*
 * ring_poll.c: frames in place that the program's threads find in the ring themselves.
 *
 * True if the subscriber does without announcements: the program's threads look into the ring, and none of them sleeps. The
 * publisher then gets no answers, and reports only of a quarter of the slots, or when it asks for one. subscriber->lock is held.
 */
bool pl_subscriber_is_quiet(const struct pl_subscriber *subscriber);
/* Prepares a new subscription. subscriber->lock is held. */
void pl_subscriber_begin_polling(struct pl_subscriber *subscriber);
/*
 * Takes over the cursors of the view. Returns false if they are wrong: the subscriber has failed, and its task must run then.
 * subscriber->lock is held.
 */
bool pl_subscriber_follow_ring(struct pl_subscriber *subscriber);
/* The same, and admits frames. Returns true if the subscriber's task must run. subscriber->lock is held. */
bool pl_subscriber_poll_ring(struct pl_subscriber *subscriber);
/* Waits for a turn after `seen`, as pl_turn_wait(), or for a frame in the ring. subscriber->lock is not held. */
bool pl_subscriber_await(struct pl_subscriber *subscriber, unsigned seen, uint64_t deadline);

/* pushed.c: init. */
void pl_pushed_init(struct pl_subscriber *subscriber);
/* Handles PUSHED. Returns 0 or -EPROTO. Home. */
int pl_subscriber_pushed(struct pl_peer *peer, const struct pl_stream_message *message);
/* Shares the slots, and gives credits for free ones. Returns false if nothing can be done now. Home. */
bool pl_pushed_step(struct pl_subscriber *subscriber);
/* pushed_read.c: copies a part of a frame that is in a slot. Returns as pl_subscriber_read(). */
int pl_pushed_read(struct pl_subscriber *subscriber, const struct pl_part_range *range, struct pl_frame_info *info,
		   struct pl_error *error);
/* pushed.c: asks the publisher to end its writes. */
void pl_pushed_begin_leave(struct pl_subscriber *subscriber, struct pl_engine *engine);
/*
 * Ends a subscription over a connection that may work: awaits the end of the publisher's writes. A publisher that does not answer
 * delays all subscriptions of its connection by 1 s together.
 */
void pl_pushed_unsubscribe(struct pl_subscriber *subscriber, struct pl_engine *engine);
/* Revokes the slots' key. Home. */
void pl_pushed_revoke(struct pl_subscriber *subscriber);
/* Takes the credits back after that. No lock is held. */
void pl_pushed_recall(struct pl_subscriber *subscriber);

/* Returns the oldest frame of the window if it is ready, and no stream takes it. subscriber->lock is held. */
static inline struct pl_stream_frame *pl_subscriber_first_ready(const struct pl_subscriber *subscriber)
{
	struct pl_stream_frame *frame;

	if (pl_list_empty(&subscriber->window))
		return NULL;
	frame = pl_list_first(&subscriber->window, struct pl_stream_frame, link);
	return frame->state == PL_FRAME_READY && !frame->promised ? frame : NULL;
}

/* True if the next frame is history: it stays in the ring until the queue has room. subscriber->lock is held. */
static inline bool pl_subscriber_reads_history(const struct pl_subscriber *subscriber)
{
	return subscriber->accounts.next < subscriber->history_end;
}

/* True if the next frame replaces the oldest one of a full queue. subscriber->lock is held. */
static inline bool pl_subscriber_drops_oldest(const struct pl_subscriber *subscriber)
{
	return !pl_subscriber_reads_history(subscriber) &&
	       (subscriber->overflow == PL_OVERFLOW_DROP_OLDEST || subscriber->demoted);
}

/* Returns the most frames of the window. subscriber->lock is held. */
static inline unsigned pl_subscriber_window_limit(const struct pl_subscriber *subscriber)
{
	return subscriber->queue + (subscriber->blocks ? subscriber->ahead : 0);
}

/* report.c: slots of which one report tells while the publisher does not wait. */
static inline unsigned pl_slots_of_report(const struct pl_subscriber *subscriber)
{
	return PL_MAX(subscriber->geometry.slots / 4, 1u);
}

/* True if all frames of an ended stream have a fate. subscriber->lock is held. */
bool pl_subscriber_is_complete(const struct pl_subscriber *subscriber);
/* report.c: tells the publisher. Home; subscriber->lock is not held. Returns true if it sent a report. */
bool pl_subscriber_report(struct pl_subscriber *subscriber);
void pl_subscriber_unsubscribe(struct pl_subscriber *subscriber, struct pl_peer *peer);

#endif
