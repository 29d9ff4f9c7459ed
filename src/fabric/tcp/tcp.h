/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tcp fabric: one-sided operations over ordinary sockets.
 *
 * An endpoint has 1 to 16 lanes (sockets).  Lane 0 is there from the beginning, belongs to the
 * peer's home engine and carries messages and small operations, in order.  The others are opened
 * when there is bulk to carry, and are spread over the engines; every lane takes the next chunk of
 * the work list when it has room, so a slow lane simply carries less.
 *
 * On a lane each direction is a sequence of frames (wire.h).  WRITE, EAGER, OFFER and NOTIFY are
 * counted by both ends; every frame carries the count of those placed so far, which acknowledges
 * them.  READ and ATOMIC are answered under their cookie.
 */
#ifndef PL_TCP_H
#define PL_TCP_H

#include "core/fabric.h"

/* Requests (READ, ATOMIC) that may be unanswered on a lane. */
#define TCP_REQUESTS_MAX 256
/* Bulk is cut into chunks, so that lanes share it and cancellation is quick. */
#define TCP_CHUNK_MIN (128u << 10)
#define TCP_CHUNK_MAX (1u << 20)
/* Up to this size an operation stays on lane 0. */
#define TCP_SMALL_MAX (64u << 10)
/* Operations from this size on are worth opening more lanes; so are smaller ones that are bulk, once they sum up. */
#define TCP_WIDEN_FROM (4u << 20)
#define TCP_WIDEN_AFTER (16u << 20)
/* A lane takes no more work while it has this much to send, or to be answered. */
#define TCP_LANE_BACKLOG (1u << 20)
#define TCP_LANE_READ_AHEAD (8u << 20)
/* DATA frames with this flag are the whole answer; others are followed by VALUE or FAIL. */
#define TCP_DATA_LAST 1u
/* In a remote key: a socket at that end does not reach the memory. */
#define TCP_KEY_STAGED 1u
/* Slots of locked memory that a lane uses at a time, each way: some being copied, some on the wire. */
#define TCP_SLOTS 4u

struct tcp_endpoint;
struct tcp_lane;
struct tcp_landing;

/* A frame to be sent, with where its payload is. */
struct tcp_piece {
	struct pl_list link;
	struct pl_operation *operation; /* has a part in this piece; NULL: nobody's (any more) */
	struct pl_key *key;             /* DATA: what is read; holds a reference */
	const uint8_t *payload;         /* NULL: zeros, in place of bytes that must not be touched any more */
	uint8_t *kept;                  /* a copy of the payload, whose owner has left; NULL: none */
	uint32_t length;                /* payload bytes */
	uint32_t sent;                  /* of header and payload */
	uint32_t sequence;              /* of counted frames */
	bool built;                     /* header is fixed: it may have been sent */
	bool fragile;                   /* only the kernel may touch the payload */
	bool late;                      /* WRITE: counted in endpoint->late */
	enum pl_wire_status broken;     /* DATA: why the bytes are not the ones asked for */
	struct pl_slot *slot;           /* what the payload is in; NULL: nothing to give back */
	bool ready;                     /* the payload is there */
	int failure;                    /* or why it is not */
	struct {
		struct tcp_lane *lane;
		struct pl_memory *memory;
		size_t offset;
		struct pl_copy copy;
	} staging;
	struct pl_frame frame;
	uint8_t copy[PL_KEY_BLOB_MAX]; /* small payloads */
};

/* A request that waits for its answer. */
struct tcp_request {
	struct pl_operation *operation; /* NULL: given up, the answer is dropped */
	struct pl_memory *memory;       /* READ: where the bytes go */
	uint8_t *destination;
	uint32_t length;
	uint32_t received;
	uint16_t generation;
	bool used, atomic;
	bool late; /* ATOMIC: counted in endpoint->late */
};

enum tcp_lane_state { TCP_LANE_CONNECTING, TCP_LANE_SHAKING, TCP_LANE_GREETING, TCP_LANE_UP, TCP_LANE_ENDED };

struct tcp_lane {
	struct tcp_endpoint *endpoint;
	struct pl_engine *engine;
	struct pl_source source;
	struct pl_stream stream;
	struct pl_task task;
	struct pl_task end_task; /* of an abandoned endpoint */
	atomic_uint sweep;       /* asked for by another engine */
	unsigned index;
	enum tcp_lane_state state;
	bool joining, dialing; /* what the task is to do first */
	bool flushing;
	bool blocked; /* the socket is full: EPOLLOUT tells when there is room worth using */

	struct pl_list queue;         /* pieces to send */
	uint32_t queued;              /* their unsent bytes */
	struct pl_list waiting;       /* pieces that need a slot, in order */
	struct pl_list copying;       /* pieces whose bytes are being copied there, in order */
	unsigned slots;               /* in use by pieces */
	bool beginning;               /* in tcp_stage_begin() */
	struct pl_list unacked;       /* WRITE pieces */
	uint32_t sequence;            /* counted frames sent */
	uint32_t acked;               /* and acknowledged by the peer */
	struct tcp_request *requests; /* TCP_REQUESTS_MAX, once needed */
	unsigned request_count, next_request;
	unsigned asked;       /* of these, sent */
	uint32_t requested;   /* bytes that are to come */
	unsigned serving;     /* requests of the peer not answered */
	struct pl_list spare; /* pieces for reuse */
	unsigned spare_count;

	uint32_t received; /* counted frames */
	uint32_t placed;   /* and these are where they belong */
	uint32_t placed_told;
	uint32_t unacked_bytes; /* received since the last ack */
	uint8_t head[PL_FRAME_HEADER];
	unsigned head_have;
	uint8_t *carry; /* an incomplete small frame */
	uint32_t carry_length;
	struct pl_frame current; /* bulk frame being received */
	uint32_t remaining;
	bool bulky;                  /* the last frame was bulk: expect another */
	struct pl_key *key;          /* WRITE: where to */
	struct tcp_request *request; /* DATA: what it answers */
	uint8_t *destination;        /* next byte; NULL: drop */
	struct tcp_landing *landing; /* the frame's bytes go to a slot first */
	struct pl_list landings;     /* counted frames being copied from slots, and refused ones behind them */
	unsigned landing_count;      /* frames being copied */
	bool receiving;              /* in tcp_lane_receive() */
	enum pl_wire_status refusal;
};

struct tcp_endpoint {
	struct pl_endpoint base;
	struct pl_context *context;
	struct pl_task ended_task;
	struct pl_task settled_task; /* nothing is late any more */
	atomic_bool violated;        /* a lane ended by a protocol error */
	atomic_uint lanes_up, lanes_open;
	/* What may still change the peer's memory for operations that have ended: what is posted later waits for it. */
	atomic_uint late;
	int (*dial)(struct tcp_endpoint *endpoint); /* a socket that is being connected, or negative errno */
	uint64_t peer_index;                            /* the peer's, for initiators */
	uint8_t join_secret[16];
	unsigned wanted;       /* lanes asked for so far */
	uint64_t bulk;         /* bytes posted meanwhile, but for small operations */
	struct pl_task *ended; /* abandoned: to post when all lanes have ended */
	atomic_uint ending;    /* lanes that have not, plus one while they are being asked */

	pthread_mutex_t lock; /* what follows, and every operation's place in the work list */
	struct tcp_lane *lanes[PL_STREAMS_MAX];
	bool closed;
	struct pl_list work; /* operations with chunks to give out */
};

static inline struct tcp_endpoint *tcp_endpoint_of(struct pl_endpoint *endpoint)
{
	return pl_container_of(endpoint, struct tcp_endpoint, base);
}

/* work.c: what lanes take */
void tcp_post(struct pl_endpoint *endpoint, struct pl_operation *operation);
/* Gives the lane chunks while it has room. */
void tcp_lane_feed(struct tcp_lane *lane);
void tcp_work_sweep(struct tcp_endpoint *endpoint);
void tcp_widen(struct pl_endpoint *endpoint, unsigned lanes);

/* endpoint.c */
struct tcp_lane *tcp_lane_new(struct tcp_endpoint *endpoint, unsigned index);
void tcp_lane_dial(struct tcp_lane *lane);
/* Has the lane's engine look for work. */
void tcp_kick(struct tcp_lane *lane);
void tcp_for_each_lane(struct tcp_endpoint *endpoint, void (*visit)(struct tcp_lane *));
/* Something late is at its place. */
void tcp_settled(struct tcp_endpoint *endpoint);
/* A lane of an abandoned endpoint has ended; it must not be touched any more. */
void tcp_lane_gone(struct tcp_endpoint *endpoint);

/* lane.c */
void tcp_lane_init(struct tcp_lane *lane);
void tcp_lane_fail(struct tcp_lane *lane, int code);
/* Ends a lane for good, drops all that hangs on it. Lane's engine. */
void tcp_lane_shut(struct tcp_lane *lane);

/* transmit.c */
struct tcp_piece *tcp_piece_new(struct tcp_lane *lane, const struct pl_frame *frame);
void tcp_piece_free(struct tcp_lane *lane, struct tcp_piece *piece);
void tcp_queue(struct tcp_lane *lane, struct tcp_piece *piece);
/* The refusal of a WRITE: behind other refusals, before everything else whose header is not fixed yet. */
void tcp_queue_refusal(struct tcp_lane *lane, struct tcp_piece *piece);
/* Sends now, or leaves it to the next round where that gathers more. */
void tcp_lane_push(struct tcp_lane *lane);
void tcp_lane_flush(struct tcp_lane *lane);
/* Tells the peer what was placed, if it does not know. */
void tcp_lane_ack(struct tcp_lane *lane);
void tcp_lane_acked(struct tcp_lane *lane, uint32_t count);
void tcp_transmit_sweep(struct tcp_lane *lane, bool all);
static inline bool tcp_counted(uint8_t type)
{
	return type == PL_FRAME_WRITE || type == PL_FRAME_EAGER || type == PL_FRAME_RENDEZVOUS || type == PL_FRAME_NOTIFY;
}

/* request.c: READ and ATOMIC of ours */
struct tcp_request *tcp_request_new(struct tcp_lane *lane, uint32_t *cookie);
struct tcp_request *tcp_request_find(struct tcp_lane *lane, uint32_t cookie);
/* The answer is complete, or refused with an error. */
void tcp_request_done(struct tcp_lane *lane, struct tcp_request *request);
void tcp_request_sweep(struct tcp_lane *lane, bool all);

/* receive.c */
bool tcp_lane_receive(struct tcp_lane *lane);
void tcp_receive_drop(struct tcp_lane *lane);

/* stage.c: memory that the socket does not reach */
/* Queues the piece once its bytes are in a slot; or drops it, with its part. */
void tcp_stage_out(struct tcp_lane *lane, struct tcp_piece *piece, struct pl_memory *memory, size_t offset);
/* Begins what waits, while there are slots for it. */
void tcp_stage_begin(struct tcp_lane *lane);
void tcp_stage_sweep(struct tcp_lane *lane, bool all);
/* Gives the slot of a piece back that was sent. */
void tcp_unstage(struct tcp_lane *lane, struct tcp_piece *piece);
/* The current frame is for such memory.  `whole`: it has arrived already.  0, or -ENOMEM: it is dropped. */
int tcp_land_begin(struct tcp_lane *lane, struct pl_memory *memory, size_t offset, bool whole);
/* It has arrived.  Takes a reference to the key over; false if there is nothing to be copied. */
bool tcp_land_end(struct tcp_lane *lane, struct pl_key *key, struct pl_operation *operation);
void tcp_land_drop(struct tcp_lane *lane);
/* A counted frame was placed, or refused, without a copy. */
void tcp_received(struct tcp_lane *lane, enum pl_wire_status refusal);

/* serve.c: what the peer asks of our memory */
/* `whole`: its bytes have arrived. */
int tcp_serve_write(struct tcp_lane *lane, const struct pl_frame *frame, bool whole);
void tcp_serve_written(struct tcp_lane *lane);
int tcp_serve_read(struct tcp_lane *lane, const struct pl_frame *frame);
int tcp_serve_atomic(struct tcp_lane *lane, const struct pl_frame *frame, const uint8_t *payload);
int tcp_refuse(struct tcp_lane *lane, uint8_t type, uint32_t cookie, enum pl_wire_status status);

#endif
