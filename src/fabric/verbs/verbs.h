/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verbs fabric: one-sided operations by an RDMA card, over a reliable connection (RC) that rdma_cm makes.
 *
 * An endpoint has one queue pair at a time, on the peer's home engine.  Work that is posted stays in
 * a list until its completion; when the queue pair fails, or is failed on purpose because something
 * was cancelled, the list is flushed by the card, what was cancelled ends, and the rest goes back to
 * the front of the queue, to be posted again on the next queue pair:
 * - writes and reads can be done twice;
 * - frames (core's messages) carry a sequence number, by which the receiver drops what it has;
 * - an atomic operation whose fate is unknown fails: it must not be done twice.
 *
 * Frames travel by SEND into the shared receive queue of the engine and device; frame.ack is the number.
 */
#ifndef PL_VERBS_H
#define PL_VERBS_H

#include <netinet/in.h>

#include "core/core.h"
#include "fabric/verbs/library.h"

/* Work requests that a queue pair takes. */
#define VERBS_SEND_DEPTH 128
/* Completions that a queue has room for: bounds what its queue pairs have posted altogether. */
#define VERBS_COMPLETIONS 16384
/* Received frames that a queue has room for, and frames to be sent. */
#define VERBS_RECEIVES 256
#define VERBS_SENDS 256
#define VERBS_BUFFER (PL_FRAME_HEADER + PL_EAGER_MAX)
#define VERBS_HINT_MAPPED "keep the region mapped and writable, and files behind it whole"
#define VERBS_INLINE 64
/* Through which bytes go whose memory cannot be registered: so many buffers, made when the first is needed. */
#define VERBS_STAGES 16
#define VERBS_STAGE (256u << 10)
/* A chunk of a large operation, if the device has no lower limit. */
#define VERBS_CHUNK (8u << 20)
#define VERBS_CHUNK_LEAST 8192u
/* A remote key: the key's id, rkey, address of the first byte. */
#define VERBS_KEY 20

struct verbs_endpoint;
struct verbs_join;

/* What hangs on one device; made when the first connection comes to it, kept until the context closes. */
struct verbs_device {
	struct pl_list link;
	struct ibv_context *verbs; /* librdmacm's */
	struct ibv_pd *pd;
	struct ibv_device_attr attributes;
	uint32_t message_max;
};

/* Of an engine: where connection events arrive. */
struct verbs_cm {
	struct pl_source source;
	struct rdma_event_channel *channel;
	struct verbs_state *state;
};

/* Where connections are awaited: one a local address. */
struct verbs_listener {
	struct pl_list link;
	struct sockaddr_storage address;
	struct rdma_cm_id *id;
};

struct verbs_buffer {
	struct pl_list link;
	struct verbs_pool *pool;
	uint8_t *bytes;
};

/* Buffers of one size, in memory that is registered. */
struct verbs_pool {
	struct verbs_buffer *buffers;
	uint8_t *slab;
	struct ibv_mr *mr;
	struct pl_list free;
};

/* Completions, received frames and buffers of one engine and device. */
struct verbs_queue {
	struct pl_list link;
	struct verbs_state *state;
	struct verbs_device *device;
	struct pl_engine *engine;
	struct pl_source source;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct verbs_pool receives, sends;
	struct verbs_pool stages;     /* empty until one is needed */
	struct pl_list endpoints[64]; /* with a queue pair, by its number */
	struct pl_list starved;       /* endpoints that wait for a buffer, or for room */
	unsigned posted, room;        /* work requests of all queue pairs, and how many may be */
	bool armed;
};

/* The fabric's part of a context; fabric_states.  The lists grow under the lock. */
struct verbs_state {
	struct pl_context *context;
	const struct verbs_library *library;
	struct verbs_cm *cms; /* by engine */
	pthread_mutex_t lock;
	struct pl_list devices, queues, listeners;
};

enum verbs_work_kind { VERBS_WRITE, VERBS_READ, VERBS_ATOMIC, VERBS_FRAME };

/* A work request: waiting, or posted. */
struct verbs_work {
	struct pl_list link;
	struct pl_operation *operation; /* has a part in it; NULL: nobody's (any more) */
	enum verbs_work_kind kind;
	bool signaled;
	struct verbs_buffer *buffer; /* frame; the result of an atomic operation; staged bytes */
	struct pl_memory *staged;    /* whose bytes go through the buffer; NULL: they do not */
	size_t staged_offset;
	uint8_t *local;
	uint64_t remote;
	uint32_t length, lkey, rkey;
	struct pl_frame frame;
	const uint8_t *payload;        /* frame: until it was copied into a buffer */
	uint8_t copy[PL_KEY_BLOB_MAX]; /* not cleared */
};

/* DOWN: no queue pair; an initiator dials when there is a reason to.  DRAINING: the queue pair is being flushed. */
enum verbs_state_of_link { VERBS_DOWN, VERBS_RESOLVING, VERBS_CONNECTING, VERBS_UP, VERBS_DRAINING };

struct verbs_endpoint {
	struct pl_endpoint base;
	struct verbs_state *state;
	struct verbs_cm *cm;
	struct verbs_device *device; /* of the last queue pair */
	struct verbs_queue *queue;   /* of the current one; NULL: there is none */
	struct pl_list queue_link, starved_link;
	struct rdma_cm_id *id;
	enum verbs_state_of_link link;
	bool opened;  /* the peer was told that it is up */
	bool closing; /* no more connections */
	bool flushing;
	uint16_t generation;
	struct pl_task join_task, drained_task;
	struct verbs_join *_Atomic joining; /* handed over by the listener's engine */
	struct verbs_join *joined;          /* to be accepted, once the old queue pair is drained */
	struct pl_timer retry, drain;
	unsigned attempts; /* to connect again, since `down_since` */
	uint64_t down_since;

	/* initiator: where the acceptor listens, and who we are there */
	uint16_t port;
	uint64_t ticket;
	uint8_t ticket_secret[16];

	struct pl_list waiting, posted; /* work */
	unsigned waiting_count;         /* added since the last flush */
	struct pl_list spare;           /* work that is not in use */
	unsigned spare_count;
	struct pl_list again; /* came back unfinished: to be posted first on the next queue pair */
	unsigned posted_count, unsignaled, inline_max;
	uint32_t sent, received; /* numbers of the last frames */
	uint32_t chunk;          /* bytes in a request: fewer while connections break before one is done */
	unsigned done;           /* requests since the connection was made, or the chunk grew */
};

static inline struct verbs_endpoint *verbs_endpoint_of(struct pl_endpoint *endpoint)
{
	return pl_container_of(endpoint, struct verbs_endpoint, base);
}

/* state.c: what belongs to a context */
struct verbs_state *verbs_state_get(struct pl_context *context, struct pl_error *error);
struct verbs_device *verbs_device_get(struct verbs_state *state, struct ibv_context *verbs);
struct verbs_queue *verbs_queue_get(struct verbs_state *state, struct verbs_device *device, struct pl_engine *engine);
struct verbs_cm *verbs_cm_of(struct verbs_state *state, const struct pl_engine *engine);
void verbs_state_close(struct pl_context *context, void *state);
int verbs_serves(struct pl_peer *peer, struct pl_error *error);
/* An address with that port, as the connection manager takes it: it knows no IPv4 addresses within IPv6 ones. */
struct sockaddr_storage verbs_address(const struct sockaddr_storage *address, uint16_t port);

/* listen.c */
/* The port at which a local address takes connections, or a negative errno. */
int verbs_listen(struct verbs_state *state, const struct sockaddr_storage *address);

/* connection.c */
bool verbs_cm_ready(struct pl_source *source, uint32_t events);
void verbs_dial(struct verbs_endpoint *endpoint);
void verbs_join_run(struct pl_task *task);
/* At the end: connections that nobody will accept; the queue pair, which is drained. */
void verbs_joins_drop(struct verbs_endpoint *endpoint);
void verbs_links_drop(struct verbs_endpoint *endpoint);
/* The queue pair is of no use any more, or must not touch some buffer any more: flush it. */
void verbs_fail(struct verbs_endpoint *endpoint);
/* Everything posted has come back: the queue pair goes, the next one may come. */
void verbs_drained_run(struct pl_task *task);
/* It did not come back. */
void verbs_drain_expired(struct pl_timer *timer);

/* pool.c */
int verbs_pool_open(struct verbs_pool *pool, struct verbs_queue *queue, unsigned count, size_t size);
void verbs_pool_close(struct verbs_pool *pool, struct verbs_queue *queue);
/* NULL: all are in use. */
struct verbs_buffer *verbs_pool_take(struct verbs_pool *pool);
void verbs_buffer_put(struct verbs_buffer *buffer);

/* queue.c */
bool verbs_queue_ready(struct pl_source *source, uint32_t events);
void verbs_queue_idle(struct pl_source *source);
bool verbs_queue_poll(struct verbs_queue *queue);
int verbs_receive_post(struct verbs_queue *queue, struct verbs_buffer *buffer);
/* All that is posted comes back as if the queue pair had been flushed. */
void verbs_take_back(struct verbs_endpoint *endpoint);

/* post.c */
/* Posts what waits, as far as there is room. */
void verbs_flush(struct verbs_endpoint *endpoint);

/* work.c */
void verbs_post(struct pl_endpoint *endpoint, struct pl_operation *operation);
int verbs_message(struct pl_endpoint *endpoint, const struct pl_frame *frame, const void *payload,
		  struct pl_operation *operation);
void verbs_work_free(struct verbs_endpoint *endpoint, struct verbs_work *work);
/* Leaves so many bytes in a write or read; the rest follows it in the list. */
void verbs_work_cut(struct verbs_endpoint *endpoint, struct verbs_work *work, uint32_t length);
void verbs_spare_drop(struct verbs_endpoint *endpoint);

/* registration.c */
/*
 * The local key of a region's memory at a device, registering it if need be. 0, -EACCES if it must not be
 * written, or why the device cannot reach it.
 */
int verbs_local_key(struct verbs_endpoint *endpoint, struct pl_region *region, bool written, uint32_t *lkey);
int verbs_export_key(struct pl_endpoint *endpoint, struct pl_grant *grant, struct pl_key *key,
		     uint8_t blob[PL_KEY_BLOB_MAX]);

#endif
