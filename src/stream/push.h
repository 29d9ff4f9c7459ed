/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pushes at the publisher's end: writes of frames into slots of a subscriber, and its credits. All functions run under the
 * lock of the home engine of the subscription's peer.
 */
#ifndef PL_STREAM_PUSH_H
#define PL_STREAM_PUSH_H

#include "stream/publisher.h"
#include "stream/push_credit.h"

/* Write of one frame. */
struct pl_push_write {
	struct pl_push *push;
	struct pl_operation *operation; /* NULL: it has ended, or there was nothing to write */
	uint64_t sequence, length;
	uint32_t slot;
	bool ended;
	struct pl_push_fates before; /* of the sequences between the frame of the write before and this one */
};

/* Lives until its subscription and its last operation have ended. Home. */
struct pl_push {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_publisher *publisher;       /* until the last write has ended */
	struct pl_subscription *subscription; /* NULL: it has ended */
	struct pl_operation *import;          /* under way */
	struct pl_remote *remote;             /* the subscriber's slots; NULL: not imported */
	uint64_t stride;
	bool gpu;                     /* the slots are in GPU memory */
	bool paused;                  /* the subscriber wants no frames at present */
	bool pump_again;              /* another round is due */
	bool counts;                  /* in peer->subscription_count, after the subscription */
	bool answers;                 /* CLOSED is due once no write is under way */
	uint32_t number;              /* of the subscription */
	enum pl_closed_reason closed; /* of its end */
	unsigned holds;               /* calls that use the push */
	unsigned writing;             /* operations of writes under way */
	int status;                   /* of the first failure; then nothing more is written */
	uint64_t next;                /* first sequence that has neither a fate nor a write */
	uint64_t skipped;             /* part of subscription->skipped that has a fate */
	struct pl_push_fates waiting; /* fates since the last write began */
	uint64_t told_next;           /* sequences below have a fate, or were told of */
	struct pl_push_fates told;    /* fates among these */
	unsigned first_write, write_count;
	unsigned write_limit;         /* most writes at a time */
	struct pl_laps laps;          /* of frames that were being written */
	struct pl_push_write *writes; /* `write_limit` elements: those under way, in the order of their sequences */
	struct pl_push_credits credits;
};

/* Returns the oldest sequence that is still worth a write. publisher->lock is held. */
static inline uint64_t pl_push_oldest(const struct pl_push *push)
{
	const struct pl_subscription *subscription = push->subscription;
	const struct pl_publisher *publisher = subscription->publisher;
	uint64_t oldest = PL_MIN(pl_publisher_oldest(publisher), publisher->published);

	/* A stream that has ended overwrites nothing more. */
	if (!push->laps.left || push->next >= publisher->published || publisher->state != PL_STREAM_LIVE)
		return oldest;
	return PL_MAX(oldest, pl_stream_newest_wanted(publisher->published, subscription->base, subscription->every));
}

#endif
