/* SPDX-License-Identifier: BSD-2-Clause */
/* Frame handles: loans of a publisher, and frames of a subscriber. */
#ifndef PL_STREAM_FRAME_H
#define PL_STREAM_FRAME_H

#include <stdatomic.h>

#include "core/operation.h"
#include "stream/ring.h"

/*
 * Life cycle of a subscriber's frame. subscriber->lock protects `state`.
 *
 *   state                      changed by                when
 *   free -> want descriptor    pl_subscriber_admit()     the frame was published; its descriptor is not known
 *   free -> want payload       pl_subscriber_admit()     the same, with a descriptor from the announcement
 *   free -> ready              pl_subscriber_admit()     the same, without payload, or with a payload that is used in place
 *   want ... -> reading        subscriber_step()         a read begins
 *   reading -> want payload    frame_read_finished()     the descriptor was read
 *   reading -> unchecked       frame_read_finished()     all bytes were read
 *   reading -> ready, free     frame_read_finished()     all bytes came, with a trailing word: the lap rule accepts the frame, or not
 *   unchecked -> checking      subscriber_step()         a check begins
 *   checking -> ready, free    pl_check_end()            the lap rule accepts the frame, or not
 *   ready -> held              pl_subscriber_take()
 *   ready -> free              pl_subscriber_admit()     the queue is full, and drops the oldest frame
 *   held -> free               pl_frame_release(); the end of the work before pl_frame_release_on()
 *   free -> promised           pl_subscriber_take_on()   no frame is in the window that is not promised already
 *   promised -> want ...       pl_subscriber_admit()     the next frame takes this place
 *   promised -> held, free     promise.c                 no frame will come, or none came in time
 *   free -> credited           pl_pushed_step()          the publisher may write into the slot
 *   credited -> ready          pl_subscriber_pushed()    the publisher has written a frame
 *
 * A promised frame of the window is held, with a status, as soon as it is ready, the first one, and its stream waits; or once it will
 * never be. If the driver refuses the wait, the frame stays in the window without the promise.
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
	PL_FRAME_PROMISED,
	PL_FRAME_CREDITED,
	/* of a publisher */
	PL_FRAME_LOANED,
	PL_FRAME_MARKED, /* pl_frame_publish_on(): waits for its stream */
	PL_FRAME_DONE,   /* published or discarded; waits for earlier loans */
};

/* Where the payload of a subscriber's frame is. */
enum pl_frame_place {
	PL_PLACE_OWN,    /* in memory.payloads */
	PL_PLACE_RING,   /* in the publisher's ring */
	PL_PLACE_FROZEN, /* at its address in the ring's mapping, but in pages of its own */
};

struct pl_ring_view;
struct pl_stream_check;

struct pl_stream_frame {
	/* subscriber->window while it is being read or ready; promises; placed while it is held in place; else spare */
	struct pl_list link;
	struct pl_publisher *publisher;   /* NULL: a subscriber's frame */
	struct pl_subscriber *subscriber; /* NULL: a loan */
	enum pl_frame_state state;
	uint64_t sequence;
	void *data;
	/* Of a subscriber. */
	uint64_t offset;            /* of the payload in memory.payloads */
	uint64_t descriptor_offset; /* of the descriptor and its metadata in memory.control */
	struct pl_ring_descriptor descriptor;
	struct pl_layout stream_layout; /* of a frame without a layout of its own */
	uint64_t stream_layout_bytes;
	bool described;                 /* the descriptor is decoded, and has all values in range */
	uint64_t taken, lost_before;
	uint64_t
		absent_before; /* sequences before it, back to the frame before in the window, that were aborted or unwanted */
	struct pl_stream_check *check;  /* that judges it, or judged it last */
	uint64_t claimed;               /* newest that had been read when the read of its payload was posted */
	bool promised;                  /* a stream waits for it */
	bool abandoned;                 /* the program has released it before it came */
	bool on_stream;                 /* pl_subscriber_take_on() took it */
	bool stale;                     /* push: held, of an earlier instance of the publisher */
	unsigned reads;                 /* push: calls of pl_subscriber_read() that copy from the slot */
	uint64_t round;                 /* value of status->ready that ends the present wait */
	uint64_t promised_at;           /* time of the call of pl_subscriber_take_on() */
	uint64_t promise_end;           /* time at which the stream stops to wait, while no frame takes the place */
	struct pl_frame_status *status; /* NULL: no stream can wait */
	struct pl_ring_view *view;      /* mapping of the ring that has the payload; NULL with PL_PLACE_OWN */
	atomic_int place;               /* enum pl_frame_place; subscriber->lock protects changes */
	/* Of both. */
	struct pl_list mark_link;       /* pl_frame_marks.frames */
	struct pl_stream_mark *mark;    /* the frame waits for it; NULL: for none */
	struct pl_operation *operation; /* read under way; home */
};

/* promise.c: returns what the wait for a frame of pl_subscriber_take_on() ended with. Any thread. */
enum pl_take_result pl_promise_result(const struct pl_stream_frame *frame);

#endif
