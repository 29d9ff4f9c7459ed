/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams: named, ordered sequences of frames from one publisher to many subscribers.
 *
 * A publisher has a ring of slots. Each frame has a sequence number, from 0, and lies in slot `sequence % slots` until
 * the frame `sequence + slots` is claimed. Subscribers read frames from the ring with keys that allow reads only. A frame
 * that is overwritten while a subscriber reads it is discarded and counted, and never delivered.
 */
#ifndef PEERLANE_STREAM_H
#define PEERLANE_STREAM_H

#include <peerlane/peerlane.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_STREAM_NAME_SIZE 64      /**< bytes of a stream's name with its NUL: 1 to 63 of `A-Za-z0-9._-` */
#define PL_CONTENT_TYPE_SIZE 64     /**< bytes of a content type with its NUL */
#define PL_STREAM_SLOTS_MAX 65536   /**< most slots of a ring */
#define PL_STREAM_METADATA_MAX 3072 /**< most bytes of metadata of a frame */
#define PL_LAYOUT_DIMENSIONS_MAX 8  /**< most dimensions of a layout */

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
	uint64_t shape
		[PL_LAYOUT_DIMENSIONS_MAX]; /**< elements of each dimension, the slowest first; unused ones are 0 */
};

/** State of a stream. */
enum pl_stream_state {
	PL_STREAM_LIVE = 1,
	PL_STREAM_ENDED = 2,  /**< the publisher ended the stream: all its frames are published */
	PL_STREAM_FAILED = 3, /**< the publisher or the connection to it was lost, or it broke the protocol */
};

#ifdef __cplusplus
}
#endif

#endif
