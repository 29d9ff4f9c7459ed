/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lap checks of a subscriber: reads of the cursors, each of which judges frames by the lap rule.
 *
 * A check judges the frames whose reads had ended before it was posted, and no others: a frame keeps the check that was posted
 * for it. Several checks may be under way, and may end in any order. A frame whose payload came with a trailing word needs no check.
 */
#ifndef PL_STREAM_CHECK_H
#define PL_STREAM_CHECK_H

#include "core/operation.h"
#include "stream/ring.h"

/* Most checks under way at a time. More of them would judge fewer frames each. */
#define PL_CHECKS_MAX 4u
/* Memory of the cursors of all checks, and of pl_checks_look(). */
#define PL_CHECKS_SIZE ((PL_CHECKS_MAX + 1) * PL_RING_CURSORS)

struct pl_stream_frame;
struct pl_subscriber;

struct pl_stream_check {
	struct pl_subscriber *subscriber;
	struct pl_operation *operation; /* under way; home */
	/* subscriber->lock. */
	bool busy;                   /* posted, or about to be */
	uint64_t claimed, published; /* newest cursors that had been read when it was posted: its own are not older */
};

void pl_checks_init(struct pl_subscriber *subscriber);
/*
 * Gives all frames whose reads have ended to a check, which the caller must post. Returns NULL if there are none, or if all checks
 * are under way. subscriber->lock is held.
 */
struct pl_stream_check *pl_check_begin(struct pl_subscriber *subscriber);
/* Returns the offset of the check's cursors in the subscriber's memory. */
uint64_t pl_check_offset(const struct pl_stream_check *check);
/*
 * Ends a check: judges its frames if `status` is 0, and gives them up otherwise. The caller begins the subscriber's next turn once it
 * has released subscriber->lock, which is held. Home.
 */
void pl_check_end(struct pl_stream_check *check, int status);
/* Judges a frame by the trailing word of its payload. subscriber->lock is held. Home. */
void pl_check_trailing(struct pl_stream_frame *frame, uint64_t claimed, struct pl_engine *home);
/*
 * Reads the cursors at once, if this process maps the ring. Judges no frames. Returns true if they tell of new frames, or are
 * wrong: the subscriber must be pumped then. Home; subscriber->lock is not held.
 */
bool pl_checks_look(struct pl_subscriber *subscriber);
/* Stops the checks under way. Home. */
void pl_checks_cancel(struct pl_subscriber *subscriber);

#endif
