/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Verbs fabric: one-sided operations by an RDMA card over a reliable connection (RC), made with rdma_cm.
 *
 * An endpoint has one or more rails, each with one queue pair at a time, all on the peer's home engine. Posted work
 * stays in a rail's list until its completion. When a queue pair fails, or is failed to cancel work, the card flushes
 * the list and cancelled work ends. The remaining work is held until the other end's queue pair takes nothing any more,
 * which a new connection of the rail shows, or an answer of the peer over another rail (rail_fence.c); otherwise late
 * bytes could overwrite newer ones. Then it is posted again:
 *
 * - writes and reads can be done twice;
 *
 * - frames (core's messages) carry a sequence number, by which the receiver drops repeated ones;
 *
 * - an atomic operation whose result is unknown fails, because it must not be done twice.
 *
 * Frames travel by SEND into the shared receive queue of the engine and device. frame.ack is the number; 0 marks frames
 * of the fabric itself, which may arrive in any order. Numbered frames use one rail until it fails. A small message
 * with a small tag has no header, so that a message of one page fits its packets: the immediate data holds tag and
 * number. Waiting small frames share a SEND (pack.c).
 */
#ifndef PL_VERBS_H
#define PL_VERBS_H

#include <netinet/in.h>

#include "core/fabric.h"
#include "rdma/device_memory.h"
#include "rdma/library.h"
#include "memory/registration_cache.h"

/* Work requests of a queue pair. */
#define VERBS_SEND_DEPTH 128
/* Requests in one call of the driver. */
#define VERBS_LIST 64
/* Completions of a queue: limits the requests that its queue pairs have posted together. */
#define VERBS_COMPLETIONS 16384
/* With this many requests posted, new ones wait for others to share a list, and small frames to share a SEND. */
#define VERBS_BUSY 32
#define VERBS_BUSY_FRAMES 4
/* Receive buffers of a queue, and send buffers. */
#define VERBS_RECEIVES 256
#define VERBS_SENDS 256
#define VERBS_BUFFER (PL_FRAME_HEADER + PL_EAGER_MAX)
/* Frames in one SEND, and the most that a queue pair has under way this way. */
#define VERBS_PACK 32
/* Frames up to this size wait for others. Bytes. */
#define VERBS_PACK_BYTES (VERBS_BUFFER / 8)
#define VERBS_EARLY (VERBS_SEND_DEPTH * VERBS_PACK)
#define VERBS_HINT_MAPPED "keep the region mapped and writable, and files behind it whole"
#define VERBS_INLINE 64
/* Scatter/gather entries of a request: the header of a frame, and bytes elsewhere; for several frames. */
#define VERBS_PIECES 8
/* Staging buffers for memory that cannot be registered; created on first use. */
#define VERBS_STAGES 16
#define VERBS_STAGE (256u << 10)
/* Bytes of a chunk of a large operation, if the device has no lower limit. */
#define VERBS_CHUNK (8u << 20)
#define VERBS_CHUNK_LEAST 8192u
/* Most rails of an endpoint; and the cards used by default. */
#define VERBS_RAILS PL_RAILS_MAX
#define VERBS_RAILS_DEFAULT 2
/* Most local addresses advertised to a peer. */
#define VERBS_PLACES 8
/* Bytes of one operation that justify another rail, and that a rail may have posted beside others. */
#define VERBS_SLICE (64u << 10)
#define VERBS_SLICE_MAX (1u << 20)
#define VERBS_RAIL_BYTES (4u << 20)
/* Without end: the receiver may be busy, and every operation has its own timeout. */
#define VERBS_RECEIVER_RETRIES 7

/* Bits of the value in a notification that comes with a write. The others hold the frame's number. */
#define VERBS_NOTIFY_BITS 22
#define VERBS_NOTIFY_MAX ((1u << VERBS_NOTIFY_BITS) - 1)

struct verbs_endpoint;
struct verbs_join;

/* RDMA device; created for its first connection, kept until the context closes. */
struct verbs_device {
	struct pl_list link;
	char name[IBV_SYSFS_NAME_MAX];
	struct ibv_context *verbs; /* librdmacm's context; NULL: closed */
	struct ibv_pd *pd;
	struct ibv_pd *loop_pd; /* of loopback queue pairs; NULL: none */
	struct pl_list loop_registrations; /* grant_lock */
	atomic_bool gone;                  /* the device was removed: no new users, and existing ones end */
	unsigned queues;                   /* open queues; state->lock */
	struct pl_list registrations;      /* grant_lock */
	struct ibv_device_attr attributes;
	uint32_t message_max;
	atomic_bool windows;     /* the device supports memory windows of type 2, as far as known */
	struct pl_registration_cache *shared; /* registrations for this end's own use */
};

/* Connection events of one engine. */
struct verbs_cm {
	struct pl_source source;
	struct rdma_event_channel *channel;
	struct verbs_state *state;
};

/* Local address of a device, for outgoing and incoming connections. */
struct verbs_place {
	struct pl_list link;
	struct sockaddr_storage address; /* without a port */
	unsigned prefix;                 /* prefix length in bits; 0: unknown */
	struct verbs_device *device;
	uint8_t port;
	struct rdma_cm_id *listener; /* NULL: not needed yet, or the device is gone */
	uint16_t listens;            /* port of the listener, as peers know it; 0: it never listened */
};

struct verbs_buffer {
	struct pl_list link;
	struct verbs_pool *pool;
	uint8_t *bytes;
};

/* Buffers of one size in registered memory. */
struct verbs_pool {
	struct verbs_queue *queue;
	struct verbs_buffer *buffers;
	uint8_t *slab;
	struct ibv_mr *mr;
	struct pl_list free;
	unsigned taken;
};

/* Completions, received frames and buffers of one engine and device. */
struct verbs_queue {
	struct pl_list link;
	struct verbs_state *state;
	struct verbs_device *device;
	struct pl_engine *engine;
	struct pl_source source, async;
	struct pl_task events_task; /* handles `events` */
	atomic_uint events;
	bool broken; /* accepts no more connections */
	bool shut;   /* only buffers are left, while they are in use */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct verbs_pool receives, sends;
	struct verbs_pool stages; /* empty until the first use */
	struct pl_list rails[64]; /* rails with a queue pair, hashed by its number */
	struct pl_list spent;     /* receive buffers to be posted again */
	unsigned spent_count;
	struct pl_list starved;  /* rails that wait for a buffer or for room */
	unsigned rail_count;     /* rails that refer to the queue */
	unsigned posted, room;   /* work requests of all queue pairs, and their limit */
	struct verbs_loop *loop; /* loopback queue pair; NULL: not needed yet */
	bool armed;
};

/* State of the fabric in a context (fabric_states). The lists grow under the lock. */
struct verbs_state {
	struct pl_context *context;
	const struct verbs_library *library;
	struct verbs_cm *cms; /* by engine */
	pthread_mutex_t lock;
	struct pl_list devices, queues, places;
	bool surveyed;    /* the local addresses are known */
	unsigned tellers; /* threads that walk the queues without the lock; no queue is freed meanwhile */
	struct pl_task tend_task;
	struct pl_timer tend_timer;
};

/* BIND: of a memory window; frame.key names its key. */
enum verbs_work_kind { VERBS_WRITE, VERBS_READ, VERBS_ATOMIC, VERBS_FRAME, VERBS_BIND };

/* Remote region as the peer's devices know it, decoded once; pl_remote.fabric_data. */
struct verbs_target {
	struct pl_list link; /* in the endpoint's list; state->lock */
	struct verbs_state *state;
	uint64_t id, address;
	uint32_t rkeys[VERBS_RAILS];
	uint8_t present; /* rails with a key, one bit each */
	/* rails whose key must be requested when they come up: of a window each time, or of a new device */
	uint8_t windows;
	enum pl_memory_order order;
};

/* Work request: waiting or posted. */
struct verbs_work {
	struct pl_list link;
	struct pl_operation *operation; /* holds a pending count of it; NULL: none (any more) */
	enum verbs_work_kind kind;
	bool staged;                 /* the bytes go through the buffer */
	bool back;                   /* read that only flushes earlier writes */
	bool notify;                 /* write that notifies; frame.offset has the value */
	bool counted;                /* has a frame number, frame.ack */
	bool built;                  /* frame: built in the buffer */
	bool bare;                   /* frame: without its header */
	struct verbs_work *also;     /* frame: chain of gathered frames sent with it */
	bool alone;                  /* frame: must be sent alone */
	bool gathered;               /* frame: the payload stays in its region until it was sent */
	uint32_t immediate;          /* immediate data in place of the header */
	bool refused;                /* by the other end, once */
	bool first_only;             /* other rails' devices cannot reach the memory */
	struct verbs_rail *only;     /* for this rail only */
	struct verbs_buffer *buffer; /* frame; the result of an atomic operation; staged bytes */
	struct pl_region *region;    /* write, read; frame, if it is gathered */
	uint64_t offset;
	const struct verbs_target *target; /* write, read, atomic */
	uint64_t remote;                   /* remote address */
	uint32_t length, lkey;
	const struct verbs_device *lkey_device; /* device of the lkey */
	const uint8_t *payload;                 /* frame: until it is copied into a buffer */

	/* Of frames; not cleared. */
	struct pl_frame frame;
	uint8_t copy[PL_KEY_BLOB_MAX];
};

/* True for frames of the fabric itself, which have no number. */
static inline bool verbs_unnumbered(const struct verbs_work *work)
{
	return work->kind == VERBS_FRAME && work->frame.type >= PL_FRAME_FENCE && work->frame.type <= PL_FRAME_KEY;
}

/* DOWN: no queue pair; an initiator connects when there is work. DRAINING: the queue pair is being flushed. */
enum verbs_link { VERBS_DOWN, VERBS_RESOLVING, VERBS_CONNECTING, VERBS_UP, VERBS_DRAINING };

/* Limit of a rail's bytes under way; pace.c. */
#define VERBS_UNLIMITED UINT32_MAX

struct verbs_pace {
	uint32_t limit, packet; /* bytes */
	uint64_t began, bytes;  /* current measurement: start, and bytes done since */
	uint32_t base;          /* highest good limit, at least a packet */
	uint64_t rate;          /* rate at `base`, bytes per second; 0: unknown */
	uint8_t spells, patience;
};

/* One connection of an endpoint, made again whenever it breaks. */
struct verbs_rail {
	struct verbs_endpoint *endpoint;
	struct verbs_device *device; /* NULL: not in use */
	uint16_t renewals;           /* devices that this end had before */
	uint16_t far_renewals;       /* the same of the other end, as known */
	uint16_t far_told;           /* and as it announced for the next connection */
	struct verbs_queue *queue;   /* of the current queue pair; NULL: none */
	struct pl_list queue_link, starved_link;
	struct rdma_cm_id *id;
	enum verbs_link link;
	uint16_t generation; /* number of the queue pair */
	uint8_t index;
	struct pl_task join_task, drained_task, fail_task;
	struct verbs_join *_Atomic joining; /* handed over by the listener's engine */
	struct verbs_join *joined;          /* request to accept once the old queue pair is drained */
	struct pl_timer retry, drain, watch;
	unsigned attempts;                /* attempts to connect since the rail was up */
	unsigned resolves;                /* attempts to resolve the address, in this connection attempt */
	struct sockaddr_storage from, to; /* initiator */
	uint8_t place;                    /* initiator: index of the acceptor's address */

	struct pl_list posted;
	struct pl_list held;      /* returned unfinished; must not be posted again yet */
	struct pl_list asked;     /* questions of the peer that came before this end was up */
	uint16_t held_generation; /* generation under which the held work was posted */
	unsigned posted_count, unsignaled, inline_max;
	unsigned frames; /* numbered frames among posted and held work */
	uint64_t posted_bytes;
	struct {
		enum ibv_wc_status status; /* status that ended the last connection; IBV_WC_SUCCESS: none */
		uint32_t vendor_error;
		uint8_t port;
		bool here; /* this end could not send; the state of its port may not be known yet */
	} broke;
	const struct verbs_target *denied; /* the queue pair failed because the peer's device refused access to it */
	bool cut;                          /* the peer asks when `generation` takes nothing any more */
	uint16_t fail_generation;          /* generation that fail_task fails */
	/* bytes of a request; reduced while connections break before a request is done */
	uint32_t chunk;
	unsigned done;                     /* completions since the connection was made or the chunk grew */
	struct verbs_pace pace;
	unsigned completed;   /* completions in total; stall_watch.c: */
	unsigned watch_done;  /* completions when the watch began, */
	unsigned watch_looks; /* and checks since then */
};

/* Numbered frame that overtook another one on another rail. */
struct verbs_early {
	struct pl_list link;
	struct pl_frame frame;
	uint8_t payload[];
};

struct verbs_endpoint {
	struct pl_endpoint base;
	struct verbs_state *state;
	struct verbs_cm *cm;
	struct verbs_rail rails[VERBS_RAILS];
	unsigned rail_count;       /* 0: unknown yet */
	struct verbs_rail *framer; /* rail of the numbered frames; NULL: none so far */
	struct verbs_rail *latest; /* rail of the last request */
	bool opened;               /* the peer knows that this end is up */
	bool closing;              /* no more connections */
	bool flushing;
	bool listing;             /* PL_MORE: waiting work belongs to a list whose last operation is to come */
	struct pl_timer patience; /* timeout of that */
	bool windowed;            /* the peer got a window at least once */
	unsigned questions;       /* unanswered questions of the peer for keys */
	struct pl_list targets;   /* state->lock */
	uint64_t down_since;      /* time since no rail is up; 0: one is, or none was so far */

	struct verbs_place *places[VERBS_PLACES]; /* acceptor: advertised addresses */
	unsigned place_count;
	/* initiator: this end's peer index at the acceptor */
	uint64_t peer_index;
	uint8_t join_secret[16];

	struct pl_list waiting; /* waiting work */
	unsigned waiting_count; /* waiting work added since the last flush */
	struct pl_list again;   /* returned unfinished: to be posted first */
	struct pl_list spare;   /* unused work objects */
	unsigned spare_count;
	struct pl_list settling; /* operations that wait for answers to FLUSH, or for reads of this end */
	struct pl_list flushes;  /* flushes for the peer, and for those operations */
	unsigned flush_count;
	uint32_t next_cookie;
	struct pl_list early; /* frames that came early */
	unsigned early_count;
	uint32_t sent, received; /* numbers of the last frames */
};

static inline struct verbs_endpoint *verbs_endpoint_of(struct pl_endpoint *endpoint)
{
	return pl_container_of(endpoint, struct verbs_endpoint, base);
}

static inline const struct verbs_library *verbs_library_of(const struct verbs_rail *rail)
{
	return rail->endpoint->state->library;
}

/* True if nothing more must be connected. */
static inline bool verbs_finished(const struct verbs_endpoint *endpoint)
{
	return endpoint->closing || endpoint->base.peer->leaving ||
	       atomic_load(&endpoint->base.peer->state) == PL_PEER_LOST;
}

static inline unsigned verbs_rails_up(const struct verbs_endpoint *endpoint)
{
	unsigned count = 0;

	for (unsigned i = 0; i < endpoint->rail_count; i++)
		count += endpoint->rails[i].link == VERBS_UP;
	return count;
}

/* state.c: state of a context */
struct verbs_state *verbs_state_get(struct pl_context *context, struct pl_error *error);
/* The caller holds the lock. */
struct verbs_device *verbs_device_get(struct verbs_state *state, struct ibv_context *verbs);
struct verbs_queue *verbs_queue_get(struct verbs_state *state, struct verbs_device *device, struct pl_engine *engine);
struct verbs_cm *verbs_cm_of(struct verbs_state *state, const struct pl_engine *engine);
/* Destroys the device's objects of a queue. Called on its engine. */
void verbs_queue_shut(struct verbs_queue *queue);
void verbs_state_close(struct pl_context *context, void *state);

/* local_addr.c: local addresses */
/*
 * Returns the address with that port in the form of the connection manager, which does not know IPv4-mapped IPv6
 * addresses.
 */
struct sockaddr_storage verbs_address(const struct sockaddr_storage *address, uint16_t port);
int verbs_serves(struct pl_peer *peer, struct pl_error *error);
/*
 * Listens where the peer may connect, at the peer's own address first. Fills endpoint->places. Returns 0 or a negative
 * errno.
 */
int verbs_offer(struct verbs_endpoint *endpoint);
void verbs_offer_write(const struct verbs_endpoint *endpoint, struct pl_writer *writer);
/* Reads the peer's advert, and chooses rails. Returns 0, -EPROTO, or -ENODEV if no rail is possible. */
int verbs_offer_read(struct verbs_endpoint *endpoint, struct pl_reader *reader);
void verbs_places_close(struct verbs_state *state);
/* Stops listening at removed devices, and starts at their successors. Called on the first engine with the lock held. */
void verbs_places_leave(struct verbs_state *state, const struct verbs_device *device);
/* Returns true if all listeners are in place. */
bool verbs_places_return(struct verbs_state *state);

/* qp.c */
int verbs_pair_make(struct verbs_rail *rail);
/* The queue pair is connected. */
void verbs_pair_up(struct verbs_rail *rail);
void verbs_pair_drop(struct verbs_rail *rail);
/* Returns the reads that a queue pair may have under way. */
uint8_t verbs_pair_reads(const struct verbs_device *device);
/*
 * Takes frames that arrived before the end, which the sender counts as delivered. Also frames that arrived before this
 * end was established.
 */
void verbs_take_rest(struct verbs_rail *rail);
/*
 * True if the port is down. A device may drop all requests then. soft-RoCE (Linux 6.1) never connects again if the
 * connection manager sends a message then, such as a disconnect.
 */
bool verbs_port_is_down(const struct verbs_rail *rail);

/* accept.c */
/* Called on the listener's engine with untrusted data. */
void verbs_requested(struct verbs_cm *cm, struct rdma_cm_id *id, const uint8_t *bytes, uint8_t length, uint8_t reads);
void verbs_join_run(struct pl_task *task);
/* The rail is down, and a request waits for it. */
void verbs_accept_joined(struct verbs_rail *rail);
/* Drops connections that will not be accepted, at the end. */
void verbs_joins_drop(struct verbs_rail *rail);

/* cm.c */
bool verbs_cm_ready(struct pl_source *source, uint32_t events);
void verbs_dial(struct verbs_rail *rail);
/* The connection attempt failed: starts another one, or loses the peer. */
void verbs_connect_failed(struct verbs_rail *rail, int code, const char *call);
/* Destroys the drained queue pair, at the end. */
void verbs_link_drop(struct verbs_rail *rail);
/* Moves the queue pair into the error state: it is useless, or must stop using a buffer. */
void verbs_fail(struct verbs_rail *rail);
/* Fails the rail later: called while completions are taken, or from other engines. */
void verbs_fail_soon(struct verbs_rail *rail);
void verbs_fail_run(struct pl_task *task);
/* All posted work has come back: destroys the queue pair, so that the next one can be made. */
void verbs_drained_run(struct pl_task *task);
/* Posted work did not come back in time. */
void verbs_drain_expired(struct pl_timer *timer);

/* rail_fence.c */
/* This end takes no byte of the rail's generation any more: tells the peer if it asked, and asks the same. */
void verbs_fence_quiet(struct verbs_rail *rail);
/* Held work of the rail may be posted again. */
void verbs_fence_release(struct verbs_rail *rail);
/* Handles a frame of the fence; -EPROTO. */
int verbs_fence_arrived(struct verbs_endpoint *endpoint, const struct pl_frame *frame);
/* A rail is up: asks the peer about the others. */
void verbs_fence_ask(struct verbs_endpoint *endpoint);

/* buffer_pool.c */
int verbs_pool_open(struct verbs_pool *pool, struct verbs_queue *queue, unsigned count, size_t size);
/* The device does not know the buffers any more; they stay allocated. */
void verbs_pool_shut(struct verbs_pool *pool, struct verbs_queue *queue);
void verbs_pool_close(struct verbs_pool *pool, struct verbs_queue *queue);
/* Returns NULL if all buffers are in use. */
static inline struct verbs_buffer *verbs_pool_take(struct verbs_pool *pool)
{
	struct verbs_buffer *buffer;

	if (pl_list_empty(&pool->free))
		return NULL;
	buffer = pl_list_first(&pool->free, struct verbs_buffer, link);
	pl_list_remove(&buffer->link);
	pool->taken++;
	return buffer;
}
/* First in the list: it is still in the processor's cache. */
static inline void verbs_buffer_put(struct verbs_buffer *buffer)
{
	pl_list_prepend(&buffer->pool->free, &buffer->link);
	buffer->pool->taken--;
}

/* async_event.c */
/* Called under the lock of the queue's engine. */
int verbs_async_open(struct verbs_queue *queue);
void verbs_async_close(struct verbs_queue *queue);

/* Makes all queues of a device check its events. */
void verbs_async_tell(struct verbs_state *state, const struct verbs_device *device, unsigned bits);

/* device_removal.c */
void verbs_removal_open(struct verbs_state *state);
void verbs_removal_close(struct verbs_state *state);
/* A device was removed. */
void verbs_device_lost(struct verbs_state *state, struct verbs_device *device);
/*
 * A rail left its queue, or the queue was told of an event: frees more if the device is gone and this was its last
 * user.
 */
void verbs_queue_left(struct verbs_queue *queue);
/* The connection uses another device than the last one, which is gone. */
void verbs_rail_renew(struct verbs_rail *rail);

/* cq.c */
bool verbs_queue_ready(struct pl_source *source, uint32_t events);
void verbs_queue_idle(struct pl_source *source);
bool verbs_queue_poll(struct verbs_queue *queue);
int verbs_receive_post(struct verbs_queue *queue, struct verbs_buffer *buffer);

/* wc_error.c */
/* A request failed: its operation ends, or the request is posted again. The rail fails. */
void verbs_work_failed(struct verbs_rail *rail, struct verbs_work *work, const struct ibv_wc *completion);
/* Takes back all posted work as if the queue pair had been flushed. */
void verbs_take_back(struct verbs_rail *rail);

/* pace.c */
void verbs_pace_open(struct verbs_pace *pace);
/* A connection will be made. */
void verbs_pace_connect(struct verbs_pace *pace, enum ibv_mtu mtu);
/* The device gave up the connection. */
void verbs_pace_broke(struct verbs_pace *pace, uint64_t now);
/* While there is a limit: counts bytes done. idle: no more work waits. */
void verbs_pace_done(struct verbs_pace *pace, uint64_t bytes, bool idle, uint64_t now);

/* stall_watch.c: starts to watch the progress of posted work */
void verbs_watch_begin(struct verbs_rail *rail);
void verbs_watch_look(struct pl_timer *timer);

/* pack.c */
/* True if waiting work can be packed with a frame, which was taken from the list. */
bool verbs_packs(struct verbs_endpoint *endpoint, const struct verbs_work *work);
/* Packs waiting frames with it, as many as fit. */
void verbs_pack(struct verbs_rail *rail, struct verbs_work *work);
/* Moves the chains of returned work into its list. */
void verbs_unpack(struct pl_list *list);

/* post.c */
/* Posts waiting work while there is room. */
void verbs_flush(struct verbs_endpoint *endpoint);

/* True if no other work must be posted before. */
static inline bool verbs_may_post_now(const struct verbs_endpoint *endpoint)
{
	return !endpoint->flushing && pl_list_empty(&endpoint->waiting) && pl_list_empty(&endpoint->again);
}

/* post_single.c: posts work of one request that can go now; work.c does the rest */
void verbs_post(struct pl_endpoint *endpoint, struct pl_operation *operation);
int verbs_message(struct pl_endpoint *endpoint, const struct pl_frame *frame, const void *payload,
		  struct pl_operation *operation);

/* Most unused work objects kept. */
#define VERBS_SPARES 256

static inline void verbs_work_free(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	if (work->buffer)
		verbs_buffer_put(work->buffer);
	endpoint->questions -= work->kind == VERBS_BIND;
	if (endpoint->spare_count < VERBS_SPARES) {
		/* First in the list: it is still in the processor's cache. */
		pl_list_prepend(&endpoint->spare, &work->link);
		endpoint->spare_count++;
	} else {
		pl_free(&endpoint->state->context->allocator, work);
	}
}

/* work.c */
void verbs_post_parts(struct verbs_endpoint *endpoint, struct pl_operation *operation);
/*
 * Takes a message, and a pending count of its operation, whose bytes the device reads from memory that the processor
 * cannot reach. gathers: true if so. gather_not: the bytes are copied after all, where another rail's device cannot
 * reach them.
 */
bool verbs_gathers(struct pl_endpoint *endpoint, struct pl_operation *operation);
void verbs_gather(struct verbs_endpoint *endpoint, struct verbs_work *work, struct pl_operation *operation);
int verbs_gather_not(struct verbs_work *work);
/* Queues a frame that cannot be posted now. */
void verbs_message_wait(struct verbs_endpoint *endpoint, struct verbs_work *work, struct pl_operation *operation);
/* Creates work of the fabric itself that only the present connection of the rail can carry. */
struct verbs_work *verbs_work_only(struct verbs_rail *rail, enum verbs_work_kind kind);
/* Reads back the last written bytes of a segment. Returns 0 or -ENOMEM. */
int verbs_post_back(struct verbs_endpoint *endpoint, struct pl_operation *operation, const struct pl_segment *segment);
/* Sends a frame of the fabric itself before all others. */
void verbs_message_first(struct verbs_endpoint *endpoint, const struct pl_frame *frame);
/*
 * Ends the operation of a work request that is not done. Returns true for a notification: the work now tells the peer
 * that it does not come, and must be posted.
 */
bool verbs_work_skip(struct verbs_work *work);
/* Shortens a write or read to this many bytes; the rest follows it in the list. */
void verbs_work_cut(struct verbs_endpoint *endpoint, struct verbs_work *work, uint32_t length);
void verbs_spare_drop(struct verbs_endpoint *endpoint);

/* profile_advice.c */
struct verbs_advised {
	bool staged;        /* stage, even if the device could reach the memory */
	const char *reason; /* reason for operations that follow the advice, or for missing advice; NULL: no profile */
};

struct verbs_advice {
	enum pl_gpu_path first; /* path to try first */
	struct verbs_advised directions[PL_DIRECTION_COUNT];
};

/* For memory that the processor cannot reach. grant_lock is held. */
void verbs_advise(struct verbs_state *state, const struct verbs_device *device, const struct pl_memory *memory,
		  struct verbs_advice *advice);

/* mr_shared.c: registrations for this end's own use; grant_lock */
struct pl_registration_cache *verbs_shared_open(const struct verbs_state *state);
/* Returns the number of a registration of all that memory with these rights; 0: none. */
uint32_t verbs_shared_take(struct verbs_device *device, const struct pl_memory *memory, unsigned access,
			   struct ibv_mr **mr);
/* Shares a new registration. Returns its number; 0: no memory, and it is not shared. */
uint32_t verbs_shared_add(struct verbs_state *state, struct verbs_device *device, const struct pl_memory *memory,
			  unsigned access, struct ibv_mr *mr);
/* A region of that memory no longer uses it. */
void verbs_shared_give(const struct verbs_device *device, uint32_t number, const struct pl_memory *memory);
/* Releases all kept registrations; none is in use. */
void verbs_shared_end(struct verbs_device *device);
/* Takes no lock. */
void verbs_shared_count(void *state, struct pl_registrations_info *info);
void verbs_shared_freed(void *state, const void *address, size_t length);

/* mr.c */
struct verbs_registration {
	struct pl_registration base;
	struct pl_list device_link; /* grant_lock */
	const struct verbs_library *library;
	const struct pl_allocator *allocator;
	struct ibv_mr *mr; /* NULL: registration refused (see reason), or the device is gone */
	uint32_t lkey;     /* read without a lock */
	int failure;
	const char *reason; /* of GPU memory: paths tried, and their results */
	unsigned access;
	struct verbs_advice advice; /* of a GPU's memory */
	/* shared: its number in the cache, and the identity of its memory */
	uint32_t cached;
	const struct pl_memory *memory;
};

int verbs_local_key_find(struct verbs_state *state, struct verbs_device *device, struct pl_region *region, bool written,
			 uint32_t *lkey);

/*
 * Returns the lkey of a region's memory at a device, and registers the memory if necessary. 0, -EACCES if the memory
 * must not be written, or the reason why the device cannot reach it.
 */
PL_ALWAYS_INLINE int verbs_local_key(struct verbs_state *state, struct verbs_device *device, struct pl_region *region,
				     bool written, uint32_t *lkey)
{
	struct pl_registration *recent = atomic_load_explicit(&region->recent, memory_order_acquire);
	const struct verbs_registration *registration;

	/* Another fabric's registration has another device. */
	if (!recent || recent->device != device)
		return verbs_local_key_find(state, device, region, written, lkey);
	registration = pl_container_of(recent, struct verbs_registration, base);
	if (written && !(registration->access & IBV_ACCESS_LOCAL_WRITE))
		return -EACCES;
	*lkey = registration->lkey;
	return 0;
}

/* Returns the reason why the device cannot reach a region's memory, as far as tried; NULL: no special reason. */
const char *verbs_local_refusal(struct verbs_state *state, struct verbs_device *device, struct pl_region *region);
/* Ends all registrations of the device. grant_lock is held. */
void verbs_registrations_end(struct verbs_device *device);
/*
 * Finds a region's registration on which windows with these rights can be bound. grant_lock is held. Returns 0 or a
 * negative errno.
 */
int verbs_window_base(struct verbs_state *state, struct verbs_device *device, struct pl_region *region, unsigned rights,
		      struct ibv_mr **mr);
/* Returns the profile's advice for GPU memory whose key verbs_local_key() just returned. */
const struct verbs_advised *verbs_local_advice(const struct verbs_device *device, struct pl_region *region,
					       bool written);
/* Writes what peers of a device need to reach a key's memory. grant_lock is held. */
int verbs_export_at(struct verbs_state *state, struct verbs_device *device, struct pl_list *list,
		    const struct pl_key *key, uint32_t *rkey);
int verbs_export_key(struct pl_endpoint *endpoint, struct pl_grant *grant, struct pl_key *key,
		     uint8_t blob[PL_KEY_BLOB_MAX]);

/* remote_key.c: decodes a remote region's key; NULL: no memory. Home. */
struct verbs_target *verbs_target_make(struct pl_remote *remote, struct verbs_endpoint *endpoint);

static inline const struct verbs_target *verbs_target_of(struct pl_remote *remote, struct verbs_endpoint *endpoint)
{
	return remote->fabric_data ? remote->fabric_data : verbs_target_make(remote, endpoint);
}

/* mw.c */
/* True if a grant is to be reached by windows. */
bool verbs_windows_wanted(const struct verbs_endpoint *endpoint, const struct pl_grant *grant,
			  const struct verbs_device *device);
/* Creates a window on a grant's region, bound when the peer asks for its key. grant_lock is held. */
int verbs_window_make(struct verbs_rail *rail, struct pl_grant *grant, struct pl_key *key);
/* Called before their queue pair is destroyed. */
void verbs_windows_drop(struct verbs_rail *rail);
/* The rail is up: answers earlier questions, and asks the peer for all keys. */
void verbs_windows_up(struct verbs_rail *rail);
/* Answers a question for a key: posts the bind request, or frees the work. */
void verbs_bind(struct verbs_rail *rail, struct verbs_work *work);
/* The bind request was not done. */
void verbs_bind_failed(struct verbs_rail *rail, const struct verbs_work *work);
/* Handles a question or an answer on a rail; -EPROTO. */
int verbs_key_arrived(struct verbs_rail *rail, const struct pl_frame *frame);
void verbs_imported(struct pl_endpoint *endpoint, struct pl_remote *remote);

/* True if a rail's device at the other end has a key for the memory. */
static inline bool verbs_reaches(const struct verbs_target *target, unsigned rail)
{
	return target->present & 1u << rail;
}

#endif
