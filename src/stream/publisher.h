/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Publisher: owner of a ring, and its subscriptions.
 *
 * Order of locks: an engine, then publisher->lock. The program's threads take publisher->lock alone. Each engine has an
 * announcer, whose subscriptions belong to peers of that engine.
 */
#ifndef PL_STREAM_PUBLISHER_H
#define PL_STREAM_PUBLISHER_H

#include "base/wall.h"
#include "core/fabric.h"
#include "core/stream_ops.h"
#include "core/trust.h"
#include "stream/frame_marks.h"
#include "stream/stream_token.h"
#include "stream/turn.h"
#include "wire/stream_message.h"

#define PL_PUBLISHERS_MAX 1024
#define PL_SUBSCRIBERS_MAX 256
/* Announcements without an answer after which a subscription is told nothing. */
#define PL_UNANSWERED_MAX 16
/* Subscriptions that have ended and are kept for pl_publisher_subscribers(). */
#define PL_ENDED_MAX 64
/*
 * Nanoseconds that a publisher waits, after its patience, until a subscriber with frames in place has frozen them. Only
 * processes that are stopped or make no progress need so long.
 */
#define PL_FREEZE_TIME (10 * PL_NS_PER_S)

/*
 * Contexts whose subscribers were demoted lately, and the time for which they hold no slots back, in times of the publisher's patience.
 * Else a new subscription would renew the patience.
 */
#define PL_DEMOTIONS_MAX 16
#define PL_DEMOTION_PATIENCES 10u

struct pl_demotion {
	uint8_t context_id[16];
	/* Of the peer's identity; "": none. A peer of another identity may claim the same context. */
	char fingerprint[PL_FINGERPRINT_MAX];
	uint64_t until; /* pl_now() */
};

/* Sends announcements to the subscriptions of one engine. */
struct pl_announcer {
	struct pl_publisher *publisher;
	struct pl_engine *engine;
	struct pl_task task;
	struct pl_task spread_task;   /* the same for all announcers */
	struct pl_timer timer;        /* tells what was left for later: ANNOUNCE_PAUSE */
	struct pl_timer token_timer;  /* ends subscriptions whose tokens have expired */
	struct pl_list subscriptions; /* home_link; home */
	/* Publishing threads read the next two for each frame. They change seldom, and the engine writes the others all the time. */
	uint8_t apart[PL_CACHE_LINE];
	atomic_uint count; /* elements of `subscriptions` */
	/* True if no subscription can be told of a frame before its subscriber has answered. Changed at home. */
	atomic_bool silent;
	uint8_t apart_behind[PL_CACHE_LINE];
};

/* Nanoseconds for which a subscription may be prepared. The drivers of GPUs take seconds to start. */
#define PL_PREPARE_TIME (600 * PL_NS_PER_S)

struct pl_subscription {
	struct pl_list link;      /* publisher->prepared, then ->subscriptions, then ->ended; publisher->lock */
	struct pl_list home_link; /* announcer->subscriptions; home */
	struct pl_list peer_link; /* peer->subscriptions; home */
	struct pl_publisher *publisher;
	struct pl_peer *peer; /* NULL once it has ended; publisher->lock, and changed at home */
	uint32_t number;
	uint8_t control[PL_TOKEN_SIZE], payload[PL_TOKEN_SIZE];
	/* Home. */
	uint32_t sent, answered; /* announcements */
	uint64_t told;           /* `published` of the last announcement, or of the last PUSHED */
	enum pl_stream_state told_state;
	bool told_demoted;
	bool prepared;     /* its subscriber prepares: it has a place and keys, and no sequence yet */
	char fingerprint[PL_FINGERPRINT_MAX]; /* of the peer's identity when it began; "": none */
	/* Ends it after PL_PREPARE_TIME, unless it has begun; and after the subscriber has revoked the slots of pushes. */
	struct pl_timer end_timer;
	uint32_t demotion; /* number of the first announcement that told of it */
	struct pl_stream_pass pass;   /* token that admitted it */
	enum pl_closed_reason closed; /* of its end */
	struct pl_push *push; /* `pushed`: set once the subscriber has shared its slots; home */
	/* publisher->lock. */
	bool blocks, demoted, ended;
	bool quiet;          /* in place, and its subscriber answers and reports only if it must */
	bool awaited;        /* the next announcement asks for a report, because a loan or a skip waits */
	bool asked;          /* the last announcement asked for reports at once */
	bool in_place;       /* blocks until its frames are frozen, or until this time: */
	bool pushed;         /* the publisher writes its frames */
	bool drop_newest;    /* of pushed frames: those without a credit are rejected, unless they are history */
	uint64_t history_end; /* the subscription began after the sequences below it */
	uint64_t freeze_end; /* once it is demoted */
	uint64_t first, taken;
	uint64_t announced;
	uint32_t every; /* wanted: the first of each `every` sequences, from `base` on */
	uint64_t base;
	uint64_t skipped;            /* wanted sequences that were skipped and have no descriptor */
	struct pl_accounts accounts; /* as reported; at the end, completed */
};

struct pl_publisher {
	struct pl_list link; /* context->publishers; context->lock */
	struct pl_context *context;
	struct pl_region *control, *payload;
	struct pl_ring_header header;
	bool allow_block, needs_token;
	uint64_t patience;
	uint64_t first; /* sequence of the first frame */
	unsigned loan_count, subscriber_limit;
	struct pl_turn turn;             /* a slot became free, a loan ended, or a subscription reported */
	struct pl_announcer *announcers; /* one for each engine */
	struct pl_frame_marks marks;     /* loans that wait for streams */
	uint8_t apart[PL_CACHE_LINE];    /* publishing threads write for each frame behind it, and engines before it */
	/* Time (wall clock) at which a pass over all subscriptions was handed to an engine; 0 once it has begun. */
	_Atomic uint64_t handed;

	struct pl_lock lock; /* all below */
	struct pl_wall wall;
	struct pl_ring ring;
	enum pl_stream_state state;
	uint64_t claimed, published, refused;
	uint64_t gate;                 /* first sequence that may not be claimed: held back by a subscriber, or the end */
	uint64_t blocked_since;        /* pl_now() of the first loan or skip that found the gate shut; 0: it is open */
	uint64_t awaited;              /* end of the sequences that this loan or skip claims */
	uint64_t asked;                /* value of `awaited` for which subscribers were asked for slots last */
	struct pl_stream_frame *loans; /* loan_count; sequence s uses loans[s % loan_count] */
	struct pl_list prepared, subscriptions, ended;
	unsigned prepared_count, subscription_count, ended_count;
	struct pl_index_table tokens; /* struct pl_issued_token */
	struct pl_demotion demotions[PL_DEMOTIONS_MAX];
	unsigned writing; /* pushed writes under way, which read the ring */
	bool closing;     /* begins no more of them */
};

/* Returns the announcer whose subscriptions belong to peers of this engine. */
static inline struct pl_announcer *pl_announcer_of(const struct pl_publisher *publisher, const struct pl_engine *engine)
{
	struct pl_announcer *announcer = publisher->announcers;

	while (announcer->engine != engine)
		announcer++;
	return announcer;
}

/* Finds the context's publisher of a name. context->lock is held. */
struct pl_publisher *pl_publisher_find(struct pl_context *context, const char *name);
/* True if the subscription holds back a slot that is needed for the sequences before `end`. publisher->lock is held. */
static inline bool pl_subscription_holds(const struct pl_subscription *subscription, uint64_t end)
{
	const struct pl_publisher *publisher = subscription->publisher;

	return subscription->blocks && subscription->taken < publisher->published &&
	       subscription->taken + publisher->header.geometry.slots < end;
}

/* Sets the gate after a change of `taken`, `blocks` or the list. publisher->lock is held. */
void pl_publisher_set_gate(struct pl_publisher *publisher);
/* Returns the oldest sequence that the ring may still hold. publisher->lock is held. */
static inline uint64_t pl_publisher_oldest(const struct pl_publisher *publisher)
{
	return PL_MAX(publisher->first, pl_ring_oldest(publisher->claimed, publisher->header.geometry.slots));
}

/* Returns the fingerprint of the identity that the peer proved; "": none. Home. */
static inline const char *pl_peer_fingerprint(const struct pl_peer *peer)
{
	return peer->admission ? peer->admission->identity.fingerprint : "";
}

/*
 * True if the subscriber reports free slots in quarters of the ring unless the last announcement has asked for them. One with frames
 * in place may be quiet instead. publisher->lock is held.
 */
static inline bool pl_subscription_must_ask(const struct pl_subscription *subscription)
{
	return subscription->blocks && !subscription->in_place && subscription->peer->asked_reports;
}

/* loan.c: true if a subscriber of the peer's context was demoted lately. publisher->lock is held. */
bool pl_publisher_has_demoted(const struct pl_publisher *publisher, const struct pl_peer *peer);
/* loan.c: publishes a frame, or gives it up, after the work of its stream. */
void pl_publisher_marked(struct pl_stream_frame *frame, int status);
/* True if the oldest loan waits for a CUDA stream, and so comes back without the program. publisher->lock is held. */
bool pl_publisher_returns(const struct pl_publisher *publisher);
/* Describes the publisher for lists and subscribers. publisher->lock is held. */
void pl_publisher_describe(const struct pl_publisher *publisher, struct pl_stream_entry *entry);
void pl_stream_entry_info(const struct pl_stream_entry *entry, struct pl_publisher_info *info);

/* subscription.c: handle messages of a subscriber. Return 0 or -EPROTO. Home. */
int pl_subscription_open(struct pl_peer *peer, const struct pl_stream_message *message);
int pl_subscription_taken(struct pl_peer *peer, const struct pl_stream_message *message);
int pl_subscription_close(struct pl_peer *peer, const struct pl_stream_message *message);
/* Takes over the accounts of a pushed subscription. Returns -EPROTO for some that cannot be. Home. */
int pl_push_report(struct pl_subscription *subscription, const struct pl_accounts *accounts);
/* Returns the subscription of a number, or NULL. Home. */
struct pl_subscription *pl_subscription_find(struct pl_peer *peer, uint32_t number);
/* Ends a subscription, and keeps its accounts. Home. */
void pl_subscription_end(struct pl_subscription *subscription);
/*
 * The same, and sends CLOSED with subscription->closed; to a subscriber whose frames are pushed after all sequences have been told,
 * and all writes have ended. Home.
 */
void pl_subscription_dismiss(struct pl_subscription *subscription);

/* announce.c: posts the tasks of all announcers that have subscriptions. No lock is held. */
void pl_publisher_announce(struct pl_publisher *publisher);
/* The same for news that are only of frames, at this time (wall clock): without announcers that can tell nobody. */
void pl_publisher_announce_frames(struct pl_publisher *publisher, uint64_t now);
void pl_announcer_init(struct pl_announcer *announcer, struct pl_publisher *publisher, struct pl_engine *engine);
/*
 * Tells a subscription the news, unless it has too many announcements to answer. Frames wait for a report of a subscriber that has
 * enough to read. Home.
 */
void pl_subscription_announce(struct pl_subscription *subscription);
/* The same before the end of a subscription: all frames, although the subscriber has not answered. Home. */
void pl_subscription_tell_last(struct pl_subscription *subscription);
/* True if the peer's control channel is too full for more. The announcer looks again later. Home. */
bool pl_subscription_must_wait(const struct pl_subscription *subscription);
/*
 * Sends a message about streams. Returns as pl_channel_send(). Without memory for a message that somebody waits for, the connection
 * ends soon. Home.
 */
int pl_stream_send(struct pl_peer *peer, const struct pl_stream_message *message);
void pl_stream_send_closed(struct pl_peer *peer, uint32_t number, enum pl_closed_reason reason);

/* listing.c: handle LIST and LISTED. Home. */
int pl_listing_serve(struct pl_peer *peer, const struct pl_stream_message *message);
int pl_listing_arrived(struct pl_peer *peer, const struct pl_stream_message *message);
void pl_listings_end(struct pl_peer *peer);

/*
 * push.c: frames that the publisher writes into slots of the subscriber. Handle SLOTS and CREDIT; return 0 or -EPROTO. Home.
 */
int pl_push_slots(struct pl_peer *peer, const struct pl_stream_message *message);
int pl_push_credit(struct pl_peer *peer, const struct pl_stream_message *message);
/* Writes and tells what can be now. May end the subscription. Home. */
void pl_push_continue(struct pl_subscription *subscription);
/* Takes the push from its subscription, for pl_push_end(). Returns NULL if that has none. Home. */
struct pl_push *pl_push_detach(struct pl_subscription *subscription);
/*
 * Ends a detached push; accepts NULL. `stop`: cancels the writes under way. `answer`: CLOSED tells the subscriber that they
 * have ended. Home.
 */
void pl_push_end(struct pl_push *push, bool stop, bool answer);
/* Tells of all that was published, before CLOSED. The subscriber counts what it did not get as missed. Home. */
void pl_push_tell_last(struct pl_subscription *subscription);

/* Closes all publishers of a context. */
void pl_publisher_close_all(struct pl_context *context);

#endif
