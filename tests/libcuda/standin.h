/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stand-in for NVIDIA's libcuda, over host memory or over the memory of a PCI device, for tests without a GPU.
 * The stand-in is as strict as the driver.  The processor cannot access device memory: its addresses are mapped without
 * any right.  Copies refuse addresses that are not allocated.  Every call needs a current context.  A stream's thread
 * makes asynchronous copies later, so that a client that does not wait for them fails.
 */
#ifndef LIBCUDA_STANDIN_H
#define LIBCUDA_STANDIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define DEVICES 2
#define DEVICE_PAGE ((size_t)65536)

typedef int CUresult;
typedef uint64_t CUdeviceptr;

enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	INVALID_PTX = 218,
	NOT_FOUND = 500,
	NOT_READY = 600,
	PEER_ACCESS_UNSUPPORTED = 217,
	ILLEGAL_ADDRESS = 700,
	PEER_ACCESS_ALREADY_ENABLED = 704,
	ALREADY_REGISTERED = 712,
	NOT_REGISTERED = 713,
	NOT_SUPPORTED = 801,
	CAPTURE_UNSUPPORTED = 900,
};

#define SHAREABLE 1 /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */

/* Structures as in the driver's interface. */
struct location {
	int type, number;
};
struct properties {
	int type, handle_types;
	struct location location;
	void *windows;
	uint8_t flags[8];
};
struct access {
	struct location location;
	int flags;
};

enum kind { KIND_ALLOC, KIND_POOL, KIND_MAPPED, KIND_MANAGED, KIND_OPENED };

struct context {
	int device;
	bool primary;
	unsigned references; /* primary: number of retains; otherwise 1 until destroyed */
	unsigned reaches;    /* devices with enabled peer access, a bit each */
	struct context *next; /* destroyed before this one was */
};

struct pool;
struct handle;

struct allocation {
	struct allocation *next;
	CUdeviceptr address;
	size_t length;   /* length that the program asked for */
	size_t reserved; /* length in whole pages */
	uint8_t *bytes;  /* address at which this library reads and writes the memory */
	int fd;          /* file of the memory, or -1 */
	uint64_t id;
	enum kind kind;
	int device;
	struct context *context;  /* NULL: no context */
	unsigned openings;        /* number of openings, for memory of another process */
	uint64_t owner, owner_id; /* KIND_OPENED: owner's process id, and the allocation's id there */
	struct pool *pool;        /* KIND_POOL: pool of the memory */
	struct handle *handle;    /* KIND_MAPPED: mapped handle */
	unsigned reached;         /* KIND_MAPPED: devices with access, a bit each */
	bool ordered;             /* operations on it end before their calls return (SYNC_MEMOPS) */
};

/* Lock of all state except that of streams. */
extern pthread_mutex_t standin_lock;
extern bool standin_initialized;

/* Makes calls of this name fail `count` times, after `skip` calls that work. */
API void standin_fail(const char *call, unsigned skip, unsigned count, CUresult result);
/*
 * standin_stall() makes calls of this name wait until it is called with another name, or NULL. standin_stalled() returns the number
 * of calls that wait.
 */
API void standin_stall(const char *call);
API unsigned standin_stalled(void);
/* Lets one call go that waits so, and returns when it has gone. The next ones wait. */
API void standin_step(void);
/* Sets the minimum time of a copy in microseconds, also of those that run. */
API void standin_delay(unsigned microseconds);
/* Has cuStreamIsCapturing() say that streams are being captured. */
API void standin_capture(bool captured);
/*
 * standin_share() sets the microseconds that the compute engine delays each copy, as an engine that works for another
 * process does.  standin_waited() returns the number of delayed copies so far.
 */
API void standin_share(unsigned microseconds);
API size_t standin_waited(void);
/*
 * standin_pinned() returns the number of registered bytes.  standin_depth() returns the number of contexts on this
 * thread's stack: above 0 between calls, a client left a context there.
 */
API size_t standin_pinned(void);
API unsigned standin_depth(void);
/*
 * standin_hold() makes launched kernels wait, as they do while other kernels occupy all multiprocessors, until it is called
 * with false. standin_launched() returns the number of gather kernels with ranges that were launched so far.
 */
API void standin_hold(bool held);
API unsigned standin_launched(void);
/*
 * standin_load(true): a thread loads a module, and waits for the program's kernels: work for streams of primary contexts waits
 * until it is called with false.
 */
API void standin_load(bool loads);
/* Returns the number of single asynchronous copies between the host and devices that were started so far. */
API unsigned standin_copies(void);
/* Returns the number of copies between devices so far that the driver makes through host memory, for lack of access. */
API unsigned standin_through_host(void);
/* Returns the number of calls of cuEventQuery() so far. */
API unsigned standin_asked(void);
/* Returns the number of bytes copied between the host and devices so far. */
API size_t standin_copied(void);
/* Sets the write ordering and flush options that devices report from the next query on.  Initial values: (0, 1). */
API void standin_order(int ordering, int options);
/* Returns the number of calls of cuFlushGPUDirectRDMAWrites() so far. */
API unsigned standin_flushes(void);
/*
 * standin_opened() returns the number of open allocations of other processes.  standin_handles() returns the number of
 * unreleased handles, including imported ones.  standin_mapped() returns the number of mappings of handles.  standin_joined()
 * returns the number of times that a GPU got access to a mapping to which another one had it already.
 */
API size_t standin_opened(void);
API size_t standin_handles(void);
API size_t standin_mapped(void);
API unsigned standin_joined(void);

/* True if the call spoils a graph that another thread captures: it then returns CAPTURE_UNSUPPORTED. (capture.c) */
bool standin_spoils(void);

/* Returns the failure code that tests set for this call, or 0. */
CUresult standin_failure(const char *call);
/* Returns the current context, or NULL. (context.c) */
struct context *standin_current(void);
void standin_forget_events(struct context *context);

/* Default pools of the devices. standin_pool_reached() needs the lock. (pool.c) */
struct pool *standin_default_pool(int device);
bool standin_pool_reached(const struct pool *pool, int device);

/*
 * Makes memory, without adding it to the list of allocations.
 * `wanted` has length, kind and device, and a file or -1; the allocation takes the file over.  `at` is a reserved
 * address or 0.  Returns NULL without memory.
 */
struct allocation *standin_make(struct allocation wanted, CUdeviceptr at);

/* Functions that need the lock. (memory.c) */
void standin_add(struct allocation *made);
struct allocation *standin_remove(CUdeviceptr address);
bool standin_across(CUdeviceptr to, CUdeviceptr from, size_t length);
extern struct allocation *standin_allocations;
struct allocation *standin_find(CUdeviceptr address, size_t length);
/* Returns true if copies of a context reach an address. */
bool standin_reaches(const struct context *context, CUdeviceptr address);
/* Returns true if the device of a context itself reaches an address. */
bool standin_has_access(const struct context *context, CUdeviceptr address);
/*
 * Copies a range from or to host memory.  Returns false if part of the range is not allocated.  The range may span
 * adjacent allocations.
 */
bool standin_transfer(CUdeviceptr address, void *host, size_t length, bool into);
bool standin_is_pinned(const void *address, size_t length);
/* Returns a number that no allocation and no registration ever had. */
uint64_t standin_next_id(void);

/* Functions that need the lock. (host.c) */
/* Returns the number of the registration of host memory at an address; 0: none. */
uint64_t standin_registration(CUdeviceptr address);
/* Return the address for kernels, and their access flags, of host memory at an address; 0: it is not locked. */
CUdeviceptr standin_host_pointer(CUdeviceptr address);
unsigned standin_host_access(CUdeviceptr address);
/* Copies as a kernel does, between GPU memory and registered host memory. Returns false if it must not use part of a range. */
bool standin_move(CUdeviceptr to, CUdeviceptr from, size_t length);

/* Opens memory of another process.  `wanted` has length, device and context. (share.c) */
struct allocation *standin_open(uint64_t owner, uint64_t fd, struct allocation wanted);
void standin_close(struct allocation *opened);

/* Returns true if a handle came from another process. (handles.c) */
bool standin_imported(const struct handle *handle);

/* Launch of a kernel, which the stream computes in its turn. (stream.c) */
struct standin_kernel {
	bool (*compute)(const struct standin_kernel *kernel); /* false: part of the memory is not allocated */
	CUdeviceptr to, from;
	uint32_t words;
	const uint8_t *status;
	const uint64_t *ranges; /* of the library's gather: words to, from, length, unused of each of `words` ranges */
	uint64_t shifts[2];     /* added to all words `to`, and `from` */
	_Atomic uint32_t *state;
};
struct stream;
CUresult standin_launch(struct stream *stream, const struct standin_kernel *kernel);
/* Waits until all streams of the process are empty. (stream.c) */
void standin_finish_streams(void);

/* Returns unused addresses, in whole device pages. */
void *standin_reserve(size_t size);

/*
 * Backing: devices and their memory.  backing.c here uses host memory; tests/emulated/backing.c uses a PCI device.
 * An allocation has length, kind and `reserved` in whole pages.  Its address is `wanted`, which is reserved, or the
 * backing chooses one if `wanted` is 0.  backing_undo() leaves the address reserved if `kept` is true.
 */
int backing_devices(void);
void backing_name(int device, char *pci, size_t size);
bool backing_make(struct allocation *made, CUdeviceptr wanted);
void backing_undo(struct allocation *removed, bool kept);
/* Returns a file for the memory of handles.  Negative: the backing has no files, and its handles are not shared. */
int backing_file(size_t size);
/* Returns a dma-buf, or the backing's substitute for one.  Negative: none. */
int backing_export(const struct allocation *of, CUdeviceptr address, size_t length);

#endif
