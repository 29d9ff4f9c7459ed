/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peerlane: data moved straight between this process's memory and a remote host's.
 *
 * Conventions of the whole interface:
 *  - Handles are opaque.  Every destructor accepts NULL.
 *  - Option structures begin with their size; initialise them with their *_INIT macro, which keeps
 *    programs compiled against an older header working with a newer library.  NULL means defaults.
 *  - Lengths and offsets are bytes, times are nanoseconds.
 *  - 0 or a count means success, a negative errno means failure; `struct pl_error` has the detail.
 *  - Unless a comment says otherwise a function may be called from any thread at any time, except
 *    that a handle must not be used while, or after, another thread destroys it.
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

/** The version of the library in use at run time, for example "0.1.0".  Static storage. */
const char *pl_version(void);

/** What is known of a GPU. */
struct pl_gpu_info {
	size_t size;         /**< set by the caller: sizeof(struct pl_gpu_info) */
	char name[64];       /**< "NVIDIA H200" */
	char pci[16];        /**< "0000:3B:00.0" */
	int driver;          /**< the CUDA version of the driver: 13000 is 13.0 */
	int writes_ordering; /**< what a card wrote is in order for: 0 nobody, 100 this GPU, 200 all GPUs */
	bool rdma;           /**< cards may reach its memory, says the driver */
	bool dmabuf;         /**< and by dma-buf */
};
/* clang-format off */
#define PL_GPU_INFO_INIT { sizeof(struct pl_gpu_info), "", "", 0, 0, false, false }
/* clang-format on */

/**
 * Looks at a GPU of this host; loads the driver's library if the process has not.
 *
 * @param number  as CUDA counts them, from 0
 * @return 0; -ENODEV if there is no such GPU, or no driver; -EINVAL if info->size is unknown
 */
int pl_gpu_query(unsigned number, struct pl_gpu_info *info, struct pl_error *error);

struct pl_context;   /**< everything below lives in one; independent of any other context */
struct pl_region;    /**< a registered buffer of this process (a memory region) */
struct pl_listener;  /**< an address on which peers are accepted */
struct pl_peer;      /**< the other end of a connection */
struct pl_remote;    /**< a region that a peer shared with us (a remote region) */
struct pl_operation; /**< one transfer, connection attempt or import under way */

/* ------------------------------------------------------------------------------------------------
 * Context
 */

/** Who moves data while the program does other things. */
enum pl_progress {
	PL_PROGRESS_THREAD = 0, /**< the library's own threads (default) */
	PL_PROGRESS_MANUAL = 1, /**< nobody: only pl_poll(), pl_wait() and pl_test() do; lowest latency */
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
	unsigned streams;                     /**< tcp: sockets a peer for bulk data, 1 to 16; default: by cores */
	const char *fabric;                   /**< "auto" (default), "local", "verbs" or "tcp" */
	const void *key;                      /**< pre-shared key, copied; NULL: no authentication */
	size_t key_length;                    /**< bytes of key, 16 to 1024 */
	bool encrypt_data;                    /**< encrypt the data sockets too; needs a key */
	bool insecure;                        /**< allow addresses other than loopback without a key */
	uint64_t operation_timeout;           /**< of operations that name none; default 30 s */
	uint64_t connect_timeout;             /**< of connection attempts; default 10 s */
	uint64_t keepalive;                   /**< a silent host is declared dead after this; default 15 s */
	const struct pl_allocator *allocator; /**< copied; default malloc(3) */
	unsigned rails;       /**< verbs: queue pairs a peer, 1 to 8; default: one for each of two cards */
	const char *devices;  /**< verbs: use these only, such as "mlx5_0,mlx5_1:1"; NULL: those that fit */
	size_t staging_bytes; /**< the most host memory to lock for GPUs' bytes; default 128 MiB */
	bool narrow_grants;   /**< verbs: a grant is reached through its peer's connections only (memory windows) */
	size_t keep_bytes;    /**< verbs: registrations that no region needs any more, kept for each card; default 0 */
	bool keep_host;       /**< of host memory, too: the program promises to call pl_memory_freed() */
	const char *routes;   /**< verbs: a file of `peerlane routes --save`; NULL: that of the machine; "": none */
	/** Eight bits, DSCP and ECN, as NCCL_IB_TC; over verbs the connecting end's count; default 0: the system's. */
	unsigned traffic_class;
};
/* clang-format off */
#define PL_OPTIONS_INIT { sizeof(struct pl_options), PL_PROGRESS_THREAD, 0, 0, NULL, NULL, 0, false, false, 0, 0, 0, NULL, 0, NULL, 0, false, 0, false, NULL, 0 }
/* clang-format on */

/**
 * Opens a context.
 *
 * @param context  receives the handle; destroy it with pl_close()
 * @param options  NULL for defaults; nothing in it is kept by reference
 * @return 0; -EINVAL for an option out of range; -ENOTSUP for an unknown fabric; -ENOMEM;
 *         -EMFILE and other errors of epoll_create1(2), pthread_create(3)
 */
int pl_open(struct pl_context **context, const struct pl_options *options, struct pl_error *error);

/**
 * Closes a context and everything opened in it: peers, listeners, regions, remote regions,
 * operations.  All their handles are invalid afterwards.  Operations still running are cancelled;
 * when this returns no buffer is in use and every thread, socket and mapping is gone.
 * No other thread may be inside the library with this context.
 */
void pl_close(struct pl_context *context);

/* ------------------------------------------------------------------------------------------------
 * Regions: the memory of this process that transfers use
 */

/** What a region, or a grant of one, allows a peer to do.  Local use is always allowed. */
enum pl_access {
	PL_ACCESS_LOCAL = 0,
	PL_ACCESS_READ = 1u << 0,   /**< pl_read() by a peer */
	PL_ACCESS_WRITE = 1u << 1,  /**< pl_write() by a peer */
	PL_ACCESS_ATOMIC = 1u << 2, /**< pl_fetch_add(), pl_compare_swap() by a peer */
	PL_ACCESS_ALL = 7u,
};

/**
 * Registers a buffer.  What kind of memory it is (host, GPU) is found out.  See docs/gpu.md for GPUs.
 *
 * @param pointer  first byte; the buffer stays the caller's and must outlive the region
 * @param length   bytes, at least 1
 * @param access   the most that a grant of this region may allow: `enum pl_access` flags
 * @return 0; -EINVAL for a NULL pointer, a zero length, a range that wraps, unknown flags;
 *         -EFAULT if the range is not mapped; -ENOTSUP for managed memory of a GPU; -ENOMEM
 */
int pl_region_register(struct pl_context *context, void *pointer, size_t length, unsigned access,
		       struct pl_region **region, struct pl_error *error);

/**
 * Registers (a part of) a dma-buf that the program has: memory of a GPU or another device whose exporter gave it, or
 * of the host.  RDMA devices reach it by the dma-buf.  For all else the library uses the address, if one is given and
 * memory of a kind that it knows is there; or maps the dma-buf, if its exporter lets it.
 *
 * @param fd       the dma-buf; the library keeps a descriptor of its own, and so the memory, until the region ends
 * @param offset   of the first byte in the dma-buf
 * @param length   bytes, at least 1
 * @param address  where the program has that byte: a GPU's address, or a mapping; NULL: nowhere
 * @param access   as for pl_region_register()
 * @return 0; -EBADF, -EINVAL if it is no dma-buf; -ERANGE for a range outside; -ENOTSUP if it cannot be mapped and
 *         there is no RDMA device; -EINVAL for a zero length, a range that wraps, unknown flags; -ENOMEM
 */
int pl_region_register_dmabuf(struct pl_context *context, int fd, uint64_t offset, size_t length, void *address,
			      unsigned access, struct pl_region **region, struct pl_error *error);

/**
 * Allocates zeroed, page-aligned host memory and registers it.  The memory belongs to the region
 * and goes with it.  Processes of this host to which all of it is granted map it, which is the
 * fastest way there is.
 *
 * @return 0; -EINVAL; -ENOMEM
 */
int pl_region_allocate(struct pl_context *context, size_t length, unsigned access, struct pl_region **region,
		       struct pl_error *error);

/**
 * The same in memory of a kind: "host", "cuda" or "cuda:1" for a GPU by its number.  The processor cannot
 * reach a GPU's memory: use pl_region_copy_in() and pl_region_copy_out(), or what CUDA offers.
 *
 * @return 0; -EINVAL, also for an unknown kind; -ENODEV if there is no such GPU, or no driver; -ENOMEM
 */
int pl_region_allocate_in(struct pl_context *context, const char *kind, size_t length, unsigned access,
			  struct pl_region **region, struct pl_error *error);

/**
 * Copies between host memory and a region of any kind of memory, and waits for that.
 *
 * @return 0; -ERANGE outside the region; -EFAULT if the region's memory is there no more
 */
int pl_region_copy_in(struct pl_region *region, size_t offset, const void *from, size_t length, struct pl_error *error);
int pl_region_copy_out(struct pl_region *region, size_t offset, void *to, size_t length, struct pl_error *error);

/** The first byte of a region, as the program sees it; of a dma-buf without one, as the library maps it, or NULL. */
void *pl_region_address(const struct pl_region *region);

/** The length of a region in bytes. */
size_t pl_region_length(const struct pl_region *region);

/** The kind of memory a region is in: "host", "cuda" or "dma-buf".  Static storage. */
const char *pl_region_memory(const struct pl_region *region);

/**
 * Ends a region: revokes every grant of it and releases the registration.  When 0 is returned no
 * peer and no transfer touches the memory any more.  NULL is accepted.
 *
 * @return 0; -EBUSY while an operation of this process uses the region: wait for it or cancel it
 */
int pl_region_deregister(struct pl_region *region);

/** What RDMA cards have registered for this end's own use: all cards of a context together. */
struct pl_registrations_info {
	size_t size;            /**< set by the caller: sizeof(struct pl_registrations_info) */
	uint64_t found;         /**< times that what a region needed was there already */
	uint64_t made;          /**< times that it was not */
	uint64_t evicted;       /**< kept ones that went, as there were more than keep_bytes */
	uint64_t outdated;      /**< that were not used again, as the memory was freed */
	uint64_t registrations; /**< there are now */
	uint64_t bytes;         /**< of memory that these have locked */
	uint64_t bytes_kept;    /**< of these, what no region needs */
};
/* clang-format off */
#define PL_REGISTRATIONS_INFO_INIT { sizeof(struct pl_registrations_info), 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Fills info with what cards have registered.  Regions of the same memory share a registration; with
 * pl_options.keep_bytes one is also found again after its regions have ended.
 *
 * @return 0; -EINVAL if info->size is unknown
 */
int pl_registrations_query(struct pl_context *context, struct pl_registrations_info *info, struct pl_error *error);

/** The host memory through which bytes of GPUs go where they must (staging). */
struct pl_staging_info {
	size_t size;         /**< set by the caller: sizeof(struct pl_staging_info) */
	uint64_t limit;      /**< the most bytes that the context locks: pl_options.staging_bytes */
	uint64_t locked;     /**< that it has locked, with those of peers' memory that GPUs copy from again and again */
	uint64_t in_use;     /**< of its own, by transfers under way */
	uint64_t in_use_max; /**< the most that ever were */
};
/* clang-format off */
#define PL_STAGING_INFO_INIT { sizeof(struct pl_staging_info), 0, 0, 0, 0 }
/* clang-format on */

/**
 * Fills info with what a context has locked of the host's memory for the bytes of GPUs.
 *
 * @return 0; -EINVAL if info->size is unknown
 */
int pl_staging_query(struct pl_context *context, struct pl_staging_info *info, struct pl_error *error);

/**
 * Tells that memory is about to be freed or mapped anew, so that registrations that are kept of it go.  Needed with
 * pl_options.keep_host, for host memory that was a region; regions of the range must have ended.
 */
void pl_memory_freed(struct pl_context *context, const void *pointer, size_t length);

/** The largest token, in bytes. */
#define PL_TOKEN_MAX 96

/** What a token allows.  Zero in `length` means up to the region's end. */
struct pl_grant_options {
	size_t size;
	size_t offset;     /**< first byte of the region that is shared */
	size_t length;     /**< bytes shared */
	unsigned rights;   /**< PL_ACCESS_READ, _WRITE, _ATOMIC; 0: all that the region allows */
	uint64_t lifetime; /**< the grant ends after this time, see pl_region_share(3); 0: when revoked */
};
/* clang-format off */
#define PL_GRANT_OPTIONS_INIT { sizeof(struct pl_grant_options), 0, 0, 0, 0 }
/* clang-format on */

/**
 * Makes a token for (a part of) a region.  A token is a secret: whoever is connected to this
 * context and presents it gets the rights that it names.  Send it by any way you like.
 *
 * @param token   receives the token
 * @param length  in: bytes available at token (PL_TOKEN_MAX always suffices); out: bytes written
 * @return 0; -ERANGE for a range outside the region; -EACCES for rights that the region lacks;
 *         -ENOBUFS if the token does not fit; -ENOMEM
 */
int pl_region_share(struct pl_region *region, const struct pl_grant_options *options, void *token, size_t *length,
		    struct pl_error *error);

/**
 * Revokes a token that pl_region_share() made of this region.  When 0 is returned no peer reads or
 * writes through it any more, not even with transfers that had begun.
 *
 * @return 0; -EINVAL if it is no token; -ENOENT if it is not one of this region, or already revoked
 */
int pl_region_revoke(struct pl_region *region, const void *token, size_t length);

/** What a token says of itself. */
struct pl_token_info {
	uint64_t region_length; /**< bytes that it covers */
	unsigned rights;        /**< `enum pl_access` flags */
	uint64_t expires;       /**< CLOCK_REALTIME nanoseconds; 0: never */
};

/**
 * Reads what a token says, without asking anybody.
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

/** Writes the address really bound ("127.0.0.1:45123") to buffer; returns its length as snprintf(3) does. */
int pl_listener_address(const struct pl_listener *listener, char *buffer, size_t size);

/** Stops listening.  Accepts that wait end with -ECANCELED; accepted peers stay. */
void pl_listener_close(struct pl_listener *listener);

/**
 * Waits for the next authenticated peer.
 *
 * @param timeout  nanoseconds; 0 means do not wait
 * @return 0; -ETIMEDOUT; -ECANCELED if the listener was closed; -ENOMEM
 */
int pl_accept(struct pl_listener *listener, uint64_t timeout, struct pl_peer **peer, struct pl_error *error);

/**
 * Accepts without blocking: the operation completes when there is a peer, and its receipt or
 * completion has it in `peer`.  Each operation takes one peer.  The default time-out does not
 * apply: it ends by success, pl_cancel() or pl_listener_close().
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
 * Connects without blocking.  The completion has the peer.  A host name (not a numeric address) is
 * looked up before this returns, which can block.
 */
int pl_connect_start(struct pl_context *context, const char *address, uint64_t timeout, uint64_t user_data,
		     struct pl_operation **operation, struct pl_error *error);

/** What is known of a peer. */
struct pl_peer_info {
	size_t size;            /**< set by the caller: sizeof(struct pl_peer_info) */
	char address[80];       /**< the other end, "host:port" */
	char local_address[80]; /**< this end */
	char fabric[16];        /**< "local", "verbs" or "tcp" */
	char software[32];      /**< the other end's library, "peerlane 0.1.0" */
	unsigned streams;       /**< data sockets, or queue pairs, open now */
	bool authenticated;     /**< both ends proved a common key */
	bool encrypted;         /**< the data sockets are encrypted */
	bool same_host;         /**< the other end runs on this host */
	bool connected;         /**< false once the connection is lost */
};
/* clang-format off */
#define PL_PEER_INFO_INIT { sizeof(struct pl_peer_info), "", "", "", "", 0, false, false, false, false }
/* clang-format on */

/** Fills info.  @return 0; -EINVAL if info->size is unknown */
int pl_peer_query(struct pl_peer *peer, struct pl_peer_info *info);

/** A word of the caller's that goes with the peer; initially 0. */
void pl_peer_set_user_data(struct pl_peer *peer, uint64_t user_data);
uint64_t pl_peer_user_data(const struct pl_peer *peer);

/**
 * Ends a connection.  Operations still running on it end with -ECANCELED; their completions can
 * still be collected, with `peer` NULL.  Remote regions of the peer become unusable, but must still
 * be released.  When this returns, no buffer is in use on behalf of the peer.
 */
void pl_peer_close(struct pl_peer *peer);

/**
 * Imports a region that the peer shared: presents the token, over the authenticated control
 * channel, and receives what is needed to reach the memory.
 *
 * @param timeout  nanoseconds; 0 means the context's operation_timeout
 * @return 0; -EINVAL if it is no token or damaged; -EACCES if the peer does not know it, it was
 *         revoked or has expired; -EBUSY if the peer has no room for more imports; -ECONNRESET if
 *         the connection is lost; -ETIMEDOUT; -ENOMEM
 */
int pl_remote_import(struct pl_peer *peer, const void *token, size_t length, uint64_t timeout,
		     struct pl_remote **remote, struct pl_error *error);

/** Imports without blocking: the completion has the handle in `remote`. */
int pl_remote_import_start(struct pl_peer *peer, const void *token, size_t length, uint64_t user_data,
			   struct pl_operation **operation, struct pl_error *error);

/** Bytes that a remote region covers. */
size_t pl_remote_length(const struct pl_remote *remote);

/** Rights that a remote region gives: `enum pl_access` flags. */
unsigned pl_remote_rights(const struct pl_remote *remote);

/** Gives a remote region back.  Operations that use it go on. */
void pl_remote_release(struct pl_remote *remote);

/* ------------------------------------------------------------------------------------------------
 * Operations
 */

/**
 * What a completed operation promises of the bytes at their destination; from the least to the most: ON_WIRE,
 * ACKNOWLEDGED, PLACED, GPU_VISIBLE.  See pl_write(3) for what each costs and on what it rests.
 */
enum pl_visible {
	PL_VISIBLE_ACKNOWLEDGED = 0, /**< the other end has them: what it is told later finds them (default) */
	PL_VISIBLE_ON_WIRE = 1,      /**< the source buffer can be reused; no more */
	PL_VISIBLE_GPU_VISIBLE = 2,  /**< kernels that start now see them: flushed where the device needs it */
	PL_VISIBLE_PLACED = 3,       /**< in the destination's memory, for whoever looks, however it is told */
};

/** Flags of an operation. */
enum pl_flag {
	PL_REQUIRE_DIRECT = 1u << 0, /**< fail with -ENOTSUP rather than go through a staging buffer */
	PL_FENCE = 1u << 1,          /**< begin only when all earlier operations with this peer completed */
	PL_NOTIFY = 1u << 2,         /**< pl_write(): once the bytes are placed, notify the peer with `notify` */
	PL_MORE = 1u << 3,           /**< another operation with this peer follows at once: begin with that one */
};

/** How an operation is done.  NULL means defaults. */
struct pl_attributes {
	size_t size;
	enum pl_visible visible; /**< default PL_VISIBLE_ACKNOWLEDGED */
	unsigned flags;          /**< `enum pl_flag` */
	uint64_t timeout;        /**< nanoseconds; 0: the context's; UINT64_MAX: none */
	uint64_t user_data;      /**< handed back in the completion */
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
	PL_KIND_NOTIFIED, /**< no operation of ours: the peer's notification arrived, by pl_poll() only */
	PL_KIND_CONNECT,
	PL_KIND_ACCEPT,
	PL_KIND_IMPORT,
};

/** The way that the bytes of an operation went. */
enum pl_route {
	PL_ROUTE_NONE = 0, /**< no bytes moved */
	PL_ROUTE_DIRECT,   /**< the fabric reached the memory itself */
	PL_ROUTE_STAGED,   /**< through pinned host memory */
};

/** The record of a finished operation. */
struct pl_receipt {
	enum pl_kind kind;
	int status;               /**< 0 or a negative errno */
	enum pl_route route;      /**< the way taken */
	const char *fabric;       /**< "local", "verbs" or "tcp"; static storage */
	const char *reason;       /**< why this route; static storage */
	unsigned rail;            /**< which card or socket carried most of it */
	unsigned streams;         /**< how many carried a part */
	uint64_t bytes;           /**< payload bytes moved; 8 of an atomic operation */
	uint64_t bytes_direct;    /**< of these, without staging */
	uint64_t bytes_staged;    /**< of these, through staging, at either end as far as this one knows */
	uint64_t tag;             /**< receive: the message's tag */
	uint64_t value;           /**< atomics: the old value; NOTIFIED: the peer's value */
	uint64_t user_data;       /**< from the attributes */
	struct pl_peer *peer;     /**< the peer; NULL if it was closed meanwhile */
	struct pl_remote *remote; /**< import: the new handle */
	uint64_t posted;          /**< CLOCK_MONOTONIC nanoseconds when it was posted */
	uint64_t completed;       /**< and when it completed */
	enum pl_visible visible;  /**< how visible the bytes are: at least what was asked for, if status is 0 */
	const char *visibility;   /**< and what made them so; static storage; NULL if no bytes moved */
};

/**
 * Writes to a remote region (one-sided: the peer's program does nothing).
 *
 * @param remote         the destination, imported from this peer
 * @param remote_offset  first byte in it
 * @param region         the source
 * @param offset         first byte in it
 * @param length         bytes; 0 is allowed and completes once the peer answered
 * @param attributes     NULL for defaults
 * @param operation      receives a handle that must be given to pl_wait() or pl_test() until it is
 *                       used up; NULL: the completion is delivered by pl_poll()
 * @return 0: posted, and completed exactly once in bounded time.  Otherwise not posted: -EINVAL,
 *         -ERANGE (outside the region or remote region), -EACCES (the grant lacks the right),
 *         -ENOTCONN (the connection is lost), -ENOTSUP, -ENOMEM
 *
 * The source must not be changed until the operation completed.  Operations are not ordered with
 * respect to each other (see PL_FENCE), except messages and notifications among themselves.
 * Completion statuses: -EACCES (revoked, expired or out of the grant at the peer), -ECONNRESET
 * (peer lost), -EFAULT (the memory at either end is mapped no more), -ETIMEDOUT, -ECANCELED; then an
 * unknown part of the destination was written, or will be: but not after anything that is posted
 * once this has completed.
 */
int pl_write(struct pl_peer *peer, struct pl_remote *remote, uint64_t remote_offset, struct pl_region *region,
	     uint64_t offset, uint64_t length, const struct pl_attributes *attributes, struct pl_operation **operation,
	     struct pl_error *error);

/** Reads from a remote region into a local one.  As pl_write(), in the other direction. */
int pl_read(struct pl_peer *peer, struct pl_remote *remote, uint64_t remote_offset, struct pl_region *region,
	    uint64_t offset, uint64_t length, const struct pl_attributes *attributes, struct pl_operation **operation,
	    struct pl_error *error);

/** One element of a vectored operation. */
struct pl_transfer {
	struct pl_remote *remote;
	uint64_t remote_offset;
	struct pl_region *region;
	uint64_t offset;
	uint64_t length;
};

/** The most elements of a vectored operation. */
#define PL_TRANSFERS_MAX 4096

/** Writes several ranges as one operation: one completion, one receipt.  The array is copied. */
int pl_writev(struct pl_peer *peer, const struct pl_transfer *transfers, size_t count,
	      const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/** Reads several ranges as one operation.  The array is copied. */
int pl_readv(struct pl_peer *peer, const struct pl_transfer *transfers, size_t count,
	     const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/**
 * Sends a message of any size.  It meets the peer's first posted receive that accepts its tag;
 * messages with equal tags are received in the order sent.  Large messages wait at this end until
 * the receive is posted and then go straight into the posted buffer.
 *
 * Completes, by default, when the buffer can be reused and, for large messages, the peer has the
 * bytes.  The buffer must not be changed until then.
 */
int pl_send(struct pl_peer *peer, uint64_t tag, struct pl_region *region, uint64_t offset, uint64_t length,
	    const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/** The largest message pl_send_copy() takes, in bytes. */
#define PL_SEND_COPY_MAX 8192

/**
 * Sends a small message from any host memory, which can be reused as soon as this returns.
 *
 * @return as pl_write(); -EMSGSIZE if length is over PL_SEND_COPY_MAX
 */
int pl_send_copy(struct pl_peer *peer, uint64_t tag, const void *data, size_t length,
		 const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/**
 * Posts a buffer for a message whose tag satisfies (message_tag & mask) == (tag & mask).
 *
 * The receipt has the message's length in `bytes` and its tag in `tag`.  A message longer than
 * the buffer is dropped and completes the receive with -EMSGSIZE, `bytes` telling its length.
 */
int pl_receive(struct pl_peer *peer, uint64_t tag, uint64_t mask, struct pl_region *region, uint64_t offset,
	       uint64_t length, const struct pl_attributes *attributes, struct pl_operation **operation,
	       struct pl_error *error);

/**
 * Tells the peer a number.  It arrives there through pl_poll() as PL_KIND_NOTIFIED, in order with
 * messages and other notifications.
 */
int pl_notify(struct pl_peer *peer, uint64_t value, const struct pl_attributes *attributes,
	      struct pl_operation **operation, struct pl_error *error);

/**
 * Adds to a 64-bit word of a remote region, atomically with respect to all operations of this kind
 * through this library on that context; remote_offset must make the address a multiple of 8.
 * The old value comes in the receipt and, if `old` is not NULL, there (valid until completion).
 * The word is in the target's byte order.  Over verbs, "all operations" are those through the same device.
 */
int pl_fetch_add(struct pl_peer *peer, struct pl_remote *remote, uint64_t remote_offset, uint64_t add, uint64_t *old,
		 const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/** Replaces a 64-bit word by `swap` if it equals `compare`.  The old value tells which. */
int pl_compare_swap(struct pl_peer *peer, struct pl_remote *remote, uint64_t remote_offset, uint64_t compare,
		    uint64_t swap, uint64_t *old, const struct pl_attributes *attributes,
		    struct pl_operation **operation, struct pl_error *error);

/* ------------------------------------------------------------------------------------------------
 * Completion
 */

/**
 * Waits until an operation is done, and uses its handle up.
 *
 * @param timeout  nanoseconds from now.  When it is over the operation is cancelled; the call then
 *                 still waits, in bounded time, until the local buffer is no longer used.
 *                 UINT64_MAX: no other limit than the operation's own.
 * @param receipt  filled if not NULL, on success and on failure
 * @return the operation's status: 0 or a negative errno; -ETIMEDOUT
 */
int pl_wait(struct pl_operation *operation, uint64_t timeout, struct pl_receipt *receipt, struct pl_error *error);

/**
 * Looks whether an operation is done.  If so its handle is used up.
 *
 * @return -EINPROGRESS if not done; else as pl_wait()
 */
int pl_test(struct pl_operation *operation, struct pl_receipt *receipt, struct pl_error *error);

/**
 * Asks that an operation end soon.  It completes with -ECANCELED, or with the status that it has
 * reached.  The handle must still be given to pl_wait() or pl_test().
 */
void pl_cancel(struct pl_operation *operation);

/** A completion as pl_poll() delivers it. */
struct pl_completion {
	struct pl_receipt receipt;
	struct pl_error error; /**< filled if receipt.status is negative */
};

/**
 * Collects completions of operations that were posted with a NULL handle, and notifications.
 * With PL_PROGRESS_MANUAL this is also what moves data.  Never blocks.
 *
 * @param completions  array; may be NULL if n is 0, to make progress only
 * @param n            its elements
 * @return the number filled, 0 to n
 */
int pl_poll(struct pl_context *context, struct pl_completion *completions, int n);

/**
 * A file descriptor that polls readable when pl_poll() has something to do or to deliver.  It
 * belongs to the context: add it to epoll(7) or poll(2), do not read, write or close it.
 * Call pl_poll() until it returns less than asked for before waiting on it.
 *
 * @return the descriptor, or a negative errno
 */
int pl_fd(struct pl_context *context);

#ifdef __cplusplus
}
#endif

#endif
