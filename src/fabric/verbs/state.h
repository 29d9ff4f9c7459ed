/* SPDX-License-Identifier: BSD-2-Clause */
/* State of the fabric in a context: devices, their queues and buffers, local addresses. */
#ifndef PL_FABRIC_VERBS_STATE_H
#define PL_FABRIC_VERBS_STATE_H

#include <netinet/in.h>

#include "core/fabric.h"
#include "memory/registration_cache.h"
#include "rdma/device_memory.h"
#include "rdma/library.h"

/* Completions of a queue: limits the requests that its queue pairs have posted together. */
#define VERBS_COMPLETIONS 16384
/* Work requests of a queue pair. */
#define VERBS_SEND_DEPTH 128
/* Receive buffers of a queue for its first rail. Each further rail adds as many as a peer may have SENDs under way. */
#define VERBS_RECEIVES 256
#define VERBS_RECEIVES_MAX 4096
#define VERBS_RECEIVE_SLABS (1 + (VERBS_RECEIVES_MAX - VERBS_RECEIVES) / VERBS_SEND_DEPTH)
/* Receive buffers that all queues of a context add together: 63 MB. */
#define VERBS_RECEIVES_ADDED_MAX (2 * (VERBS_RECEIVES_MAX - VERBS_RECEIVES))
/* Send buffers of a queue. */
#define VERBS_SENDS 256
/* Receive buffers of a queue pair, and completions of a queue, where the device has no shared receive queue. */
#define VERBS_OWN_RECEIVES 128
#define VERBS_OWN_COMPLETIONS 65536
#define VERBS_BUFFER (PL_FRAME_HEADER + PL_EAGER_MAX)
/* Staging buffers for memory that cannot be registered; created on first use. */
#define VERBS_STAGES 16
#define VERBS_STAGE (256u << 10)

struct verbs_endpoint;
struct verbs_rail;
struct verbs_loopback;

/* Failed call: a negative errno, and its name in static storage. */
struct verbs_failure {
	int code;
	const char *call;
};

/* RDMA device; created for its first connection, kept until the context closes. */
struct verbs_device {
	struct pl_list link;
	char name[IBV_SYSFS_NAME_MAX];
	struct ibv_context *verbs; /* librdmacm's context; NULL: closed */
	struct ibv_pd *pd;
	struct ibv_pd *loop_pd;            /* of loopback queue pairs; NULL: none */
	struct pl_list loop_registrations; /* grant_lock */
	atomic_bool gone;                  /* the device was removed: no new users, and existing ones end */
	unsigned queues;                   /* open queues; state->lock */
	struct pl_list registrations;      /* grant_lock */
	struct ibv_device_attr attributes;
	uint32_t message_max;
	atomic_bool windows;                  /* the device supports memory windows of type 2, as far as known */
	struct pl_registration_cache *shared; /* registrations for this end's own use */
};

/* Connection events of one engine. */
struct verbs_cm {
	struct pl_source source;
	struct rdma_event_channel *channel;
	struct verbs_state *state;
};

/* Local address of a device, for outgoing and incoming connections. */
struct verbs_local_addr {
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
	struct verbs_buffer_pool *pool;
	uint8_t *bytes;
	bool posted; /* receives: the device has it */
};

/* Buffers of one size in registered memory. */
struct verbs_buffer_pool {
	struct verbs_buffer *buffers;
	unsigned count;
	uint8_t *slab;
	struct ibv_mr *mr;
	struct pl_list free;
	unsigned taken;
};

/* Completions, received frames and buffers of one engine and device. */
struct verbs_cq {
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
	struct ibv_srq *srq; /* NULL: the device has none, and each queue pair has receives of its own */
	struct verbs_buffer_pool receives[VERBS_RECEIVE_SLABS];
	unsigned receive_slabs;
	unsigned receive_count, receives_max; /* receive buffers, and the room of the shared receive queue */
	struct verbs_buffer_pool sends;
	struct verbs_buffer_pool stages; /* empty until the first use */
	struct pl_list rails[64];        /* rails with a queue pair, hashed by its number */
	struct pl_list spent;            /* receive buffers to be posted again */
	unsigned spent_count;
	struct pl_list starved;      /* rails that wait for a buffer or for room */
	unsigned rail_count;         /* rails that refer to the queue */
	unsigned posted, room;       /* work requests of all queue pairs, and their limit */
	struct verbs_loopback *loop; /* loopback queue pair; NULL: not needed yet */
	bool armed;
};

/* State of the fabric in a context (fabric_states). The lists grow under the lock. */
struct verbs_state {
	struct pl_context *context;
	const struct verbs_library *library;
	struct verbs_cm *cms; /* by engine */
	pthread_mutex_t lock;
	struct pl_list devices, queues, local_addrs;
	bool surveyed;    /* the local addresses are known */
	bool iwarp;       /* the last address without a usable device belongs to an iWARP device */
	atomic_uint receives_added; /* receive buffers of all queues beyond the first VERBS_RECEIVES of each */
	unsigned tellers; /* threads that walk the queues without the lock; no queue is freed meanwhile */
	struct pl_task tend_task;
	struct pl_timer tend_timer;
};

/* state.c: state of a context */
struct verbs_state *verbs_state_get(struct pl_context *context, struct pl_error *error);
/* The caller holds the lock. */
struct verbs_device *verbs_device_get(struct verbs_state *state, struct ibv_context *verbs);
/* Returns NULL with the failed call and its errno. */
struct verbs_cq *verbs_cq_get(struct verbs_state *state, struct verbs_device *device, struct pl_engine *engine,
			      struct verbs_failure *failure);
struct verbs_cm *verbs_cm_of(struct verbs_state *state, const struct pl_engine *engine);
/* Destroys the device's objects of a queue. Called on its engine. */
void verbs_cq_shut(struct verbs_cq *queue);
void verbs_state_close(struct pl_context *context, void *state);

/* local_addr.c: local addresses */
/*
 * Returns the address with that port in the form of the connection manager, which does not know IPv4-mapped IPv6
 * addresses.
 */
struct sockaddr_storage verbs_address(const struct sockaddr_storage *address, uint16_t port);
int verbs_serves(struct pl_peer *peer, struct pl_error *error);
/*
 * Listens where the peer may connect, at the peer's own address first. Fills endpoint->local_addrs. Returns 0 or a negative
 * errno.
 */
int verbs_listen_for_peer(struct verbs_endpoint *endpoint);
void verbs_advert_write(const struct verbs_endpoint *endpoint, struct pl_writer *writer);
/* Reads the peer's advert, and chooses rails. Returns 0, -EPROTO, or -ENODEV if no rail is possible. */
int verbs_advert_read(struct verbs_endpoint *endpoint, struct pl_reader *reader);
void verbs_local_addrs_close(struct verbs_state *state);
/* Stops listening at removed devices, and starts at their successors. Called on the first engine with the lock held. */
void verbs_local_addrs_leave(struct verbs_state *state, const struct verbs_device *device);
/* Returns true if all listeners are in place. */
bool verbs_local_addrs_return(struct verbs_state *state);

/* buffer_pool.c */
int verbs_buffer_pool_open(struct verbs_buffer_pool *pool, const struct verbs_state *state,
			   const struct verbs_device *device, unsigned count, size_t size);
/* The device does not know the buffers any more; they stay allocated. */
void verbs_buffer_pool_shut(struct verbs_buffer_pool *pool, const struct verbs_state *state);
void verbs_buffer_pool_close(struct verbs_buffer_pool *pool, const struct verbs_state *state);
/* Returns NULL if all buffers are in use. */
static inline struct verbs_buffer *verbs_buffer_pool_take(struct verbs_buffer_pool *pool)
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

/* srq.c; called under the lock of the queue's engine */
/* Makes the shared receive queue, if the device has some, and its first buffers. Needs the completion queue. */
int verbs_srq_open(struct verbs_cq *queue, struct verbs_failure *failure);
/* A rail came to the queue: adds receive buffers, unless the queue has enough or there is no memory for more. */
void verbs_srq_grow(struct verbs_cq *queue);
/* Destroys the shared receive queue; its buffers stay allocated. */
void verbs_srq_shut(struct verbs_cq *queue);
void verbs_srq_close(struct verbs_cq *queue);

/* async_event.c */
/* Called under the lock of the queue's engine. */
int verbs_async_open(struct verbs_cq *queue);
void verbs_async_close(struct verbs_cq *queue);

/* Makes all queues of a device check its events. */
void verbs_async_tell(struct verbs_state *state, const struct verbs_device *device, unsigned bits);

/* cq.c */
bool verbs_cq_ready(struct pl_source *source, uint32_t events);
void verbs_cq_idle(struct pl_source *source);
bool verbs_cq_poll(struct verbs_cq *queue);
int verbs_receive_post(struct verbs_cq *queue, struct verbs_rail *rail, struct verbs_buffer *buffer);
/* Posts the receives of a new queue pair, if it has its own. Returns 0 or a negative errno. */
int verbs_own_receives_post(struct verbs_rail *rail);

/* device_removal.c */
void verbs_removal_open(struct verbs_state *state);
void verbs_removal_close(struct verbs_state *state);
/* A device was removed. */
void verbs_device_lost(struct verbs_state *state, struct verbs_device *device);
/*
 * A rail left its queue, or the queue was told of an event: frees more if the device is gone and this was its last
 * user.
 */
void verbs_cq_left(struct verbs_cq *queue);

#endif
