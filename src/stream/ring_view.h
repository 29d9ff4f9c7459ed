/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ring of a publisher of this host, mapped for reading, and frames that are used in it.
 *
 * The publisher holds the slots of such frames back until the subscriber reports them released. It may stop to do so: its
 * patience ends, it is closed, or the connection is lost. Then the subscriber freezes its frames: it copies each of them, and
 * replaces the pages of its slot in the mapping by the copy. The address stays the same. A publisher whose patience has ended
 * waits for that, for a limited time. The lap rule, applied after the copy, tells if the copy came too late.
 */
#ifndef PL_STREAM_RING_VIEW_H
#define PL_STREAM_RING_VIEW_H

#include "core/fabric.h"
#include "stream/frame.h"

struct pl_ring_view;
struct pl_subscriber;

/*
 * Maps the ring of imported regions. Returns -ENOTSUP with the reason if the peer's fabric has no mapping of it; -ENOMEM.
 * Home.
 */
int pl_ring_view_open(struct pl_peer *peer, struct pl_remote *control, struct pl_remote *payload,
		      const struct pl_ring_geometry *geometry, const char *name, struct pl_ring_view **view,
		      struct pl_error *error);
/* Adds a reference. Returns NULL for NULL. */
struct pl_ring_view *pl_ring_view_get(struct pl_ring_view *view);
/* Returns the word that has `published`, little-endian. The publisher changes it at any time. */
const uint64_t *pl_ring_view_published(const struct pl_ring_view *view);
/* Reads the cursors. */
void pl_ring_view_cursors(const struct pl_ring_view *view, uint64_t *claimed, uint64_t *published);
/* Gives a reference back. Accepts NULL. */
void pl_ring_view_put(struct pl_ring_view *view);

/* All below: subscriber->lock is held, unless a comment says otherwise. */

/*
 * Copies and decodes the descriptor of a frame from the present view. Returns false without a view, or if the descriptor is
 * that of another sequence: then a read of the ring tells the reason.
 */
bool pl_frame_describe_in_place(struct pl_subscriber *subscriber, struct pl_stream_frame *frame);
/*
 * Moves the payload of a frame with a descriptor into the present view. Returns false without one. The lap rule judges the frame
 * when it is taken.
 */
bool pl_frame_place(struct pl_subscriber *subscriber, struct pl_stream_frame *frame);
/* Moves the payload of a frame back to memory.payloads. */
void pl_frame_unplace(struct pl_stream_frame *frame);
/* True unless the publisher has claimed the slot of a frame in its ring again. No lock is needed. */
bool pl_frame_unchanged(const struct pl_stream_frame *frame);
/* The same for several frames that were read before: one look at `claimed` of their view, whose line the publisher writes. */
struct pl_ring_look {
	const struct pl_ring_view *view; /* NULL: no look yet */
	uint64_t claimed;
};
bool pl_frame_unchanged_at(const struct pl_stream_frame *frame, struct pl_ring_look *look);
/* Freezes all frames in the present view, and gives the view up. A subscriber that is being closed only gives it up. */
void pl_subscriber_freeze(struct pl_subscriber *subscriber);
/*
 * Takes over the last cursors of a lost publisher from its ring, if this process has that mapped: no message tells them. Home;
 * subscriber->lock is not held.
 */
void pl_subscriber_follow_lost(struct pl_subscriber *subscriber);
/* Returns the first sequence in place that the program or the window still has; or `sequence`, if that is less. */
uint64_t pl_subscriber_first_placed(const struct pl_subscriber *subscriber, uint64_t sequence);

#endif
