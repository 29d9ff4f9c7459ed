/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stand-in for NVIDIA's libcuda, over host memory or a PCI device's, for tests where there is no GPU.  It is strict where the
 * driver is: device memory cannot be touched by the processor (its addresses are mapped without any right),
 * copies refuse addresses that are not allocated, everything wants a current context, and asynchronous copies
 * are made later, by a thread of the stream's, so that who does not wait for them is found out.
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
};

#define SHAREABLE 1 /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */

/* As the driver's interface has them. */
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
	unsigned references; /* primary: retained; otherwise 1 until destroyed */
	unsigned reaches;    /* other devices, a bit each */
};

struct pool;
struct handle;

struct allocation {
	struct allocation *next;
	CUdeviceptr address;
	size_t length;   /* as asked for */
	size_t reserved; /* whole pages */
	uint8_t *bytes;  /* where this library reads and writes it */
	int fd;          /* the backing's own */
	uint64_t id;
	enum kind kind;
	int device;
	struct context *context; /* NULL: of none */
	unsigned openings;       /* of memory of another process */
	uint64_t owner, there;   /* whose, and its number there */
	struct pool *pool;       /* of KIND_POOL */
	struct handle *handle;   /* of KIND_MAPPED */
	unsigned reached;        /* devices that were given access, a bit each; of KIND_MAPPED */
};

/* One lock for all that is not a stream's. */
extern pthread_mutex_t standin_lock;
extern bool standin_initialized;

/* What tests ask for: the call of that name fails, after `skip` calls that work, `count` times. */
API void standin_fail(const char *call, unsigned skip, unsigned count, CUresult result);
/* Microseconds that a copy takes at least. */
API void standin_delay(unsigned microseconds);
/*
 * Microseconds that the compute engine makes a copy wait, as one does that works for another process, and the copies that
 * waited for it so far.
 */
API void standin_share(unsigned microseconds);
API size_t standin_waited(void);
/* Bytes that are registered now, and calls that broke a rule of the driver's (a context left on the stack). */
API size_t standin_pinned(void);
API unsigned standin_depth(void);
/* Bytes that were copied between the host and devices so far. */
API size_t standin_copied(void);
/* What a device says of the order of cards' writes, from the next question on: (0, 1) to begin with. */
API void standin_order(int ordering, int options);
/* Calls of cuFlushGPUDirectRDMAWrites() so far. */
API unsigned standin_flushes(void);
/* Memory of other processes that is open now; handles, of whichever process, that nobody released yet. */
API size_t standin_opened(void);
API size_t standin_handles(void);

/* The result that a call is to fail with now, or 0. */
CUresult standin_failure(const char *call);
/* The current context, or NULL. (context.c) */
struct context *standin_current(void);
void standin_forget_events(struct context *context);

/* The memory of a device's own pool is of this one. (pool.c) */
extern struct pool standin_pool;

/*
 * Memory in its place, not yet among all there is: its length, kind and device are known, and its file, if it has one,
 * which becomes its own.  `at`: an address that is reserved, or 0.  NULL: there is no memory.
 */
struct allocation *standin_make(struct allocation wanted, CUdeviceptr at);

/* Under the lock. (memory.c) */
void standin_add(struct allocation *made);
struct allocation *standin_remove(CUdeviceptr address);
bool standin_across(CUdeviceptr to, CUdeviceptr from, size_t length);
extern struct allocation *standin_allocations;
struct allocation *standin_find(CUdeviceptr address, size_t length);
/* Whether a context's copies reach an address. */
bool standin_reaches(const struct context *context, CUdeviceptr address);
/* The bytes of a range, if it is allocated; NULL if not.  May span allocations that lie side by side: copies. */
bool standin_transfer(CUdeviceptr address, void *host, size_t length, bool into);
bool standin_is_pinned(const void *address, size_t length);

/* Memory of another process, in place, of which the length, the device and more are known. (share.c) */
struct allocation *standin_open(uint64_t owner, uint64_t fd, struct allocation wanted);
void standin_close(struct allocation *opened);

/* Whether a handle came from another process.  (handles.c) */
bool standin_imported(const struct handle *handle);

/* Words that are to be computed, once the stream comes to it. (stream.c) */
struct standin_kernel {
	CUdeviceptr to, from;
	uint32_t words;
};
struct stream;
CUresult standin_launch(struct stream *stream, const struct standin_kernel *kernel);

/* Addresses that nothing is at, in whole pages of the device's. */
void *standin_reserve(size_t size);

/*
 * Where the devices and their memory are: in backing.c the host's memory, in tests/emulated a PCI device's.  Of an
 * allocation the length, the kind and whole pages as `reserved` are known; its address is one that was reserved, or
 * chosen by the backing if `wanted` is 0.  Once it is gone a reserved address stays so (`kept`).
 */
int backing_devices(void);
void backing_name(int device, char *pci, size_t size);
bool backing_make(struct allocation *made, CUdeviceptr wanted);
void backing_undo(struct allocation *gone, bool kept);
/* A file for memory of handles; negative if the backing keeps its memory otherwise: such is not shared. */
int backing_file(size_t size);
/* A dma-buf, or as near as the backing comes to one; negative if there is none. */
int backing_export(const struct allocation *of, CUdeviceptr address, size_t length);

#endif
