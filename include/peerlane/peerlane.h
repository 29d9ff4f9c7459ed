/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peerlane: moves data directly between the memory of this process and of another process, local or remote.
 *
 * Conventions of the whole interface:
 *  - Handles are opaque.  Every destructor accepts NULL.
 *  - Option structures begin with their size; initialise them with their *_INIT macro.  The size lets
 *    programs that were compiled with an older header work with a newer library.  NULL means defaults.
 *  - Lengths and offsets are bytes, times are nanoseconds.
 *  - 0 or a count means success, a negative errno means failure; `struct pl_error` has the detail.
 *  - Any thread may call a function at any time, unless its comment says otherwise.  No thread may use a
 *    handle while, or after, another thread destroys it.
 *  - The library never prints, never changes signal handlers and never calls exit().
 */
#ifndef PEERLANE_PEERLANE_H
#define PEERLANE_PEERLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_VERSION_MAJOR 0
#define PL_VERSION_MINOR 1
#define PL_VERSION_PATCH 0

/** Returns the version of the library in use at run time, for example "0.1.0".  Static storage. */
const char *pl_version(void);

/** Properties of a GPU. */
struct pl_gpu_info {
	size_t size;         /**< set by the caller: sizeof(struct pl_gpu_info) */
	char name[64];       /**< "NVIDIA H200" */
	char pci[16];        /**< "0000:3B:00.0" */
	int driver;          /**< CUDA version of the driver: 13000 is 13.0 */
	int writes_ordering; /**< order of a card's writes without a flush: 0 none, 100 for this GPU, 200 for all */
	bool rdma;           /**< true if the driver lets cards access the memory of the GPU */
	bool dmabuf;         /**< true if the driver exports the memory as a dma-buf */
};
/* clang-format off */
#define PL_GPU_INFO_INIT { sizeof(struct pl_gpu_info), "", "", 0, 0, false, false }
/* clang-format on */

/**
 * Describes a GPU of this host; loads the driver's library if the process has not loaded it.
 *
 * @param number  number of the GPU in CUDA, from 0
 * @return 0; -ENODEV if there is no such GPU, or no driver; -EINVAL if info->size is unknown
 */
int pl_gpu_query(unsigned number, struct pl_gpu_info *info, struct pl_error *error);

struct pl_context;   /**< root object; each other object belongs to one context */
struct pl_region;    /**< a registered buffer of this process (a memory region) */
struct pl_listener;  /**< an address on which peers are accepted */
struct pl_peer;      /**< the other end of a connection */
struct pl_remote;    /**< a peer's region that this process imported (a remote region) */
struct pl_operation; /**< one transfer, connection attempt or import under way */

/* ------------------------------------------------------------------------------------------------
 * Context
 */

/** Threads that make progress. */
enum pl_progress {
	PL_PROGRESS_THREAD = 0, /**< threads of the library (default) */
	PL_PROGRESS_MANUAL = 1, /**< threads of the program inside pl_poll(), pl_wait(), pl_test(); lowest latency */
};

/** Memory functions used in place of malloc(3), realloc(3) and free(3). */
struct pl_allocator {
	void *(*allocate)(size_t size, void *user);
	void *(*reallocate)(void *pointer, size_t size, void *user);
	void (*release)(void *pointer, void *user);
	void *user;
};

/** Options of a context.  Zero in any field asks for the default. */
struct pl_options {
	size_t size;                          /**< sizeof(struct pl_options) */
	enum pl_progress progress;            /**< default PL_PROGRESS_THREAD */
	unsigned workers;                     /**< progress threads, 1 to 64; default: half the cores, 1 to 8 */
	unsigned streams;                     /**< tcp: data sockets of a peer, 1 to 16; default: cores / 2, max 8 */
	const char *fabric;                   /**< "auto" (default), "local", "verbs" or "tcp" */
	const void *key;                      /**< pre-shared key, copied; NULL: no authentication */
	size_t key_length;                    /**< bytes of key, 16 to 1024 */
	bool encrypt_data;                    /**< true to encrypt the data sockets too; needs a key */
	bool insecure;                        /**< true to allow addresses other than loopback without a key */
	uint64_t operation_timeout;           /**< time-out of operations that name none; default 30 s */
	uint64_t connect_timeout;             /**< time-out of connection attempts; default 10 s */
	uint64_t keepalive;                   /**< a silent host is declared dead after this time; default 15 s */
	const struct pl_allocator *allocator; /**< copied; default malloc(3) */
	unsigned rails;       /**< verbs: queue pairs of a peer, 1 to 8; default: one for each card, at most 2 */
	const char *devices;  /**< verbs: devices to use, such as "mlx5_0,mlx5_1:1"; NULL: all that reach the peer */
	size_t staging_bytes; /**< most host memory to lock for staging; default 128 MiB */
	bool narrow_grants;   /**< verbs: true to limit a grant to its peer's queue pairs (memory windows) */
	size_t keep_bytes;    /**< verbs: bytes of unused registrations to keep for each card; default 0 */
	bool keep_host;       /**< true to keep host memory too: the program promises to call pl_memory_freed() */
	const char *routes;   /**< verbs: file of `peerlane routes --save`; NULL: default file; "": none */
	/** Traffic class: 8 bits, DSCP and ECN, as NCCL_IB_TC.  verbs: the initiator's applies.  0: the system's. */
	unsigned traffic_class;
};
/* clang-format off */
#define PL_OPTIONS_INIT { sizeof(struct pl_options), PL_PROGRESS_THREAD, 0, 0, NULL, NULL, 0, false, false, 0, 0, 0, NULL, 0, NULL, 0, false, 0, false, NULL, 0 }
/* clang-format on */

/**
 * Opens a context.
 *
 * @param context  receives the handle; destroy it with pl_close()
 * @param options  NULL for defaults; the context keeps no reference to it
 * @return 0; -EINVAL for an option out of range; -ENOTSUP for an unknown fabric; -ENOMEM;
 *         -EMFILE and other errors of epoll_create1(2), pthread_create(3)
 */
int pl_open(struct pl_context **context, const struct pl_options *options, struct pl_error *error);

/**
 * Closes a context and everything opened in it: peers, listeners, regions, remote regions,
 * operations.  All their handles become invalid.  Running operations are cancelled.  On return no buffer is
 * in use, and every thread, socket and mapping of the context is gone.  No other thread may be inside the
 * library with this context.
 */
void pl_close(struct pl_context *context);

/* ------------------------------------------------------------------------------------------------
 * Regions: the memory of this process that transfers use
 */

/** Rights of a peer on a region or a grant.  Local use is always allowed. */
enum pl_access {
	PL_ACCESS_LOCAL = 0,
	PL_ACCESS_READ = 1u << 0,   /**< a peer may call pl_read() */
	PL_ACCESS_WRITE = 1u << 1,  /**< a peer may call pl_write() */
	PL_ACCESS_ATOMIC = 1u << 2, /**< a peer may call pl_fetch_add() and pl_compare_swap() */
	PL_ACCESS_ALL = 7u,
};

/**
 * Registers a buffer of host or GPU memory; detects the kind of memory.  See docs/gpu.md for GPUs.
 *
 * @param pointer  first byte; the buffer belongs to the caller and must outlive the region
 * @param length   bytes, at least 1
 * @param access   rights that grants of this region may have: `enum pl_access` flags
 * @return 0; -EINVAL for a NULL pointer, a zero length, a range that wraps, unknown flags;
 *         -EFAULT if the range is not mapped; -ENOTSUP for managed memory of a GPU; -ENOMEM
 */
int pl_region_register(struct pl_context *context, void *pointer, size_t length, unsigned access,
		       struct pl_region **region, struct pl_error *error);

/**
 * Registers a dma-buf or a range of it: memory of a GPU, of another device, or of the host.  RDMA devices access the
 * memory through the dma-buf.  For all other accesses the library uses the address, if it is given and of a known
 * kind of memory.  Without such an address, the library maps the dma-buf, if its exporter allows that.
 *
 * @param fd       the dma-buf; the library duplicates the descriptor, which keeps the memory until the region ends
 * @param offset   offset of the first byte in the dma-buf
 * @param length   bytes, at least 1
 * @param address  the program's address of that byte: a GPU address or a mapping; NULL: none
 * @param access   as for pl_region_register()
 * @return 0; -EBADF, -EINVAL if fd is no dma-buf; -ERANGE for a range outside; -ENOTSUP if it cannot be mapped and
 *         there is no RDMA device; -EINVAL for a zero length, a range that wraps, unknown flags; -ENOMEM
 */
int pl_region_register_dmabuf(struct pl_context *context, int fd, uint64_t offset, size_t length, void *address,
			      unsigned access, struct pl_region **region, struct pl_error *error);

/**
 * Allocates zeroed, page-aligned host memory and registers it.  The region owns the memory and frees
 * it.  A process of this host with a grant of the whole region maps the memory, which is the fastest
 * access path.
 *
 * @return 0; -EINVAL; -ENOMEM
 */
int pl_region_allocate(struct pl_context *context, size_t length, unsigned access, struct pl_region **region,
		       struct pl_error *error);

/**
 * Allocates zeroed memory of a named kind and registers it: "host", "cuda", or "cuda:1" for a GPU by its number.
 * The processor cannot access GPU memory: use pl_region_copy_in() and pl_region_copy_out(), or CUDA.
 *
 * @return 0; -EINVAL, also for an unknown kind; -ENODEV if there is no such GPU, or no driver; -ENOMEM
 */
int pl_region_allocate_in(struct pl_context *context, const char *kind, size_t length, unsigned access,
			  struct pl_region **region, struct pl_error *error);

/**
 * Copies between host memory and a region of any kind of memory, and waits for the end of the copy.
 *
 * @return 0; -ERANGE outside the region; -EFAULT if the region's memory is not mapped any more
 */
int pl_region_copy_in(struct pl_region *region, size_t offset, const void *from, size_t length, struct pl_error *error);
int pl_region_copy_out(struct pl_region *region, size_t offset, void *to, size_t length, struct pl_error *error);

/** Returns the program's address of a region; for a dma-buf without one, the library's mapping, or NULL. */
void *pl_region_address(const struct pl_region *region);

/** Returns the length of a region in bytes. */
size_t pl_region_length(const struct pl_region *region);

/** Returns the kind of memory of a region: "host", "cuda" or "dma-buf".  Static storage. */
const char *pl_region_memory(const struct pl_region *region);

/**
 * Ends a region: revokes all its grants and releases the registration.  After a return of 0, no peer and
 * no transfer accesses the memory.  Accepts NULL.
 *
 * @return 0; -EBUSY while an operation of this process uses the region: wait for it or cancel it
 */
int pl_region_deregister(struct pl_region *region);

/** Registrations for this end's own use, over all RDMA cards of a context. */
struct pl_registrations_info {
	size_t size;            /**< set by the caller: sizeof(struct pl_registrations_info) */
	uint64_t found;         /**< number of times that a registration was found */
	uint64_t made;          /**< number of times that a registration was made */
	uint64_t evicted;       /**< kept registrations that were removed to stay within keep_bytes */
	uint64_t outdated;      /**< registrations that were not reused because their memory was freed */
	uint64_t registrations; /**< current registrations */
	uint64_t bytes;         /**< bytes of memory that these lock */
	uint64_t bytes_kept;    /**< of these, bytes that no region needs */
};
/* clang-format off */
#define PL_REGISTRATIONS_INFO_INIT { sizeof(struct pl_registrations_info), 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Fills info with counts of registrations.  Regions of the same memory share a registration.  With
 * pl_options.keep_bytes, a registration outlives its regions and can be found again.
 *
 * @return 0; -EINVAL if info->size is unknown
 */
int pl_registrations_query(struct pl_context *context, struct pl_registrations_info *info, struct pl_error *error);

/** Host memory for staging: bytes of GPU memory that the fabric cannot access go through it. */
struct pl_staging_info {
	size_t size;         /**< set by the caller: sizeof(struct pl_staging_info) */
	uint64_t limit;      /**< most bytes that the context locks: pl_options.staging_bytes */
	uint64_t locked;     /**< bytes that the context has locked, with peers' memory that GPUs copy repeatedly */
	uint64_t in_use;     /**< bytes of the context's own memory that transfers use now */
	uint64_t in_use_max; /**< highest value of in_use */
};
/* clang-format off */
#define PL_STAGING_INFO_INIT { sizeof(struct pl_staging_info), 0, 0, 0, 0 }
/* clang-format on */

/**
 * Fills info with the staging memory of a context.
 *
 * @return 0; -EINVAL if info->size is unknown
 */
int pl_staging_query(struct pl_context *context, struct pl_staging_info *info, struct pl_error *error);

/**
 * Removes kept registrations of memory that the program is about to free or map again.  Needed with
 * pl_options.keep_host for host memory that was a region.  Regions of the range must have ended.
 */
void pl_memory_freed(struct pl_context *context, const void *pointer, size_t length);

/** Size of the largest token, in bytes. */
#define PL_TOKEN_MAX 96

/** Options of a grant.  A `length` of 0 means up to the end of the region. */
struct pl_grant_options {
	size_t size;
	size_t offset;     /**< first shared byte of the region */
	size_t length;     /**< number of shared bytes */
	unsigned rights;   /**< PL_ACCESS_READ, _WRITE, _ATOMIC; 0: all rights of the region */
	uint64_t lifetime; /**< the grant expires after this time, see pl_region_share(3); 0: never */
};
/* clang-format off */
#define PL_GRANT_OPTIONS_INIT { sizeof(struct pl_grant_options), 0, 0, 0, 0 }
/* clang-format on */

/**
 * Creates a token for a region or a range of it.  A token is a secret: any peer of this context that
 * presents it gets the rights of the grant.  The program transports the token to the peer.
 *
 * @param token   receives the token
 * @param length  in: size of the token buffer (PL_TOKEN_MAX always suffices); out: bytes written
 * @return 0; -ERANGE for a range outside the region; -EACCES for rights that the region lacks;
 *         -ENOBUFS if the token does not fit; -ENOMEM
 */
int pl_region_share(struct pl_region *region, const struct pl_grant_options *options, void *token, size_t *length,
		    struct pl_error *error);

/**
 * Revokes a token that pl_region_share() created for this region.  After a return of 0, no peer reads or
 * writes through the token; this includes transfers that had begun.
 *
 * @return 0; -EINVAL if it is no token; -ENOENT if it belongs to another region or was revoked before
 */
int pl_region_revoke(struct pl_region *region, const void *token, size_t length);

/** Contents of a token. */
struct pl_token_info {
	uint64_t region_length; /**< bytes that the token covers */
	unsigned rights;        /**< `enum pl_access` flags */
	uint64_t expires;       /**< CLOCK_REALTIME nanoseconds; 0: never */
};

/**
 * Decodes a token, without contact to its owner.
 *
 * @return 0; -EINVAL if it is no token or damaged
 */
int pl_token_inspect(const void *token, size_t length, struct pl_token_info *info, struct pl_error *error);

/* ------------------------------------------------------------------------------------------------
 * Peers
 */

/**
 * Listens for peers.
 *
 * @param address  "host:port", "[v6]:port", ":port" for all addresses; port 0 picks a free one
 * @return 0; -EINVAL for an address that cannot be parsed or found; -EPERM for an address that is
 *         not loopback where the context has neither a key nor `insecure`; -EADDRINUSE, -EACCES and
 *         other errors of bind(2)
 */
int pl_listen(struct pl_context *context, const char *address, struct pl_listener **listener, struct pl_error *error);

/** Writes the bound address ("127.0.0.1:45123") to buffer; returns its length as snprintf(3) does. */
int pl_listener_address(const struct pl_listener *listener, char *buffer, size_t size);

/** Stops listening.  Waiting accepts end with -ECANCELED; accepted peers stay. */
void pl_listener_close(struct pl_listener *listener);

/**
 * Waits for the next authenticated peer.
 *
 * @param timeout  nanoseconds; 0 does not wait
 * @return 0; -ETIMEDOUT; -ECANCELED if the listener was closed; -ENOMEM
 */
int pl_accept(struct pl_listener *listener, uint64_t timeout, struct pl_peer **peer, struct pl_error *error);

/**
 * Accepts without blocking.  The operation completes when a peer has connected; `peer` of the receipt is
 * that peer.  Each operation accepts one peer.  The default time-out does not apply: the operation ends
 * by success, pl_cancel() or pl_listener_close().
 *
 * @param user_data  handed back in the completion
 * @param operation  as for pl_write()
 * @return 0; -ENOMEM
 */
int pl_accept_start(struct pl_listener *listener, uint64_t user_data, struct pl_operation **operation,
		    struct pl_error *error);

/**
 * Connects to a listening context and authenticates both ends with the context's key.
 *
 * @param timeout  nanoseconds; 0 means the context's connect_timeout
 * @return 0; -EINVAL, -EHOSTUNREACH, -ECONNREFUSED, -ETIMEDOUT; -EPERM for a non-loopback address
 *         without a key or `insecure`; -EACCES if the keys differ or only one end has one;
 *         -EPROTO if the other end is no Peerlane or speaks no common version; -ENOMEM
 */
int pl_connect(struct pl_context *context, const char *address, uint64_t timeout, struct pl_peer **peer,
	       struct pl_error *error);

/**
 * Connects without blocking.  `peer` of the receipt is the new peer.  The function resolves a host name
 * before it returns, which can block; a numeric address never blocks.
 */
int pl_connect_start(struct pl_context *context, const char *address, uint64_t timeout, uint64_t user_data,
		     struct pl_operation **operation, struct pl_error *error);

/** Properties of a peer. */
struct pl_peer_info {
	size_t size;            /**< set by the caller: sizeof(struct pl_peer_info) */
	char address[80];       /**< address of the other end, "host:port" */
	char local_address[80]; /**< address of this end */
	char fabric[16];        /**< "local", "verbs" or "tcp" */
	char software[32];      /**< library of the other end, "peerlane 0.1.0" */
	unsigned streams;       /**< data sockets, or queue pairs, open now */
	bool authenticated;     /**< true if both ends proved the same key */
	bool encrypted;         /**< true if the data sockets are encrypted */
	bool same_host;         /**< true if the other end runs on this host */
	bool connected;         /**< false once the connection is lost */
};
/* clang-format off */
#define PL_PEER_INFO_INIT { sizeof(struct pl_peer_info), "", "", "", "", 0, false, false, false, false }
/* clang-format on */

/** Fills info.  @return 0; -EINVAL if info->size is unknown */
int pl_peer_query(struct pl_peer *peer, struct pl_peer_info *info);

/** Stores and returns a value of the caller for the peer; initially 0. */
void pl_peer_set_user_data(struct pl_peer *peer, uint64_t user_data);
uint64_t pl_peer_user_data(const struct pl_peer *peer);

/**
 * Ends a connection.  Running operations of the peer end with -ECANCELED; their completions can still be
 * collected, with a NULL `peer`.  Remote regions of the peer become unusable, but must still be
 * released.  On return no buffer is in use for the peer.
 */
void pl_peer_close(struct pl_peer *peer);

/**
 * Imports a region of the peer: presents the token over the control channel, and receives the remote
 * key of the memory.
 *
 * @param timeout  nanoseconds; 0 means the context's operation_timeout
 * @return 0; -EINVAL if it is no token or damaged; -EACCES if the peer does not know the token, or it was
 *         revoked or has expired; -EBUSY if the peer has no room for more imports; -ECONNRESET if
 *         the connection is lost; -ETIMEDOUT; -ENOMEM
 */
int pl_remote_import(struct pl_peer *peer, const void *token, size_t length, uint64_t timeout,
		     struct pl_remote **remote, struct pl_error *error);

/** Imports without blocking; `remote` of the receipt is the new handle. */
int pl_remote_import_start(struct pl_peer *peer, const void *token, size_t length, uint64_t user_data,
			   struct pl_operation **operation, struct pl_error *error);

/** Returns the length of a remote region in bytes. */
size_t pl_remote_length(const struct pl_remote *remote);

/** Returns the rights of a remote region: `enum pl_access` flags. */
unsigned pl_remote_rights(const struct pl_remote *remote);

/** Releases a remote region.  Running operations that use it continue. */
void pl_remote_release(struct pl_remote *remote);

/* ------------------------------------------------------------------------------------------------
 * Operations
 */

/**
 * Guarantees of a completed operation for the bytes at their destination, from weak to strong: ON_WIRE,
 * ACKNOWLEDGED, PLACED, GPU_VISIBLE.  pl_write(3) describes the cost and the basis of each.
 */
enum pl_visible {
	PL_VISIBLE_ACKNOWLEDGED = 0, /**< the other end has the bytes; later messages find them (default) */
	PL_VISIBLE_ON_WIRE = 1,      /**< the source buffer can be reused; no other guarantee */
	PL_VISIBLE_GPU_VISIBLE = 2,  /**< GPU kernels that start now see the bytes; flushed if the device needs it */
	PL_VISIBLE_PLACED = 3,       /**< the bytes are in the destination's memory, for any reader */
};

/** Flags of an operation. */
enum pl_flag {
	PL_REQUIRE_DIRECT = 1u << 0, /**< fail with -ENOTSUP instead of staging */
	PL_FENCE = 1u << 1,          /**< start after all earlier operations with this peer have completed */
	PL_NOTIFY = 1u << 2,         /**< pl_write(): after the bytes are placed, notify the peer with `notify` */
	PL_MORE = 1u << 3,           /**< another operation with this peer follows at once: start both together */
};

/** Attributes of an operation.  NULL means defaults. */
struct pl_attributes {
	size_t size;
	enum pl_visible visible; /**< default PL_VISIBLE_ACKNOWLEDGED */
	unsigned flags;          /**< `enum pl_flag` */
	uint64_t timeout;        /**< nanoseconds; 0: the context's; UINT64_MAX: none */
	uint64_t user_data;      /**< returned in the receipt */
	uint64_t notify;         /**< value for PL_NOTIFY */
};
/* clang-format off */
#define PL_ATTRIBUTES_INIT { sizeof(struct pl_attributes), PL_VISIBLE_ACKNOWLEDGED, 0, 0, 0, 0 }
/* clang-format on */

/** Kinds of operations. */
enum pl_kind {
	PL_KIND_WRITE = 1,
	PL_KIND_READ,
	PL_KIND_SEND,
	PL_KIND_RECEIVE,
	PL_KIND_FETCH_ADD,
	PL_KIND_COMPARE_SWAP,
	PL_KIND_NOTIFY,
	PL_KIND_NOTIFIED, /**< a notification of the peer arrived; delivered by pl_poll() only */
	PL_KIND_CONNECT,
	PL_KIND_ACCEPT,
	PL_KIND_IMPORT,
};

/** Route of the bytes of an operation. */
enum pl_route {
	PL_ROUTE_NONE = 0, /**< no bytes moved */
	PL_ROUTE_DIRECT,   /**< the fabric accessed the memory itself */
	PL_ROUTE_STAGED,   /**< through pinned host memory */
};

/** Receipt of a finished operation. */
struct pl_receipt {
	enum pl_kind kind;
	int status;               /**< 0 or a negative errno */
	enum pl_route route;      /**< route of the bytes */
	const char *fabric;       /**< "local", "verbs" or "tcp"; static storage */
	const char *reason;       /**< reason for the route; static storage */
	unsigned rail;            /**< lowest number of the lanes or rails that carried bytes */
	unsigned streams;         /**< number of lanes or rails that carried bytes */
	uint64_t bytes;           /**< payload bytes moved; 8 for an atomic operation */
	uint64_t bytes_direct;    /**< bytes that moved without staging */
	uint64_t bytes_staged;    /**< bytes that were staged at either end, as far as this end knows */
	uint64_t tag;             /**< receive: tag of the message */
	uint64_t value;           /**< atomics: old value; NOTIFIED: the peer's value */
	uint64_t user_data;       /**< user_data of the attributes */
	struct pl_peer *peer;     /**< the peer; NULL if it was closed before */
	struct pl_remote *remote; /**< import: the new handle */
	uint64_t posted;          /**< time of posting, CLOCK_MONOTONIC nanoseconds */
	uint64_t completed;       /**< time of completion */
	enum pl_visible visible;  /**< reached visibility: at least the requested one if status is 0 */
	const char *visibility;   /**< basis of the visibility; static storage; NULL if no bytes moved */
};

/**
 * Writes to a remote region.  The peer's program takes no part (one-sided).
 *
 * @param remote         the destination, imported from this peer
 * @param remote_offset  first byte in it
 * @param region         the source
 * @param offset         first byte in it
 * @param length         bytes; 0 is allowed and completes when the peer has answered
 * @param attributes     NULL for defaults
 * @param operation      receives a handle for pl_wait() or pl_test(), one of which must collect the
 *                       result; NULL: pl_poll() delivers the completion
 * @return 0: posted; completes exactly once, in bounded time.  Otherwise not posted: -EINVAL,
 *         -ERANGE (outside the region or remote region), -EACCES (the grant lacks the right),
 *         -ENOTCONN (the connection is lost), -ENOTSUP, -ENOMEM
 *
 * The program must not change the source before the operation has completed.  Operations have no order
 * among each other (see PL_FENCE), except messages and notifications.  Completion statuses: -EACCES
 * (grant revoked, expired or exceeded at the peer), -ECONNRESET (peer lost), -EFAULT (memory at either
 * end is not mapped any more), -ETIMEDOUT, -ECANCELED.  After a failure, an unknown part of the destination
 * is written, or will be.  Bytes of a failed operation never overwrite bytes of an operation that was posted
 * after its completion.
 */
int pl_write(struct pl_peer *peer, struct pl_remote *remote, uint64_t remote_offset, struct pl_region *region,
	     uint64_t offset, uint64_t length, const struct pl_attributes *attributes, struct pl_operation **operation,
	     struct pl_error *error);

/** Reads from a remote region into a local region; see pl_write(). */
int pl_read(struct pl_peer *peer, struct pl_remote *remote, uint64_t remote_offset, struct pl_region *region,
	    uint64_t offset, uint64_t length, const struct pl_attributes *attributes, struct pl_operation **operation,
	    struct pl_error *error);

/** Element of a vectored operation. */
struct pl_transfer {
	struct pl_remote *remote;
	uint64_t remote_offset;
	struct pl_region *region;
	uint64_t offset;
	uint64_t length;
};

/** Largest number of elements of a vectored operation. */
#define PL_TRANSFERS_MAX 4096

/** Writes several ranges as one operation: one completion, one receipt.  The array is copied. */
int pl_writev(struct pl_peer *peer, const struct pl_transfer *transfers, size_t count,
	      const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/** Reads several ranges as one operation.  The array is copied. */
int pl_readv(struct pl_peer *peer, const struct pl_transfer *transfers, size_t count,
	     const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/**
 * Sends a message of any size.  The peer's first posted receive that accepts the tag gets the message.
 * Messages with equal tags arrive in the order of sending.  A large message stays at this end until the
 * receive is posted, and then goes directly into the posted buffer.
 *
 * By default the send completes when the buffer can be reused and, for a large message, the peer has the
 * bytes.  The program must not change the buffer before that.
 */
int pl_send(struct pl_peer *peer, uint64_t tag, struct pl_region *region, uint64_t offset, uint64_t length,
	    const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/** Size of the largest message that pl_send_copy() accepts, in bytes. */
#define PL_SEND_COPY_MAX 8192

/**
 * Sends a small message from any host memory, which the program can reuse after the return.
 *
 * @return as pl_write(); -EMSGSIZE if length is over PL_SEND_COPY_MAX
 */
int pl_send_copy(struct pl_peer *peer, uint64_t tag, const void *data, size_t length,
		 const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/**
 * Posts a buffer for a message whose tag satisfies (message_tag & mask) == (tag & mask).
 *
 * `bytes` of the receipt is the length of the message, `tag` its tag.  A message longer than the buffer is
 * dropped and completes the receive with -EMSGSIZE; `bytes` is its length.
 */
int pl_receive(struct pl_peer *peer, uint64_t tag, uint64_t mask, struct pl_region *region, uint64_t offset,
	       uint64_t length, const struct pl_attributes *attributes, struct pl_operation **operation,
	       struct pl_error *error);

/**
 * Sends a number to the peer.  The peer's pl_poll() returns it as PL_KIND_NOTIFIED, in order with messages
 * and other notifications.
 */
int pl_notify(struct pl_peer *peer, uint64_t value, const struct pl_attributes *attributes,
	      struct pl_operation **operation, struct pl_error *error);

/**
 * Adds to a 64-bit word of a remote region.  The addition is atomic with respect to all atomic operations
 * of this library on the target's context (over verbs: through the same device).  The word's address in the
 * target must be a multiple of 8.  The receipt has the old value; if `old` is not NULL, it receives the value too
 * and must be valid until completion.  The word has the target's byte order.
 */
int pl_fetch_add(struct pl_peer *peer, struct pl_remote *remote, uint64_t remote_offset, uint64_t add, uint64_t *old,
		 const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/** Replaces a 64-bit word by `swap` if it equals `compare`; the old value shows if it did. */
int pl_compare_swap(struct pl_peer *peer, struct pl_remote *remote, uint64_t remote_offset, uint64_t compare,
		    uint64_t swap, uint64_t *old, const struct pl_attributes *attributes,
		    struct pl_operation **operation, struct pl_error *error);

/* ------------------------------------------------------------------------------------------------
 * Completion
 */

/**
 * Waits until an operation completes, and frees its handle.
 *
 * @param timeout  nanoseconds from now.  At its end the call cancels the operation, and then waits, in
 *                 bounded time, until the operation has released the local buffer.
 *                 UINT64_MAX: only the time-out of the operation applies.
 * @param receipt  filled if not NULL, on success and on failure
 * @return the operation's status: 0 or a negative errno; -ETIMEDOUT
 */
int pl_wait(struct pl_operation *operation, uint64_t timeout, struct pl_receipt *receipt, struct pl_error *error);

/**
 * Tests if an operation has completed, and frees its handle in that case.
 *
 * @return -EINPROGRESS if the operation has not completed; otherwise as pl_wait()
 */
int pl_test(struct pl_operation *operation, struct pl_receipt *receipt, struct pl_error *error);

/**
 * Requests the end of an operation.  The operation completes with -ECANCELED, or with an earlier status.
 * pl_wait() or pl_test() must still collect the result.
 */
void pl_cancel(struct pl_operation *operation);

/** Completion that pl_poll() delivers. */
struct pl_completion {
	struct pl_receipt receipt;
	struct pl_error error; /**< filled if receipt.status is negative */
};

/**
 * Collects notifications, and completions of operations that were posted with a NULL handle.  With
 * PL_PROGRESS_MANUAL it also makes progress.  Never blocks.
 *
 * @param completions  array; may be NULL if n is 0 (progress only)
 * @param n            elements of the array
 * @return number of filled elements, 0 to n
 */
int pl_poll(struct pl_context *context, struct pl_completion *completions, int n);

/**
 * Returns a file descriptor that becomes readable when pl_poll() has work or completions.  The context owns
 * the descriptor: add it to epoll(7) or poll(2); do not read, write or close it.  Before waiting on it, call
 * pl_poll() until it returns fewer than n completions.
 *
 * @return the descriptor, or a negative errno
 */
int pl_fd(struct pl_context *context);

#ifdef __cplusplus
}
#endif

#endif
