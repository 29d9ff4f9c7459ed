/* SPDX-License-Identifier: BSD-2-Clause */
/* Work requests, and the remote keys that they use. */
#ifndef PL_FABRIC_VERBS_WORK_H
#define PL_FABRIC_VERBS_WORK_H

#include "base/vector_bytes.h"
#include "fabric/verbs/state.h"
#include "staging/staging.h"

/* Requests in one call of the driver. */
#define VERBS_LIST 64
/* With this many requests posted, new ones wait for others to share a list, and small frames to share a SEND. */
#define VERBS_BUSY 32
#define VERBS_BUSY_FRAMES 4
/* Frames in one SEND, and the most that a queue pair has under way this way. */
#define VERBS_PACK 32
/* Frames up to this size wait for others. Bytes. */
#define VERBS_PACK_BYTES (VERBS_BUFFER / 8)
#define VERBS_EARLY (VERBS_SEND_DEPTH * VERBS_PACK)
/* Refusals of one request after which no further connection is tried for it. */
#define VERBS_REFUSALS 4
#define VERBS_HINT_MAPPED "keep the region mapped and writable, and files behind it whole"
#define VERBS_INLINE 64
/* Scatter/gather entries of a request: the header of a frame, and bytes elsewhere; for several frames. */
#define VERBS_PIECES 8
/* Bytes of a chunk of a large operation, if the device has no lower limit. */
#define VERBS_CHUNK (8u << 20)
#define VERBS_CHUNK_LEAST 8192u
/* Most rails of an endpoint; rails that are connected first, and cards that a region uses, both by default. */
#define VERBS_RAILS PL_RAILS_MAX
#define VERBS_RAILS_DEFAULT 2
#define VERBS_CARDS_DEFAULT 2
/* Bytes of one operation that justify another rail, and that a rail may have posted beside others. */
#define VERBS_SLICE (64u << 10)
#define VERBS_SLICE_MAX (1u << 20)
#define VERBS_RAIL_BYTES (4u << 20)

/* Bits of the value in a notification that comes with a write. The others hold the frame's number. */
#define VERBS_NOTIFY_BITS 22
#define VERBS_NOTIFY_MAX ((1u << VERBS_NOTIFY_BITS) - 1)
/* Frames in one SEND behind such a notification: half of its numbers are more than the frames that a queue pair has. */
#define VERBS_NOTIFY_PACK 4
/* Most bytes of a write that carries its notification. Adaptive routing keeps a write with immediate data in order. */
#define VERBS_NOTIFY_BYTES 8192u

struct verbs_rail;

/* BIND: of a memory window; frame.key names its key. INVALIDATE: of a message's window. */
enum verbs_work_kind { VERBS_WRITE, VERBS_READ, VERBS_ATOMIC, VERBS_FRAME, VERBS_BIND, VERBS_INVALIDATE };

/* Remote region as the peer's devices know it, decoded once; pl_remote.fabric_data. */
struct verbs_remote_key {
	struct pl_list link; /* in the endpoint's list; state->lock */
	struct verbs_state *state;
	uint64_t id, address;
	uint32_t rkeys[VERBS_RAILS];
	uint8_t present; /* rails with a key, one bit each */
	/* rails whose key must be requested when they come up: of a window each time, or of a new device */
	uint8_t windows;
	uint8_t refused; /* rails over which the owner has no key for this end */
	uint16_t near;   /* the owner's ports near the memory, by their numbers; 0: all are alike */
	enum pl_memory_order order;
};

/* Work request: waiting or posted. */
struct verbs_work {
	struct pl_list link;

	/* Members of most work, cleared when work is taken. */
	struct pl_operation *operation; /* holds a pending count of it; NULL: none (any more) */
	uint64_t serial;                /* number of the request on its rail, as posted last */
	struct pl_region *region;       /* write, read; frame, if it is gathered */
	uint64_t offset;
	struct verbs_remote_key *target;        /* write, read, atomic */
	uint64_t remote;                        /* remote address */
	const struct verbs_device *lkey_device; /* device of the lkey */
	uint32_t length, lkey;
	enum verbs_work_kind kind;
	uint8_t choice; /* write, read, atomic: its rails, in endpoint->choices */
	bool simple;    /* a write or read of one request, posted without setting a member of the next part */
	bool fresh;     /* a write or read that waits behind a busy rail, and can be posted like that */

	/* Members of other work, clear in unused work. */
	_Alignas(16) bool staged;    /* the bytes go through the buffer */
	bool back;                   /* read that only flushes earlier writes */
	bool notify;                 /* write that notifies; frame.offset has the value */
	bool framed;                 /* write: goes over the rail of the frames, for the notification behind it */
	bool counted;                /* has a frame number, frame.ack */
	bool built;                  /* frame: built in the buffer */
	bool bare;                   /* frame: without its header */
	bool alone;                  /* frame: must be sent alone */
	bool gathered;               /* frame: the payload stays in its region until it was sent */
	bool rest;                   /* stands for the chunks from `segment` and `offset` on */
	bool refused;                /* by the other end, once */
	bool suspect;                /* it, or a request near it, failed; counts in endpoint->suspects */
	uint8_t refusals;            /* by this end's device, or its driver */
	bool lkey_only;              /* only the device of the lkey reaches the memory */
	bool copied;                 /* staged: the bytes are in the buffer, or in their place */
	bool copies, starts;         /* staged: a copy is under way; it is being started */
	uint16_t behind_generation;  /* back: generation of the connection of `behind` */
	uint32_t immediate;          /* immediate data in place of the header */
	uint32_t rkey;               /* bind: key of the window */
	unsigned segment;            /* `rest` only */
	struct verbs_buffer *buffer; /* frame; the result of an atomic operation; staged bytes */
	struct verbs_rail *only;     /* for this rail only */
	struct verbs_rail *behind;   /* back: rail of the writes that it flushes; NULL: not known yet */
	/* bind: import or message that waits for it; NULL: the peer asked. frame: its windows are not all bound yet */
	struct verbs_answer *answer;
	struct verbs_mw *window; /* invalidate */
	struct verbs_work *also; /* frame: chain of gathered frames sent with it */
	const uint8_t *payload;  /* frame: until it is copied into a buffer */

	_Alignas(16) struct pl_copy copying; /* of staged bytes; not cleared */

	/* Of frames; not cleared. */
	struct pl_frame frame;
	uint8_t copy[PL_KEY_BLOB_MAX];
};

#define VERBS_WORK_SPECIAL (offsetof(struct verbs_work, copying) - offsetof(struct verbs_work, staged))
_Static_assert(VERBS_WORK_SPECIAL % 16 == 0 && VERBS_WORK_SPECIAL <= 128,
	       "these members are cleared in vector registers");

/* True for frames of the fabric itself, which have no number. */
static inline bool verbs_unnumbered(const struct verbs_work *work)
{
	return work->kind == VERBS_FRAME && work->frame.type >= PL_FRAME_FENCE && work->frame.type <= PL_FRAME_KEY;
}

/* True if the work has a number among the frames of the peer: a frame, or a write that notifies. */
static inline bool verbs_has_number(const struct verbs_work *work)
{
	return work->notify || (work->kind == VERBS_FRAME && !verbs_unnumbered(work));
}

#endif
