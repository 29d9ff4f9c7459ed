/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Local fabric: one-sided operations between two processes of one host, of one user and one PID namespace, by the
 * processor of the posting process.
 *
 * Import of a key selects the access path that reaches the memory (struct local_path):
 *
 * - mapped: the library allocated the region, and the grant covers all of it. The owner sends a descriptor, which is
 * mapped here. Operations are copies and atomic instructions of the processor.
 *
 * - process_vm: other host memory; the kernel copies with process_vm_readv(2) and process_vm_writev(2).
 *
 * - device: GPU memory that a GPU of this process reaches. CUDA IPC memory needs data in the key. Memory of handles, or
 * of a pool, needs descriptors that came with the key. The GPU copies.
 *
 * - socket: all other memory, and messages; data sockets, by the code of the tcp fabric.
 *
 * The owner of GPU memory that this process cannot open copies on request (owner_ask.c, owner_serve.c).
 *
 * GPU memory at this end can be copied to and from mapped memory, and memory that a GPU reaches (gpu_copy.c).
 *
 * A gate keeps the peer from the memory once a grant ends: a word for each key, in memory that the owner shares with
 * the peer. The copying thread holds the gate for each chunk. The owner shuts the gate and waits for its holders. Each
 * end trusts the library of the other end here, as processes of one user do.
 */
#ifndef PL_LOCAL_H
#define PL_LOCAL_H

#include "core/fabric.h"
#include "core/lane_auth.h"
#include "core/work_list.h"
#include "fabric/local/record.h"

/*
 * Gates for the keys of one peer: the most that a peer can have, or the fewest for a peer without PL_CAPABILITY_MANY_GATES, or
 * where RLIMIT_FSIZE allows no more. Keys without a gate use the sockets.
 */
#define LOCAL_GATES_LEAST 4096u
#define LOCAL_GATES_MOST PL_KEYS_MAX
/* Most regions that a context maps. The kernel's default limit for a process is 65,530 mappings. */
#define LOCAL_MAPPINGS_MAX 16384u
/* Threads that can hold a gate without the counter. */
#define LOCAL_HOLDER_SLOTS 8
/* Longest wait for holders, 1 s: a longer holder was stopped during a copy, or is hostile. */
#define LOCAL_HOLDER_WAIT_NS PL_NS_PER_S
/* Most bytes copied while a gate is held. */
#define LOCAL_CHUNK (1u << 20)
/* Most ranges that one system call copies. */
#define LOCAL_RANGES 64u
/* Largest operation that the posting thread copies itself; engines copy larger ones. Bytes. */
#define LOCAL_SYNC_MAX (1u << 20)
/* Most keys with descriptors that came before their import. */
#define LOCAL_PENDING 256
/* Most descriptors for the memory of a large message, which are sent, opened and closed for each message. */
#define LOCAL_FDS_PER_MESSAGE 16
/* Opened GPU memory of recent large messages that stays open: opening costs more than many copies. */
#define LOCAL_PARKED 8

/* Text of an event: an import goes on without the memory's descriptor. */
#define LOCAL_NO_DESCRIPTOR \
	"no free descriptor for a region's memory (ulimit -n, LimitNOFILE=): slower access paths remain"

/* The same, because a security module forbids the descriptor. */
#define LOCAL_DESCRIPTOR_FORBIDDEN \
	"a security module keeps back the descriptor of a region's memory: slower access paths remain"

struct local_endpoint;

/*
 * Gate in shared memory. The key's owner writes `open`. A holder takes one of the slots, and leaves it by a store with
 * release order. The store does not wait until the copied bytes have left the processor's store buffers. A holder
 * counts itself in `holders` if all slots are taken, or if it holds the gate for long.
 */
struct local_gate {
	_Atomic uint32_t open; /* number of the key; 0: shut */
	_Atomic uint32_t holders;
	_Atomic uint32_t slots[LOCAL_HOLDER_SLOTS]; /* 1: taken */
	uint8_t rest[24];
};
_Static_assert(sizeof(struct local_gate) == 64, "one cache line");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a lock in the library would not be shared by the processes");

/* Gates for the keys of this end that one peer has. */
struct local_gates {
	const struct pl_allocator *allocator;
	atomic_uint references;
	struct local_gate *gates;
	unsigned count;
	unsigned used;        /* number of gates that were ever open; home */
	_Atomic uint64_t shut_until; /* deadline for the copies under way when all gates were shut; 0: not shut */
	pthread_mutex_t lock; /* protects the members below */
	int fd; /* of the shared memory; written at home; -1: the peer has it, and this end needs it no more */
	int fd_socket;        /* socket that reports revoked keys to the peer; -1: none */
	/* Outside the lock: */
	atomic_int process; /* pidfd of the peer, closed with the gates; -1 until known */
	atomic_bool dead;   /* true if the peer has ended, so that no thread waits for its holders */
};

/* Range of one copy between memory of this end and a remote region. */
struct local_range {
	struct pl_memory *memory; /* at this end */
	size_t offset;
	uint64_t remote_offset;
	size_t length;
	bool write;
};

struct local_access;
struct local_device;
struct local_host_pin;

/* Kind of access path. */
struct local_path {
	const char *reason;
	/* Copies while the gate is held. Returns 0 or a negative errno. NULL: the sockets copy. */
	int (*copy)(const struct local_access *access, const struct local_range *range);
	/* Copies at most LOCAL_RANGES ranges, of one direction, with fewer system calls. NULL: it would not be faster. */
	int (*copy_ranges)(const struct local_access *access, const struct local_range *ranges, unsigned count);
};

/* Access path to a remote region. */
struct local_access {
	/* Members that each operation reads, side by side. */
	const struct local_path *path;
	uint8_t *base; /* first byte: mapped here, or the owner's address */
	struct local_gate *gate;
	uint64_t expires;
	uint32_t number;
	bool message_source;         /* memory of a large message, known to its receive only */
	struct local_host_pin *pin;  /* of the mapping; NULL: too short to pin */
	struct local_device *device; /* with local_device_path */

	struct local_endpoint *endpoint;
	struct local_state *state;
	void *mapping;
	size_t mapped;
	bool torn;           /* a part of `mapping` may belong to other memory of the process */
	struct pl_list link; /* of a list in endpoint->accesses */
	uint64_t key;
};

/* Descriptors that came for a key before its import: a mapped one, or those of device memory. */
struct local_pending {
	struct pl_list link;
	uint64_t key;
	struct pl_ipc_fds *ipc_fds; /* NULL: a mapping */
	void *mapping;
	size_t size;
	bool writable;
};

/* Engine's worker for large operations of a context's endpoints. */
struct local_worker {
	struct local_state *state;
	struct pl_engine *engine;
	struct pl_source source; /* eventfd that is readable while there is work */
	bool signaled;           /* the eventfd is readable; state->lock */
};

struct local_state {
	struct pl_context *context;
	uint8_t name[LOCAL_NAME]; /* name of the listener */
	atomic_uint mappings;     /* of regions of peers */
	uint64_t process_namespace, user_namespace;
	pthread_mutex_t lock; /* protects the members below */
	struct pl_list work;
	struct local_worker workers[PL_ENGINES_MAX];
	bool workers_open; /* true if all workers exist: those whose source has an engine do */
	struct local_device *parked[LOCAL_PARKED];
	unsigned parked_next;
};

/* Copies of one operation that a device has queued: the second follows the first without a pause. */
#define LOCAL_COPIES_QUEUED 2

/* Chunk that a device copies. */
struct local_gpu_copy {
	struct pl_copy copy;
	struct pl_operation *operation;
	struct local_access *access; /* holds its gate; NULL: no copy runs */
};

/* State of a large operation; in operation->fabric. */
struct local_work {
	struct pl_work_item item;
	struct local_gpu_copy copies[LOCAL_COPIES_QUEUED]; /* of a large operation that a device does */
	struct pl_watch turn;                              /* waits for a turn to copy host memory that is not locked */
	unsigned running;                                  /* copies that have started and not ended */
	bool starting;
};
_Static_assert(sizeof(struct local_work) <= PL_OPERATION_FABRIC_SPACE, "fits into an operation");

/* Position in the segments of an operation. */
struct local_position {
	unsigned segment;
	uint64_t done;
};

/* Access paths of an endpoint by their keys, which the peer chooses. state->lock */
struct local_access_table {
	struct pl_list *lists; /* struct local_access; NULL: none was added */
	size_t list_count;     /* a power of two */
	size_t count;
};

/*
 * Fewest bytes of an operation that the owner of device memory is asked to copy. Processor time of a write at both ends,
 * staged and by a request, with the stand-in for the driver, in us: 32 KiB 21 and 29, 64 KiB 30 and 32, 128 KiB 51 and 37.
 */
#define LOCAL_OWNER_MIN (64u << 10)
/* Most COPY frames without an answer that an end has at a time. */
#define LOCAL_COPY_REQUESTS 64u
/* Most regions that an end lends to a peer for such requests. */
#define LOCAL_LENT_MAX 256u
/* Copies of a peer's requests that this end has queued at a time. */
#define LOCAL_SERVED_COPIES 4u

/* Requests of this end to the owner of device memory (owner_ask.c). Home. */
struct local_asking {
	struct pl_list operations; /* operations of which a part was not requested yet */
	struct pl_list requests;   /* struct local_asked: requests without an answer */
	atomic_uint request_count; /* written at home */
	uint32_t cookie;     /* of the last request */
	struct pl_list lent; /* struct local_lent: most recently used first */
	unsigned lent_count;
	bool refused;   /* the peer's rights do not allow to lend regions */
	bool advancing; /* prevents recursion */
};

/* Copy for a request of the peer. */
struct local_served_copy {
	struct pl_copy copy;
	struct local_endpoint *endpoint;
	struct local_served *served; /* NULL: no copy runs */
};

/* Requests of the peer to copy from and to device memory of this end (owner_serve.c). Home. */
struct local_serving {
	struct pl_list requests; /* struct local_served */
	atomic_uint request_count; /* written at home */
	struct pl_list borrowed; /* struct local_borrowed: the peer's regions; most recently used first */
	unsigned borrowed_count;
	struct local_served_copy copies[LOCAL_SERVED_COPIES];
	struct pl_watch more; /* waits for a turn to copy host memory that is not locked */
	bool advancing;       /* prevents recursion */
};

struct local_endpoint {
	struct pl_endpoint base;
	struct local_state *state;
	struct pl_endpoint *lanes; /* endpoint of the tcp fabric, over local sockets */
	struct pl_task fd_socket_task;
	struct pl_timer fd_socket_again; /* initiator: the queue of the peer's listener was full */
	_Atomic int joining; /* socket from the listener's engine; -1: none */
	struct pl_source fd_socket;
	bool gates_received;
	struct local_invitation peer_invitation;
	uint8_t lanes_blob[PL_FABRIC_BLOB_MAX]; /* initiator: data that the lanes need to connect */
	size_t lanes_length;
	pid_t process;
	int process_fd; /* own_gates->process */
	struct pl_source process_end; /* the same descriptor, readable once the process has ended */
	struct local_gates *own_gates;
	bool gates_shut;          /* own_gates, after the loss of the peer */
	struct local_gate *gates; /* gates of the peer, mapped */
	unsigned gate_count;
	struct local_access_table accesses;
	struct pl_list pending;   /* struct local_pending */
	unsigned pending_count;
	unsigned pending_ipc_fds; /* descriptors in `pending` */
	uint64_t pending_bytes;   /* bytes of mappings in `pending` */
	struct local_asking asking;
	struct local_serving serving;
	/* Operations with PL_REQUIRE_DIRECT that wait for late frames of the lanes; state->lock. */
	struct pl_list direct_work;
};

static inline struct local_endpoint *local_endpoint_of(struct pl_endpoint *endpoint)
{
	return pl_container_of(endpoint, struct local_endpoint, base);
}

/* same_host.c: peers of this host */
struct local_state *local_state_get(struct pl_context *context, struct pl_error *error);
void local_state_close(struct pl_context *context, void *state);
int local_serves(struct pl_peer *peer, struct pl_error *error);
int local_invite(struct pl_peer *peer, uint8_t blob[PL_FABRIC_BLOB_MAX]);
int local_suits(struct pl_peer *peer, const struct pl_fabric_advert *advert, struct pl_error *error);
/* Returns the number of gates for the peer's keys. */
unsigned local_gate_count(const struct pl_peer *peer);
void local_invitation(const struct local_state *state, struct local_invitation *invitation);
/* Returns a socket connected to the listener with that name, or a negative errno. */
int local_connect_to_listener(const uint8_t name[LOCAL_NAME]);
/* Finds the process at the other end of a socket. Returns 0 if it belongs to this user and namespace. */
int local_identify_peer(int fd, pid_t *process, enum pl_refusal *refusal);

/* gate.c */
/* Fills the error of gates that cannot be made. Returns its code. */
int local_fail_gates(int code, struct pl_error *error);
struct local_gates *local_gates_new(const struct pl_allocator *allocator, unsigned count, struct pl_error *error);
/* The peer has the descriptor: closes it here, if the mapping suffices. Home. */
void local_gates_sent(struct local_gates *gates);
void local_gates_put(struct local_gates *gates);
/* Shuts all gates of a peer that is lost or closed. Home. */
void local_gates_shut(struct local_gates *gates);
/* Waits for the holders of shut gates, at most `most` ns and at most LOCAL_HOLDER_WAIT_NS since local_gates_shut(). */
void local_gates_await_holders(struct local_gates *gates, uint64_t most);
/*
 * Opens the gate of a key until its grant or the key ends: adds a registration to it. Returns 0 or a negative errno;
 * -EBUSY: a holder of an earlier key of the gate has not left. `notify_peer`: the peer has a mapping or device
 * memory for the key, and is told when the key is revoked.
 */
int local_gate_open(struct local_gates *gates, struct pl_key *key, uint32_t number, bool notify_peer);
/* Sets the socket that reports revoked keys; -1 removes it. Any thread. */
void local_gates_set_fd_socket(struct local_gates *gates, int fd_socket);
/* At the peer: takes a holder slot, in a thread that leaves it soon. Returns NULL if the gate is shut. */
_Atomic uint32_t *local_gate_enter(struct local_gate *gate, uint32_t number);
void local_gate_leave(struct local_gate *gate, _Atomic uint32_t *slot);
/* At the peer: holds the gate for any time. Returns false if the gate is shut. */
bool local_gate_hold(struct local_gate *gate, uint32_t number);
void local_gate_release(struct local_gate *gate);
/* True while held. A gate that was shut and became free stays free. */
bool local_gate_is_held(const struct local_gate *gate);

/* fd_socket.c: the socket that carries descriptors */
void local_fd_socket_init(struct local_endpoint *endpoint);
int local_fd_socket_connect(struct local_endpoint *endpoint, struct pl_error *error);
int local_fd_socket_join(struct local_endpoint *endpoint, struct pl_stream *stream);
/* Sends a record with one descriptor or several, which stay the caller's. */
int local_fd_socket_send(struct local_endpoint *endpoint, const struct local_record *record, int fd);
int local_fd_socket_send_ipc_fds(struct local_endpoint *endpoint, uint64_t key, const struct pl_ipc_fds *ipc_fds);
int local_record_send(int socket, const struct local_record *record, const int *fds, unsigned count);
/*
 * Logs that the kernel kept back a descriptor of the key's memory, and why. Call it before closing descriptors of the same message: it
 * tests whether this process has a free one.
 */
void local_note_kept_back(struct local_endpoint *endpoint, uint64_t key);
/* pending_fd.c: descriptors that came before their import; home */
/*
 * Keeps the descriptors of a record. The caller keeps `fd`. Each descriptor that is taken from `fds` becomes -1.
 * Returns 0 or -EPROTO.
 */
int local_pending_memory(struct local_endpoint *endpoint, const struct local_record *record, int fd);
int local_pending_add(struct local_endpoint *endpoint, const struct local_record *record, int *fds, unsigned count,
		      bool whole);
void local_pending_free(struct local_endpoint *endpoint, struct local_pending *pending);
struct local_pending *local_pending_find(struct local_endpoint *endpoint, uint64_t key);
/* Returns the mapping of a key, which the caller then owns; NULL: none of that size, or none that allows writes. */
void *local_pending_take_mapping(struct local_endpoint *endpoint, uint64_t key, size_t size, bool write);
/* Returns all descriptors of a key, which the caller then owns; NULL: not all arrived. */
struct pl_ipc_fds *local_pending_take(struct local_endpoint *endpoint, uint64_t key);
/* True for a memfd of this size without huge pages, sealed against shrinking and growing: no owner can let an access raise SIGBUS. */
bool local_file_is_mappable(int fd, uint64_t size);
/* Maps such a file. Returns NULL for other files. */
void *local_map_sealed_file(int fd, uint64_t size, bool *writable);

/* Handles the records that arrived. Home. */
void local_fd_socket_drain(struct local_endpoint *endpoint);
/* Receives no more records: to be called before the lanes are closed, which records use. Home. */
void local_fd_socket_stop(struct local_endpoint *endpoint);
/* Frees the socket and what came by it. Home, after the chunks that engines were copying. */
void local_fd_socket_close(struct local_endpoint *endpoint);

/* key_export.c */
int local_export_key(struct pl_endpoint *endpoint, struct pl_grant *grant, struct pl_key *key,
		     uint8_t blob[PL_KEY_BLOB_MAX]);
void local_imported(struct pl_endpoint *endpoint, struct pl_remote *remote);
void *local_map(struct pl_endpoint *endpoint, struct pl_remote *remote, size_t *length);
/* Closes the mapping and the device memory of a revoked key. Home. */
void local_key_revoked(struct local_endpoint *endpoint, uint64_t key);

/* access_table.c: the caller holds state->lock */
/* Returns 0 or -ENOMEM. */
int local_access_table_add(struct local_access_table *table, const struct pl_allocator *allocator,
			   struct local_access *access);
/* Removes an access path that is in the table. */
void local_access_table_remove(struct local_access_table *table, struct local_access *access);
/* Returns the access path of a key; NULL: none. */
struct local_access *local_access_table_find(const struct local_access_table *table, uint64_t key);
/* Unlinks all access paths, and frees the lists: an endpoint may end before its remote regions. */
void local_access_table_clear(struct local_access_table *table, const struct pl_allocator *allocator);

/* copy.c */
extern const struct local_path local_mapped_path, local_process_path, local_socket_path, local_denied_path;
/* Holds the gate until local_gate_release(). Returns 0, or an error if the remote region must not be used. */
int local_access_hold_gate(const struct local_access *access, struct pl_error *error);
/* Fills the error of a copy that failed with that code. */
int local_copy_fail(struct pl_error *error, int code, bool write);
/* Copies a chunk. Returns 0, or a negative errno with the error. */
int local_copy_chunk(const struct local_access *access, const struct local_range *range, struct pl_error *error);
/* Copies ranges by an access path that has copy_ranges(). Returns as local_copy_chunk() does. */
int local_copy_ranges(const struct local_access *access, const struct local_range *ranges, unsigned count,
		      struct pl_error *error);
/* Does an atomic. Returns 0, or a negative errno with the error; -EAGAIN: the access path has no atomics. */
int local_atomic(struct pl_sync_op *sync_op, struct pl_error *error);

/* host_pin.c. The mapping outlives its pin. NULL: the mapping is too short to pin, or no memory. */
struct local_host_pin *local_host_pin_new(struct pl_context *context, void *address, size_t length, bool read_only);
void local_host_pin_free(struct local_host_pin *pin);
/* Unpins the memory, or leaves that to the last copy or kernel that uses it. */
void local_host_pin_release(struct local_host_pin *pin);
/*
 * Counts a copy or kernel of a GPU: memory that is pinned stays so until local_host_pin_put(), because the other end controls the gate.
 * Returns false if the release has begun: the driver may unpin the memory now.
 */
bool local_host_pin_hold(struct local_host_pin *pin);
void local_host_pin_put(struct local_host_pin *pin);
/* Pins the mapping now, for copies of the memory's device. Home. */
void local_lock_mapping(struct pl_remote *remote, const struct pl_memory *memory);
/* Counts a copy to or from `memory`, and pins the mapping if that is worthwhile. The gate is held. */
void local_host_pin_note_copy(struct local_host_pin *pin, const struct pl_memory *memory, size_t length);
/* The same for the host memory of a copy, at either end, which has begun. */
void local_note_copy(const struct local_access *access, struct pl_region *region, size_t length);
/* True if copies of the memory need not wait for the driver. */
bool local_host_pin_is_locked(const struct local_host_pin *pin);
/* True if pinning was worthwhile, but exceeded the limit of the context; or if the driver refused it. */
bool local_host_pin_limited(const struct local_host_pin *pin);
bool local_host_pin_refused(const struct local_host_pin *pin);

/* gpu_copy.c: GPU memory, at each end */
extern const struct local_path local_device_path;
/*
 * Creates the device of a remote region of that length. Takes over the descriptors. Returns NULL without memory.
 */
struct local_device *local_device_new(struct local_endpoint *endpoint, const struct local_key *key,
				      struct pl_ipc_fds *ipc_fds, uint64_t length);
void local_device_free(struct local_device *device);
/* Closes the peer's memory, or leaves that to its last user. Its gate is shut, so it gets no users that copy. */
void local_device_shut(struct local_device *device);
/*
 * Frees the device later: when others are parked, or when the endpoint, which may be gone, or the state is closed.
 * Frees it at once if descriptors came with it, because the next key brings them again, and memory of this process.
 */
void local_device_park(struct local_device *device);
/* Frees parked devices of an endpoint, or all. */
void local_device_unpark(struct local_state *state, const struct local_endpoint *endpoint);
/* True if a device takes part in a segment's copy; sets the reason of the route. */
static inline bool local_device_takes_part(const struct pl_segment *segment)
{
	const struct local_access *access = segment->remote->fabric_data;

	return segment->region && (access->path == &local_device_path || pl_memory_staged(&segment->region->memory));
}

/* True if the remote region can be reached from that memory. Sets *reason if not, or if a device copies. */
bool local_device_reaches(const struct local_access *access, struct pl_memory *memory, const char **reason);
/* Opened memory of a device that local_device_reaches() found reached from `beside`. All but its address needs a use. */
struct pl_memory *local_device_memory(struct local_device *device, const struct pl_memory *beside);
/*
 * True if a kernel reaches the opened memory and `beside`, and thus may copy: of the GPU of `beside`, or of the opened memory's if
 * `beside` is host memory. `written`: to `beside`. Closes no memory meanwhile.
 */
bool local_device_kernel_reaches(struct local_device *device, const struct pl_memory *beside, bool written);
/* Holds the gate, and the device of the access path or its pinned mapping. */
int local_copy_gate_hold(const struct local_access *access, const struct pl_operation *operation,
			 struct pl_error *error);
void local_copy_gate_release(const struct local_access *access);
/* Does an operation in chunks, some of which are under way together, from a position on. Home. */
void local_device_post(struct pl_operation *operation, struct local_position from);

/* True if a segment has another memory, at either end, than the one before it. */
static inline bool local_segment_changes_memory(const struct pl_operation *operation, unsigned number)
{
	return pl_segment_changes_region(operation->segments, number) ||
	       pl_segment_changes_remote(operation->segments, number);
}

/* owner_ask.c: asks the owner of device memory that this end cannot open to copy. Home. */
void local_asking_init(struct local_asking *asking);
/* True if the owner may be asked to do an operation that this end cannot do. */
bool local_owner_may_copy(const struct local_endpoint *endpoint, const struct pl_operation *operation);
void local_owner_ask(struct local_endpoint *endpoint, struct pl_operation *operation);
/* Ends cancelled operations: the owner copies none of their bytes any more. */
void local_owner_sweep(struct local_endpoint *endpoint);
/* Frees the requests. The lanes are closed, and no gate of this end is in use. */
void local_asking_close(struct local_endpoint *endpoint);
/* Handles the owner's answer. Returns 0 or -EPROTO. */
int local_owner_answered(struct local_endpoint *endpoint, const struct pl_frame *frame);

/* owner_serve.c: copies for a peer that cannot open device memory of this end. Home. */
void local_serving_init(struct local_endpoint *endpoint);
/* Handles a request. Returns 0 or a negative errno. */
int local_copy_requested(struct local_endpoint *endpoint, const struct pl_frame *frame, const uint8_t *payload);
/* Ends requests for revoked keys; all, if the peer is lost. */
void local_serving_sweep(struct local_endpoint *endpoint);
/* Forgets a region of the peer. */
void local_borrowed_revoked(struct local_endpoint *endpoint, uint64_t key);
/* Drops all requests: waits for copies under way. */
void local_serving_close(struct local_endpoint *endpoint);

/* post.c */
void local_post(struct pl_endpoint *endpoint, struct pl_operation *operation);
bool local_sync_try(struct pl_endpoint *endpoint, struct pl_sync_op *sync_op);
/* Posts operations that waited for late frames, unless there are new ones. Home. */
void local_late_frames_placed(struct pl_peer *peer);
void local_work_sweep(struct local_endpoint *endpoint);
bool local_worker_ready(struct pl_source *source, uint32_t events);

#endif
