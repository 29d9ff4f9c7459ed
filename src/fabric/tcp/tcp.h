/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tcp fabric: one-sided operations over sockets.
 *
 * An endpoint has 1 to 17 lanes (sockets). Lane 0 exists from the start, belongs to the peer's home engine, and carries
 * messages and small operations in order. The others are opened for bulk data and spread over the engines, whose threads
 * send and receive it. Each lane takes the next chunk of the work list when it has room, so a slow lane carries less.
 * Beside two or more of them lane 0 carries no bulk data: its engine handles what is posted and what completes.
 *
 * On a lane each direction is a sequence of frames (wire.h). Both ends count WRITE, EAGER, RENDEZVOUS and NOTIFY
 * frames; every frame carries the number of those placed so far, which acknowledges them. READ and ATOMIC are answered
 * under their cookie.
 */
#ifndef PL_TCP_H
#define PL_TCP_H

#include "core/bulk_sender.h"
#include "core/fabric.h"
#include "core/lane_auth.h"
#include "fabric/tcp/flight.h"

/* Most unanswered requests (READ, ATOMIC) of a lane. */
#define TCP_REQUESTS_MAX 256
/* Sizes of chunks of bulk data, in bytes. Chunks let lanes share an operation, and let a cancelled one end soon. */
#define TCP_CHUNK_MIN (128u << 10)
#define TCP_CHUNK_MAX (1u << 20)
/* Operations up to this size can stay on lane 0. Those from TCP_SPREAD_FROM on do so while no other is under way. Bytes. */
#define TCP_SMALL_MAX (64u << 10)
#define TCP_SPREAD_FROM PL_BULK_FROM
/* Small operations wait for others, up to this many bytes, while earlier ones are under way. */
#define TCP_HOLD_BACK_BYTES (16u << 10)
/* Most lanes of an endpoint: bulk lanes, and lane 0. */
#define TCP_SOCKETS_MAX (PL_LANES_MAX + 1)
/* Operations from this size on open more lanes; so do smaller bulk operations that add up to it. Bytes. */
#define TCP_WIDEN_FROM (4u << 20)
#define TCP_WIDEN_AFTER (16u << 20)
/* By default a context has more lanes than the second number with as many peers as the first (lane_limit.c). */
#define TCP_WIDE_PEERS 8u
#define TCP_LANES_OF_OTHERS 8u
/* Limits of a lane: with this many bytes to send, or requested, it takes no more work. */
#define TCP_LANE_BACKLOG (1u << 20)
/*
 * The same with bytes that are being copied into slots. The next copies end while a chunk is sent; more of them would keep work from
 * other lanes. The larger limit holds while plenty of work waits for all lanes: a copy may end much later than a chunk is sent.
 */
#define TCP_LANE_STAGED_BACKLOG (1536u << 10)
#define TCP_LANE_STAGED_BACKLOG_MAX (3584u << 10)
#define TCP_LANE_READ_AHEAD (8u << 20)
/*
 * Other lanes are woken if more bytes wait for each lane that works: a wake takes longer than these. Operations of one chunk follow
 * each other, so for them lanes whose threads sleep are woken later: each such wake costs the home engine a system call.
 */
#define TCP_LANE_SOON (64u << 10)
#define TCP_LANE_SOON_ASLEEP (256u << 10)
/* A DATA frame with this flag is the whole answer; others are followed by VALUE or FAIL. */
#define TCP_DATA_LAST 1u
/* Flag in a remote key: sockets of the owner cannot reach the memory. */
#define TCP_KEY_STAGED 1u
/* Slots of pinned memory that a lane uses in each direction: some are being copied, some sent. */
#define TCP_SLOTS 8u
/* Most chunks that a lane takes at once from the work list. */
#define TCP_BATCH 16u

struct tcp_endpoint;
struct tcp_lane;
struct tcp_landing;
struct tcp_joint;
struct tcp_finished;

/* Frame to be sent, with its payload. */
struct tcp_piece {
	struct pl_list link;
	struct pl_operation *operation;  /* holds a pending count of it; NULL: none, or ended */
	struct pl_key *key;              /* DATA: key of the memory read; holds a reference */
	const uint8_t *payload;          /* NULL: zeros are sent; the memory must not be read */
	uint8_t *payload_copy;           /* copy of a payload whose owner has ended or may end; NULL: none */
	uint32_t length;                 /* payload bytes */
	uint32_t sent;                   /* bytes sent of header and payload */
	uint32_t sequence;               /* number among the counted frames */
	bool header_final;               /* the header is final: it may have been sent */
	bool fragile;                    /* only the kernel may read the payload */
	bool late;                       /* WRITE: counted in endpoint->late */
	bool trailing;                   /* DATA: the trailing word of `key` follows */
	struct tcp_piece *trailer; /* DATA: the next piece, with the status of all its bytes; NULL: not queued yet */
	enum pl_wire_status data_status; /* DATA: error that replaces the bytes */
	struct pl_slot *slot;            /* slot of the payload; NULL: none to return */
	bool ready;                      /* the payload is in the slot */
	int failure;                     /* error of the copy into the slot */
	struct {
		struct tcp_lane *lane;
		struct pl_memory *memory;
		size_t offset;
		struct pl_copy copy;
	} staging;
	struct pl_frame frame;
	uint8_t copy[PL_KEY_BLOB_MAX]; /* small payloads */
};

/* Bytes on the socket. */
static inline uint32_t tcp_piece_size(const struct tcp_piece *piece)
{
	return PL_FRAME_HEADER + piece->length;
}

/* Request that waits for its answer. */
struct tcp_request {
	struct pl_operation *operation; /* NULL: cancelled, the answer is dropped */
	struct pl_memory *memory;       /* READ: destination */
	struct tcp_joint *joint; /* READ: slot for its bytes and those beside them, until all are there; NULL: none */
	uint8_t *destination;
	uint32_t length;
	uint32_t received;
	uint16_t generation;
	bool used, atomic, trailing, fetch; /* fetch: READ of a large message */
	bool late; /* ATOMIC: counted in endpoint->late */
};

/* Bytes of the peer's rate that a lane has taken for one direction. */
struct tcp_allowance {
	uint32_t bytes; /* not used yet; 0: none are taken */
	uint64_t from;  /* time from which they may be used */
	bool waits;     /* the direction pauses until then */
};

/*
 * A lane of the initiator takes these steps in order, without the fourth. Lane 0 of the acceptor is up when it joins; a further
 * lane waits until the initiator has sent bytes over it, if that end has PL_CAPABILITY_CONFIRMS_LANES.
 */
enum tcp_lane_state {
	TCP_LANE_CONNECTING,
	TCP_LANE_CHALLENGE, /* waits for the challenge */
	TCP_LANE_WELCOME,   /* waits for the welcome */
	TCP_LANE_CONFIRMATION,
	TCP_LANE_UP,
	TCP_LANE_ENDED,
};

struct tcp_lane {
	/* Members that each operation uses, side by side: with many peers they are in no cache. */
	struct tcp_endpoint *endpoint;
	struct pl_engine *engine;
	struct pl_source source;
	struct pl_stream stream;
	unsigned index;
	enum tcp_lane_state state;
	bool flushing;
	bool blocked;        /* true if the socket is full; until EPOLLOUT. tcp_lane_block(), tcp_lane_unblock() */
	bool paused;         /* true if the rest of `queue` is sent in the engine's next round */
	bool stopped;        /* true if nothing is read until refusals are sent */
	bool unswept;        /* lane 0: true if `queue` may have messages of operations that were stopped */
	bool bulky;          /* true if the last frame was bulk: another one is likely */
	bool receiving;      /* tcp_lane_receive() is running */
	bool in_slot;        /* true if `destination` is in a slot */
	bool read_short;     /* true if the last read found fewer bytes than it asked for */
	atomic_bool joining; /* acceptor: true until the task has taken `accepted` */
	atomic_uint sweep;   /* requested by another engine */
	atomic_uint finish;  /* enum tcp_finish_state (finish.h) */
	unsigned head_have;
	uint32_t remaining;
	uint32_t queued;        /* unsent bytes of `queue` */
	struct pl_list queue;   /* pieces to send */
	struct pl_list waiting; /* pieces that need a slot, in order */
	struct pl_list unacked; /* WRITE pieces */
	struct pl_list spare;   /* pieces for reuse, the last used first */
	uint8_t *carry;         /* incomplete small frame */
	uint32_t sequence;      /* counted frames sent */
	uint32_t acked;         /* counted frames that the peer acknowledged */
	uint32_t awaited;       /* those up to the last one whose acknowledgement the lane waits for, or `acked` */
	uint32_t received;      /* counted frames received */
	uint32_t placed, placed_told; /* counted frames placed, and those that the peer knows of */
	uint32_t unacked_bytes; /* bytes received since the last acknowledgement */
	uint64_t message_end;   /* position in the stream behind the last message that was sent; 0: none was */
	unsigned spare_count, slots; /* pieces of `spare`; slots used by pieces */
	uint32_t staging; /* bytes of `waiting` and `copying` */
	unsigned request_count, requests_sent; /* requests; those whose frames are sent and not answered */
	struct tcp_flight flight;
	unsigned answered;      /* requests answered since the lane took work */
	uint32_t requested;     /* bytes that the answers to `requests` will bring */
	uint32_t asked;         /* the same when the lane last took work */

	struct pl_batch_end batch_end; /* sends the pieces that the batch queued */
	struct pl_task task;
	struct pl_task end_task; /* of an abandoned endpoint */
	struct pl_timer retry;   /* initiator: dials again after a failure */
	uint64_t retry_pause;    /* nanoseconds before the last retry; 0: none failed since the lane was up */
	atomic_int failure;      /* negative errno of the lane's end, or of the last attempt to open it; 0: none */
	atomic_int missing;      /* initiator: that of the last attempt, until the lane is up; 0: none failed */
	bool dialing;            /* true until the task has started the lane */
	bool vacant; /* acceptor: true if the lane failed, and another socket may join in its place; endpoint->lock */
	struct pl_stream accepted; /* acceptor: socket that the listener accepted; fd -1: none; endpoint->lock */

	struct pl_list copying;       /* pieces being copied into slots, in order */
	bool starting_copies;         /* tcp_lane_start_copies() is running */
	struct tcp_request *requests; /* TCP_REQUESTS_MAX entries, once needed */
	unsigned next_request;
	unsigned serving;               /* requests of the peer whose answer is not sent */
	struct tcp_piece *last_refusal; /* of a WRITE, in `queue`; NULL: none */
	struct tcp_piece *last_trailer; /* of a DATA frame, in `queue`; NULL: none */
	unsigned refusals;              /* unsent refusals of WRITEs */
	struct pl_timer patience;       /* longest time that the lane is stopped, or opening */
	struct tcp_allowance reading, sending;
	struct pl_timer rate_timer; /* ends the pause of both directions */
	bool unlimited;             /* true if the rate no longer counts, as the lane ends */

	uint8_t head[PL_FRAME_HEADER];
	struct pl_lane_auth *auth; /* initiator: until the lane is up */
	uint32_t carry_length;
	struct pl_frame current;     /* bulk frame being received */
	struct pl_key *key, *kept_key; /* destination of a WRITE; key of the last frame (kept_key.h) */
	struct tcp_request *request; /* DATA: request that it answers */
	uint8_t *destination;        /* of the next byte; NULL: drop */
	struct tcp_finished *finished; /* FINISH frames of this visit, for home; NULL: none */
	struct tcp_landing *landing; /* the frame's bytes go to a slot first */
	struct pl_list landings;     /* counted frames being copied from slots, and refused ones behind them */
	unsigned landing_count;      /* frames being copied */
	enum pl_wire_status refusal;
	uint64_t writes; /* WRITEs received */
	/* Numbers of the last refused one, and of the last one that is placed from a slot; 0: none. */
	uint64_t last_refused, last_landed;
};

struct tcp_endpoint {
	struct pl_endpoint base;
	struct pl_context *context;
	atomic_uint lanes_up, lanes_open;
	/* Frames of ended operations that may still change the peer's memory. Work posted later waits for them. */
	atomic_uint late;
	unsigned lanes_requested; /* lanes requested so far */
	atomic_uint lanes_wanted; /* bulk lanes to open; 0: not decided, up to those that both ends agreed on */
	atomic_uint held_count;    /* entries of `held` */
	struct pl_task held_task;
	/* Large messages sent and not finished; batches of `finished`, and those that lanes are filling. */
	atomic_ullong rendezvous;
	atomic_uint finished_count;
	atomic_uint finish_open; /* lanes that are not TCP_FINISH_SETTLED */
	struct pl_task finished_task;
	/* Lanes that are up, and those of them that found no work, which tcp_post() wakes: bits, without lane 0. */
	atomic_uint bulk_lanes, hungry;
	/* Lanes that take no work now, likewise: their socket is full, or too many of their bytes are in flight. */
	atomic_uint blocked;
	atomic_ullong requested;  /* bytes that lanes with long paths have requested */
	atomic_bool any_work; /* false: `work` and `small_work` are empty; written under the lock, read without it */
	atomic_bool any_small; /* the same for `small_work` */
	struct pl_task ended_task, late_placed_task; /* the second one runs when `late` becomes 0 */
	/* Members that home writes for each operation, in no cache line with what lanes use. */
	uint64_t bulk; /* bytes posted, without small operations */
	uint32_t messages, messages_arrived; /* messages given to lane 0, and those that arrived there */
	/* Operations that a batch of the home engine adds to `work` together, and their bytes and chunks. */
	struct pl_list gathered;
	uint64_t gathered_bytes, gathered_chunks;
	struct pl_batch_end gathering_end;
	atomic_bool violated;                       /* a lane ended by a protocol error */
	int (*dial)(struct tcp_endpoint *endpoint); /* returns a connecting socket or a negative errno */
	/* Handles a COPY or COPIED frame of lane 0; NULL: a protocol error. Returns 0 or a negative errno. Home. */
	int (*copy_frame)(struct pl_peer *peer, const struct pl_frame *frame, const uint8_t *payload);
	/* Posts operations that another fabric holds back while frames are late; NULL: none does. Home. */
	void (*late_placed)(struct pl_peer *peer);
	uint64_t peer_index;                        /* initiator: this end's index at the peer */
	struct pl_task *ended;                      /* abandoned: task to post when all lanes have ended */
	atomic_uint ending;                         /* lanes that have not ended, plus 1 while tcp_abandon() runs */

	pthread_mutex_t lock;      /* protects the members below, and every operation's position in the work list */
	struct pl_list work;       /* operations with chunks to take */
	uint64_t waiting;          /* bytes of these chunks, or more after a cancellation */
	struct pl_list small_work; /* operations for lane 0 */
	/* Notifications that other lanes received, for the home engine, in the order of the messages before them. */
	struct pl_list held;
	struct pl_list finished; /* ends of large sends that other lanes received, for the home engine */
	bool closed, wide;       /* wide: has a place of context->wide_peers */
	struct tcp_lane *lanes[TCP_SOCKETS_MAX];
};

static inline struct tcp_endpoint *tcp_endpoint_of(struct pl_endpoint *endpoint)
{
	return pl_container_of(endpoint, struct tcp_endpoint, base);
}

/* Returns the number of sockets for a number of lanes that both ends agreed on. */
static inline unsigned tcp_sockets(unsigned lanes)
{
	return lanes > 1 ? lanes + 1 : lanes;
}

/* post.c: work for lanes */
void tcp_post(struct pl_endpoint *endpoint, struct pl_operation *operation);
/* Gives the lane chunks while it has room. */
void tcp_lane_take_work(struct tcp_lane *lane);
void tcp_work_sweep(struct tcp_endpoint *endpoint);
void tcp_widen(struct pl_endpoint *endpoint, unsigned lanes);
/* Small writes are in no list: they need no lock. */
static inline bool tcp_has_work(const struct tcp_endpoint *endpoint)
{
	return atomic_load(&endpoint->any_work) && !atomic_load(&endpoint->late);
}

/* widen.c */
unsigned tcp_prepare(struct pl_endpoint *endpoint, struct pl_region *region);
/* Opens all lanes for an operation of so many bytes, if it is large, or all such ones add up to enough. Home. */
void tcp_widen_for(struct tcp_endpoint *endpoint, uint64_t total);

/* list_work.c */
/* Adds an operation to the work of lane 0, or to that of all lanes, of which it wakes up to `chunks`. Home. */
void tcp_list_small_work(struct tcp_endpoint *endpoint, struct pl_list *work);
void tcp_list_work(struct tcp_endpoint *endpoint, struct pl_list *work, uint64_t total, uint64_t chunks);
/*
 * Adds an operation of at most TCP_SMALL_MAX to the work of all lanes together with others of the engine's batch, because home takes
 * the lock of all lanes each time, and wakes lanes. Returns false if there is no batch. Home.
 */
bool tcp_gather_work(struct tcp_endpoint *endpoint, struct pl_list *work, uint64_t total, uint64_t chunks);
void tcp_init_gathered(struct tcp_endpoint *endpoint);

/* lane_limit.c */
/* Takes a place for a peer with many lanes, unless the endpoint has one. Returns false if none is free. Any thread. */
bool tcp_take_wide_place(struct tcp_endpoint *endpoint);
void tcp_give_wide_place(struct tcp_endpoint *endpoint);
/* Returns the number of lanes, or the lower one if the context has enough peers with more. */
unsigned tcp_limit_lanes(struct tcp_endpoint *endpoint, unsigned lanes);
/* Counts a peer with more lanes than others by default, also if all places are taken. */
void tcp_count_wide_peer(struct tcp_endpoint *endpoint);
/* Acceptor: tells the initiator if there is no place for this lane, and closes its socket. Returns true if so. */
bool tcp_refuses_lane(struct tcp_endpoint *endpoint, unsigned index, struct pl_stream *stream);
/* Initiator: the acceptor has no place for all lanes. Returns true if that is new. Any thread. */
bool tcp_lanes_refused(struct tcp_endpoint *endpoint);
/* Returns the most lanes that the endpoint may have. Any thread. */
unsigned tcp_lanes_most(struct pl_endpoint *endpoint);

/* lane_sets.c: which lanes are up, hungry, and refuse work */
/* The lane found no work, or has no room for it. Returns false if it must look once more, as work may have come meanwhile. */
bool tcp_lane_rests(struct tcp_lane *lane);
/* Lets the lane take work again, unless its socket is full. */
void tcp_lane_look_for_room(struct tcp_lane *lane);
/* The lane's socket is full: it refuses work. */
void tcp_lane_block(struct tcp_lane *lane);
void tcp_lane_unblock(struct tcp_lane *lane);
/* Count a lane that is up, or is so no longer. */
void tcp_lane_joins(struct tcp_lane *lane);
void tcp_lane_leaves(struct tcp_lane *lane);
/* Wakes lane 0 after another lane has left: operations may wait, or be gathered, that lane 0 left to that one. */
void tcp_lane_leave_work(struct tcp_lane *lane);
/*
 * Wakes lanes of the set, at most `most`: of those whose threads are awake, or of the others. Returns the rest of the
 * number.
 */
uint64_t tcp_wake_lanes(struct tcp_endpoint *endpoint, unsigned set, bool asleep, uint64_t most);

/* endpoint.c */
struct tcp_lane *tcp_lane_new(struct tcp_endpoint *endpoint, unsigned index);
void tcp_lane_dial(struct tcp_lane *lane);
/* Queues a frame of core, with a pending count of the operation unless that is NULL. */
void tcp_lane_queue_message(struct tcp_lane *lane, struct tcp_piece *piece, const void *payload,
			    struct pl_operation *operation);
/* Wakes the lane's engine, which looks for work. Any thread. */
void tcp_lane_wake(struct tcp_lane *lane);
void tcp_for_each_lane(struct tcp_endpoint *endpoint, void (*visit)(struct tcp_lane *));
/* Counts a late frame that was placed. The last one starts the work that waited for late frames. */
void tcp_late_frame_placed(struct tcp_endpoint *endpoint);
/* Counts an ended lane of an abandoned endpoint. The caller must not access the endpoint afterwards. */
void tcp_abandoned_lane_ended(struct tcp_endpoint *endpoint);

/* lane_retry.c */
void tcp_lane_init_retry(struct tcp_lane *lane);
/* Returns the reason of a lane's end, for the peer's log. */
const char *tcp_lane_loss_reason(int code);
/*
 * Keeps the peer without a lane that could not be opened. The initiator dials again later, unless the acceptor takes no more
 * lanes; the acceptor lets that socket take the lane's place. Lane's engine.
 */
void tcp_lane_retry_later(struct tcp_lane *lane);
/* Dials the first lane of an opening peer again soon. */
void tcp_lane_dial_again(struct tcp_lane *lane);
/* Returns the lanes that could not be opened, and the reason of one of them in *status. Any thread. */
unsigned tcp_lanes_missing(struct pl_endpoint *endpoint, int *status);

/* lane.c */
void tcp_lane_init(struct tcp_lane *lane);
void tcp_lane_fail(struct tcp_lane *lane, int code);
/*
 * The socket takes no more bytes. If the other end has closed it, the lane first reads what has arrived, so that the messages of an
 * orderly end are not lost, and fails then.
 */
void tcp_lane_send_failed(struct tcp_lane *lane, int code);
/* Ends a lane, and drops all its work. Lane's engine. */
void tcp_lane_shut(struct tcp_lane *lane);

/* transmit.c */
struct tcp_piece *tcp_piece_new(struct tcp_lane *lane, const struct pl_frame *frame);
void tcp_piece_free(struct tcp_lane *lane, struct tcp_piece *piece);
void tcp_lane_queue_piece(struct tcp_lane *lane, struct tcp_piece *piece);
void tcp_lane_flush(struct tcp_lane *lane);
void tcp_lane_sweep_pieces(struct tcp_lane *lane, bool all);
static inline bool tcp_frame_is_counted(uint8_t type)
{
	return type == PL_FRAME_WRITE || type == PL_FRAME_EAGER || type == PL_FRAME_RENDEZVOUS ||
	       type == PL_FRAME_NOTIFY;
}

/* push.c: true if the lane waits for answers to frames that it has sent, or for their acknowledgement */
static inline bool tcp_lane_is_under_way(const struct tcp_lane *lane)
{
	return lane->awaited != lane->acked || lane->requests_sent;
}
/* Sends queued pieces now, or in the next round if that gathers more pieces. */
void tcp_lane_push(struct tcp_lane *lane);
/* Sends the pieces that a batch of the engine queued. */
void tcp_lane_batch_ended(struct pl_batch_end *end);
/* Acknowledges placed frames whose acknowledgement was not sent. */
void tcp_lane_ack(struct tcp_lane *lane);
void tcp_lane_take_ack(struct tcp_lane *lane, uint32_t count);
static inline bool tcp_piece_is_of_message(const struct tcp_piece *piece)
{
	return piece->frame.type == PL_FRAME_EAGER || piece->frame.type == PL_FRAME_RENDEZVOUS ||
	       piece->frame.type == PL_FRAME_NOTIFY || piece->frame.type == PL_FRAME_FINISH;
}
/* True if the other end's host has all frames of messages that were queued. */
bool tcp_lane_has_sent_messages(const struct tcp_lane *lane);

/* behind.c: notifications behind their data */
/*
 * Takes the turn of a write's notification, if that can follow the data. The data's frames must then be side by side on
 * one lane. Home.
 */
bool tcp_take_turn_behind(struct tcp_endpoint *endpoint, struct pl_operation *operation);
/* Queues the notification behind `writes` frames of data; `messages`: those given to lane 0 before. 0 or -ENOMEM. */
int tcp_queue_notification(struct tcp_lane *lane, struct pl_operation *operation, uint32_t writes, uint32_t messages);
/* Makes a message void of which no byte was sent. Returns false if it cannot: other pieces, and old other ends. */
bool tcp_piece_make_void(struct tcp_lane *lane, struct tcp_piece *piece);
/* Makes the queued notification of a failed write void. */
void tcp_void_notification_of(struct tcp_lane *lane, struct pl_operation *operation);
/* Handle a frame of core that lane 0 received, and a notification behind data or a void one of any lane. */
int tcp_message_arrived(struct tcp_lane *lane, const struct pl_frame *frame, const uint8_t *payload);
int tcp_notification_arrived(struct tcp_lane *lane, const struct pl_frame *frame, const uint8_t *payload);
void tcp_init_held(struct tcp_endpoint *endpoint);
void tcp_free_held(struct tcp_endpoint *endpoint);

/* refusal.c: refusals of WRITEs */
static inline bool tcp_piece_refuses_write(const struct tcp_piece *piece)
{
	return piece->frame.type == PL_FRAME_FAIL && piece->frame.flags == PL_FRAME_WRITE;
}
/* Queues a refusal behind other refusals, before all pieces whose header is not final. */
void tcp_lane_queue_refusal(struct tcp_lane *lane, struct tcp_piece *piece);
/*
 * Returns the position before the first piece behind `last` (NULL: in the queue) whose header is not final. Pieces whose
 * header is final are few, because one system call takes them.
 */
struct pl_list *tcp_lane_open_pieces(struct tcp_lane *lane, const struct tcp_piece *last);
void tcp_lane_refusal_sent(struct tcp_lane *lane);
/* Returns the events to watch for reading. */
uint32_t tcp_lane_events(const struct tcp_lane *lane);

/* rate.c: the peer's rate, which all its lanes share */
void tcp_lane_init_rate(struct tcp_lane *lane);
/* Returns the bytes that the lane may move now in a direction; 0: it pauses until rate_timer expires. */
size_t tcp_lane_take_allowance(struct tcp_lane *lane, struct tcp_allowance *allowance);
void tcp_lane_ignore_rate(struct tcp_lane *lane);

static inline bool tcp_lane_has_rate(const struct tcp_lane *lane)
{
	return atomic_load_explicit(&lane->endpoint->base.peer->bucket.rate, memory_order_relaxed) != 0;
}

/* Counts moved bytes; a negative number is an error, which moved none. */
static inline void tcp_allowance_use(struct tcp_allowance *allowance, ssize_t bytes)
{
	if (allowance->bytes && bytes > 0)
		allowance->bytes -= PL_MIN((uint32_t)bytes, allowance->bytes);
}

/* request.c: READ and ATOMIC of this end */
struct tcp_request *tcp_request_new(struct tcp_lane *lane, uint32_t *cookie);
struct tcp_request *tcp_request_find(struct tcp_lane *lane, uint32_t cookie);
/* Takes the value of VALUE: of an atomic, or the trailing word of a chunk, of which the operation keeps the greatest. */
void tcp_request_take_value(const struct tcp_request *request, uint64_t value);
/* Ends a request after its complete answer, or after its refusal. */
void tcp_request_complete(struct tcp_lane *lane, struct tcp_request *request);
void tcp_lane_sweep_requests(struct tcp_lane *lane, bool all);

/* receive.c */
bool tcp_lane_receive(struct tcp_lane *lane);
void tcp_lane_drop_received(struct tcp_lane *lane);

/* serve.c: requests of the peer for memory of this end */
/* Begins a WRITE. `whole`: all its bytes have arrived. */
int tcp_serve_write(struct tcp_lane *lane, const struct pl_frame *frame, bool whole);
void tcp_serve_written(struct tcp_lane *lane);
int tcp_serve_read(struct tcp_lane *lane, const struct pl_frame *frame);
/* Frees a sent DATA answer. A long one is followed by a frame with the status of all its bytes. */
void tcp_serve_data_sent(struct tcp_lane *lane, struct tcp_piece *piece);
/* Queues that frame behind DATA that is being gathered, so that one system call sends both. */
void tcp_serve_trail_data(struct tcp_lane *lane, struct tcp_piece *piece);
/* Drops the answers of which nothing was sent: at the end of a lane, an end that reads fast could have all their bytes sent. */
void tcp_lane_drop_answers(struct tcp_lane *lane);
/* Turns that frame into a refusal. No byte of it was sent. */
void tcp_trailer_fail(struct tcp_piece *trailer, enum pl_wire_status status);
int tcp_serve_atomic(struct tcp_lane *lane, const struct pl_frame *frame, const uint8_t *payload);
int tcp_lane_refuse_request(struct tcp_lane *lane, uint8_t type, uint32_t cookie, enum pl_wire_status status);

#endif
