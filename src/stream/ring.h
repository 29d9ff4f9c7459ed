/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ring of a stream: memory of the publisher that subscribers read. Little-endian; reserved bytes are 0.
 *
 *   offset 0      header: 4,096 bytes, written once
 *   4096          cursors: 64 bytes, all that a lap check reads
 *   4160          descriptors: one for each slot, each followed by its metadata
 *
 * The slots are other memory: slot i begins at i * slot_stride and has payload only.
 *
 * Lap rule. The publisher claims sequence s, which ends the validity of the frame s - slots, before anything writes into
 * the slot. A subscriber reads payload and descriptor of frame s, waits for the end of all these reads, and then reads
 * the cursors. If pl_ring_whole() accepts `claimed` of that read, nothing that it read before was overwritten. A read
 * of the cursors that was posted earlier proves nothing.
 *
 * A reader that maps the ring judges a frame by the stamp of its descriptor instead, if the publisher marks what it claims. The mark
 * comes before anything writes into the slot, too, and this line changes only once in a round of the ring.
 *
 * A trailing word does both at once: each server of a piece of the payload loads `claimed` after it has copied the piece, and sends
 * the value behind it. The greatest of these values judges the frame, whose descriptor was read before.
 */
#ifndef PL_STREAM_RING_H
#define PL_STREAM_RING_H

#include <peerlane/stream.h>

#include "base/base.h"

#define PL_RING_VERSION 1
#define PL_RING_HEADER 4096
#define PL_RING_CURSORS 64
#define PL_RING_DESCRIPTOR 128
#define PL_RING_PAGE 4096
#define PL_RING_SLOT_MAX (1ull << 40)
/* Largest sequence that a reader accepts: sums of a sequence and a number of slots do not wrap. */
#define PL_RING_SEQUENCE_MAX (1ull << 62)
/*
 * Third word of the cursors of a publisher that marks the descriptor of a slot when it claims it. So the stamp alone tells whether a
 * frame is whole. Earlier releases wrote 0 or a time there, and read nothing.
 */
#define PL_RING_MARKS_CLAIMS ((1ull << 63) + 1)

struct pl_ring_geometry {
	uint32_t slots;
	uint32_t metadata_bytes;    /* most bytes of metadata */
	uint32_t descriptor_stride; /* descriptor and metadata, a multiple of 64 */
	uint64_t slot_bytes;        /* most bytes of payload */
	uint64_t slot_stride;       /* a multiple of PL_RING_PAGE */
};

struct pl_ring_header {
	uint8_t instance[16];
	uint64_t created; /* CLOCK_REALTIME */
	bool gpu;         /* the slots are in GPU memory */
	struct pl_ring_geometry geometry;
	struct pl_layout layout;
	char content_type[PL_CONTENT_TYPE_SIZE];
	char name[PL_STREAM_NAME_SIZE];
};

struct pl_ring_cursors {
	uint64_t claimed;   /* first sequence that is not claimed */
	uint64_t published; /* first sequence that is not published */
	uint32_t state;     /* enum pl_stream_state */
};

enum {
	PL_DESCRIPTOR_ABORTED = 1, /* the publisher discarded the frame, which has no payload */
	PL_DESCRIPTOR_LAYOUT = 2,  /* the frame has a layout of its own */
	PL_DESCRIPTOR_REPLAY = 4,  /* the frame was recorded earlier, and is published again */
};

struct pl_ring_descriptor {
	uint64_t sequence;
	uint32_t flags;
	uint64_t length;
	uint64_t captured, published; /* CLOCK_REALTIME */
	uint16_t metadata_length;
	struct pl_layout layout; /* zero without PL_DESCRIPTOR_LAYOUT */
};

/*
 * True for an aborted sequence whose frame the publisher never got: a relay or a recording had lost it. Other aborted descriptors
 * have a time, so earlier releases read these as aborted ones.
 */
static inline bool pl_ring_descriptor_lost(const struct pl_ring_descriptor *descriptor)
{
	return (descriptor->flags & PL_DESCRIPTOR_ABORTED) && descriptor->captured == 0;
}

/*
 * Returns the layout of a frame: its own, or that of the stream. A frame that is shorter than the stream's layout has none, because
 * the bytes behind its end belong to earlier frames. `bytes`: pl_layout_bytes() of the stream's layout.
 */
const struct pl_layout *pl_frame_layout(const struct pl_ring_descriptor *descriptor, const struct pl_layout *stream,
					uint64_t bytes);

/* Fills strides from slots, slot_bytes and metadata_bytes. Returns -EINVAL for values out of range. */
int pl_ring_geometry_init(struct pl_ring_geometry *geometry);
/* Return the bytes of header, cursors and descriptors; of all slots. */
uint64_t pl_ring_control_size(const struct pl_ring_geometry *geometry);
uint64_t pl_ring_payload_size(const struct pl_ring_geometry *geometry);
/* Return offsets, in the control part and in the slots. */
uint64_t pl_ring_descriptor_offset(const struct pl_ring_geometry *geometry, uint64_t sequence);
uint64_t pl_ring_slot_offset(const struct pl_ring_geometry *geometry, uint64_t sequence);

/* True for a name of 1 to 63 characters of `A-Za-z0-9._-`, with its NUL in PL_STREAM_NAME_SIZE bytes. */
bool pl_stream_name_valid(const char *name);
/* True for up to 63 visible ASCII characters or spaces, with the NUL in PL_CONTENT_TYPE_SIZE bytes. */
bool pl_content_type_valid(const char *text);
/* True if all fields are in range. */
bool pl_layout_valid(const struct pl_layout *layout);
/* Returns the bytes of all elements; 0 without a layout; UINT64_MAX for a size that does not fit 64 bits. */
uint64_t pl_layout_bytes(const struct pl_layout *layout);

void pl_ring_header_encode(const struct pl_ring_header *header, uint8_t buffer[PL_RING_HEADER]);
/* Returns -EPROTO for another format or version, nonzero reserved bytes and values out of range. */
int pl_ring_header_decode(const uint8_t buffer[PL_RING_HEADER], struct pl_ring_header *header);

/* -- publisher: the caller serializes these functions, readers use the memory meanwhile ------------ */

/* Writer's view of the control part. */
struct pl_ring {
	uint8_t *control;
	struct pl_ring_geometry geometry;
	uint64_t layout_end; /* a sequence that is a ring or more behind this one finds no layout in its slot */
};

/* `control`: memory of zeros. */
void pl_ring_init(struct pl_ring *ring, uint8_t *control, const struct pl_ring_header *header);
/*
 * Claims a sequence for a loan, and marks its descriptor. Later stores, and devices that they start, write into the slot behind
 * the claim and the mark.
 */
void pl_ring_claim(struct pl_ring *ring, uint64_t sequence);
/* Claims all sequences below `end`, without a mark. No payload may be written into the slots. */
void pl_ring_claim_below(struct pl_ring *ring, uint64_t end);
/* Fetches the line of a descriptor that the caller will write soon. The slot must not be in use. */
void pl_ring_prepare(const struct pl_ring *ring, uint64_t sequence);
/* Writes the descriptor of a claimed sequence. Without metadata it keeps those of an earlier call. */
void pl_ring_describe(struct pl_ring *ring, const struct pl_ring_descriptor *descriptor, const void *metadata);
/*
 * Claims, aborts and publishes all sequences below `end`. The ring holds the last ones of them, and no loan is out. Costs
 * at most one descriptor for each slot. `lost`: as of pl_ring_descriptor_lost(). Returns the first sequence that has a descriptor.
 */
uint64_t pl_ring_skip(struct pl_ring *ring, uint64_t begin, uint64_t end, bool lost);
/* Makes all sequences below `published` visible. */
void pl_ring_publish(struct pl_ring *ring, uint64_t published);
void pl_ring_set_state(struct pl_ring *ring, enum pl_stream_state state);
/* Returns the address of `claimed`, a little-endian word. */
const uint64_t *pl_ring_claimed(const struct pl_ring *ring);

/* -- subscriber ------------------------------------------------------------------------------------- */

/* True if the publisher of these cursors marks what it claims. */
bool pl_ring_marks_claims(const uint8_t cursors[PL_RING_CURSORS]);
/*
 * True if the frame whose descriptor this is had not been claimed again after all that the caller has read of it. The publisher
 * marks its claims.
 */
bool pl_ring_stamp_holds(const uint8_t *descriptor, uint64_t sequence);

/* Decodes cursors that were read as aligned 64-bit words in ascending order. Returns -EPROTO. */
int pl_ring_cursors_decode(const uint8_t buffer[PL_RING_CURSORS], struct pl_ring_cursors *cursors);
/*
 * Decodes the descriptor of a sequence. Returns -EPROTO for values out of range. The result counts only once the lap
 * check has passed: a descriptor that is being overwritten can have any value.
 */
int pl_ring_descriptor_decode(const uint8_t buffer[PL_RING_DESCRIPTOR], const struct pl_ring_geometry *geometry,
			      uint64_t sequence, struct pl_ring_descriptor *descriptor);
void pl_ring_descriptor_encode(const struct pl_ring_descriptor *descriptor, const struct pl_ring_geometry *geometry,
			       uint8_t buffer[PL_RING_DESCRIPTOR]);

/* Returns the number of wanted sequences among the first `count`, if the first of each `every` is wanted. */
static inline uint64_t pl_stream_wanted(uint64_t count, uint32_t every)
{
	return count / every + (count % every != 0);
}

/*
 * Gives a fate to the sequences below `end` that have none. The first of each `every`, from `base` on, is missed; the others are
 * unwanted.
 */
static inline void pl_accounts_miss(struct pl_accounts *accounts, uint64_t end, uint64_t base, uint32_t every)
{
	uint64_t wanted = pl_stream_wanted(end - base, every) - pl_stream_wanted(accounts->next - base, every);

	accounts->missed += wanted;
	accounts->unwanted += end - accounts->next - wanted;
	accounts->next = end;
}

/* Lap rule: true if frame `sequence` was whole when `claimed` was read, after all reads of the frame had ended. */
static inline bool pl_ring_whole(uint64_t claimed, uint64_t sequence, uint32_t slots)
{
	return claimed <= sequence + slots;
}

/*
 * Returns the bytes of a payload that are moved. Into GPU memory they are whole cache lines, which both slots have: then no
 * piece is a single byte, which a GPU can copy only by a way that waiting streams hold up.
 */
static inline uint64_t pl_ring_bytes_to_move(bool gpu, uint64_t length)
{
	return gpu ? (length + 63) / 64 * 64 : length;
}

/*
 * Laps of frames that were being moved. A reader whose way is slower than the publisher would always move the oldest frames,
 * several at a time, and none of them in time. So after laps in a row the next frames are moved one at a time, each the newest
 * one, until some were whole. Single laps are no sign of that: the oldest frames of a full ring are often lost.
 */
struct pl_laps {
	unsigned row;  /* frames lapped since the last whole one */
	unsigned left; /* frames to be moved one at a time */
};
#define PL_FRAMES_AFTER_LAPS 8u

/* Counts a moved frame. `most`: frames in a row that all lap if the way is too slow. */
static inline void pl_laps_count(struct pl_laps *laps, bool whole, unsigned most)
{
	if (whole) {
		laps->row = 0;
		laps->left -= laps->left > 0;
	} else if (++laps->row >= most || laps->left) {
		laps->left = PL_FRAMES_AFTER_LAPS;
	}
}

/* Returns the newest wanted sequence below `published`, if `base` and the first of each `every` after it are wanted. */
static inline uint64_t pl_stream_newest_wanted(uint64_t published, uint64_t base, uint32_t every)
{
	return base + (published - 1 - base) / every * every;
}

/* Returns sequence % count. A division takes as long as a tenth of a small frame. */
static inline uint32_t pl_ring_index(uint64_t sequence, uint32_t count)
{
	return (count & (count - 1)) == 0 ? (uint32_t)sequence & (count - 1) : (uint32_t)(sequence % count);
}

/* Returns the oldest sequence that the ring may still hold. */
static inline uint64_t pl_ring_oldest(uint64_t claimed, uint32_t slots)
{
	return claimed > slots ? claimed - slots : 0;
}

#endif
