/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local fabric: one-sided operations between two processes of one host, in one user and one process
 * namespace, by the processor of whoever posts them.
 *
 * Memory is reached in one of several ways (struct local_way), found out when a key is imported:
 * - mapped: the region was allocated by the library and granted as a whole.  Its owner sends a descriptor of
 *   it, which is mapped here; operations are copies and the processor's atomic instructions.
 * - process_vm: any other host memory; the kernel copies, by process_vm_readv(2) and process_vm_writev(2).
 * - device: memory of a GPU, which a GPU of this process reaches by what is in the key (CUDA IPC), or by that and
 *   descriptors that came with it (memory mapped from handles, or of a pool); it copies.
 * - socket: what none of these reaches goes through data sockets, by the code of the tcp fabric, as do messages.
 * Memory of a GPU at this end can be copied to and from what is mapped, and what a GPU reaches (device.c).
 *
 * What keeps a peer from the memory when a grant ends is a gate: a word for each key, in memory that its
 * owner shares with the peer.  Who copies holds the gate while it copies a chunk; the owner shuts it and
 * waits until nobody holds it.  So the ends trust each other's library here, as processes of one user do.
 */
#ifndef PL_LOCAL_H
#define PL_LOCAL_H

#include "core/fabric.h"
#include "fabric/local/record.h"

/* Keys of a peer beyond this number get no gate, and so go through the sockets. */
#define LOCAL_GATES 4096
/* So many threads can hold a gate without counting themselves. */
#define LOCAL_PLACES 8
/* A gate is held for no longer than it takes to copy this. */
#define LOCAL_CHUNK (1u << 20)
/* Up to this size an operation is done by who posts it, larger ones by the engines. */
#define LOCAL_NOW (1u << 20)
/* Descriptors that came and whose import is not known yet. */
#define LOCAL_PENDING 256
/* Parts that the memory of a large message may have: they are sent, opened and closed with each. */
#define LOCAL_MESSAGE_PARTS 16
/* GPU memory that large messages came from last: it stays open, as opening costs more than many copies. */
#define LOCAL_PARKED 8

struct local_endpoint;

/*
 * In shared memory.  The owner of the key writes `open`.  Who holds it stands in one of the places, which is left by a
 * plain store, that does not wait until what was copied is out of the processor's buffers; or is counted in `holders`,
 * if the places are taken, or it is held for long.
 */
struct local_gate {
	_Atomic uint32_t open; /* the key's number, 0: shut */
	_Atomic uint32_t holders;
	_Atomic uint32_t places[LOCAL_PLACES]; /* 1: taken */
	uint8_t rest[24];
};
_Static_assert(sizeof(struct local_gate) == 64, "a line of the cache");

/* The gates of the keys that one peer has of this end. */
struct local_gates {
	const struct pl_allocator *allocator;
	atomic_uint references;
	struct local_gate *gates;
	unsigned used; /* the first so many were ever open; home */
	int fd;
	pthread_mutex_t lock; /* what follows */
	int side;             /* where the peer is told of keys that were revoked; -1: nowhere */
	/* Without it. */
	atomic_int process; /* a pidfd of the peer, which goes with the gates; -1 until known */
	atomic_bool dead;   /* the peer: it is waited for no more */
};

struct local_move {
	struct pl_memory *memory; /* at this end */
	size_t offset;
	uint64_t remote_offset;
	size_t length;
	bool write;
};

struct local_access;
struct local_device;
struct local_lock;

struct local_way {
	const char *reason;
	/* Copies; the gate is held.  0 or a negative errno.  NULL: the sockets do it. */
	int (*move)(const struct local_access *access, const struct local_move *move);
};

/* How a remote region is reached. */
struct local_access {
	/* First, side by side, what each operation looks at. */
	const struct local_way *way;
	uint8_t *base; /* of the first byte: here if mapped, else as its owner knows it */
	struct local_gate *gate;
	uint64_t expires;
	uint32_t number;
	bool source;                 /* of a large message: nobody but its receive knows it */
	struct local_lock *lock;     /* of the mapping; NULL: it is not worth it */
	struct local_device *device; /* of local_device_way */

	struct local_endpoint *endpoint;
	struct local_state *state;
	void *mapping;
	size_t mapped;
	struct pl_list link; /* endpoint->accesses */
	uint64_t key;
};

/* What came for a key, until its import is known: a descriptor that was mapped, or those of a device's memory. */
struct local_pending {
	struct pl_list link;
	uint64_t key;
	struct pl_ipc_fds *parts; /* NULL: it is a mapping */
	void *mapping;
	size_t size;
	bool writable;
};

/* Moves the large operations of a context's endpoints, one of these for each engine. */
struct local_mover {
	struct local_state *state;
	struct pl_engine *engine;
	struct pl_source source; /* an eventfd: readable while there is work */
	bool told;               /* it is; state->lock */
};

struct local_state {
	struct pl_context *context;
	uint8_t name[LOCAL_NAME]; /* where the listener is */
	uint64_t process_namespace, user_namespace;
	pthread_mutex_t lock; /* what follows */
	struct pl_list work;
	struct local_mover movers[PL_ENGINES_MAX];
	bool moving; /* the movers are there */
	struct local_device *parked[LOCAL_PARKED];
	unsigned parked_next;
};

/* Copies of one operation that a device does at a time, so that it always has one to go on with. */
#define LOCAL_COPIES 2

/* A chunk that a device copies. */
struct local_copy {
	struct pl_copy copy;
	struct pl_operation *operation;
	struct local_access *access; /* whose gate is held; NULL: it is not under way */
};

/* What is left of an operation; in operation->fabric. */
struct local_work {
	struct pl_list link;
	struct local_endpoint *endpoint;
	unsigned segment;
	uint64_t done;
	struct local_copy copies[LOCAL_COPIES]; /* of a large one that a device does */
	unsigned under_way;                     /* of these */
	bool beginning;
};
_Static_assert(sizeof(struct local_work) <= PL_OPERATION_FABRIC_SPACE, "fits into an operation");

struct local_endpoint {
	struct pl_endpoint base;
	struct local_state *state;
	struct pl_endpoint *lanes; /* of the tcp fabric, over local sockets */
	struct pl_task side_task;
	_Atomic int joining; /* a side socket that was handed over by the listener's engine; -1: none */
	struct pl_source side;
	bool greeted; /* the peer's gates came */
	struct local_invitation there;
	uint8_t lanes_blob[PL_FABRIC_BLOB_MAX]; /* initiator: what the lanes need to connect */
	size_t lanes_length;
	pid_t process;
	int process_fd; /* own->process */
	struct local_gates *own;
	struct local_gate *gates; /* the peer's */
	struct pl_list accesses;  /* struct local_access; state->lock */
	struct pl_list pending;   /* struct local_pending */
	unsigned pending_count;
	unsigned pending_parts; /* descriptors that these hold */
};

static inline struct local_endpoint *local_endpoint_of(struct pl_endpoint *endpoint)
{
	return pl_container_of(endpoint, struct local_endpoint, base);
}

/* state.c: who can be reached */
struct local_state *local_state_get(struct pl_context *context, struct pl_error *error);
void local_state_close(struct pl_context *context, void *state);
int local_serves(struct pl_peer *peer, struct pl_error *error);
int local_invite(struct pl_peer *peer, uint8_t blob[PL_FABRIC_BLOB_MAX]);
int local_suits(struct pl_peer *peer, const struct pl_fabric_advert *offer, struct pl_error *error);
void local_invitation(const struct local_state *state, struct local_invitation *invitation);
/* A socket connected to the listener of that name, or a negative errno. */
int local_dial(const uint8_t name[LOCAL_NAME]);
/* The process at the other end of a socket: 0 and its number if it is this user's and in this namespace. */
int local_process_of(int fd, pid_t *process, enum pl_refusal *refusal);

/* gate.c */
struct local_gates *local_gates_new(const struct pl_allocator *allocator);
void local_gates_put(struct local_gates *gates);
/* Shuts all and waits until nobody holds any. */
void local_gates_shut(struct local_gates *gates);
/*
 * Opens the gate of a key until its grant or the key ends: hangs a registration on it. 0, or a negative errno; -EBUSY:
 * somebody still holds it for a key that was there before.  `told`: the peer is to know when the key is revoked, as it
 * holds something for it.
 */
int local_gate_open(struct local_gates *gates, struct pl_key *key, uint32_t number, bool told);
/* The socket by which the peer is told; -1: there is none any more.  Any thread. */
void local_gates_tell(struct local_gates *gates, int side);
/* The peer's side: takes a place, by any thread that soon leaves it.  NULL: it is shut. */
_Atomic uint32_t *local_gate_enter(struct local_gate *gate, uint32_t number);
void local_gate_leave(struct local_gate *gate, _Atomic uint32_t *place);
/* The same for as long as it takes.  False: it is shut. */
bool local_gate_hold(struct local_gate *gate, uint32_t number);
void local_gate_release(struct local_gate *gate);
/* Whether anybody holds it in one way or the other; of one that was shut nobody does any more, once nobody did. */
bool local_gate_is_held(const struct local_gate *gate);

/* side.c: the socket that carries descriptors */
void local_side_init(struct local_endpoint *endpoint);
int local_side_connect(struct local_endpoint *endpoint, struct pl_error *error);
int local_side_join(struct local_endpoint *endpoint, struct pl_stream *stream);
/* Sends a record with a descriptor, or with several, which stay the caller's. */
int local_side_send(struct local_endpoint *endpoint, const struct local_record *record, int fd);
int local_side_send_parts(struct local_endpoint *endpoint, uint64_t key, const struct pl_ipc_fds *parts);
int local_record_send(int socket, const struct local_record *record, const int *fds, unsigned count);
/* pending.c: what came before the import that it is for; home */
/* What came with a record; the descriptor stays the caller's, those of parts (-1 then) do not.  0, or -EPROTO. */
int local_pending_memory(struct local_endpoint *endpoint, const struct local_record *record, int fd);
int local_pending_add(struct local_endpoint *endpoint, const struct local_record *record, int *fds, unsigned count,
		      bool whole);
void local_pending_free(struct local_endpoint *endpoint, struct local_pending *pending);
struct local_pending *local_pending_find(struct local_endpoint *endpoint, uint64_t key);
/* All of a key's parts, which are the caller's then; NULL: they did not come. */
struct pl_ipc_fds *local_pending_take(struct local_endpoint *endpoint, uint64_t key);
/* Maps a file whose pages cannot be taken away; NULL: it is not what it should be. */
void *local_map(int fd, uint64_t size, bool *writable);

/* Takes what came.  Home. */
void local_side_drain(struct local_endpoint *endpoint);
void local_side_close(struct local_endpoint *endpoint);

/* way.c */
int local_export_key(struct pl_endpoint *endpoint, struct pl_grant *grant, struct pl_key *key,
		     uint8_t blob[PL_KEY_BLOB_MAX]);
void local_imported(struct pl_endpoint *endpoint, struct pl_remote *remote);
/* A key was revoked: closes what is there for it.  Home. */
void local_revoked(struct local_endpoint *endpoint, uint64_t key);
/* The endpoint goes before its remote regions. */
void local_accesses_leave(struct local_endpoint *endpoint);

/* move.c */
extern const struct local_way local_mapped_way, local_process_way, local_socket_way, local_denied_way;
/* Holds the gate, if the remote region may be used, until local_gate_release().  0, or a failure. */
int local_hold(const struct local_access *access, struct pl_error *error);
/* The error of a copy that failed with that code. */
int local_move_fail(struct pl_error *error, int code, bool write);
/* Copies a chunk.  0, or a failure: a negative errno, and the error. */
int local_move(const struct local_access *access, const struct local_move *move, struct pl_error *error);
/* -EAGAIN: not this way. */
int local_atomic(struct pl_sync_op *instant, struct pl_error *error);

/* lock.c. The mapping outlives the lock; with the gate held, told before copies to or from memory. */
struct local_lock *local_lock_new(struct pl_context *context, void *address, size_t length);
void local_lock_free(struct local_lock *lock);
/* The memory is locked no more. */
void local_lock_shut(struct local_lock *lock);
void local_lock_copies(struct local_lock *lock, const struct pl_memory *memory, size_t length);

/* device.c: memory of GPUs, at either end */
extern const struct local_way local_device_way;
/* Of a key's ticket and parts, which become its own, for a remote region of that length.  NULL: no memory. */
struct local_device *local_device_new(struct local_endpoint *endpoint, const struct local_key *key,
				      struct pl_ipc_fds *parts, uint64_t length);
void local_device_free(struct local_device *device);
/* Closes the peer's memory, which nobody uses, nor will, as its gate is shut. */
void local_device_shut(struct local_device *device);
/*
 * Frees it later: when others came, or the endpoint, which may be gone already, or the state is closed.  At once, if
 * descriptors came with it, as they come again with the next.
 */
void local_device_park(struct local_device *device);
/* Of an endpoint, or all. */
void local_device_unpark(struct local_state *state, const struct local_endpoint *endpoint);
/* Whether a device takes part in a segment's copy, and why it goes as it goes. */
bool local_device_takes_part(const struct pl_segment *segment);
/* Whether a remote region is reached from that memory; if not, or if a device does it, *reason says why. */
bool local_device_reaches(const struct local_access *access, struct pl_memory *memory, const char **reason);
/* Does a large operation, in chunks, of which some are under way.  Home. */
void local_device_post(struct local_endpoint *endpoint, struct pl_operation *operation);

/* work.c */
void local_post(struct pl_endpoint *endpoint, struct pl_operation *operation);
bool local_sync_try(struct pl_endpoint *endpoint, struct pl_sync_op *instant);
void local_work_sweep(struct local_endpoint *endpoint);
bool local_mover_ready(struct pl_source *source, uint32_t events);

#endif
