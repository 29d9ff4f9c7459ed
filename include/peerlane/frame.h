/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames of streams: their layouts and descriptions, and the functions that publish, release, query and copy them.
 * <peerlane/stream.h> includes this file, and has the publishers that lend frames and the subscribers that take them.
 */
#ifndef PEERLANE_FRAME_H
#define PEERLANE_FRAME_H

#include <peerlane/peerlane.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pl_stream_frame; /**< slot on loan from a publisher, or frame that a subscriber took */

#define PL_LAYOUT_DIMENSIONS_MAX 8 /**< most dimensions of a layout */

/** Kind of a stream's elements, with the numbers of DLPack. */
enum pl_element {
	PL_ELEMENT_INT = 0,
	PL_ELEMENT_UINT = 1,
	PL_ELEMENT_FLOAT = 2,
	PL_ELEMENT_BFLOAT = 4,
	PL_ELEMENT_COMPLEX = 5,
	PL_ELEMENT_BOOL = 6,
};

/** Type and shape of a frame's elements, which lie in C order without gaps. All zero: bytes without a layout. */
struct pl_layout {
	uint8_t code;        /**< enum pl_element */
	uint8_t bits;        /**< of one element of one lane; 0: no layout */
	uint16_t lanes;      /**< vector lanes of an element; 1 for scalars */
	uint32_t dimensions; /**< 0 (one element) to PL_LAYOUT_DIMENSIONS_MAX */
	uint64_t shape[PL_LAYOUT_DIMENSIONS_MAX]; /**< elements of each dimension, the slowest first; unused ones are 0 */
};

/** Properties of a frame: bits of pl_frame_options.flags and pl_frame_info.flags. */
enum pl_frame_flag {
	PL_FRAME_REPLAY = 1,   /**< the frame was recorded earlier, and is published again */
	PL_FRAME_IN_PLACE = 2, /**< only of pl_frame_info: the payload is in the publisher's ring */
	/**
	 * Only of pl_frame_info: the publisher may have changed the payload after pl_subscriber_take(). That happens to frames
	 * in place of a process that was stopped, or made no progress, or had lost its connection.
	 */
	PL_FRAME_OVERWRITTEN = 4,
	/**
	 * Only of pl_frame_options, without payload, metadata and layout: the frame was lost before it came to this publisher. No
	 * subscriber gets it, and its sequence counts as with pl_publisher_skip_lost().
	 */
	PL_FRAME_LOST = 8,
};

/** Description of a frame that is published. */
struct pl_frame_options {
	size_t size;                    /**< sizeof(struct pl_frame_options) */
	uint64_t length;                /**< bytes of payload, 0 to the slot's size */
	uint64_t captured;              /**< time of the data, CLOCK_REALTIME nanoseconds; 0: that of the publication */
	const void *metadata;           /**< copied; NULL: none */
	size_t metadata_length;         /**< bytes, up to the publisher's metadata_bytes */
	const struct pl_layout *layout; /**< copied; NULL: that of the stream, if the frame is not shorter */
	unsigned flags;                 /**< PL_FRAME_REPLAY, PL_FRAME_LOST or 0 */
};
/* clang-format off */
#define PL_FRAME_OPTIONS_INIT { sizeof(struct pl_frame_options), 0, 0, NULL, 0, NULL, 0 }
/* clang-format on */

/** What a wait of pl_subscriber_take_on() ended with. */
enum pl_take_result {
	PL_TAKE_WAITS = 0, /**< the wait goes on */
	PL_TAKE_FRAME = 1, /**< the payload is in the frame's memory */
	PL_TAKE_GAP = 2,   /**< the expected frame was discarded, overwritten, or lost with the connection */
	PL_TAKE_NONE = 3,  /**< no frame came: `code` tells the reason */
};

/**
 * State of a frame of pl_subscriber_take_on(), in locked host memory that kernels of the frame's GPU can read: 64 bytes.
 * The library writes it before the stream goes on. All but `ready` is valid then, until the frame is released.
 */
struct pl_frame_status {
	uint64_t ready;  /**< the stream waits for a value of this word; private to the library */
	uint32_t result; /**< enum pl_take_result */
	/**
	 * PL_TAKE_NONE: -ENODATA, -ENOTCONN, -ESTALE, -EPROTO as of pl_subscriber_take(), or -ETIMEDOUT, or -ECANCELED (the
	 * subscriber was closed). Else 0.
	 */
	int32_t code;
	uint64_t sequence;    /**< PL_TAKE_FRAME and PL_TAKE_GAP; else 0 */
	uint64_t length;      /**< PL_TAKE_FRAME: bytes of payload; else 0 */
	uint64_t captured;    /**< as in struct pl_frame_info */
	uint64_t published;   /**< as in struct pl_frame_info */
	uint64_t lost_before; /**< as in struct pl_frame_info */
	uint64_t reserved;
};

/** A frame. Pointers are valid until the frame is published, discarded or released. */
struct pl_frame_info {
	size_t size;             /**< set by the caller: sizeof(struct pl_frame_info) */
	uint64_t sequence;
	void *data;              /**< payload, at a multiple of 4096 bytes; if it lies in a GPU, its address there, of 256 */
	uint64_t length;         /**< bytes of payload; of a loan: bytes of the slot */
	uint64_t captured;       /**< CLOCK_REALTIME nanoseconds, of the publisher's host; 0 of a loan */
	uint64_t published;      /**< the same */
	uint64_t taken;          /**< CLOCK_REALTIME nanoseconds, of this host; 0 of a loan */
	uint64_t lost_before;    /**< sequences directly before, back to the last delivered frame, that were not delivered */
	/**
	 * Of the frame, or else of the stream. None (`bits` 0) if the frame is shorter than the stream's layout. So the elements of a
	 * layout are always within `length`.
	 */
	struct pl_layout layout;
	const void *metadata;    /**< NULL: none */
	size_t metadata_length;
	unsigned flags;          /**< enum pl_frame_flag; 0 of a loan */
	/** Of a frame of pl_subscriber_take_on(): unless its result is PL_TAKE_FRAME, only `data` is valid here. Else NULL. */
	const struct pl_frame_status *status;
	/** Sequences of `lost_before` that were not lost: the publisher aborted them, or the subscriber did not want them. */
	uint64_t absent_before;
};
/* clang-format off */
#define PL_FRAME_INFO_INIT { sizeof(struct pl_frame_info), 0, NULL, 0, 0, 0, 0, 0, { 0, 0, 0, 0, { 0 } }, NULL, 0, 0, NULL, 0 }
/* clang-format on */

/* ------------------------------------------------------------------------------------------------
 * Loans of pl_publisher_loan(). Any thread may call these functions, except with a frame that another thread uses up.
 */

/**
 * Publishes a loan, which is used up. Frames become visible in the order of their loans: a frame waits for earlier loans.
 * Never waits for subscribers.
 *
 * @param options  read during the call only; NULL: an empty frame
 * @return 0; -EINVAL, -EMSGSIZE for a length, metadata or layout that does not fit. The loan is kept after a failure
 */
int pl_frame_publish(struct pl_stream_frame *frame, const struct pl_frame_options *options, struct pl_error *error);

/**
 * Publishes a loan once the work so far of a CUDA stream is done, which fills the slot: as pl_frame_publish(), but returns
 * at once. Options and metadata are copied. A frame whose stream fails is given up, as by pl_frame_discard(). The engine
 * polls the stream meanwhile. Before pl_publisher_close() the stream must have reached this call.
 *
 * @param stream  a CUstream or cudaStream_t of this process; not the default stream, and not being captured
 * @return as pl_frame_publish(); -EINVAL for a stream that cannot be used; -ENODEV if this process has not loaded CUDA's
 *         driver; -ENOTSUP if the driver is too old; -ENOMEM. The loan is kept after a failure
 */
int pl_frame_publish_on(struct pl_stream_frame *frame, const struct pl_frame_options *options, void *stream,
			struct pl_error *error);

/** Gives a loan up. Subscribers count its sequence as aborted. Accepts NULL. */
void pl_frame_discard(struct pl_stream_frame *frame);

/* ------------------------------------------------------------------------------------------------
 * Frames of pl_subscriber_take() and pl_subscriber_take_on(). Any thread, as above.
 */

/**
 * Returns a frame's memory to its subscriber. Accepts NULL. A stream that waits for the frame goes on at the frame's end, or
 * at once if none has come: its work must not use the memory any more.
 */
void pl_frame_release(struct pl_stream_frame *frame);

/**
 * Returns a frame's memory to its subscriber once the work so far of a CUDA stream is done. Returns at once. The frame must
 * not be used by other streams then. Before pl_subscriber_close() the stream must have reached this call.
 *
 * @param stream  a CUstream or cudaStream_t of this process; not the default stream, and not being captured
 * @return 0; -EINVAL for a frame that is not held, or a stream that cannot be used; -ENODEV if this process has not loaded
 *         CUDA's driver; -ENOTSUP if the driver is too old; -ENOMEM. The frame is kept after a failure
 */
int pl_frame_release_on(struct pl_stream_frame *frame, void *stream, struct pl_error *error);

/* ------------------------------------------------------------------------------------------------
 * Loans, and frames that were taken.
 */

/**
 * Queries a frame, on loan or taken.
 *
 * @return 0; -EINVAL if info->size is unknown
 */
int pl_frame_query(const struct pl_stream_frame *frame, struct pl_frame_info *info);

/**
 * Copies between host memory and a frame in any kind of memory, synchronously: pl_frame_copy_in() into a loan,
 * pl_frame_copy_out() from a loan or a frame that was taken. The processor cannot reach frames in GPU memory. Any thread.
 *
 * @param offset  bytes from the beginning of the frame
 * @return 0; -ERANGE outside of the frame; -EINVAL for a copy into a frame that is not on loan; -EAGAIN for a frame of
 *         pl_subscriber_take_on() whose result is not PL_TAKE_FRAME; -EFAULT if the frame's memory no longer exists
 */
int pl_frame_copy_in(struct pl_stream_frame *frame, uint64_t offset, const void *from, size_t length,
		     struct pl_error *error);
int pl_frame_copy_out(const struct pl_stream_frame *frame, uint64_t offset, void *to, size_t length,
		      struct pl_error *error);

#ifdef __cplusplus
}
#endif

#endif
