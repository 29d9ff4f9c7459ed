/* SPDX-License-Identifier: BSD-2-Clause */
/* State of the fabric in a context: devices, their queues and buffers, local addresses. */
#ifndef PL_FABRIC_VERBS_STATE_H
#define PL_FABRIC_VERBS_STATE_H

#include <pthread.h>

#include "base/pool.h"
#include "core/fabric.h"
#include "fabric/verbs/helper.h"
#include "memory/registration_cache.h"
#include "rdma/data_direct.h"
#include "rdma/device_memory.h"
#include "rdma/gid.h"

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
#define VERBS_HINT_DEVICE \
	"load the card's driver and ib_uverbs, or, without a card: rdma link add rxe0 type rxe netdev eth0; " \
	"see what there is with: rdma link"
/* Time after which the end of a context gives up a driver that does not answer. */
#define VERBS_SILENCE (10 * PL_NS_PER_S)
#define VERBS_HINT_MEMORY "raise the limit of locked memory, ulimit -l, or those of the cgroup, rdma.max"
/* Ports of a context that have a place, and thus a bit in masks of ports near a memory. */
#define VERBS_PLACES 31
/* Pairs of ports that are remembered because their devices did not reach each other. */
#define VERBS_LOST_PATHS 64

struct verbs_endpoint;
struct verbs_listing;
struct verbs_rail;

/* Failed call: a negative errno, and its name in static storage. */
struct verbs_failure {
	int code;
	const char *call;
};

/* Later name of a device, which `rdma dev set DEVICE name NAME` gives it. It stays until the device is freed, for its readers. */
struct verbs_name {
	struct verbs_name *before; /* NULL: the device's first name came before */
	char text[IBV_SYSFS_NAME_MAX];
};

/* RDMA device that the program allows; opened when the fabric looks for devices, kept until the context closes. */
struct verbs_device {
	struct pl_list link;
	struct verbs_state *state;
	char name[IBV_SYSFS_NAME_MAX];        /* under which it was opened; the program's options name it so */
	_Atomic(struct verbs_name *) renamed; /* present name; NULL: the first. verbs_device_name() */
	struct ibv_context *verbs;            /* NULL: closed */
	uint64_t entry;            /* inode of its entry in /sys, another one if the device is made again; 0: unknown */
	struct pl_source async;    /* asynchronous events; on the first engine */
	struct ibv_pd *pd;
	struct ibv_pd *loop_pd;            /* of loopback queue pairs; NULL: none */
	struct pl_list loop_registrations; /* grant_lock */
	atomic_bool gone;                  /* the device was removed: no new users, and existing ones end */
	atomic_bool silent;                /* its driver did not answer at the end: its objects stay */
	unsigned queues;                   /* open queues; state->lock */
	atomic_uint users;                 /* calls that threads make without the lock: the device stays open */
	struct pl_list registrations;      /* grant_lock */
	struct pl_list stuck_registrations; /* released ones that the driver did not end; grant_lock */
	struct ibv_device_attr attributes;
	uint32_t message_max;
	char data_direct_path
		[RDMA_DATA_DIRECT_PATH];      /* its Data Direct function for GPU memory, below /sys; empty: none */
	atomic_uint lasts_missed;             /* failed queue pairs without IBV_EVENT_QP_LAST_WQE_REACHED since the last one */
	bool far_addresses;                   /* verbs_serves_far_addresses() */
	bool names_oldest;                    /* verbs_names_oldest() */
	atomic_bool windows;                  /* the device supports memory windows of type 2, as far as known */
	_Atomic uint64_t window_max;          /* bytes of the longest window, as far as known */
	atomic_uint binds_failed;             /* bind requests that failed since the last one that was done */
	struct pl_registration_cache *shared; /* registrations for this end's own use */
};

/* Returns the device's present name. Any thread. */
static inline const char *verbs_device_name(const struct verbs_device *device)
{
	const struct verbs_name *renamed = atomic_load(&device->renamed);

	return renamed ? renamed->text : device->name;
}

/* True if the device has a Data Direct function for GPU memory. */
static inline bool verbs_device_has_data_direct(const struct verbs_device *device)
{
	return device->data_direct_path[0];
}

/* Entry of a port's GID table. */
struct verbs_gid {
	union ibv_gid gid;
	uint8_t index;
	uint8_t prefix; /* bits of the network's part; 0: unknown */
	uint8_t rank;   /* the higher, the better */
};

/* Port of a device, for outgoing and incoming connections; kept until the context closes. state->lock */
struct verbs_port {
	struct pl_list link;
	struct verbs_device *device; /* the successor of the same name, once the device was removed */
	uint8_t number, link_layer;
	bool active;
	bool excluded; /* an option of the program keeps it from being used */
	bool wide;     /* has two queue pairs by default */
	uint16_t pkey_index;
	unsigned place; /* index in state->places; VERBS_PLACES: none is left */
	char name[IBV_SYSFS_NAME_MAX], firmware[64]; /* of the device */
	struct verbs_gid gids[VERBS_GID_TABLE_MAX];  /* the best first */
	unsigned gid_count;
};

/* Pair of ports whose devices did not reach each other; path_memory.c. */
struct verbs_lost_path {
	const struct verbs_port *port; /* NULL: no entry */
	union ibv_gid gid, far_gid;
	uint64_t until; /* the pair is tried again after this time */
};

/* Queue pair on its way to the state RTS; connector.c. */
struct verbs_ready_job {
	struct verbs_job base;
	const struct verbs_library *library;
	struct ibv_qp *qp;
	struct ibv_qp_attr receive, send; /* attributes of RTR and RTS */
	bool asks;                        /* the neighbour may be unknown: asks for it before, from this address */
	union ibv_gid from;
	int rc;
	bool busy; /* written under the lock of the task's engine */
	struct pl_engine *engine;
	struct pl_task done; /* runs when the job has ended */
};

/* Endpoints of an engine whose work waits for registrations; registrar.c. */
struct verbs_waiters {
	struct pl_engine *engine;
	struct pl_list endpoints;
	struct pl_task task; /* continues their work */
};

/* Reason that no port is usable. Of several, the last one in this order is reported. */
enum verbs_obstacle {
	VERBS_NO_OBSTACLE,
	VERBS_NO_DEVICE,
	VERBS_IWARP,
	VERBS_NO_RC,
	VERBS_CLOSED,
	VERBS_INACTIVE,
	VERBS_NO_GID,
	VERBS_NO_PKEY,
	VERBS_LIMITED_PKEY,
	VERBS_SILENT,
};

struct verbs_obstacle_met {
	enum verbs_obstacle kind;
	int code;
	char device[IBV_SYSFS_NAME_MAX + 4]; /* with the number of a port that is excluded */
};

/* Look for a missing device, by a helper thread: the driver may let it wait while it resets the device. */
struct verbs_tending {
	struct verbs_job job;
	struct pl_task done; /* on the first engine */
	atomic_bool busy;    /* written on the first engine */
	bool again;          /* to be done once more; first engine */
	bool complete;       /* its result: no device is missing */
};

struct verbs_buffer {
	struct pl_list link;
	struct verbs_buffer_pool *pool;
	uint8_t *bytes;
	bool posted;   /* receives: the device has it */
	uint8_t taken; /* receives: number of messages that came into it */
};

/* Completions that one poll takes at most. */
#define VERBS_POLL_BATCH 32
/* wr_id of no request: a completion that no poll filled, as in new memory. */
#define VERBS_UNFILLED 0u
/* Mark in wr_id of a received frame. */
#define VERBS_RECEIVED 1u

/*
 * wr_id of a receive: its buffer, aligned to 8 bytes, and how often this was posted before. A device that repeats the
 * completion of an earlier receive must not end the present one. Addresses of programs have fewer than 59 bits.
 */
static inline uint64_t verbs_receive_id(const struct verbs_buffer *buffer)
{
	return (uint64_t)(uintptr_t)buffer << 5 | (buffer->taken & 127u) << 1 | VERBS_RECEIVED;
}

static inline struct verbs_buffer *verbs_receive_of(uint64_t wr_id)
{
	return (struct verbs_buffer *)(uintptr_t)(wr_id >> 8 << 3);
}

/* Buffers of one size in registered memory. */
struct verbs_buffer_pool {
	struct verbs_buffer *buffers;
	unsigned count;
	uint8_t *slab; /* aligned to pages, in `room` */
	void *room;
	struct verbs_device *device;
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
	struct pl_source source;
	struct pl_task events_task; /* handles `events` */
	atomic_uint events;
	const char *why; /* reason of this end to give up the queue; NULL: it has none */
	bool broken; /* accepts no more connections */
	bool shut;   /* only buffers are left, while they are in use */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq; /* NULL: the device has none, and each queue pair has receives of its own */
	struct verbs_buffer_pool receives[VERBS_RECEIVE_SLABS];
	unsigned receive_slabs;
	unsigned receive_count, receives_max; /* receive buffers, and the room of the shared receive queue */
	unsigned receives_lost;               /* receives that failed queue pairs may have kept */
	struct verbs_buffer_pool sends;
	struct verbs_buffer_pool stages; /* empty until the first use */
	struct {
		const struct pl_memory_ops *ops; /* kind of memory for whose copies `stages` are locked; NULL: none */
		void *holder;
		bool tried;
	} stage_lock;
	struct pl_list rails[64];        /* rails with a queue pair, hashed by its number */
	struct pl_list spent;            /* receive buffers to be posted again */
	unsigned spent_count;
	struct pl_list starved;      /* rails that wait for a buffer or for room */
	unsigned rail_count;         /* rails that refer to the queue */
	unsigned posted, room;       /* work requests of all queue pairs, and their limit */
	struct pl_list loops;        /* loopback queue pairs */
	unsigned loop_posted;        /* their reads under way */
	bool armed;
	unsigned quiet; /* rails whose last request is unsignaled; signal.h */
	uint64_t taken; /* time at which completions were taken last */
	uint64_t quiet_since; /* time at which a poll first saw the quiet rails; 0: none has seen them yet */
	bool taking;          /* those of `completions` */
	struct ibv_wc completions[VERBS_POLL_BATCH]; /* wr_id: VERBS_UNFILLED, except those that a poll filled */
};

/* True if the completions of a queue pair's own receives, and of its requests, fit beside those of the others. */
static inline bool verbs_cq_has_room(const struct verbs_cq *queue)
{
	return queue->srq || queue->posted + VERBS_SEND_DEPTH + VERBS_OWN_RECEIVES <= queue->room;
}

/* State of the fabric in a context (fabric_states). The lists grow under the lock. */
struct verbs_state {
	struct pl_context *context;
	const struct verbs_library *library;
	pthread_mutex_t lock;
	struct pl_list devices, queues, ports;
	struct verbs_port *places[VERBS_PLACES]; /* ports in the order in which they were found; never removed */
	atomic_uint place_count;
	atomic_uint place_changes; /* how often further places were made known to regions */
	unsigned turn;             /* next of equally near ports; grant_lock */
	uint64_t far_next; /* first address that no grant without windows has had yet; grant_lock */
	pthread_mutex_t look_lock;                    /* held during a look at the ports; comes before `lock` */
	_Atomic uint64_t looked;                      /* time of the last look; 0: none */
	atomic_bool stale;                            /* a device reported a change since */
	struct {
		struct verbs_job job;
		atomic_bool busy;
		atomic_bool late; /* the first look takes longer than its limit */
	} port_look;                                  /* look at the ports, by a helper thread */
	uint64_t silence;                             /* VERBS_SILENCE; tests have another one */
	atomic_bool ending;                           /* the context closes: looks do not wait for drivers any more */
	struct verbs_listing *listing;       /* list that the library has not returned; NULL: none. look_lock */
	struct pl_list probes;               /* of devices whose drivers have not answered; look_lock */
	char silent[IBV_SYSFS_NAME_MAX + 4]; /* the first of them; empty: none is known. lock */
	struct verbs_obstacle_met obstacle;           /* found by the last look; lock */
	struct verbs_helpers connectors, registrars;  /* for calls that wait for the network or a reset, or for pages */
	struct verbs_waiters waiters[PL_ENGINES_MAX]; /* of each engine */
	struct pl_pool flushes, flush_reads;          /* freed records of flushes, and of their reads */
	struct verbs_lost_path lost_paths[VERBS_LOST_PATHS]; /* lock */
	unsigned next_lost_path;                             /* lock */
	atomic_uint receives_added; /* receive buffers of all queues beyond the first VERBS_RECEIVES of each */
	unsigned tellers; /* threads that walk the queues without the lock; no queue is freed meanwhile */
	struct pl_task tend_task, seek_task, watch_task;
	struct pl_source uevents; /* the kernel's announcements of devices; on the first engine */
	struct pl_timer tend_timer;
	uint64_t tend_pause; /* of the timer; 0: no device is missing. First engine */
	struct verbs_tending tending;
};

/* state.c: state of a context */
/* Fills a state, or a queue, of zeros. */
void verbs_state_init(struct verbs_state *state, struct pl_context *context, const struct verbs_library *library);
void verbs_cq_init(struct verbs_cq *queue, struct verbs_state *state, struct verbs_device *device,
		   struct pl_engine *engine);
struct verbs_state *verbs_state_get(struct pl_context *context, struct pl_error *error);
/* Returns a queue with room for a queue pair, a new one if there is none. NULL: the failed call, and its errno. */
struct verbs_cq *verbs_cq_get(struct verbs_state *state, struct verbs_device *device, struct pl_engine *engine,
			      struct verbs_failure *failure);
/* Destroys the device's objects of a queue. Called on its engine. */
void verbs_cq_shut(struct verbs_cq *queue);
void verbs_state_close(struct pl_context *context, void *state);

/* object_end.c */
/* Kinds of a device's objects. VERBS_QP_WORK: the work of a queue pair, which the error state ends. */
enum verbs_object {
	VERBS_QP_WORK,
	VERBS_QP,
	VERBS_MW,
	VERBS_MR,
	VERBS_SRQ,
	VERBS_CQ,
	VERBS_CHANNEL,
	VERBS_PD,
	VERBS_CONTEXT,
};
/*
 * Ends an object. Returns 0 or a negative errno. While the context closes, the first call of the device that does not return
 * within state->silence gives up the device: -ETIMEDOUT, then and for each further object.
 */
int verbs_object_end(struct verbs_device *device, enum verbs_object kind, void *object);
/* Gives up a device whose driver does not answer: makes no further calls for it. */
void verbs_device_give_up(struct verbs_device *device);

/* device.c */
/* Notes the name under which a look found the device. Without memory the last name stays. The caller holds look_lock. */
void verbs_device_rename(struct verbs_device *device, const char *name);
/* True if a device that the library lists is the one that is open, whatever its name is now. */
bool verbs_device_is(const struct verbs_device *device, const struct ibv_device *of);
/* Closes what is left of a device, and frees it. */
void verbs_device_free(struct verbs_device *device);

/* connector.c */
/*
 * Moves job->qp, in the state INIT, to RTS. In RTR a RoCE device waits for the neighbour's address, up to a second, so a
 * thread does it. `done` runs under its engine's lock.
 */
void verbs_connector_start(struct verbs_state *state, struct verbs_ready_job *job);
/* Moves it at once. */
void verbs_connector_run(const struct verbs_library *library, struct verbs_ready_job *job);

/* rail_path.c: the choice of rails */
#define VERBS_PORTS_MAX PL_PORTS_MAX
int verbs_serves(struct pl_peer *peer, struct pl_error *error);
/* Fills endpoint->ports, and the address of each in endpoint->gids. Returns 0 or -ENODEV. */
int verbs_list_ports(struct verbs_endpoint *endpoint);
void verbs_advert_write(const struct verbs_endpoint *endpoint, struct pl_writer *writer);
/* Reads the peer's advert, and chooses rails. Returns 0, -EPROTO, or -ENODEV if no rail is possible. */
int verbs_advert_read(struct verbs_endpoint *endpoint, struct pl_reader *reader);
/* Initiator: returns rails between ports of both masks, by number (0: any), and makes those that are missing. */
uint8_t verbs_rails_between(struct verbs_endpoint *endpoint, uint16_t near, uint16_t far);

/* buffer_pool.c */
int verbs_buffer_pool_open(struct verbs_buffer_pool *pool, const struct verbs_state *state, struct verbs_device *device,
			   unsigned count, size_t size);
/* The device does not know the buffers any more; they stay allocated. */
void verbs_buffer_pool_shut(struct verbs_buffer_pool *pool);
/* Frees the buffers, except those that a silent device may know. */
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

/* stage.c: ends the lock of the staging buffers for copies */
void verbs_stages_unlock(struct verbs_cq *queue);

/* srq.c; called under the lock of the queue's engine */
/* Makes the shared receive queue, if the device has some, and its first buffers. Needs the completion queue. */
int verbs_srq_open(struct verbs_cq *queue, struct verbs_failure *failure);
/* A rail came to the queue: adds receive buffers, unless the queue has enough or there is no memory for more. */
void verbs_srq_grow(struct verbs_cq *queue);
/*
 * A queue pair ends that may keep a receive. Once a quarter of the receives may be lost, further connections get
 * another queue.
 */
void verbs_srq_note_lost(struct verbs_cq *queue);
/* Destroys the shared receive queue; its buffers stay allocated. */
void verbs_srq_shut(struct verbs_cq *queue);
void verbs_srq_close(struct verbs_cq *queue);

/* async_event.c */
/* Watches the events of new devices. Called on the first engine with the lock held. */
void verbs_async_watch(struct verbs_state *state);
void verbs_async_close(struct verbs_device *device);
/* Takes one event of the device. On the first engine with the lock held. Returns false if there is none. */
bool verbs_async_take(struct verbs_device *device);
/* A task of a queue: handles its events. */
void verbs_take_events(struct pl_task *task);
/*
 * Gives up a queue that yields no completions any more: its rails fail, and the next connection gets another queue. `why`:
 * for the peers' logs; static storage.
 */
void verbs_cq_break(struct verbs_cq *queue, const char *why);
/* The rail comes up: looks at its queue pair if the device reported an error of it before. */
void verbs_look_at_pair(struct verbs_rail *rail);

/* Makes the queues of a device check its events; `only`: this one; NULL: all. */
void verbs_async_tell(struct verbs_state *state, const struct verbs_device *device, const struct verbs_cq *only,
		      unsigned bits);

/* cq.c */
bool verbs_cq_ready(struct pl_source *source, uint32_t events);
void verbs_cq_idle(struct pl_source *source);
/* Takes a batch of completions. Returns their number; 0 also while a batch is being taken. */
unsigned verbs_cq_poll(struct verbs_cq *queue);
/* Takes all completions that are in the queue at the call. Ends also if other peers refill it as fast as it is polled. */
void verbs_cq_take_present(struct verbs_cq *queue);
/* Continues rails that wait for buffers. Called when buffers came back. */
void verbs_cq_feed(struct verbs_cq *queue);
int verbs_receive_post(struct verbs_cq *queue, struct verbs_rail *rail, struct verbs_buffer *buffer);
/* Posts the receives of a new queue pair, if it has its own. Returns 0 or a negative errno. */
int verbs_own_receives_post(struct verbs_rail *rail);

/* removal_watch.c: hears of removals that the driver does not report. Called on the first engine. */
void verbs_uevents_open(struct verbs_state *state);
void verbs_uevents_close(struct verbs_state *state);
/* Handles a message of the kernel, whose fields end with a NUL, the last one after its length at the latest. */
void verbs_uevent_take(struct verbs_state *state, const char *message, size_t length);
/* Returns the inode of a device's entry in /sys; 0: errno tells why there is none. */
uint64_t verbs_device_entry(const struct ibv_device *device);

/* device_removal.c */
void verbs_removal_open(struct verbs_state *state);
void verbs_removal_close(struct verbs_state *state);
/* A device came. Called on the first engine: looks for missing devices at once. */
void verbs_device_appeared(struct verbs_state *state);
/*
 * Makes a helper look now whether a removed device is back, if the last look is old and none is under way. Any thread, no
 * lock of the state.
 */
void verbs_device_seek(struct verbs_state *state);
/* Keeps the device open until the second call, without a lock. Returns false if it is gone. */
bool verbs_device_use(struct verbs_device *device);
void verbs_device_leave(struct verbs_device *device);
/* A device was removed. */
void verbs_device_lost(struct verbs_state *state, struct verbs_device *device);
/*
 * A rail left its queue, or the queue was told of an event: frees more if this was its last user, and the device is gone
 * or the queue broken.
 */
void verbs_cq_left(struct verbs_cq *queue);

#endif
