/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verbs fabric: one-sided operations by an RDMA card, over a reliable connection (RC) that rdma_cm makes.
 *
 * An endpoint has one or more rails, each with one queue pair at a time, all on the peer's home engine.
 * Work that is posted stays in a rail's list until its completion; when the queue pair fails, or is
 * failed on purpose because something was cancelled, the list is flushed by the card, what was
 * cancelled ends, and the rest is held until the other end's queue pair is known to take nothing any
 * more: as the rail is connected again, or as the peer says so over another one (fence.c).  Otherwise
 * bytes that are still under way could overwrite later ones.  Then it is posted again:
 * - writes and reads can be done twice;
 * - frames (core's messages) carry a sequence number, by which the receiver drops what it has;
 * - an atomic operation whose fate is unknown fails: it must not be done twice.
 *
 * Frames travel by SEND into the shared receive queue of the engine and device; frame.ack is the
 * number, 0 for those between the two fabrics, which may come in any order.  Numbered ones take one
 * rail until it fails.  A small message with a small tag goes without a header, so that one of a page
 * does not take a packet more: tag and number are the immediate data of its SEND.  Those that wait
 * anyway go several in one (pack.c).
 */
#ifndef PL_VERBS_H
#define PL_VERBS_H

#include <netinet/in.h>

#include "core/fabric.h"
#include "rdma/device_memory.h"
#include "rdma/library.h"
#include "memory/registration_cache.h"

/* Work requests that a queue pair takes. */
#define VERBS_SEND_DEPTH 128
/* Requests that a device is given with one call of its driver. */
#define VERBS_LIST 64
/* Completions that a queue has room for: bounds what its queue pairs have posted altogether. */
#define VERBS_COMPLETIONS 16384
/* With so many posted, what comes waits for others to go with it in one list; small frames in one SEND. */
#define VERBS_BUSY 32
#define VERBS_BUSY_FRAMES 4
/* Received frames that a queue has room for, and frames to be sent. */
#define VERBS_RECEIVES 256
#define VERBS_SENDS 256
#define VERBS_BUFFER (PL_FRAME_HEADER + PL_EAGER_MAX)
/* Frames of one SEND, and those that a queue pair may have under way so. */
#define VERBS_PACK 32
/* Bytes of a frame up to which it is worth waiting for others. */
#define VERBS_PACK_BYTES (VERBS_BUFFER / 8)
#define VERBS_EARLY (VERBS_SEND_DEPTH * VERBS_PACK)
#define VERBS_HINT_MAPPED "keep the region mapped and writable, and files behind it whole"
#define VERBS_INLINE 64
/* Pieces of a request: the header of a frame, and bytes that are elsewhere; for several frames. */
#define VERBS_PIECES 8
/* Through which bytes go whose memory cannot be registered: so many buffers, made when the first is needed. */
#define VERBS_STAGES 16
#define VERBS_STAGE (256u << 10)
/* A chunk of a large operation, if the device has no lower limit. */
#define VERBS_CHUNK (8u << 20)
#define VERBS_CHUNK_LEAST 8192u
/* Connections of an endpoint, at most; and cards that are used if the program does not say how many. */
#define VERBS_RAILS PL_RAILS_MAX
#define VERBS_RAILS_DEFAULT 2
/* Local addresses that are offered to a peer. */
#define VERBS_PLACES 8
/* Bytes of one operation that are worth a rail of their own; and what a rail may have posted beside others. */
#define VERBS_SLICE (64u << 10)
#define VERBS_SLICE_MAX (1u << 20)
#define VERBS_RAIL_BYTES (4u << 20)
/* For ever: the receiver may be busy, and every operation has its own time-out. */
#define VERBS_RECEIVER_RETRIES 7

/* A notification that comes with a write: so many bits for its value, and the rest for the number of the frame. */
#define VERBS_NOTIFY_BITS 22
#define VERBS_NOTIFY_MAX ((1u << VERBS_NOTIFY_BITS) - 1)

struct verbs_endpoint;
struct verbs_join;

/* What hangs on one device; made when the first connection comes to it, kept until the context closes. */
struct verbs_device {
	struct pl_list link;
	char name[IBV_SYSFS_NAME_MAX];
	struct ibv_context *verbs; /* librdmacm's; NULL: it was closed */
	struct ibv_pd *pd;
	struct ibv_pd *loop_pd; /* of the queue pairs that are connected to themselves; NULL: there is none */
	struct pl_list loop_registrations; /* grant_lock */
	atomic_bool gone;                  /* it was taken away: nothing new comes to it, and what it has is to end */
	unsigned queues;                   /* that are open; state->lock */
	struct pl_list registrations;      /* grant_lock */
	struct ibv_device_attr attributes;
	uint32_t message_max;
	atomic_bool windows;     /* it has memory windows of type 2, as far as is known */
	struct pl_registration_cache *shared; /* registrations for this end's own use */
};

/* Of an engine: where connection events arrive. */
struct verbs_cm {
	struct pl_source source;
	struct rdma_event_channel *channel;
	struct verbs_state *state;
};

/* A local address of a device: where connections go out and are awaited. */
struct verbs_place {
	struct pl_list link;
	struct sockaddr_storage address; /* without a port */
	unsigned prefix;                 /* bits of it that its neighbours share; 0: unknown */
	struct verbs_device *device;
	uint8_t port;
	struct rdma_cm_id *listener; /* NULL: nobody asked for it, or the device is gone */
	uint16_t listens;            /* at this port, as peers know it; 0: none ever did */
};

struct verbs_buffer {
	struct pl_list link;
	struct verbs_pool *pool;
	uint8_t *bytes;
};

/* Buffers of one size, in memory that is registered. */
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
	struct pl_task events_task; /* those that are in `events` */
	atomic_uint events;
	bool broken; /* takes no more connections */
	bool shut;   /* only buffers are left, as long as somebody has one */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct verbs_pool receives, sends;
	struct verbs_pool stages; /* empty until one is needed */
	struct pl_list rails[64]; /* with a queue pair, by its number */
	struct pl_list spent;     /* received frames' buffers, to be posted again */
	unsigned spent_count;
	struct pl_list starved;  /* rails that wait for a buffer, or for room */
	unsigned rail_count;     /* that refer to it */
	unsigned posted, room;   /* work requests of all queue pairs, and how many may be */
	struct verbs_loop *loop; /* the queue pair that is connected to itself; NULL: nobody needed it */
	bool armed;
};

/* The fabric's part of a context; fabric_states.  The lists grow under the lock. */
struct verbs_state {
	struct pl_context *context;
	const struct verbs_library *library;
	struct verbs_cm *cms; /* by engine */
	pthread_mutex_t lock;
	struct pl_list devices, queues, places;
	bool surveyed;    /* the places are known */
	unsigned tellers; /* who go through the queues without the lock: none of them may go */
	struct pl_task tend_task;
	struct pl_timer tend_timer;
};

/* BIND: of a memory window; frame.key is what for. */
enum verbs_work_kind { VERBS_WRITE, VERBS_READ, VERBS_ATOMIC, VERBS_FRAME, VERBS_BIND };

/* Where a remote region is, as the peer's devices know it: decoded once; pl_remote.way. */
struct verbs_target {
	struct pl_list link; /* in those of the endpoint; state->lock */
	struct verbs_state *state;
	uint64_t id, address;
	uint32_t rkeys[VERBS_RAILS];
	uint8_t present; /* for which rails there is a key, a bit each */
	uint8_t windows; /* for which it is asked for when the rail is up: of a window each time, or of a new device */
	enum pl_memory_order order;
};

/* A work request: waiting, or posted. */
struct verbs_work {
	struct pl_list link;
	struct pl_operation *operation; /* has a part in it; NULL: nobody's (any more) */
	enum verbs_work_kind kind;
	bool staged;                 /* the bytes go through the buffer */
	bool back;                   /* a read for no other sake than that what was written there is there then */
	bool notify;                 /* a write that notifies: frame.offset is the number */
	bool counted;                /* it has the number of a frame, frame.ack */
	bool built;                  /* frame: it is in the buffer, as it was or is to be posted */
	bool bare;                   /* frame: without its header */
	struct verbs_work *also;     /* frame: gathered ones that go with it, in a chain */
	bool alone;                  /* frame: not with others (any more) */
	bool gathered;               /* frame: the payload is where the region is, and stays there until it was sent */
	uint32_t immediate;          /* that in place of it */
	bool refused;                /* by the other end, once */
	bool first_only;             /* other rails' devices do not reach the memory */
	struct verbs_rail *only;     /* over this one, or not at all */
	struct verbs_buffer *buffer; /* frame; the result of an atomic operation; staged bytes */
	struct pl_region *region;    /* write, read; frame, if it is gathered */
	uint64_t offset;
	const struct verbs_target *target; /* write, read, atomic */
	uint64_t remote;                   /* address */
	uint32_t length, lkey;
	const struct verbs_device *lkey_device; /* whose key that is */
	const uint8_t *payload;                 /* frame: until it was copied into a buffer */

	/* Of frames; not cleared. */
	struct pl_frame frame;
	uint8_t copy[PL_KEY_BLOB_MAX];
};

/* Frames of the fabric's own, which are not numbered. */
static inline bool verbs_unnumbered(const struct verbs_work *work)
{
	return work->kind == VERBS_FRAME && work->frame.type >= PL_FRAME_FENCE && work->frame.type <= PL_FRAME_KEY;
}

/* DOWN: no queue pair; an initiator dials when there is a reason to.  DRAINING: the queue pair is being flushed. */
enum verbs_link { VERBS_DOWN, VERBS_RESOLVING, VERBS_CONNECTING, VERBS_UP, VERBS_DRAINING };

/* How much a rail has under way; pace.c. */
#define VERBS_UNLIMITED UINT32_MAX

struct verbs_pace {
	uint32_t limit, packet; /* bytes */
	uint64_t began, bytes;  /* what is measured: since when, and how many were done */
	uint32_t base;          /* the most that is known to go well, at least a packet */
	uint64_t rate;          /* of that, bytes per second; 0: not known */
	uint8_t spells, patience;
};

/* One connection of an endpoint, made again whenever it breaks. */
struct verbs_rail {
	struct verbs_endpoint *endpoint;
	struct verbs_device *device; /* NULL: not in use */
	uint16_t renewals;           /* how many devices this end had before that */
	uint16_t far_renewals;       /* and the other end; as known, */
	uint16_t far_told;           /* and as it says for the next connection */
	struct verbs_queue *queue;   /* of the current queue pair; NULL: there is none */
	struct pl_list queue_link, starved_link;
	struct rdma_cm_id *id;
	enum verbs_link link;
	uint16_t generation; /* of the queue pair */
	uint8_t index;
	struct pl_task join_task, drained_task, fail_task;
	struct verbs_join *_Atomic joining; /* handed over by the listener's engine */
	struct verbs_join *joined;          /* to be accepted, once the old queue pair is drained */
	struct pl_timer retry, drain, watch;
	unsigned attempts;                /* to connect, since it was up */
	unsigned resolves;                /* of the address, in this attempt */
	struct sockaddr_storage from, to; /* initiator */
	uint8_t place;                    /* initiator: of the acceptor's, by number */

	struct pl_list posted;
	struct pl_list held;      /* came back unfinished; not yet to be posted again */
	struct pl_list asked;     /* work for the peer that came before this end was up */
	uint16_t held_generation; /* under which it was posted */
	unsigned posted_count, unsignaled, inline_max;
	unsigned frames; /* numbered ones among those posted and held */
	uint64_t posted_bytes;
	struct {
		enum ibv_wc_status status; /* why the device ended the last connection; success: it did not */
		uint32_t vendor_error;
		uint8_t port;
		bool here; /* this end could not send, and how its port is may not be known yet */
	} broke;
	const struct verbs_target *denied; /* the queue pair failed as the peer's device let nothing through to it */
	bool cut;                          /* the peer wants to know when `generation` takes nothing any more */
	uint16_t fail_generation;          /* to be failed by fail_task */
	uint32_t chunk;                    /* bytes in a request: fewer while connections break before one is done */
	unsigned done;                     /* completions since the connection was made, or the chunk grew */
	struct verbs_pace pace;
	unsigned completed;   /* completions, ever; watch.c: */
	unsigned watch_done;  /* how many there were when it began to be looked whether there are more, */
	unsigned watch_looks; /* and how often that was since */
};

/* A numbered frame that overtook another one on another rail. */
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
	unsigned rail_count;       /* 0: not known yet */
	struct verbs_rail *framer; /* which takes the numbered frames; NULL: none did */
	struct verbs_rail *latest; /* which got the last request */
	bool opened;               /* the peer was told that it is up */
	bool closing;              /* no more connections */
	bool flushing;
	bool listing;             /* what waits is for one list, whose last is to come */
	struct pl_timer patience; /* or is not */
	bool windowed;            /* the peer was given a window, once */
	unsigned questions;       /* of the peer's for keys that were not answered */
	struct pl_list targets;   /* state->lock */
	uint64_t down_since;      /* no rail is up; 0: one is, or none was ever */

	struct verbs_place *places[VERBS_PLACES]; /* acceptor: what it offered */
	unsigned place_count;
	/* initiator: who we are at the acceptor's */
	uint64_t peer_index;
	uint8_t join_secret[16];

	struct pl_list waiting; /* work */
	unsigned waiting_count; /* added since the last flush */
	struct pl_list again;   /* came back unfinished: to be posted first */
	struct pl_list spare;   /* work that is not in use */
	unsigned spare_count;
	struct pl_list settling; /* operations that wait for answers to FLUSH, and for reads by this end */
	struct pl_list flushes;  /* for the peer, and for those operations */
	unsigned flush_count;
	uint32_t next_cookie;
	struct pl_list early; /* frames */
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

/* Whether nothing more is to be connected. */
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

/* state.c: what belongs to a context */
struct verbs_state *verbs_state_get(struct pl_context *context, struct pl_error *error);
/* With the lock held. */
struct verbs_device *verbs_device_get(struct verbs_state *state, struct ibv_context *verbs);
struct verbs_queue *verbs_queue_get(struct verbs_state *state, struct verbs_device *device, struct pl_engine *engine);
struct verbs_cm *verbs_cm_of(struct verbs_state *state, const struct pl_engine *engine);
/* On its engine: destroys all that the device has of it. */
void verbs_queue_shut(struct verbs_queue *queue);
void verbs_state_close(struct pl_context *context, void *state);

/* place.c: local addresses */
/* An address with that port, as the connection manager takes it: it knows no IPv4 addresses within IPv6 ones. */
struct sockaddr_storage verbs_address(const struct sockaddr_storage *address, uint16_t port);
int verbs_serves(struct pl_peer *peer, struct pl_error *error);
/* Listens where the peer may connect to, at its own address first.  Fills endpoint->places; 0 or a negative errno. */
int verbs_offer(struct verbs_endpoint *endpoint);
void verbs_offer_write(const struct verbs_endpoint *endpoint, struct pl_writer *writer);
/* Reads what the peer offers, and chooses rails among that; 0, -EPROTO, or -ENODEV: there is none. */
int verbs_offer_read(struct verbs_endpoint *endpoint, struct pl_reader *reader);
void verbs_places_close(struct verbs_state *state);
/* With the lock held, on the first engine: stops listening at devices that are gone, and at their successors begins. */
void verbs_places_leave(struct verbs_state *state, const struct verbs_device *device);
/* Whether all listen that should. */
bool verbs_places_return(struct verbs_state *state);

/* pair.c */
int verbs_pair_make(struct verbs_rail *rail);
/* It is connected. */
void verbs_pair_up(struct verbs_rail *rail);
void verbs_pair_drop(struct verbs_rail *rail);
/* How many reads a queue pair may have under way. */
uint8_t verbs_pair_reads(const struct verbs_device *device);
/*
 * Takes frames that arrived before the end, of which the sender knows.  Also before this end was established, as the
 * other may be so before.
 */
void verbs_take_rest(struct verbs_rail *rail);
/*
 * With its port down a device can do without being asked for anything; and soft-RoCE (Linux 6.1) makes
 * no connection ever again if a message of the connection manager is sent then, such as the one that
 * ends a connection.
 */
bool verbs_port_is_down(const struct verbs_rail *rail);

/* accept.c */
/* On the listener's engine; nothing of it is believed. */
void verbs_requested(struct verbs_cm *cm, struct rdma_cm_id *id, const uint8_t *bytes, uint8_t length, uint8_t reads);
void verbs_join_run(struct pl_task *task);
/* The rail is down, and a request waits for that. */
void verbs_accept_joined(struct verbs_rail *rail);
/* At the end: connections that nobody will accept. */
void verbs_joins_drop(struct verbs_rail *rail);

/* connection.c */
bool verbs_cm_ready(struct pl_source *source, uint32_t events);
void verbs_dial(struct verbs_rail *rail);
/* This attempt came to nothing: another one, or the peer is lost. */
void verbs_connect_failed(struct verbs_rail *rail, int code, const char *call);
/* At the end: the queue pair, which is drained. */
void verbs_link_drop(struct verbs_rail *rail);
/* The queue pair is of no use any more, or must not touch some buffer any more: flush it. */
void verbs_fail(struct verbs_rail *rail);
/* Later: from where completions are taken, and by other engines' leave. */
void verbs_fail_soon(struct verbs_rail *rail);
void verbs_fail_run(struct pl_task *task);
/* Everything posted has come back: the queue pair goes, the next one may come. */
void verbs_drained_run(struct pl_task *task);
/* It did not come back. */
void verbs_drain_expired(struct pl_timer *timer);

/* fence.c */
/* No byte of the rail's generation is taken from the peer any more: say so if it asked; ask the peer likewise. */
void verbs_fence_quiet(struct verbs_rail *rail);
/* What the rail held may be posted again. */
void verbs_fence_release(struct verbs_rail *rail);
/* A frame of these came; -EPROTO. */
int verbs_fence_arrived(struct verbs_endpoint *endpoint, const struct pl_frame *frame);
/* A rail is up, over which one can ask about others. */
void verbs_fence_ask(struct verbs_endpoint *endpoint);

/* pool.c */
int verbs_pool_open(struct verbs_pool *pool, struct verbs_queue *queue, unsigned count, size_t size);
/* The device does not know the buffers any more; they stay. */
void verbs_pool_shut(struct verbs_pool *pool, struct verbs_queue *queue);
void verbs_pool_close(struct verbs_pool *pool, struct verbs_queue *queue);
/* NULL: all are in use. */
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
/* The first to be used again, as it is still in the processor's cache. */
static inline void verbs_buffer_put(struct verbs_buffer *buffer)
{
	pl_list_prepend(&buffer->pool->free, &buffer->link);
	buffer->pool->taken--;
}

/* async.c */
/* Under the lock of the queue's engine. */
int verbs_async_open(struct verbs_queue *queue);
void verbs_async_close(struct verbs_queue *queue);

/* Has all queues of a device look at what happened to it. */
void verbs_async_tell(struct verbs_state *state, const struct verbs_device *device, unsigned bits);

/* removal.c */
void verbs_removal_open(struct verbs_state *state);
void verbs_removal_close(struct verbs_state *state);
/* A device was taken away. */
void verbs_device_lost(struct verbs_state *state, struct verbs_device *device);
/* A rail left its queue, or the queue was told: if the device is gone and this was the last of it, more ends. */
void verbs_queue_left(struct verbs_queue *queue);
/* The connection comes to another device than the last one, which is gone. */
void verbs_rail_renew(struct verbs_rail *rail);

/* queue.c */
bool verbs_queue_ready(struct pl_source *source, uint32_t events);
void verbs_queue_idle(struct pl_source *source);
bool verbs_queue_poll(struct verbs_queue *queue);
int verbs_receive_post(struct verbs_queue *queue, struct verbs_buffer *buffer);

/* failure.c */
/* The queue pair did not do it: the end of its operation, or to be posted again.  The rail fails. */
void verbs_work_failed(struct verbs_rail *rail, struct verbs_work *work, const struct ibv_wc *completion);
/* All that is posted comes back as if the queue pair had been flushed. */
void verbs_take_back(struct verbs_rail *rail);

/* pace.c */
void verbs_pace_open(struct verbs_pace *pace);
/* A connection is about to be made. */
void verbs_pace_connect(struct verbs_pace *pace, enum ibv_mtu mtu);
/* The device gave it up. */
void verbs_pace_broke(struct verbs_pace *pace, uint64_t now);
/* While there is a limit: so many bytes were done; idle: there is nothing more to do. */
void verbs_pace_done(struct verbs_pace *pace, uint64_t bytes, bool idle, uint64_t now);

/* watch.c: whether anything is done of what is under way; from now on, as long as there is any */
void verbs_watch_begin(struct verbs_rail *rail);
void verbs_watch_look(struct pl_timer *timer);

/* pack.c */
/* Whether what waits behind a frame, which was taken off, can go with it. */
bool verbs_packs(struct verbs_endpoint *endpoint, const struct verbs_work *work);
/* Puts it there, as much as fits. */
void verbs_pack(struct verbs_rail *rail, struct verbs_work *work);
/* Of a list's work that came back: what was in a chain is in the list from now on. */
void verbs_unpack(struct pl_list *list);

/* post.c */
/* Posts what waits, as far as there is room. */
void verbs_flush(struct verbs_endpoint *endpoint);

/* Whether nothing has to be posted before. */
static inline bool verbs_may_post_now(const struct verbs_endpoint *endpoint)
{
	return !endpoint->flushing && pl_list_empty(&endpoint->waiting) && pl_list_empty(&endpoint->again);
}

/* single.c: what takes one request, which can go now; work.c has the rest */
void verbs_post(struct pl_endpoint *endpoint, struct pl_operation *operation);
int verbs_message(struct pl_endpoint *endpoint, const struct pl_frame *frame, const void *payload,
		  struct pl_operation *operation);

/* Kept for the next, at most. */
#define VERBS_SPARES 256

static inline void verbs_work_free(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	if (work->buffer)
		verbs_buffer_put(work->buffer);
	endpoint->questions -= work->kind == VERBS_BIND;
	if (endpoint->spare_count < VERBS_SPARES) {
		/* The first to be used again, as it is still in the processor's cache. */
		pl_list_prepend(&endpoint->spare, &work->link);
		endpoint->spare_count++;
	} else {
		pl_free(&endpoint->state->context->allocator, work);
	}
}

/* work.c */
void verbs_post_parts(struct verbs_endpoint *endpoint, struct pl_operation *operation);
/*
 * A message whose bytes the device takes from memory that the processor does not reach, and a part of its operation.
 * gathers: whether that is so; gather_not: where another rail's device does not reach them they are copied after all.
 */
bool verbs_gathers(struct pl_endpoint *endpoint, struct pl_operation *operation);
void verbs_gather(struct verbs_endpoint *endpoint, struct verbs_work *work, struct pl_operation *operation);
int verbs_gather_not(struct verbs_work *work);
/* A frame that cannot go now. */
void verbs_message_wait(struct verbs_endpoint *endpoint, struct verbs_work *work, struct pl_operation *operation);
/* Of the fabric's own, and of no use on another connection than the rail's present one. */
struct verbs_work *verbs_work_only(struct verbs_rail *rail, enum verbs_work_kind kind);
/* Reads the last bytes of a segment that were written, into nothing: 0 or -ENOMEM. */
int verbs_post_back(struct verbs_endpoint *endpoint, struct pl_operation *operation, const struct pl_segment *segment);
/* A frame of the fabric's own, before all others. */
void verbs_message_first(struct verbs_endpoint *endpoint, const struct pl_frame *frame);
/*
 * The operation of a work request ends without it.  Of a notification the peer must be told that it does not come:
 * true, the work now does that, and is to be posted yet.
 */
bool verbs_work_skip(struct verbs_work *work);
/* Leaves so many bytes in a write or read; the rest follows it in the list. */
void verbs_work_cut(struct verbs_endpoint *endpoint, struct verbs_work *work, uint32_t length);
void verbs_spare_drop(struct verbs_endpoint *endpoint);

/* advice.c */
struct verbs_advised {
	bool staged;        /* whatever the device could do */
	const char *reason; /* of operations that go as advised, or why there is no advice; NULL: there is no profile */
};

struct verbs_advice {
	enum pl_gpu_path first; /* to be tried */
	struct verbs_advised directions[PL_DIRECTION_COUNT];
};

/* Of memory that the processor does not reach; grant_lock. */
void verbs_advise(struct verbs_state *state, const struct verbs_device *device, const struct pl_memory *memory,
		  struct verbs_advice *advice);

/* shared.c: registrations for this end's own use; grant_lock */
struct pl_registration_cache *verbs_shared_open(const struct verbs_state *state);
/* The number of one that has all of the memory, and those rights; 0: there is none. */
uint32_t verbs_shared_take(struct verbs_device *device, const struct pl_memory *memory, unsigned access,
			   struct ibv_mr **mr);
/* What was just made, from now on shared: its number, or 0: no memory, and it is not. */
uint32_t verbs_shared_add(struct verbs_state *state, struct verbs_device *device, const struct pl_memory *memory,
			  unsigned access, struct ibv_mr *mr);
/* A region of that memory uses it no more. */
void verbs_shared_give(const struct verbs_device *device, uint32_t number, const struct pl_memory *memory);
/* All that is kept goes, and nobody uses any. */
void verbs_shared_end(struct verbs_device *device);
/* Without a lock. */
void verbs_shared_count(void *state, struct pl_registrations_info *info);
void verbs_shared_freed(void *state, const void *address, size_t length);

/* registration.c */
struct verbs_registration {
	struct pl_registration base;
	struct pl_list device_link; /* grant_lock */
	const struct verbs_library *library;
	const struct pl_allocator *allocator;
	struct ibv_mr *mr; /* NULL: it cannot be registered, and why; or the device is gone */
	uint32_t lkey;     /* read without a lock */
	int failure;
	const char *reason; /* of a GPU's memory: what was tried, and what came of it */
	unsigned access;
	struct verbs_advice advice; /* of a GPU's memory */
	/* Of what is shared: its place in the cache, and whose memory it is. */
	uint32_t cached;
	const struct pl_memory *memory;
};

int verbs_local_key_find(struct verbs_state *state, struct verbs_device *device, struct pl_region *region, bool written,
			 uint32_t *lkey);

/*
 * The local key of a region's memory at a device, registering it if need be. 0, -EACCES if it must not be
 * written, or why the device cannot reach it.
 */
PL_ALWAYS_INLINE int verbs_local_key(struct verbs_state *state, struct verbs_device *device, struct pl_region *region,
				     bool written, uint32_t *lkey)
{
	struct pl_registration *recent = atomic_load_explicit(&region->recent, memory_order_acquire);
	const struct verbs_registration *registration;

	/* Another fabric's has another device. */
	if (!recent || recent->device != device)
		return verbs_local_key_find(state, device, region, written, lkey);
	registration = pl_container_of(recent, struct verbs_registration, base);
	if (written && !(registration->access & IBV_ACCESS_LOCAL_WRITE))
		return -EACCES;
	*lkey = registration->lkey;
	return 0;
}

/* Why the device does not reach a region's memory, as far as it was tried; NULL: there is nothing special to say. */
const char *verbs_local_refusal(struct verbs_state *state, struct verbs_device *device, struct pl_region *region);
/* grant_lock: the device's registrations end, whoever has them. */
void verbs_registrations_end(struct verbs_device *device);
/* A region's registration on which windows with these rights can be made; grant_lock. 0 or a negative errno. */
int verbs_window_base(struct verbs_state *state, struct verbs_device *device, struct pl_region *region, unsigned rights,
		      struct ibv_mr **mr);
/* What the profile of routes says of a GPU's memory that verbs_local_key() just gave the key of. */
const struct verbs_advised *verbs_local_advice(const struct verbs_device *device, struct pl_region *region,
					       bool written);
/* What a device's peers need to reach a key's memory; grant_lock. */
int verbs_export_at(struct verbs_state *state, struct verbs_device *device, struct pl_list *list,
		    const struct pl_key *key, uint32_t *rkey);
int verbs_export_key(struct pl_endpoint *endpoint, struct pl_grant *grant, struct pl_key *key,
		     uint8_t blob[PL_KEY_BLOB_MAX]);

/* target.c: where a remote region is; NULL: no memory.  Home. */
struct verbs_target *verbs_target_make(struct pl_remote *remote, struct verbs_endpoint *endpoint);

static inline const struct verbs_target *verbs_target_of(struct pl_remote *remote, struct verbs_endpoint *endpoint)
{
	return remote->fabric_data ? remote->fabric_data : verbs_target_make(remote, endpoint);
}

/* window.c */
/* Whether a grant is to be reached by windows. */
bool verbs_windows_wanted(const struct verbs_endpoint *endpoint, const struct pl_grant *grant,
			  const struct verbs_device *device);
/* A window on a grant's region, to be bound when the peer asks for its key.  grant_lock */
int verbs_window_make(struct verbs_rail *rail, struct pl_grant *grant, struct pl_key *key);
/* Before the queue pair goes to which they are bound. */
void verbs_windows_drop(struct verbs_rail *rail);
/* The rail is up: what was asked before is answered, and the peer is asked for all keys. */
void verbs_windows_up(struct verbs_rail *rail);
/* Answers a question for a key: posts what binds the window, or frees the work. */
void verbs_bind(struct verbs_rail *rail, struct verbs_work *work);
/* It was not done. */
void verbs_bind_failed(struct verbs_rail *rail, const struct verbs_work *work);
/* A question or an answer came over a rail; -EPROTO. */
int verbs_key_arrived(struct verbs_rail *rail, const struct pl_frame *frame);
void verbs_imported(struct pl_endpoint *endpoint, struct pl_remote *remote);

/* Whether a rail's device at the other end has a key for the memory. */
static inline bool verbs_reaches(const struct verbs_target *target, unsigned rail)
{
	return target->present & 1u << rail;
}

#endif
