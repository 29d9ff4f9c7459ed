/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peerlane moves data straight between memory of this process and of a remote host.
 *
 * Conventions of the interface:
 *
 * - Handles are opaque. Every destructor accepts NULL.
 * - Option structures begin with their size. Initialise them with their *_INIT macro, which keeps programs compiled
 *   against an older header working with a newer library. NULL means defaults.
 * - Lengths and offsets are bytes, times are nanoseconds.
 * - 0 or a count means success, a negative errno means failure; `struct pl_error` has the detail.
 * - Any thread may call a function at any time, unless its comment says otherwise. A handle must not be used while,
 *   or after, another thread destroys it.
 * - The library never prints, never changes signal handlers and never calls exit().
 */
#ifndef PEERLANE_PEERLANE_H
#define PEERLANE_PEERLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/error.h>
#include <peerlane/identity.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_VERSION_MAJOR 0
#define PL_VERSION_MINOR 1
#define PL_VERSION_PATCH 0

/** Returns the version of the library at run time, for example "0.1.0". Static storage. */
const char *pl_version(void);

/** Properties of a GPU. */
struct pl_gpu_info {
	size_t size;         /**< set by the caller: sizeof(struct pl_gpu_info) */
	char name[64];       /**< "NVIDIA H200" */
	char pci[16];        /**< "0000:3B:00.0" */
	int driver;          /**< CUDA version of the driver: 13000 is 13.0 */
	int writes_ordering; /**< order of a card's writes, as CUDA defines it: 0 none, 100 for this GPU, 200 for all GPUs */
	bool rdma;           /**< the driver allows cards to reach the GPU's memory */
	bool dmabuf;         /**< the driver can export the GPU's memory as dma-buf */
};
/* clang-format off */
#define PL_GPU_INFO_INIT { sizeof(struct pl_gpu_info), "", "", 0, 0, false, false }
/* clang-format on */

/**
 * Queries a GPU of this host. Loads the driver's library if the process has not.
 *
 * @param number  number of the GPU in CUDA, from 0
 * @return 0; -ENODEV if there is no such GPU, or no driver; -EINVAL if info->size is unknown
 */
int pl_gpu_query(unsigned number, struct pl_gpu_info *info, struct pl_error *error);

struct pl_context;    /**< owner of all objects below; independent of other contexts */
struct pl_region;     /**< registered buffer of this process (memory region) */
struct pl_listener;   /**< address on which peers are accepted */
struct pl_peer;       /**< other end of a connection */
struct pl_remote_set; /**< regions that a peer shared together */
struct pl_remote;     /**< region that a peer shared with this end (remote region) */
struct pl_operation;  /**< running transfer, connection attempt or import */

/* ------------------------------------------------------------------------------------------------
 * Context
 */

/** Threads that make progress. */
enum pl_progress {
	PL_PROGRESS_THREAD = 0, /**< threads of the library (default) */
	PL_PROGRESS_MANUAL = 1, /**< the program's, in pl_poll(), pl_wait() and pl_test() only; lowest latency */
};

/** Memory functions used in place of malloc(3), realloc(3) and free(3). */
struct pl_allocator {
	void *(*allocate)(size_t size, void *user);
	void *(*reallocate)(void *pointer, size_t size, void *user);
	void (*release)(void *pointer, void *user);
	void *user;
};

/** A setting that is on, off, or left to the library. */
enum pl_choice {
	PL_DEFAULT = 0, /**< the library decides; the comment of the option says how */
	PL_ON = 1,
	PL_OFF = 2,
};

/** Options of a context.  Zero in any field asks for the default. */
struct pl_options {
	size_t size;                          /**< sizeof(struct pl_options) */
	enum pl_progress progress;            /**< default PL_PROGRESS_THREAD */
	/** progress threads, 1 to 64; default: half the cores of this process, 1 to 16, or more: pl_open(3) */
	unsigned workers;
	/** tcp: bulk sockets for each peer, 1 to 16; default: half the cores or more, at most 8 beside 8 peers with more: pl_open(3) */
	unsigned lanes;
	const char *fabric;                   /**< "auto" (default), "local", "verbs" or "tcp" */
	const void *key;                      /**< pre-shared key, copied; NULL: no authentication */
	size_t key_length;                    /**< bytes of key, 16 to 1024 */
	enum pl_choice encrypt_data;          /**< encrypts data sockets; PL_ON needs a key; default between hosts */
	enum pl_choice insecure;              /**< allows addresses other than loopback without a key; default off */
	uint64_t operation_timeout;           /**< of operations without a timeout of their own; default 30 s */
	uint64_t connect_timeout;             /**< of connection attempts; default 10 s */
	/** A host that is silent, or takes no sent bytes, is declared lost after this time; default 15 s. */
	uint64_t keepalive;
	const struct pl_allocator *allocator; /**< copied; default malloc(3) */
	unsigned rails;       /**< verbs: queue pairs for each peer, 1 to 8; default: one or two for each pair of cards */
	const char *devices;  /**< verbs: devices to use, such as "mlx5_0,mlx5_1:1"; NULL: all that fit */
	size_t staging_bytes; /**< most host memory to lock for GPU data; default: see pl_open(3) */
	enum pl_choice
		narrow_grants; /**< verbs: only the connections of its peer reach a grant (memory windows); default on */
	size_t keep_bytes;     /**< verbs: bytes of unused registrations kept for each card; default 0 */
	enum pl_choice
		keep_host; /**< keeps those of host memory too: the program promises to call pl_memory_freed(); default off */
	const char *routes; /**< verbs: file of `peerlane routes --save`; NULL: that of the machine; "": none */
	/**
	 * Eight bits, DSCP and ECN, as NCCL_IB_TC. Over verbs the value of the connecting end is used. Default 0: over tcp
	 * the system's.
	 */
	unsigned traffic_class;
	/** Most peers that connect to this context; further ones are refused with PEER-BUSY. Default 0: no limit. */
	unsigned peers_max;
	/** Name of this program, 1 to 31 visible ASCII characters or spaces, for peers that connect; NULL: none. */
	const char *program;
	/**
	 * File in PEM with the private key and the certificate of this end; NULL: none. With an identity, or with one of
	 * the options up to `authorize`, both ends use certificates, and prove the key within; see peerlane-identity(7).
	 */
	const char *identity;
	const char *authority;   /**< file of certificates in PEM of authorities that certify other ends; NULL: none */
	const char *authorized;  /**< file of identities that may connect, with their rights; NULL: all with the key */
	const char *known_hosts; /**< file of the identities of ends to connect to, by address; NULL: none */
	/** Fingerprints, separated by commas, of which an end must have one when this end connects to it; NULL: any. */
	const char *expected;
	enum pl_choice trust_new; /**< adds unknown ends to known_hosts, instead of refusing them; default off */
	pl_authorize_function authorize; /**< decides about each other end; NULL: the files and the key decide */
	void *authorize_user;            /**< for authorize() */
	pl_refused_function refused;     /**< learns of ends that connected and were refused; NULL: none */
	void *refused_user;              /**< for refused() */
	const void *old_key;             /**< key that peers which connect may still have, copied; NULL: none */
	size_t old_key_length;           /**< bytes of old_key, 16 to 1024 */
	/**
	 * Bytes a second of each peer that connects and whose rights have no rate of their own, at least 65,536; see
	 * struct pl_rights. Default 0: no limit.
	 */
	uint64_t peers_rate;
	/**
	 * Nanoseconds that a progress thread polls after the last event before it sleeps, and a thread in pl_wait() before
	 * it sleeps, at most a second; PL_NO_POLLING: none. A polling progress thread reads the completion queues of RDMA
	 * devices, so that no completion waits for an interrupt. It polls for a millisecond at least while a CUDA stream waits
	 * for a frame (pl_subscriber_take_on()). Default: 20,000 with 4 cores of this process (pl_open(3)) or more, but none
	 * while other threads wait for cores; none with less.
	 */
	uint64_t poll_time;
	/**
	 * verbs: topology file of NCCL (XML), by which each region uses the cards near it; "": all cards are alike. Default
	 * NULL: the kernel's view, or in virtual machines the file of NCCL_TOPO_FILE or /etc/nccl.conf.
	 */
	const char *topology;
	/**
	 * verbs: service level of InfiniBand, 0 to 15, as NCCL_IB_SL; on RoCE the priority within a VLAN, 0 to 7. The value
	 * of the connecting end is used. Default 0.
	 */
	unsigned service_level;
	/** verbs: PL_GID_INDEX(n) for entry n of each port's GID table, 0 to 255. Default 0: the best entry. */
	unsigned gid_index;
	/**
	 * verbs: P_Key of this end's queue pairs, that is, their partition: 1 to 0x7fff, or that with the bit 0x8000. Ports
	 * without it, or that are only a limited member, are not used. Default 0: the first entry of each port's table.
	 */
	unsigned pkey;
	/**
	 * verbs: time after which a card repeats what this end sent and the other end did not acknowledge: 4.096 us times 2
	 * to this power, 1 to 31. Default 0: 14, which is 67 ms.
	 */
	unsigned ack_timeout;
	/** verbs: number of such repetitions before the card gives up the connection, 1 to 7. Default 0: 6. */
	unsigned retries;
	/**
	 * verbs: time after which the other end repeats a message for which this end had no buffer, 1 to 31 in the encoding
	 * of InfiniBand's RNR timer. Default 0: 12, which is 0.64 ms.
	 */
	unsigned rnr_timer;
	/**
	 * local: most multiprocessors of a GPU that the library's kernel uses, 1 to 1,024. The kernel copies the elements of a
	 * vector between GPUs, or between a GPU and locked host memory. PL_NO_GPU_KERNEL: the library starts no kernel, and
	 * makes a copy for each element. See docs/gpu.md. Default 0: 96.
	 */
	unsigned gpu_multiprocessors;
};
/** Value of pl_options.gid_index for an entry of the GID table. */
#define PL_GID_INDEX(n) ((n) + 1u)
/** Value of pl_options.gpu_multiprocessors: no kernel of the library runs on a GPU. */
#define PL_NO_GPU_KERNEL UINT32_MAX
/** Value of pl_options.poll_time: threads sleep at once. */
#define PL_NO_POLLING UINT64_MAX
/* clang-format off */
#define PL_OPTIONS_INIT { sizeof(struct pl_options), PL_PROGRESS_THREAD, 0, 0, NULL, NULL, 0, PL_DEFAULT, PL_DEFAULT, 0, 0, 0, NULL, 0, NULL, 0, PL_DEFAULT, 0, PL_DEFAULT, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, PL_DEFAULT, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Opens a context.
 *
 * @param context  receives the handle; destroy it with pl_close()
 * @param options  NULL for defaults; nothing in it is kept by reference
 * @return 0; -EINVAL for an option out of range; -ENOTSUP for an unknown fabric; -ENOMEM; -EMFILE and other errors of
 *         epoll_create1(2), pthread_create(3)
 */
int pl_open(struct pl_context **context, const struct pl_options *options, struct pl_error *error);

/**
 * Closes a context and all objects in it: peers, listeners, regions, remote regions, operations. All their handles
 * become invalid. Sends messages that wait, for at most 500 ms, and cancels running operations. On return no buffer is in
 * use, and every thread, socket and mapping is gone. No other thread may be inside the library with this context.
 * Gives up an RDMA device whose driver does not return from a call for 10 s, and sets errno to ETIMEDOUT: what the driver
 * may use stays then. Otherwise errno is kept.
 */
void pl_close(struct pl_context *context);

/* ------------------------------------------------------------------------------------------------
 * Regions: the memory of this process that transfers use
 */

/** Access that a region, or a grant of one, allows a peer. Local use is always allowed. */
enum pl_access {
	PL_ACCESS_LOCAL = 0,
	PL_ACCESS_READ = 1u << 0,   /**< pl_read() by a peer */
	PL_ACCESS_WRITE = 1u << 1,  /**< pl_write() by a peer */
	PL_ACCESS_ATOMIC = 1u << 2, /**< pl_fetch_add(), pl_compare_swap() by a peer */
	PL_ACCESS_ALL = 7u,
	/**
	 * For regions only: cards write in the order of their requests (PCIe's strict ordering), for words that a thread or
	 * a GPU's kernel polls. Without it the bytes are ordered at completions only.
	 */
	PL_ACCESS_STRICT = 1u << 3,
};

/**
 * Registers a buffer. The library recognises the kind of memory (host, GPU). See docs/gpu.md for GPUs: the first region of
 * a GPU loads a kernel (pl_options.gpu_multiprocessors), and waits for kernels of the program that run.
 *
 * @param pointer  first byte; the buffer stays the caller's and must outlive the region
 * @param length  bytes, at least 1
 * @param access  most access that a grant of this region may allow: `enum pl_access` flags; and PL_ACCESS_STRICT
 * @return 0; -EINVAL for a NULL pointer, a zero length, a range that wraps, unknown flags; -EFAULT if the range is not
 *         mapped; -ENOTSUP for managed memory of a GPU; -ENOMEM
 */
int pl_region_register(struct pl_context *context, void *pointer, size_t length, unsigned access,
		       struct pl_region **region, struct pl_error *error);

/** Range of a dma-buf. */
struct pl_dmabuf {
	int fd;          /**< the dma-buf; the library duplicates the descriptor until the region ends */
	uint64_t offset; /**< first byte in the dma-buf */
	size_t length;   /**< bytes, at least 1 */
	void *address;   /**< address of the first byte in this process: of a GPU, or a mapping; NULL: none */
};

/**
 * Registers a range of a dma-buf: memory of a GPU, of another device, or of the host. RDMA devices reach it by the
 * dma-buf. Otherwise the library uses the address, if that is given and its kind of memory is known, or maps the
 * dma-buf, if the exporter allows it.
 *
 * @param dmabuf  the range; read during the call only. The library keeps a descriptor of its own, and so the memory,
 *                until the region ends
 * @param access  as for pl_region_register()
 * @return 0; -EBADF, -EINVAL if the descriptor is no dma-buf; -ERANGE for a range outside of it; -ENOTSUP if it cannot
 *         be mapped and there is no RDMA device; -EINVAL for a zero length, a range that wraps, unknown flags; -ENOMEM
 */
int pl_region_register_dmabuf(struct pl_context *context, const struct pl_dmabuf *dmabuf, unsigned access,
			      struct pl_region **region, struct pl_error *error);

/**
 * Allocates zeroed, page-aligned host memory and registers it. The region owns the memory. Processes of this host map
 * it if all of it is granted to them, which is the fastest route.
 *
 * From 4 MiB on, the function fails if the host, or a control group of the process, has less memory available. The kernel
 * would end processes otherwise. Swap does not count.
 *
 * @return 0; -EINVAL; -ENOMEM; another errno of memfd_create(2), ftruncate(2) or fallocate(2), as of a seccomp filter
 */
int pl_region_allocate(struct pl_context *context, size_t length, unsigned access, struct pl_region **region,
		       struct pl_error *error);

/**
 * Allocates and registers memory of a kind: "host", "cuda", or "cuda:1" for a GPU by its number. The processor cannot
 * reach GPU memory: use pl_region_copy_in() and pl_region_copy_out(), or calls of CUDA.
 *
 * @return 0; -EINVAL, also for an unknown kind; -ENODEV if there is no such GPU, or no driver; -ENOMEM
 */
int pl_region_allocate_in(struct pl_context *context, const char *kind, size_t length, unsigned access,
			  struct pl_region **region, struct pl_error *error);

/**
 * Copies between host memory and a region of any kind of memory, synchronously.
 *
 * @return 0; -ERANGE outside the region; -EFAULT if the region's memory no longer exists
 */
int pl_region_copy_in(struct pl_region *region, size_t offset, const void *from, size_t length, struct pl_error *error);
int pl_region_copy_out(struct pl_region *region, size_t offset, void *to, size_t length, struct pl_error *error);

/**
 * Returns the address of a region's first byte in the program. For a dma-buf without address: the library's mapping, or
 * NULL.
 */
void *pl_region_address(const struct pl_region *region);

/** Returns the length of a region in bytes. */
size_t pl_region_length(const struct pl_region *region);

/** Returns the kind of memory of a region: "host", "cuda" or "dma-buf". Static storage. */
const char *pl_region_memory(const struct pl_region *region);

/** Returns the number of the GPU that has a region's memory, as pl_gpu_query() counts; -1 for memory of another kind. */
int pl_region_gpu(const struct pl_region *region);

/**
 * Prepares a region for its first transfers with a peer, which are slow otherwise: allocates and maps its pages,
 * registers it with the cards of the connection, opens all lanes of tcp (waiting for these at most 1 s), and for memory that
 * tcp stages opens copy queues and locks staging memory. Call it at each end for its own regions. Blocks. Later transfers
 * do not depend on it.
 *
 * @return 0; -EINVAL for a region of another context; -ENOTCONN if the connection is lost
 */
int pl_region_prepare(struct pl_peer *peer, struct pl_region *region, struct pl_error *error);

/**
 * Ends a region: revokes all its grants and releases the registration. After success no peer and no transfer touches
 * the memory any more. Waits for a registration of the region that is under way. NULL is accepted.
 *
 * @return 0; -EBUSY while an operation of this process uses the region: wait for it or cancel it
 */
int pl_region_deregister(struct pl_region *region);

/** Registrations of RDMA cards for this end's own use, of all cards of a context together. */
struct pl_registrations_info {
	size_t size;            /**< set by the caller: sizeof(struct pl_registrations_info) */
	uint64_t found;         /**< lookups that found a registration */
	uint64_t made;          /**< lookups that had to register */
	uint64_t evicted;       /**< kept registrations that were evicted because of keep_bytes */
	uint64_t outdated;      /**< kept registrations that were dropped because their memory was freed */
	uint64_t registrations; /**< registrations now */
	uint64_t bytes;         /**< bytes of memory that these lock */
	uint64_t bytes_kept;    /**< of these, bytes that no region needs */
};
/* clang-format off */
#define PL_REGISTRATIONS_INFO_INIT { sizeof(struct pl_registrations_info), 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Fills info with the registrations of cards. Regions of the same memory share a registration. With
 * pl_options.keep_bytes it is also found again after its regions have ended.
 *
 * @return 0; -EINVAL if info->size is unknown
 */
int pl_registrations_query(struct pl_context *context, struct pl_registrations_info *info, struct pl_error *error);

/** Host memory for staging GPU data. */
struct pl_staging_info {
	size_t size;         /**< set by the caller: sizeof(struct pl_staging_info) */
	uint64_t limit;      /**< most bytes that the context locks, see pl_options.staging_bytes */
	uint64_t locked;     /**< bytes locked now, including memory of peers from which GPUs copy repeatedly */
	uint64_t in_use;     /**< of the context's own memory, bytes in use by running transfers */
	uint64_t in_use_max; /**< maximum of in_use so far */
};
/* clang-format off */
#define PL_STAGING_INFO_INIT { sizeof(struct pl_staging_info), 0, 0, 0, 0 }
/* clang-format on */

/**
 * Fills info with the host memory that a context has locked for staging.
 *
 * @return 0; -EINVAL if info->size is unknown
 */
int pl_staging_query(struct pl_context *context, struct pl_staging_info *info, struct pl_error *error);

/**
 * Reports that memory will be freed or mapped anew, so that kept registrations of it are dropped. Required with
 * pl_options.keep_host, for host memory that was a region. Regions of the range must have ended.
 */
void pl_memory_freed(struct pl_context *context, const void *pointer, size_t length);

/** Size of the largest token in bytes. */
#define PL_TOKEN_MAX 96

/** Options of a grant. Zero in `length` means up to the region's end. */
struct pl_grant_options {
	size_t size;
	size_t offset;     /**< first byte of the shared range */
	size_t length;     /**< bytes of the shared range */
	unsigned rights;   /**< PL_ACCESS_READ, _WRITE, _ATOMIC; 0: all rights of the region */
	uint64_t lifetime; /**< nanoseconds until the grant ends, see pl_region_share(3); 0: until it is revoked */
};
/* clang-format off */
#define PL_GRANT_OPTIONS_INIT { sizeof(struct pl_grant_options), 0, 0, 0, 0 }
/* clang-format on */

/**
 * Creates a token for a range of a region. A token is a secret: every peer of this context that presents it gets its
 * rights. Send it over a channel of your choice.
 *
 * @param token  receives the token
 * @param length  in: bytes available at token (PL_TOKEN_MAX always suffices); out: bytes written
 * @return 0; -ERANGE for a range outside the region; -EACCES for rights that the region lacks; -ENOBUFS if the token
 *         does not fit; -ENOMEM
 */
int pl_region_share(struct pl_region *region, const struct pl_grant_options *options, void *token, size_t *length,
		    struct pl_error *error);

/**
 * Revokes a token of this region. After success no peer reads or writes through it any more, not even with transfers
 * that had begun. Waits for registrations of revoked tokens that are under way.
 *
 * @param token  NULL, with a length of 0: all tokens of the region
 * @return 0; -EINVAL if it is no token; -ENOENT if it does not belong to this region, or was revoked already
 */
int pl_region_revoke(struct pl_region *region, const void *token, size_t length);

/** The most regions of a blob of pl_regions_share(). */
#define PL_REGIONS_MAX 16384

/** Bytes of the blob of `count` regions. */
#define PL_REGIONS_BLOB_SIZE(count) (20 + (size_t)76 * (count))

/**
 * Shares many regions of a context at once. The blob has a token and the address of each; it is a secret as a token is.
 * A peer imports all of them in one round trip with pl_remote_set_import(). Thread-safe.
 *
 * @param options  apply to each region: NULL, or offset and length 0, shares whole regions
 * @param blob  receives the blob, which depends on neither process's byte order
 * @param length  in: bytes available at blob, at least PL_REGIONS_BLOB_SIZE(count); out: bytes written
 * @return 0; -EINVAL for no region, more than PL_REGIONS_MAX, or regions of several contexts; -ENOBUFS; errors of
 *         pl_region_share(). After a failure none is shared.
 */
int pl_regions_share(struct pl_region *const *regions, size_t count, const struct pl_grant_options *options, void *blob,
		     size_t *length, struct pl_error *error);

/**
 * Revokes all tokens of a blob, as pl_region_revoke() does.
 *
 * @return 0; -EINVAL if it is no blob or damaged; -ENOENT if no token of it belongs to the context and was not revoked
 */
int pl_regions_revoke(struct pl_context *context, const void *blob, size_t length);

/** Content of a token. */
struct pl_token_info {
	uint64_t region_length; /**< bytes that the token covers */
	unsigned rights;        /**< `enum pl_access` flags */
	uint64_t expires;       /**< CLOCK_REALTIME nanoseconds; 0: never */
};

/**
 * Reads the content of a token, without a connection. A token of a stream (pl_publisher_share()) has neither a length nor
 * rights.
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

/**
 * Listens on a socket that the program, or a service manager, has bound and put into the listening state: TCP over IPv4
 * or IPv6. The library takes over the descriptor, also on failure.
 *
 * @return 0; -EBADF, -EINVAL if it is no such socket; -EPERM as for pl_listen(); -ENOMEM
 */
int pl_listen_socket(struct pl_context *context, int fd, struct pl_listener **listener, struct pl_error *error);

/** Writes the bound address ("127.0.0.1:45123") to buffer. Returns its length as snprintf(3) does. */
int pl_listener_address(const struct pl_listener *listener, char *buffer, size_t size);

/** Stops listening. Waiting accepts end with -ECANCELED; accepted peers stay. */
void pl_listener_close(struct pl_listener *listener);

/**
 * Waits for the next authenticated peer.
 *
 * @param timeout  nanoseconds; 0 means do not wait
 * @return 0; -ETIMEDOUT; -ECANCELED if the listener was closed; -ENOMEM
 */
int pl_accept(struct pl_listener *listener, uint64_t timeout, struct pl_peer **peer, struct pl_error *error);

/**
 * Accepts without blocking: the completion has the peer in `peer`. Each operation takes one peer. The default timeout
 * does not apply: the operation ends by success, pl_cancel() or pl_listener_close().
 *
 * @param user_data  returned in the completion
 * @param operation  as for pl_write()
 * @return 0; -ENOMEM
 */
int pl_accept_start(struct pl_listener *listener, uint64_t user_data, struct pl_operation **operation,
		    struct pl_error *error);

/**
 * Connects to a listening context. Both ends prove the context's key to each other.
 *
 * @param timeout  nanoseconds; 0 means the context's connect_timeout
 * @return 0; -EINVAL, -EHOSTUNREACH, -ECONNREFUSED, -ETIMEDOUT; -EPERM for a non-loopback address without a key or
 *         `insecure`; -EACCES if the keys differ or only one end has one; -EPROTO if the other end is no Peerlane or
 *         speaks no common version; -ENOMEM
 */
int pl_connect(struct pl_context *context, const char *address, uint64_t timeout, struct pl_peer **peer,
	       struct pl_error *error);

/**
 * Connects without blocking. The completion has the peer. The call looks up a host name (not a numeric address) before
 * it returns, which can block. Thread-safe.
 *
 * @param timeout  nanoseconds; 0 means the context's connect_timeout
 * @return 0 if the attempt has begun: it completes with 0 or an error of pl_connect(); -EINVAL if the address is wrong;
 *         -ENOMEM
 */
int pl_connect_start(struct pl_context *context, const char *address, uint64_t timeout, uint64_t user_data,
		     struct pl_operation **operation, struct pl_error *error);

/** Properties of a peer. */
struct pl_peer_info {
	size_t size;            /**< set by the caller: sizeof(struct pl_peer_info) */
	char address[80];       /**< the other end, "host:port" */
	char local_address[80]; /**< this end */
	char fabric[16];        /**< "local", "verbs" or "tcp" */
	char software[32];      /**< the other end's library, "peerlane 0.1.0" */
	unsigned lanes;         /**< sockets with bulk data (tcp), or queue pairs (verbs), open now */
	bool authenticated;     /**< both ends proved a common key */
	bool encrypted;         /**< the data sockets are encrypted; false over verbs, which cannot encrypt */
	bool same_host;         /**< the other end runs on this host */
	bool connected;         /**< false once the connection is lost */
	char program[32];       /**< after pl_connect(): pl_options.program of the other end; "": it gave none */
	uint64_t rate;       /**< bytes a second to which this end limits the connection; 0: no limit */
	uint64_t rate_waits; /**< number of times that the connection had to wait for its rate */
	unsigned lanes_missing; /**< sockets that this end, which connected, could not open and tries to open again */
	int lanes_status;       /**< negative errno of the last failure of one of them; 0: none is missing */
};
/* clang-format off */
#define PL_PEER_INFO_INIT { sizeof(struct pl_peer_info), "", "", "", "", 0, false, false, false, false, "", 0, 0, 0, 0 }
/* clang-format on */

/** Fills info.  @return 0; -EINVAL if info->size is unknown */
int pl_peer_query(struct pl_peer *peer, struct pl_peer_info *info);

/** Events of a peer's log. */
enum pl_event {
	PL_EVENT_FABRIC_FAILED = 1, /**< a fabric could not connect, and another one is tried */
	PL_EVENT_LANE_OPENED,       /**< a data socket is open; `lane` */
	PL_EVENT_LANE_LOST,         /**< a data socket ended, or could not be opened; `lane`, `status` */
	PL_EVENT_RAIL_OPENED,       /**< verbs: a queue pair is connected for the first time; `lane` is its number */
	PL_EVENT_RAIL_LOST,         /**< verbs: a queue pair failed, or its port or device went; `lane` */
	PL_EVENT_RAIL_REOPENED,     /**< verbs: a lost queue pair is connected again; `lane` */
	PL_EVENT_CONNECTED,         /**< the connection is up; the text names the fabric and the reason for it */
	PL_EVENT_ENCRYPTION_ON,     /**< the data are encrypted, for the reason in the text */
	PL_EVENT_ENCRYPTION_OFF,    /**< the data are in the clear, for the reason in the text */
	PL_EVENT_PATH_CHOSEN,       /**< this end imported a region; the text says how it reaches the memory; `key` */
	PL_EVENT_STAGED,            /**< bytes of an operation of this end went through staging memory */
	PL_EVENT_REVOKED_HERE,      /**< this end revoked a key of the other end; `key` */
	PL_EVENT_REVOKED_THERE,     /**< local: the other end revoked a key whose memory this end had mapped or opened; `key` */
	PL_EVENT_REFUSED_HERE,      /**< this end refused a request of the other end; `key`, `status` */
	PL_EVENT_REFUSED_THERE,     /**< the grant of an operation or import of this end was refused; `key`, `status` */
	PL_EVENT_LIMIT_REACHED,     /**< messages, refusals or keys reached a limit, named in the text */
	PL_EVENT_CLOSED_HERE,       /**< pl_peer_reconnect() closed a connection that was up */
	PL_EVENT_CLOSED_THERE,      /**< the other end closed the connection; `status` */
	PL_EVENT_LOST,              /**< the connection is lost, for the reason in the text; `status` */
	PL_EVENT_RECONNECT_BEGUN,   /**< pl_peer_reconnect() was called */
	PL_EVENT_RECONNECT_FAILED,  /**< pl_peer_reconnect() failed; `status` */
	PL_EVENT_RECONNECT_DONE,    /**< pl_peer_reconnect() made a new connection */
	PL_EVENT_GRANTED,           /**< verbs: the other end imported a grant; the text says who reaches it; `key` */
};

/** Most records in the log of a peer. */
#define PL_EVENTS_MAX 64

/** An event of a peer, or several equal events in a row. */
struct pl_event_record {
	/**
	 * Number of the event in the peer's log, from 1; of merged events, the number of the newest. The oldest has the
	 * number `sequence - count + 1`. Missing numbers are events that the log no longer has.
	 */
	uint64_t sequence;
	uint64_t first_time; /**< CLOCK_MONOTONIC nanoseconds of the oldest of the merged events */
	uint64_t time;       /**< CLOCK_MONOTONIC nanoseconds of the newest of the merged events */
	uint64_t key;        /**< number of the key, the same at both ends; of the newest event; 0: none */
	uint32_t event;      /**< `enum pl_event` */
	uint32_t count;      /**< merged events, at least 1 */
	int32_t lane;        /**< number of the lane or rail, from 0; -1: none */
	int32_t status;      /**< negative errno that belongs to the event; 0: none */
	char text[208];      /**< detail: printable ASCII, cut to fit; may be empty */
};

/** Request for records of a peer's log. */
struct pl_event_query {
	size_t size;        /**< set by the caller: sizeof(struct pl_event_query) */
	size_t record_size; /**< set by the caller: sizeof(struct pl_event_record) */
	uint64_t after;     /**< in: only records with a higher sequence number; out: that of the last record copied */
	uint64_t monotonic; /**< out: CLOCK_MONOTONIC nanoseconds of this call, */
	uint64_t realtime;  /**< out: and CLOCK_REALTIME: the date of a record is realtime - (monotonic - time) */
};
/* clang-format off */
#define PL_EVENT_QUERY_INIT { sizeof(struct pl_event_query), sizeof(struct pl_event_record), 0, 0, 0 }
/* clang-format on */

/**
 * Copies records of a peer's log, the oldest first. The log has up to PL_EVENTS_MAX records; a full log drops the
 * oldest record of its most frequent event, so that a flood of one event keeps all others. The log of a lost peer stays
 * until pl_peer_close(), or moves to the new peer of pl_peer_reconnect(). Thread-safe; may be called while the peer
 * transfers data.
 *
 * @param query  PL_EVENT_QUERY_INIT, and `after` if only newer records are wanted; a second call with the same query
 *               copies the records that came meanwhile, and those that were merged with further events
 * @param records  array of the caller, with elements of query->record_size bytes; NULL if capacity is 0
 * @param capacity  its elements; PL_EVENTS_MAX suffices for all records
 * @return the number copied, 0 to capacity; -EINVAL for an unknown size, or NULL records
 */
int pl_peer_events(struct pl_peer *peer, struct pl_event_query *query, struct pl_event_record *records,
		   size_t capacity);

/** Returns the name of an event, such as "lane-lost"; "unknown" for other numbers. Static storage. */
const char *pl_event_name(unsigned event);

/**
 * Value of the program that belongs to the peer; initially 0. Completions of PL_KIND_LOST and PL_KIND_NOTIFIED have the value
 * at the arrival of the event, also once the peer is closed. Events that arrive after the return of pl_peer_set_user_data()
 * have the new value; earlier ones are in the queue of pl_poll() by then.
 */
void pl_peer_set_user_data(struct pl_peer *peer, uint64_t user_data);
uint64_t pl_peer_user_data(const struct pl_peer *peer);

/**
 * Ends a connection. Sends messages that were posted before, for at most 500 ms. Then running operations end with
 * -ECANCELED; their completions can still be collected, with `peer` NULL. Remote regions of the peer become unusable, but
 * must still be released. When this returns, no buffer is in use on behalf of the peer.
 */
void pl_peer_close(struct pl_peer *peer);

/**
 * Connects to a peer anew, after a loss or while it is connected, and imports all its remote regions again. The handles
 * of remote regions stay valid; *peer becomes a new handle with the old one's user data. Blocks. Only the end that
 * connected can call this; the other end accepts a new connection. No other thread may use the old handle.
 *
 * @param peer     in: the peer, which is closed on success; out: the new peer. Unchanged on failure
 * @param address  as for pl_connect(); NULL: the address of the old connection
 * @param timeout  nanoseconds for the connection and all imports; 0 means the context's connect_timeout
 * @return 0; -EINVAL if this end accepted the connection; errors of pl_connect() and pl_remote_import(), such as
 *         -EACCES if the other process was restarted or has revoked a token; -ETIMEDOUT; -ENOMEM
 */
int pl_peer_reconnect(struct pl_peer **peer, const char *address, uint64_t timeout, struct pl_error *error);

/**
 * Imports a region that the peer shared: presents the token over the authenticated control channel, and receives the
 * access path to the memory.
 *
 * @param timeout  nanoseconds; 0 means the context's operation_timeout
 * @return 0; -EINVAL if it is no token or damaged; -EACCES if the peer does not know it, it was revoked or has expired;
 *         -EBUSY if the peer has no room for more imports; -ECONNRESET if the connection is lost; -ETIMEDOUT; -ENOMEM
 */
int pl_remote_import(struct pl_peer *peer, const void *token, size_t length, uint64_t timeout,
		     struct pl_remote **remote, struct pl_error *error);

/**
 * Imports without blocking: the completion has the handle in `remote`, or an error of pl_remote_import(). The time limit
 * is the context's operation_timeout. Thread-safe.
 *
 * @return 0 if the import has begun; -EINVAL if it is no token or damaged; -ECONNRESET if the connection is lost; -ENOMEM
 */
int pl_remote_import_start(struct pl_peer *peer, const void *token, size_t length, uint64_t user_data,
			   struct pl_operation **operation, struct pl_error *error);

/** Returns the bytes that a remote region covers. */
size_t pl_remote_length(const struct pl_remote *remote);

/** Returns the rights of a remote region: `enum pl_access` flags. */
unsigned pl_remote_rights(const struct pl_remote *remote);

/** Releases a remote region. Running operations that use it continue. */
void pl_remote_release(struct pl_remote *remote);

/**
 * Imports all regions of a blob in one round trip. Blocks. Thread-safe.
 *
 * @param blob  of pl_regions_share() of the peer's context; read during the call only
 * @param timeout  nanoseconds for all; 0 means the context's operation_timeout
 * @param set  receives the set, for pl_remote_set_release(); one set may be used by several threads
 * @return 0; -EINVAL if it is no blob or damaged; errors of pl_remote_import(). The error's object then names the region,
 *         "region 3", from 0. After a failure nothing is imported.
 */
int pl_remote_set_import(struct pl_peer *peer, const void *blob, size_t length, uint64_t timeout,
			 struct pl_remote_set **set, struct pl_error *error);

/** Returns the number of regions in a set. */
size_t pl_remote_set_count(const struct pl_remote_set *set);

/** Returns a region by its position in pl_regions_share(), from 0; NULL beyond the last. The set keeps it. */
struct pl_remote *pl_remote_set_get(const struct pl_remote_set *set, size_t index);

/**
 * Finds the remote region that contains a range, by the address that the memory has in the owner's process.
 *
 * @param length  bytes, all in one region; 0: the address alone, which may be the end of a region
 * @param remote  receives the remote region, which the set keeps
 * @param offset  receives the range's first byte in it
 * @return 0; -ENOENT: no region of the set contains the range
 */
int pl_remote_set_find(const struct pl_remote_set *set, uint64_t address, uint64_t length, struct pl_remote **remote,
		       uint64_t *offset);

/** Releases a set and its remote regions; NULL is allowed. Running operations continue. */
void pl_remote_set_release(struct pl_remote_set *set);

/* ------------------------------------------------------------------------------------------------
 * Operations
 */

/**
 * Visibility of the bytes at their destination when an operation completes, in rising order.  pl_write(3) says what
 * each level costs and which guarantee of the hardware it uses.
 */
enum pl_visible {
	PL_VISIBLE_DEFAULT = 0,      /**< PL_VISIBLE_ACKNOWLEDGED */
	PL_VISIBLE_ON_WIRE = 1,      /**< the source buffer can be reused; nothing more */
	PL_VISIBLE_ACKNOWLEDGED = 2, /**< the peer has the bytes: a later message or notification finds them */
	PL_VISIBLE_PLACED = 3,       /**< the bytes are in the destination's memory, for every reader */
	PL_VISIBLE_GPU_VISIBLE = 4,  /**< kernels that start now read the bytes; flushed where the device needs it */
};

/** Flags of an operation. */
enum pl_flag {
	PL_REQUIRE_DIRECT = 1u << 0, /**< fail with -ENOTSUP rather than go through a staging buffer */
	PL_FENCE = 1u << 1,          /**< begin only when all earlier operations with this peer completed */
	/**
	 * pl_write(), pl_read(): after success, notify the peer with `notify` and `notify_data`. The notification of an
	 * operation that is cancelled, or whose time ends, may arrive too; then all its bytes are placed.
	 */
	PL_NOTIFY = 1u << 2,
	PL_MORE = 1u << 3, /**< another operation with this peer follows at once: begin with that one */
	PL_AFTER_STREAM =
		1u << 4, /**< begin when the work so far of the CUDA stream `stream` is done; not of receives */
	/**
	 * pl_send_copy(): the message travels encrypted, over the control channel if the data sockets are not encrypted.
	 * Such messages keep their order among themselves; others may overtake them. The operation completes when the
	 * message is handed to the connection (PL_VISIBLE_ON_WIRE).
	 */
	PL_CONFIDENTIAL = 1u << 5,
	/**
	 * pl_write(), pl_read(): return without waiting for copies by a GPU, so that several are under way. The peer's
	 * engine polls their end. Has no effect on other copies.
	 */
	PL_NO_WAIT = 1u << 6,
};

/** The most data of a notification, in bytes. */
#define PL_NOTIFY_DATA_MAX 1024

/** Attributes of an operation. NULL means defaults. */
struct pl_attributes {
	size_t size;
	enum pl_visible visible; /**< default PL_VISIBLE_ACKNOWLEDGED */
	unsigned flags;          /**< `enum pl_flag` */
	uint64_t timeout;        /**< nanoseconds; 0: the context's; UINT64_MAX: none */
	uint64_t user_data;      /**< returned in the completion */
	uint64_t notify;         /**< value for PL_NOTIFY */
	const void *notify_data; /**< data for PL_NOTIFY, copied by the call; NULL: none */
	size_t notify_length;    /**< bytes of notify_data, at most PL_NOTIFY_DATA_MAX */
	/**
	 * For PL_AFTER_STREAM: a CUstream or cudaStream_t; NULL: the legacy default stream of the current context. The
	 * call records an event there and does not wait. The operation's timeout includes the time on the stream.
	 * Later messages and notifications wait behind a message that waits. While operations wait for streams, the
	 * peer's engine polls events and its thread does not sleep. A stream that is being captured is refused with
	 * -EINVAL; if the work on the stream fails, the operation ends with -EFAULT.
	 */
	void *stream;
};
/* clang-format off */
#define PL_ATTRIBUTES_INIT { sizeof(struct pl_attributes), PL_VISIBLE_DEFAULT, 0, 0, 0, 0, NULL, 0, NULL }
/* clang-format on */

/**
 * Waits until the work so far of a CUDA stream is done, without linking with CUDA.  Thread-safe.
 *
 * @param stream  CUstream or cudaStream_t; NULL: the legacy default stream of the current context
 * @param timeout  nanoseconds; UINT64_MAX: none; 0: only looks
 * @return 0; -ETIMEDOUT; -EINVAL (the stream is being captured); -EFAULT (its work failed); -ENODEV (the process has no
 *         CUDA driver); -ENOTSUP (the driver is too old); -ENOMEM
 */
int pl_stream_wait(void *stream, uint64_t timeout, struct pl_error *error);

/** Kinds of operations and events. */
enum pl_kind {
	PL_KIND_WRITE = 1,
	PL_KIND_READ,
	PL_KIND_SEND,
	PL_KIND_RECEIVE,
	PL_KIND_FETCH_ADD,
	PL_KIND_COMPARE_SWAP,
	PL_KIND_NOTIFY,
	PL_KIND_NOTIFIED, /**< event, by pl_poll() only: a notification of the peer arrived; `user_data` is the peer's */
	PL_KIND_CONNECT,
	PL_KIND_ACCEPT,
	PL_KIND_IMPORT,
	PL_KIND_LOST, /**< event, by pl_poll() only: the connection to a peer is lost; `user_data` is the peer's */
	PL_KIND_FRAME, /**< event, by pl_poll() only: pl_subscriber_take() has something; `user_data` is the subscriber's */
};

/** Route of the bytes of an operation. */
enum pl_route {
	PL_ROUTE_NONE = 0, /**< no bytes moved */
	PL_ROUTE_DIRECT,   /**< the fabric reached the memory itself */
	PL_ROUTE_STAGED,   /**< through pinned host memory */
};

/**
 * Record of a finished operation, or of an event, filled by pl_poll(), pl_wait() and pl_test().  128 bytes: two cache
 * lines of x86-64.
 */
struct pl_completion {
	uint64_t user_data;   /**< from the attributes */
	struct pl_peer *peer; /**< NULL if the peer was closed meanwhile */
	union {
		struct pl_remote *remote; /**< PL_KIND_IMPORT: the new handle */
		void *data;               /**< PL_KIND_NOTIFIED: data, for pl_notification_free(); or NULL */
	};
	uint64_t bytes;         /**< payload bytes moved; 8 for an atomic operation */
	uint64_t bytes_staged;  /**< of these, bytes staged at either end, as far as this end knows */
	uint64_t tag;           /**< PL_KIND_RECEIVE: the message's tag */
	uint64_t value;         /**< atomics: the old value; PL_KIND_NOTIFIED: the peer's value */
	uint64_t posted;        /**< CLOCK_MONOTONIC nanoseconds of the call that posted the operation */
	uint64_t completed;     /**< CLOCK_MONOTONIC nanoseconds of the completion */
	const char *fabric;     /**< "local", "verbs" or "tcp"; static storage */
	const char *reason;     /**< reason for this route; static storage */
	const char *visibility; /**< mechanism that made the bytes visible; static storage; NULL if no bytes moved */
	uint32_t data_length;   /**< PL_KIND_NOTIFIED: bytes at data */
	int32_t status;         /**< 0 or a negative errno */
	uint32_t error;         /**< for pl_completion_error(); 0 if status is 0 */
	uint32_t kind;          /**< `enum pl_kind` */
	uint32_t route;         /**< `enum pl_route` */
	uint32_t visible;       /**< `enum pl_visible`: at least the level asked for, if status is 0 */
	uint32_t rail;          /**< lowest number of the cards or sockets that carried bytes, from 0 */
	uint32_t lanes;         /**< number of cards or sockets that carried bytes */
};

/** One contiguous range of a remote region and the equally long range of a local region. */
struct pl_transfer {
	struct pl_remote *remote; /**< imported from the peer of the operation */
	uint64_t remote_offset;   /**< first byte in the remote region */
	struct pl_region *region; /**< local region of the peer's context */
	uint64_t offset;          /**< first byte in the local region */
	uint64_t length;          /**< bytes; 0 is allowed and completes once the peer answered */
};

/** One contiguous range of a local region. */
struct pl_buffer {
	struct pl_region *region;
	uint64_t offset; /**< first byte in the region */
	uint64_t length; /**< bytes */
};

/**
 * Writes to a remote region (one-sided: the peer's program does nothing).
 *
 * @param transfer  source (region) and destination (remote region); read during the call only
 * @param attributes  NULL for defaults
 * @param operation  receives a handle that must be given to pl_wait(), pl_try_wait() or pl_test() until it is used up;
 *                   NULL: pl_poll() delivers the completion
 * @return 0: posted, and completed exactly once in bounded time. Otherwise not posted: -EINVAL, -ERANGE (outside the
 *         region or remote region), -EACCES (the grant lacks the right), -ENOTCONN (the connection is lost), -ENOTSUP,
 *         -EMSGSIZE (too much notification data), -ENOMEM
 *
 * The source must not be changed until the operation completed. Operations are not ordered with respect to each other
 * (see PL_FENCE), except messages and notifications among themselves. Completion statuses: -EACCES (revoked, expired or
 * out of the grant at the peer), -ECONNRESET (peer lost), -EFAULT (the memory at either end is not mapped any more),
 * -ETIMEDOUT, -ECANCELED. After a failure an unknown part of the destination was written, or will be; but never after
 * operations that are posted once this one has completed.
 */
int pl_write(struct pl_peer *peer, const struct pl_transfer *transfer, const struct pl_attributes *attributes,
	     struct pl_operation **operation, struct pl_error *error);

/** Reads from a remote region into a local one. As pl_write(), in the other direction. */
int pl_read(struct pl_peer *peer, const struct pl_transfer *transfer, const struct pl_attributes *attributes,
	    struct pl_operation **operation, struct pl_error *error);

/** Most elements of a vectored operation. */
#define PL_TRANSFERS_MAX 1048576

/**
 * Writes several ranges as one operation with one completion. The array is copied. If an element is wrong, the error's
 * object names it ("element 17", counted from 0).
 */
int pl_writev(struct pl_peer *peer, const struct pl_transfer *transfers, size_t count,
	      const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/** Reads several ranges as one operation with one completion. As pl_writev(). */
int pl_readv(struct pl_peer *peer, const struct pl_transfer *transfers, size_t count,
	     const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

struct pl_vector; /**< elements that were checked once, to be posted many times (prepared vector) */

/**
 * Prepares a vector: checks its elements once and keeps them. Its regions and remote regions stay in use until
 * pl_vector_free(): deregistering one of the regions fails with -EBUSY before.
 *
 * @param kind       PL_KIND_WRITE or PL_KIND_READ
 * @param transfers  elements, copied
 * @param count      1 to PL_TRANSFERS_MAX
 * @param vector     receives the handle; free it before the peer is closed
 * @return as pl_writev(); -EINVAL for another kind
 */
int pl_vector_prepare(struct pl_peer *peer, enum pl_kind kind, const struct pl_transfer *transfers, size_t count,
		      struct pl_vector **vector, struct pl_error *error);

/**
 * Posts a prepared vector as one operation, with other offsets. The elements are not checked again; the call compares
 * two offsets.
 *
 * @param remote_shift  added to the remote offset of each element, in bytes
 * @param shift         added to the local offset of each element, in bytes
 * @return as pl_writev(); -ERANGE if an element would leave its region or remote region
 */
int pl_vector_post(struct pl_vector *vector, uint64_t remote_shift, uint64_t shift,
		   const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/** Frees a prepared vector. Running operations of it continue. NULL is accepted. */
void pl_vector_free(struct pl_vector *vector);

/**
 * Sends a message of any size. It meets the peer's first posted receive that accepts its tag; messages with equal tags
 * are received in the order sent. Large messages wait at this end until the receive is posted, and then go straight
 * into the posted buffer.
 *
 * Completes, by default, when the buffer can be reused and, for large messages, the peer has the bytes. The buffer must
 * not be changed until then.
 *
 * @return as pl_write()
 */
int pl_send(struct pl_peer *peer, uint64_t tag, const struct pl_buffer *buffer, const struct pl_attributes *attributes,
	    struct pl_operation **operation, struct pl_error *error);

/** Most bytes of a message of pl_send_copy(). */
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
 * @param buffer  destination; NULL: for an empty message, without a region
 *
 * The completion has the message's length in `bytes` and its tag in `tag`. A message longer than the buffer is dropped
 * and completes the receive with -EMSGSIZE; `bytes` has its length.
 *
 * @return as pl_write()
 */
int pl_receive(struct pl_peer *peer, uint64_t tag, uint64_t mask, const struct pl_buffer *buffer,
	       const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/**
 * Sends a number, and up to PL_NOTIFY_DATA_MAX bytes, to the peer. Both arrive there through pl_poll() as
 * PL_KIND_NOTIFIED, in order with messages and other notifications.
 *
 * @param data  copied by the call; NULL: none
 * @param length  bytes of data
 * @return as pl_write(); -EMSGSIZE for more data; -ENOTSUP if the other end's release accepts no data
 */
int pl_notify(struct pl_peer *peer, uint64_t value, const void *data, size_t length,
	      const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error);

/** An atomic operation on a 64-bit word of a remote region. */
struct pl_atomic {
	struct pl_remote *remote;
	uint64_t remote_offset; /**< of the word; the address must be a multiple of 8 */
	uint64_t operand;       /**< pl_fetch_add(): the addend; pl_compare_swap(): the new value */
	uint64_t compare;       /**< pl_compare_swap(): the value expected */
	uint64_t *old;          /**< receives the old value; valid until the operation completes; NULL: not wanted */
};

/**
 * Adds to a 64-bit word of a remote region, atomically with respect to all operations of this kind through this library
 * on that context. The word is in the target's byte order. The completion has the old value. Over verbs the operation
 * is atomic with respect to operations through the same device only.
 */
int pl_fetch_add(struct pl_peer *peer, const struct pl_atomic *atomic, const struct pl_attributes *attributes,
		 struct pl_operation **operation, struct pl_error *error);

/** Replaces a 64-bit word by `operand` if it equals `compare`. The old value tells if it did. */
int pl_compare_swap(struct pl_peer *peer, const struct pl_atomic *atomic, const struct pl_attributes *attributes,
		    struct pl_operation **operation, struct pl_error *error);

/* ------------------------------------------------------------------------------------------------
 * Completion
 */

/**
 * Waits until an operation is done, and uses its handle up.
 *
 * @param timeout  nanoseconds from now. At its end the operation is cancelled; the call then still waits, in bounded
 *                 time, until the local buffer is no longer used. UINT64_MAX: no limit but the operation's own
 * @param completion  filled if not NULL, on success and on failure
 * @return the operation's status: 0 or a negative errno; -ETIMEDOUT if the cancellation ended it
 */
int pl_wait(struct pl_operation *operation, uint64_t timeout, struct pl_completion *completion, struct pl_error *error);

/**
 * Tests if an operation is done. If so its handle is used up.
 *
 * @return -EINPROGRESS if not done; else as pl_wait()
 */
int pl_test(struct pl_operation *operation, struct pl_completion *completion, struct pl_error *error);

/**
 * Waits until an operation is done, and uses its handle up then.  Unlike pl_wait() it leaves the operation running when
 * the time is over.
 *
 * @param timeout     nanoseconds from now; UINT64_MAX: no limit
 * @param completion  filled if not NULL and the operation is done
 * @return -EINPROGRESS if the operation is still running, and its handle valid; else as pl_wait()
 */
int pl_try_wait(struct pl_operation *operation, uint64_t timeout, struct pl_completion *completion,
		struct pl_error *error);

/**
 * Cancels an operation. It completes soon, with -ECANCELED or with the status that it has reached. The handle must
 * still be given to pl_wait(), pl_try_wait() or pl_test().
 */
void pl_cancel(struct pl_operation *operation);

/**
 * Cancels all operations of the context that were posted without a handle and with this user_data, as pl_cancel() does.
 * Each still completes through pl_poll(), with -ECANCELED or with the status that it has reached.
 *
 * @return the number of operations that were running
 */
int pl_cancel_posted(struct pl_context *context, uint64_t user_data);

/**
 * Cancels the operations with several values of user_data, as pl_cancel_posted() does, in one pass over all running
 * operations of the context. pl_cancel_posted() looks at the operations of its value only, but at all peers and listeners.
 *
 * @param user_data  values in ascending order; equal values are allowed
 * @param count  their number
 * @return the number of operations that were running; -EINVAL if the values do not ascend: none is cancelled then
 */
int pl_cancel_several_posted(struct pl_context *context, const uint64_t *user_data, size_t count);

/**
 * Cancels all operations of the context that were posted without a handle, as pl_cancel_posted() does, in one pass.
 *
 * @return the number of operations that were running
 */
int pl_cancel_all_posted(struct pl_context *context);

/**
 * Fills `error` with the detail of a completion that pl_poll() delivered with a negative status.  The context keeps
 * the last 128 different errors; of an older one, `error` has the status and its general text only.
 *
 * @param completion  copied from, not kept
 * @return completion->status; 0, with `error` unchanged, if the operation succeeded
 */
int pl_completion_error(struct pl_context *context, const struct pl_completion *completion, struct pl_error *error);

/** Frees the data of a notification (PL_KIND_NOTIFIED) and clears `data`.  Does nothing for other completions. */
void pl_notification_free(struct pl_context *context, struct pl_completion *completion);

/**
 * Collects completions of operations that were posted with a NULL handle, and events: PL_KIND_NOTIFIED, PL_KIND_LOST
 * once for each lost peer, and PL_KIND_FRAME (struct pl_subscriber_options in peerlane/stream.h). With PL_PROGRESS_MANUAL this call also moves data. Never blocks.
 *
 * @param completions  array; may be NULL if n is 0, to make progress only
 * @param n  its elements
 * @return the number filled, 0 to n
 */
int pl_poll(struct pl_context *context, struct pl_completion *completions, int n);

/**
 * Keeps notifications in the library, or lets pl_poll() deliver them again, in their order. A peer whose 1024 messages and
 * notifications were not collected sends no more, so a program bounds its memory and still collects completions. PL_KIND_LOST
 * of a peer may then come before its notifications. Of peers that the program has closed, the context keeps the last 16,384
 * notifications; pl_context_error_count() counts the others as EVENTS-DROPPED.  Thread-safe.
 */
void pl_notifications_hold(struct pl_context *context, bool hold);

/**
 * Returns a file descriptor that polls readable when pl_poll() has work or completions. It belongs to the context: add
 * it to epoll(7) or poll(2), do not read, write or close it. Call pl_poll() until it returns less than asked for before
 * waiting on it.
 *
 * @return the descriptor, or a negative errno
 */
int pl_fd(struct pl_context *context);

#ifdef __cplusplus
}
#endif

#endif
