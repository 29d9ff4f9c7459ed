/* SPDX-License-Identifier: BSD-2-Clause */
/* Frame handles: loans of a publisher, and frames of a subscriber. */
#ifndef PL_STREAM_FRAME_H
#define PL_STREAM_FRAME_H

#include "core/operation.h"
#include "stream/ring.h"

/*
 * Life cycle of a subscriber's frame. subscriber->lock protects `state`.
 *
 *   state                      changed by                when
 *   free -> want descriptor    subscriber_admit()        the frame was published; its descriptor is not known
 *   free -> want payload       subscriber_admit()        the same, with a descriptor from the announcement
 *   free -> ready              subscriber_admit()        the same, without payload
 *   want ... -> reading        subscriber_step()         a read begins
 *   reading -> want payload    frame_read_finished()     the descriptor was read
 *   reading -> unchecked       frame_read_finished()     all bytes were read
 *   unchecked -> checking      subscriber_step()         the read of the cursors begins
 *   checking -> ready, free    cursors_read_finished()   the lap rule accepts the frame, or not
 *   ready -> held              pl_subscriber_take()
 *   ready -> free              subscriber_admit()        the queue is full, and drops the oldest frame
 *   held -> free               pl_frame_release()
 */
enum pl_frame_state {
	PL_FRAME_FREE,
	PL_FRAME_WANT_DESCRIPTOR,
	PL_FRAME_WANT_PAYLOAD,
	PL_FRAME_READING,
	PL_FRAME_UNCHECKED,
	PL_FRAME_CHECKING,
	PL_FRAME_READY,
	PL_FRAME_HELD,
	/* of a publisher */
	PL_FRAME_LOANED,
	PL_FRAME_DONE, /* published or discarded; waits for earlier loans */
};

struct pl_stream_frame {
	struct pl_list link;            /* subscriber->window while it is being read or ready; else subscriber->spare */
	struct pl_publisher *publisher; /* NULL: a subscriber's frame */
	struct pl_subscriber *subscriber; /* NULL: a loan */
	enum pl_frame_state state;
	uint64_t sequence;
	void *data;
	/* Of a subscriber. */
	uint64_t offset;            /* of the payload in the subscriber's region */
	uint64_t descriptor_offset; /* of the descriptor and its metadata there */
	struct pl_ring_descriptor descriptor;
	struct pl_layout stream_layout; /* of a frame without a layout of its own */
	bool described;                 /* the descriptor is decoded, and has all values in range */
	uint64_t taken, lost_before;
	struct pl_operation *operation; /* read under way; home */
};

#endif
