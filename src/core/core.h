/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects behind the public API, and what core and fabrics ask of each other.
 *
 * Locking.  A peer belongs to one engine, its home.  Everything of the peer, and the life of its
 * operations from submission to completion, happens under the home engine's lock.  A fabric may
 * spread the bytes of one operation over other engines: its parts count `pending` down, and the
 * last one has the home engine finish the operation.  Order of locks: engine, then context->lock,
 * then the small ones (grants, queue, handles), which never nest.
 */
#ifndef PL_CORE_H
#define PL_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <netdb.h>
#include <sys/socket.h>

#include "base/address.h"
#include "base/base.h"
#include "base/lock.h"
#include "base/pool.h"
#include "control/channel.h"
#include "engine/engine.h"
#include "memory/memory.h"
#include "profile/profile.h"
#include "staging/staging.h"
#include "wire/wire.h"

#define PL_ENGINES_MAX 64
#define PL_STREAMS_MAX 16
/* Messages a peer may have sent that the program here has not taken yet. */
#define PL_MESSAGE_WINDOW 1024
/* Larger messages wait at the sender until the receive is posted. */
#define PL_EAGER_MAX PL_SEND_COPY_MAX
#define PL_BACKLOG_MAX 1024
#define PL_OPERATION_FABRIC_SPACE 192

struct pl_fabric_ops;
struct pl_endpoint;
struct pl_grant;

/* -- context ------------------------------------------------------------------------------------ */

/* Where pl_poll() wants what completes while it makes progress. */
struct pl_sink {
	struct pl_completion *completions;
	int count, most;
};

struct pl_context {
	struct pl_allocator allocator;
	struct pl_options options; /* defaults filled in; pointers in it are not valid */
	char *devices;             /* options.devices; NULL: all */
	struct pl_profile routes;  /* grant_lock, but for pl_routes_open() */
	bool routes_known;
	uint8_t id[16], boot_id[16];
	struct pl_tls *tls; /* NULL: no key */
	struct pl_engine *engines[PL_ENGINES_MAX];
	struct pl_copier *copiers[PL_ENGINES_MAX]; /* of engines that needed one; the engine's lock */
	unsigned engine_count;
	atomic_uint next_engine;
	struct pl_slots slot_pool; /* of locked memory, for bytes that sockets and cards do not reach */
	const struct pl_fabric_ops *fabrics[PL_FABRICS_MAX]; /* those to choose from, the best first */
	unsigned fabric_count;
	pthread_mutex_t fabric_lock;         /* making the states */
	void *fabric_states[PL_FABRICS_MAX]; /* what a fabric keeps for the context; in the order above */

	pthread_mutex_t lock; /* the lists, and slots */
	struct pl_list peers, listeners, regions, remotes;
	struct pl_peer **slots; /* peers by ticket, for sockets that join them */
	size_t slot_count;

	pthread_mutex_t grant_lock; /* grants and every peer's keys */
	struct pl_grant **grants;
	size_t grant_count;
	struct pl_task expiry_task; /* of grants, on the first engine */
	struct pl_timer expiry_timer;

	struct pl_lock queue_lock; /* completions for pl_poll() */
	struct pl_list completed;
	atomic_bool any_completed; /* it is not empty: to be asked without the lock */
	struct pl_sink *sink;      /* NULL: the list; of the only engine of a context without threads, its lock */
	int event_fd;              /* readable while `completed` is not empty; -1 until pl_fd() */
	int poll_fd;               /* what pl_fd() gave; -1 until then */

	struct pl_pool spare_operations;
	struct pl_list handles; /* operations that the program holds a handle of; the pool's latch */
	/* For operations that are done at once; the pool's latch. */
	struct pl_clock clock;
	/*
	 * For one of which the program has a handle.  It stays in the list of these, and is spare by a plain store, as an
	 * atomic instruction would wait until all that the operation copied is out of the processor's buffers.
	 * NULL: there is none.
	 */
	struct pl_operation *instant;
};

static inline bool pl_context_manual(const struct pl_context *context)
{
	return context->options.progress == PL_PROGRESS_MANUAL;
}

/* Drives all engines once; for contexts without threads. Returns whether anything happened. */
bool pl_context_progress(struct pl_context *context);

/*
 * The copier of an engine of the context's, made when it is first asked for; NULL: no memory.  Under the
 * engine's lock.
 */
struct pl_copier *pl_context_copier(struct pl_context *context, struct pl_engine *engine);

/* Returns when no engine, and no copy of one, is in the middle of anything that began before the call. */
void pl_context_barrier(struct pl_context *context);

struct pl_engine *pl_context_pick_engine(struct pl_context *context);

/* routes.c: the profile that says how to reach GPUs' memory; read when it is first asked for, if it has no name. */
int pl_routes_open(struct pl_context *context, const char *file, struct pl_error *error);
/* NULL: there is none. grant_lock */
const struct pl_profile *pl_routes_get(struct pl_context *context);
void pl_routes_close(struct pl_context *context);

/* -- regions and grants ------------------------------------------------------------------------- */

/*
 * What a fabric made of memory, so that a device reaches it.  Hangs on a region, for use by this end,
 * or on a grant or key, for use by the peer, and is released with it.  grant_lock
 */
struct pl_registration {
	struct pl_list link;
	const void *device;
	/* The peer begins nothing more with it: so that what several are in the middle of is waited for together.  Or NULL */
	void (*shut)(struct pl_registration *registration);
	/* Returns when it is not used any more. */
	void (*release)(struct pl_registration *registration);
	bool timeless; /* goes when the grant expires, as the device does not know when that is */
};

/* The one for a device, or NULL. */
struct pl_registration *pl_registration_find(const struct pl_list *registrations, const void *device);
void pl_registrations_release(struct pl_list *registrations);

struct pl_region {
	struct pl_list link;
	struct pl_context *context;
	struct pl_memory memory;
	unsigned access;
	atomic_uint busy; /* operations of ours that use it */
	struct pl_list registrations;
	struct pl_registration *_Atomic recent; /* one of these, which stays until the end, or NULL */
};

/* A token that was given out. Freed when revoked and no key refers to it. */
struct pl_grant {
	uint64_t id;
	struct pl_region *region; /* NULL once revoked */
	uint8_t secret[16];
	size_t offset, length;
	unsigned rights;
	uint64_t expires; /* CLOCK_REALTIME, 0 never */
	struct pl_list keys;
	struct pl_list registrations;
};

/* What one peer may reach: made when it imports a grant, or for the time of one large send. */
struct pl_key {
	uint64_t id; /* index in the peer's table, and a random part */
	struct pl_list grant_link;
	struct pl_memory *memory;
	size_t offset, length;
	unsigned rights;
	uint64_t expires;
	atomic_bool revoked;
	unsigned references;            /* grant_lock */
	struct pl_operation *operation; /* large send: one of its parts ends when nobody refers to the key */
	struct pl_list registrations;   /* of a large send; of this peer alone */
};

struct pl_key_table {
	struct pl_key **keys;
	size_t count, used;
};

/*
 * Looks up what a peer asks for and checks rights, range and expiry.  Takes a reference.
 * `*status` tells why when NULL is returned.  Before each use of the memory, under an engine's
 * lock, check `revoked`: revoking waits for a barrier, so that is enough.
 */
struct pl_key *pl_key_acquire(struct pl_peer *peer, uint64_t id, uint64_t offset, uint64_t length, unsigned right,
			      enum pl_wire_status *status);
void pl_key_release(struct pl_peer *peer, struct pl_key *key);
/* One that is neither revoked nor expired, or NULL.  grant_lock */
struct pl_key *pl_key_alive(struct pl_peer *peer, uint64_t id);
/* Releases what is timeless in a list, or tells whether there is such.  grant_lock */
void pl_registrations_expire(struct pl_list *registrations);
bool pl_registrations_timeless(const struct pl_list *registrations);
/*
 * A key by which the peer reads the bytes of a large send: operation->source_key; and, into blob, what
 * the peer needs to use it.  Adds a part to the operation, which is done when the key was destroyed and
 * the memory is used no more.  Length of the blob, or -ENOMEM, or why the fabric cannot.
 */
int pl_key_create(struct pl_peer *peer, struct pl_operation *operation, uint8_t blob[PL_KEY_BLOB_MAX]);
void pl_key_destroy(struct pl_peer *peer, uint64_t id);
void pl_key_table_clear(struct pl_peer *peer);
void pl_grants_clear(struct pl_context *context);
/* Whether there is something to take away when it expires; grant_lock. */
bool pl_grant_timeless(const struct pl_grant *grant);
/* expiry.c: takes registrations away when their grants expire.  Watch: a grant that expires has one now. */
void pl_expiry_init(struct pl_context *context);
void pl_expiry_watch(struct pl_context *context);
void pl_region_destroy(struct pl_region *region);

/* pl_token_decode() with the public errors. */
int pl_token_read(const void *data, size_t length, struct pl_token *token, struct pl_error *error);
/* A peer presented a token. */
void pl_grant_answer(struct pl_peer *peer, const struct pl_import *import, struct pl_imported *answer);

struct pl_remote {
	/* First, side by side, what each operation looks at. */
	void *way;            /* the fabric's own: how it is reached; home, or before the program has the handle */
	struct pl_peer *peer; /* NULL once the peer was closed; context->lock */
	uint64_t length;
	unsigned rights;
	atomic_uint references;
	void (*forget)(struct pl_remote *remote); /* releases `way`; NULL: there is nothing to release */
	struct pl_list link;                      /* empty for the source of a large send */
	struct pl_task task;
	struct pl_context *context;
	uint16_t key_length;
	uint8_t key[PL_KEY_BLOB_MAX];
};

/* Nobody uses it any more. */
void pl_remote_unused(struct pl_remote *remote);
static inline void pl_remote_put(struct pl_remote *remote)
{
	if (atomic_fetch_sub(&remote->references, 1) == 1)
		pl_remote_unused(remote);
}
void pl_remote_free(struct pl_remote *remote);
int pl_import_post(struct pl_peer *peer, const void *data, size_t length, const struct pl_attributes *attributes,
		   struct pl_operation **handle, struct pl_error *error);

/* -- operations --------------------------------------------------------------------------------- */

/* A contiguous part of an operation. */
struct pl_segment {
	struct pl_remote *remote;
	struct pl_region *region;
	uint64_t remote_offset, offset, length;
};

/* An operation of one segment that a fabric does at once. */
struct pl_instant {
	enum pl_kind kind;
	struct pl_segment segment;
	uint64_t operand, compare; /* atomics */
	uint64_t *old;             /* where what was there is wanted, too; or NULL */
	/* From the fabric: */
	uint64_t value;  /* atomics: what was there */
	const char *way; /* why its bytes went as they did */
};

enum pl_operation_state { PL_RUNNING, PL_AWAITED, PL_DONE, PL_SPARE /* context->instant only */ };

struct pl_operation {
	struct pl_peer *connecting;   /* connect */
	struct pl_listener *listener; /* accept */
	struct pl_operation *parent;  /* internal: on whose behalf */
	struct pl_operation *child;   /* receive: the read that fetches a large message */
	void (*before_delivery)(struct pl_operation *operation);
	struct pl_error *error; /* of the first failure; may be NULL */
	const char *way;        /* why its bytes went as they did; NULL: for the peer's reason */
	atomic_ullong staged;   /* bytes that went through memory of the fabric's own, and why */
	const char *_Atomic staged_reason;
	uint64_t total;
	uint8_t *copy;       /* pl_send_copy(): the message */
	uint64_t source_key; /* large send: the key that the peer reads through */
	atomic_int pending;  /* parts not done, plus one while it is being split */
	atomic_int status;   /* first failure wins */
	atomic_uint rails;   /* which carried a part, a bit each */
	unsigned segment_count;
	atomic_bool canceled;  /* parts must be dropped */
	bool has_handle;       /* pl_wait() collects it, not pl_poll() */
	bool internal;         /* neither: finished() takes it */
	bool counted;          /* in peer->running */
	bool plain;            /* one segment, for pl_poll(), and nothing is asked for but that its bytes move */
	bool cancel_requested; /* pl_cancel() was called */
	bool settled;          /* as visible as asked for, or the fabric sees to that */
	bool landing, placed;  /* in peer->landing; and where it belongs */
	bool leaving;          /* in peer->unsent, while its bytes are copied out of a device's memory */
	bool gathered;         /* send: the fabric takes the bytes from where they are */
	bool credit_due;       /* notification: collecting it makes a credit due */

	/* From here on set when it is made or used, and not cleared; first, side by side, what is set in each. */
	struct pl_receipt receipt;
	atomic_int state; /* enum pl_operation_state */
	struct pl_context *context;
	struct pl_peer *peer; /* NULL for accept and connect */
	struct pl_engine *home;
	struct pl_segment *segments; /* &single, or an array */
	uint64_t *old;               /* atomics */
	struct pl_attributes attributes;
	struct pl_list peer_link;  /* peer->operations; home */
	struct pl_list queue_link; /* whatever it waits in; home.  Later context->completed */
	struct pl_list handle_link;
	uint64_t deadline;
	struct pl_segment single;
	uint64_t operand, compare;                        /* atomics */
	uint64_t tag, mask;                               /* messages */
	uint32_t cookie;                                  /* large send: names it in FINISH */
	uint64_t request;                                 /* connect, accept, import */
	void (*finished)(struct pl_operation *operation); /* internal: instead of delivery */
	struct pl_task task;                              /* submission, later the finish */
	struct pl_task cancel_task;
	struct pl_small small;                                  /* copy of a message from or into a device's memory */
	struct pl_timer timer;                                  /* of one without a peer */
	_Alignas(16) uint8_t fabric[PL_OPERATION_FABRIC_SPACE]; /* the fabric's own */
};

/* Whether that is more than an acknowledgement promises. */
static inline bool pl_visible_more(enum pl_visible visible)
{
	return visible == PL_VISIBLE_PLACED || visible == PL_VISIBLE_GPU_VISIBLE;
}

/* immediate.c: the context's own operation. */
int pl_instant_open(struct pl_context *context, struct pl_error *error);
/* Before what the program did not collect is freed. */
void pl_instant_close(struct pl_context *context);
/*
 * immediate.c: does an operation of one segment at once, over a fabric that may, if nothing has to be waited for.
 * True: it is done, and delivered.
 */
bool pl_immediate(struct pl_peer *peer, struct pl_instant *instant, const struct pl_attributes *attributes,
		  struct pl_operation **handle);

/* Notes that bytes of an operation go through staging, and why (static storage). */
static inline void pl_operation_staged(struct pl_operation *operation, uint64_t bytes, const char *why)
{
	atomic_fetch_add(&operation->staged, bytes);
	atomic_store(&operation->staged_reason, why);
}

struct pl_operation *pl_operation_new(struct pl_context *context, struct pl_peer *peer, enum pl_kind kind,
				      const struct pl_attributes *attributes, struct pl_error *error);
/* Of an operation that was not submitted. */
void pl_operation_discard(struct pl_operation *operation);
/* The program gets a handle of it. */
void pl_operation_hold(struct pl_operation *operation, struct pl_operation **handle);
/* Takes it from those of which the program has a handle, and its memory back; nothing hangs on it. */
void pl_operation_unhold(struct pl_context *context, struct pl_operation *operation);
/* Hands it to its home engine, which calls `run`; gives the program its handle if it wants one. */
void pl_operation_submit(struct pl_operation *operation, void (*run)(struct pl_task *), struct pl_operation **handle);
/* Puts it in the peer's list and starts its timer; false if it must not go on (it is finished then). Home. */
bool pl_operation_begin(struct pl_operation *operation);
/* The peer is lost, which it did not know when it began. */
void pl_operation_lost(struct pl_operation *operation);
/* A deadline of one of the peer's operations has come: stops those whose time is over. */
void pl_operations_expire(struct pl_timer *timer);
/* Records a failure; the first one wins. Any engine. `error` is copied. */
void pl_operation_fail(struct pl_operation *operation, int status, const struct pl_error *error);
/* Delivers: to its waiter, to pl_poll(), to finished(). Home. */
void pl_operation_complete(struct pl_operation *operation);
/* Has its home do so. */
void pl_operation_finish(struct pl_operation *operation);
/* One part is done (or was dropped). The last one finishes the operation. Any engine. */
static inline void pl_operation_part_done(struct pl_operation *operation)
{
	/* Only who has a part adds others, so that the last one needs no atomic instruction. */
	if (atomic_load_explicit(&operation->pending, memory_order_acquire) == 1)
		atomic_store_explicit(&operation->pending, 0, memory_order_relaxed);
	else if (atomic_fetch_sub(&operation->pending, 1) != 1)
		return;
	if (pl_engine_held(operation->home))
		pl_operation_complete(operation);
	else
		pl_operation_finish(operation);
}
/* Stops an operation: records the status, takes it from the queue it waits in. Home. */
void pl_operation_stop(struct pl_operation *operation, int status, const struct pl_error *error);
void pl_operation_free(struct pl_operation *operation);
static inline struct pl_operation *pl_operation_of_task(struct pl_task *task)
{
	return pl_container_of(task, struct pl_operation, task);
}

/* Fails an operation that must not be staged, but would be, and why. */
void pl_operation_not_direct(struct pl_operation *operation, const char *why);

/* Adds to what pl_poll() delivers. */
void pl_completion_push(struct pl_context *context, struct pl_operation *operation);
void pl_completions_forget_peer(struct pl_context *context, struct pl_peer *peer);

/* -- peers -------------------------------------------------------------------------------------- */

/* Why a peer is not reached by the local fabric, or by RDMA cards.  Travels in hellos; see choice.c. */
enum pl_apart {
	PL_APART_NOT,
	PL_APART_USER,
	PL_APART_NAMESPACE,
	PL_APART_SOCKET,
	PL_APART_CARDS = 5, /* 4 was one of an earlier release */
	PL_APART_END,
};

enum pl_peer_state { PL_PEER_OPENING, PL_PEER_UP, PL_PEER_LOST };

struct pl_peer {
	/* First, side by side, what each operation looks at. */
	struct pl_context *context;
	struct pl_engine *home;
	const struct pl_fabric_ops *ops;
	struct pl_endpoint *endpoint;
	atomic_int state;      /* enum pl_peer_state; written at home */
	atomic_uint fences;    /* operations with PL_FENCE that are not complete */
	atomic_uint immediate; /* operations done at once: now and then the sockets must be looked at */

	struct pl_list link;
	size_t ticket;             /* its place in context->slots */
	uint8_t ticket_secret[16]; /* what a socket must know to join */
	atomic_uint pins;          /* sockets on their way to join it, and others that must find it */
	bool joinable;             /* its endpoint takes sockets; context->lock */
	bool initiator;
	_Atomic uint64_t user_data;
	bool dead;    /* opening failed; freed soon */
	bool claimed; /* by whoever frees it; context->lock */

	struct pl_source dialing; /* a connect(2) under way */
	struct pl_channel channel;
	struct pl_task task;          /* opening and dying happen outside their callers */
	struct pl_timer timer;        /* the handshake's deadline; the grace after a loss */
	struct pl_operation *opening; /* connect: the operation */
	struct pl_listener *listener; /* accept: who gets it */
	struct pl_list backlog_link;
	struct sockaddr_storage *targets; /* connect: addresses to try */
	unsigned target_count, target_next;
	struct pl_stream incoming; /* accept: handed over to the home engine */
	uint8_t incoming_prefix[4];

	struct sockaddr_storage address, local_address;
	char software[32];
	uint8_t context_id[16];
	bool same_host, encrypt;
	bool asks;    /* PL_CAPABILITY_ASKS */
	bool flushes; /* PL_CAPABILITY_VISIBLE */
	bool bare;    /* PL_CAPABILITY_BARE */
	bool packs;   /* PL_CAPABILITY_PACKED */
	uint32_t window, eager_max;
	unsigned streams;

	const char *reason;                 /* why bytes go the way they go, for receipts */
	enum pl_apart apart;                /* what the local fabric found at this end, or the other told */
	const struct pl_fabric_ops *failed; /* connect: by which it was tried before, in vain; `loss` says why */

	struct pl_list operations; /* all that began and did not complete */
	struct pl_timer deadline;  /* of the first of these that has one; it may have completed since */
	uint64_t next_deadline;    /* when that timer is set */
	struct pl_list fenced;     /* waiting for earlier ones */
	unsigned running;          /* begun, not fenced, not complete */
	bool releasing;            /* in pl_peer_fence_release() */
	struct pl_list receives;   /* posted, unmatched */
	struct pl_list unexpected; /* arrived, unmatched: struct pl_arrival */
	struct pl_list landing;    /* operations whose message came, being copied to its place, or behind such */
	struct pl_list unsent;     /* messages that wait for the peer's window, or for their bytes, or behind such */
	struct pl_list offered;    /* large sends that the peer has not fetched */
	struct pl_list imports;    /* waiting for an answer */
	uint64_t sent, consumed_there; /* messages; the window is between them */
	_Atomic uint64_t consumed;
	uint64_t arrived;
	_Atomic uint64_t consumed_told;
	struct pl_task credit_task; /* tell the peer of `consumed` */
	uint32_t next_cookie;
	uint64_t next_request;
	struct pl_key_table keys; /* grant_lock */

	bool leaving;         /* it said BYE */
	struct pl_error loss; /* why it is lost */
};

/*
 * For going through a peer's operations while they end, or begin others: takes the first of `rest`, into
 * which they were moved, back into the peer's list.  NULL: that was all.
 */
static inline struct pl_operation *pl_peer_operation_next(struct pl_peer *peer, struct pl_list *rest)
{
	struct pl_operation *operation;

	if (pl_list_empty(rest))
		return NULL;
	operation = pl_list_first(rest, struct pl_operation, peer_link);
	pl_list_remove(&operation->peer_link);
	pl_list_append(&peer->operations, &operation->peer_link);
	return operation;
}

struct pl_peer *pl_peer_new(struct pl_context *context, bool initiator, struct pl_error *error);
/* The right to free a peer, given once; pl_close() and a failed opening may both want it. */
bool pl_peer_claim(struct pl_peer *peer);
/* Without an engine's lock: closes everything of it and frees it. The caller claimed it, or owns it. */
void pl_peer_destroy(struct pl_peer *peer, int status, const struct pl_error *error);
/* Finds a peer that is opening or up by ticket, pins it; NULL if there is none. */
struct pl_peer *pl_peer_by_ticket(struct pl_context *context, uint64_t ticket, const uint8_t secret[16]);
void pl_peer_unpin(struct pl_peer *peer);
/* Control messages of an opening and of a running peer. */
void pl_peer_control(struct pl_channel *channel, const struct pl_control *message);
void pl_peer_channel_closed(struct pl_channel *channel, const struct pl_error *error);
/* Opening failed: tells whoever waits, and frees the peer, later. Home. */
void pl_peer_open_failed(struct pl_peer *peer, const struct pl_error *error);
/*
 * Initiator: limits the time of a fabric that may not come to connect, and, when it failed, has a new peer take over
 * the connecting, without that fabric.  False: there is no other one.
 */
void pl_peer_limit_attempt(struct pl_peer *peer);
bool pl_peer_replace(struct pl_peer *peer, const struct pl_error *error);
/* Initiator: what to say first. */
int pl_peer_hello(struct pl_peer *peer, struct pl_hello *hello, struct pl_error *error);

/* choice.c: which fabric a peer gets.  All fabrics of this build, the best first, NULL at the end. */
extern const struct pl_fabric_ops *const pl_fabrics[];
/* Sets the context's fabrics: all, or the one of that name. */
int pl_fabrics_choose(struct pl_context *context, const char *name, struct pl_error *error);
/* Initiator: what it could use to reach the peer, into its hello.  Fails if there is nothing: why the last is not. */
int pl_fabrics_offer(struct pl_peer *peer, struct pl_hello *hello, struct pl_error *error);
/* Acceptor: takes the best that the initiator offers.  Initiator: takes what the acceptor chose.  NULL: nothing fits. */
const struct pl_fabric_offer *pl_fabrics_take(struct pl_peer *peer, const struct pl_hello *hello,
					      struct pl_error *error);
/* The place for a fabric's state; fabric_lock. */
void **pl_fabric_state(struct pl_context *context, const struct pl_fabric_ops *fabric);
void pl_fabrics_close(struct pl_context *context);

/* Runs an operation that began, or holds it behind a fence. Home. */
void pl_peer_start(struct pl_peer *peer, struct pl_operation *operation);
/* One of those that ran is complete: what waits for that goes on. */
void pl_peer_fence_release(struct pl_peer *peer);
void pl_imported_arrived(struct pl_peer *peer, const struct pl_imported *answer);

/* Calls of fabrics.  Home. */
void pl_peer_up(struct pl_peer *peer);                                 /* the endpoint can carry data */
void pl_peer_lose(struct pl_peer *peer, const struct pl_error *error); /* it cannot any more */
/* The connection ended; what arrived before is still being read. Loses the peer now or soon. */
void pl_peer_ending(struct pl_peer *peer);

struct pl_listener {
	struct pl_list link;
	struct pl_context *context;
	struct pl_engine *engine;
	struct pl_source source;
	struct sockaddr_storage address;
	struct pl_list greetings; /* connections that have not said who they are */
	unsigned greeting_count;
	struct pl_timer pause;  /* out of descriptors: accept again later */
	atomic_uint references; /* peers that came through it, and the program */
	bool lanes_only;        /* the local fabric's: takes data sockets of known peers, no new peers */
	pthread_mutex_t lock;   /* what follows */
	struct pl_list backlog; /* peers nobody accepted yet */
	struct pl_list accepts; /* operations */
	bool closed;
};

/* listen.c: listens on a socket, which is taken over in any case */
int pl_listener_open(struct pl_context *context, int fd, bool lanes_only, struct pl_listener **listener,
		     struct pl_error *error);
/* connect.c */
bool pl_address_allowed(const struct pl_context *context, const struct sockaddr *address);
int pl_address_resolve(const char *address, bool passive, struct addrinfo **result, struct pl_error *error);
/* socket.c: no delay, keepalive and traffic class as the options say */
void pl_socket_tune(int fd, const struct pl_options *options);
int pl_socket_connect(const struct sockaddr *address,
		      const struct pl_options *options); /* a descriptor, or negative errno */

/* A peer is up: gives it to an accept, or keeps it for one. False if the listener was closed. */
bool pl_listener_offer(struct pl_listener *listener, struct pl_peer *peer);
/* Takes an accept or a peer back out; true if it was there. */
bool pl_listener_withdraw(struct pl_listener *listener, struct pl_list *link);
void pl_listener_put(struct pl_listener *listener);
/* greeting.c: a connection was accepted; fd is taken over. Listener's engine. */
void pl_greeting_new(struct pl_listener *listener, int fd);
void pl_greetings_clear(struct pl_listener *listener);
/* connect.c: a control connection that said its magic. Takes the stream over. */
void pl_peer_accept_stream(struct pl_listener *listener, struct pl_stream *stream, const uint8_t magic[4]);

/* -- messages (message.c, match.c) -------------------------------------------------------------- */

/* Sends, or holds until the peer's window opens: a send, a notification, or the end of a PL_NOTIFY write. */
void pl_message_send(struct pl_operation *operation);
/*
 * A fabric has a notification of its own to send, with the bytes that it tells of: true if that may be now, as all before
 * it are sent and the window is open.  Then something that counts must be sent.
 */
bool pl_message_take_turn(struct pl_peer *peer);
/* The peer took some of our messages; the peer fetched, or refused, a large one. -EPROTO: violation. */
int pl_message_credited(struct pl_peer *peer, uint64_t consumed);
/* A frame of this type was given to message(), and not a byte of it goes: if it is a message, another one may. */
void pl_message_dropped(struct pl_peer *peer, uint8_t type);
int pl_message_finished(struct pl_peer *peer, uint32_t cookie, uint64_t status);
/* Tells the sender of a large message how it ended here. */
void pl_message_finish(struct pl_peer *peer, uint32_t cookie, enum pl_wire_status status);
/* One was taken by the program; returns whether the peer should be told. Any thread. */
static inline bool pl_message_consumed(struct pl_peer *peer)
{
	uint64_t consumed = atomic_fetch_add(&peer->consumed, 1) + 1;

	return consumed - atomic_load(&peer->consumed_told) >= PL_MESSAGE_WINDOW / 4;
}
void pl_message_credit_run(struct pl_task *task);

void pl_message_credit(struct pl_peer *peer);

/* Why small messages from or to memory that the processor does not reach are staged. */
extern const char pl_message_staging_reason[];

/* pl_receive()'s submission. */
void pl_receive_run(struct pl_task *task);
/* A message or notification arrived over the fabric; payload is valid during the call only. -EPROTO: violation. */
int pl_message_arrived(struct pl_peer *peer, const struct pl_frame *frame, const void *payload);
/* Forgets what arrived and nobody took. */
void pl_messages_drop(struct pl_peer *peer);

/* Its operations speak of all of the above. */
#include "core/fabric.h"

#endif
