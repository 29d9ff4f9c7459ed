/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of this folder: contexts of GPUs, pointers, copies. */
#ifndef PL_CUDA_H
#define PL_CUDA_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "memory/cuda/driver.h"
#include "memory/memory.h"

struct cuda_gathers;

/* CUDA context in which memory lives. Shared by all regions there; counted. */
struct cuda_gpu {
	struct pl_list link;
	const struct cuda_driver *driver;
	CUcontext context;
	CUdevice device;
	int ordinal;
	int node;     /* NUMA node of the host memory near the GPU; -1: unknown */
	bool primary; /* the GPU's primary context, retained here */
	bool created; /* context of this library, for copies alone */
	struct cuda_gpu *copies; /* its context makes the copies; counted; NULL: this one does */
	unsigned references;
	uint64_t number; /* of no other gpu, earlier or later: memory->device */
	CUstream stream; /* for synchronous copies; does not wait for the program's kernels */
	/*
	 * ipc_small_copy.c: times until which copies are made in rows, and then plainly; duration of the copy that
	 * caused the switch
	 */
	_Atomic uint64_t rows_until, plain_until, waited;
	atomic_uint slow_rows;  /* slow rows since the last quick one */
	_Atomic(struct cuda_gathers *) gathers; /* gather.c; NULL: none */
	bool gathers_tried;
	/* The program's streams or kernels wait for words, and can hold other work of the process up. */
	atomic_bool streams_wait;
	pthread_mutex_t atomic; /* protects words of this GPU that peers change atomically */
	char name[16];          /* PCI address */
	int writes_ordering, flush_options;
	int coherent; /* nonzero: a coherent link joins it with the processor (NVLink-C2C) */
	int host_pointers; /* nonzero: locked host memory has the processor's addresses in its kernels */
};

/* device.c: returns the gpu of a context; NULL: of the GPU's primary context. */
int cuda_gpu_get(const struct cuda_driver *driver, CUcontext context, int ordinal, struct cuda_gpu **gpu,
		 struct pl_error *error);
/* Counts one more user of a gpu that the caller's memory keeps. */
void cuda_gpu_hold(struct cuda_gpu *gpu);
void cuda_gpu_put(struct cuda_gpu *gpu);
/* Tells that kernels of the program can wait for copies: from now on copy engines do small copies of host bytes, too. */
void cuda_gpus_are_occupied(void);
/*
 * Returns the gpu in whose context copies of the memory of a gpu are made. If kernels of the program wait for copies, this is a context
 * for copies alone: a call of the program that waits for its kernels, such as one that loads a module, keeps other threads from its
 * context meanwhile.
 */
static inline struct cuda_gpu *cuda_gpu_for_copies(struct cuda_gpu *gpu)
{
	return gpu->copies ? gpu->copies : gpu;
}
/*
 * device.c: cuda_relax() makes calls of this thread possible while another thread captures a CUDA graph. In the mode that
 * threads have at first, GLOBAL, allocations, queries of events and waits fail then, and spoil the graph. Returns the mode
 * that the thread had, for cuda_unrelax(); -1: the driver does not change it.
 */
int cuda_relax(const struct cuda_driver *driver);
void cuda_unrelax(const struct cuda_driver *driver, int mode);
/*
 * Makes the context current for a few calls, whatever the caller's context is, and relaxes the thread. `mode`: of the
 * thread before, for cuda_leave(); not set if the call fails.
 */
CUresult cuda_enter(const struct cuda_gpu *gpu, int *mode);
void cuda_leave(const struct cuda_gpu *gpu, int mode);
CUresult cuda_enter_context(const struct cuda_driver *driver, CUcontext context, int *mode);
void cuda_leave_context(const struct cuda_driver *driver, int mode);

/* Properties of a range. (pointer.c) */
struct cuda_pointer {
	int ordinal;
	CUcontext context; /* NULL: memory of a pool, or mapped from handles */
	uint64_t buffer_id;
	bool managed;
	unsigned segments; /* allocations that the range spans */
};

/*
 * Returns 1 if the whole range is GPU memory, 0 if none of it is, or a negative errno with the reason if it cannot be
 * used.
 */
int cuda_pointer_inspect(const struct cuda_driver *driver, const void *address, size_t length,
			 struct cuda_pointer *pointer, struct pl_error *error);
/* Returns the allocation's number, which no other allocation of the process ever has; 0 if it no longer exists. */
uint64_t cuda_buffer_id(const struct cuda_driver *driver, const void *address);
/* True if the driver knows the address as locked host memory. */
bool cuda_pointer_is_locked(const struct cuda_driver *driver, const void *address);
/* The same of the first and the last byte of a range. */
bool cuda_ends_are_locked(const struct cuda_driver *driver, const void *address, size_t length);
/*
 * True if kernels of a GPU may read the host memory, and write to it if `written`, at the processor's addresses: it was locked by one
 * call, and thus is locked as a whole.
 */
bool cuda_kernel_uses_host(const struct cuda_gpu *gpu, const void *address, size_t length, bool written);

struct cuda_opening;

struct cuda_memory {
	struct cuda_gpu *gpu;
	struct cuda_pointer pointer;
	/* For another process's memory only: */
	struct cuda_opening *opening; /* opened by IPC */
	CUdeviceptr base;             /* address of the opened memory in this process */
	size_t mapped;                /* bytes mapped there from handles */
	bool imported;                /* from a pool */
	const struct cuda_gpu *beside; /* GPU whose kernels reach the memory; NULL: none is known */
};

static inline struct cuda_memory *cuda_memory_of(const struct pl_memory *memory)
{
	return memory->handle;
}

static inline CUdeviceptr cuda_address(const struct pl_memory *memory, size_t offset)
{
	return (CUdeviceptr)(uintptr_t)memory->address + offset;
}

/* Returns a gpu that this process uses already: of the GPU with that PCI address, else of any; NULL: it uses none. */
struct cuda_gpu *cuda_gpu_used(const struct cuda_driver *driver, const char *pci);

/* memory.c: allocates memory of a GPU; its bytes are 0 when this returns. */
CUresult cuda_allocate_zeroed(const struct cuda_gpu *gpu, size_t length, CUdeviceptr *address);

/* copy.c */
int cuda_copy_across(struct pl_memory *to, size_t to_offset, struct pl_memory *from, size_t from_offset, size_t length);
int cuda_queue_across(struct pl_copy_queue *queue, struct pl_memory *to, size_t to_offset, struct pl_memory *from,
		      size_t from_offset, size_t length, bool into, uint64_t *sequence);
int cuda_copy_in(struct pl_memory *memory, size_t offset, const void *from, size_t length);
/* Copies host bytes to an address of the GPU, and waits. Does not wait for the program's kernels. Returns 0 or -EFAULT. */
int cuda_copy_to_address(struct cuda_gpu *gpu, CUdeviceptr to, const void *from, size_t length);
int cuda_copy_out(struct pl_memory *memory, size_t offset, void *to, size_t length);
int cuda_queue_open(const struct pl_memory *memory, struct pl_copy_queue **queue, struct pl_error *error);
void cuda_queue_close(struct pl_copy_queue *queue);
int cuda_queue_begin(struct pl_copy_queue *queue, struct pl_memory *memory, size_t offset, void *host, size_t length,
		     bool into, uint64_t *sequence);
int cuda_queue_list(struct pl_copy_queue *queue, struct pl_memory_piece *pieces, unsigned count, bool into,
		    uint64_t *sequence);
int cuda_queue_done(struct pl_copy_queue *queue, bool into, uint64_t sequence, bool wait);

/* Start of a copy, and its method; 0: its time says nothing. */
struct cuda_clock {
	uint64_t begun;
	bool rows;
};

/*
 * ipc_small_copy.c: starts a copy of host bytes, by the method that does not wait for other processes of the GPU if an
 * earlier copy did. When the copy is done, cuda_ended() gets *clock to detect waiting.
 */
CUresult cuda_begin_into(struct cuda_gpu *gpu, CUdeviceptr to, const void *from, size_t length, CUstream stream,
			 struct cuda_clock *clock);
void cuda_ended(struct cuda_gpu *gpu, struct cuda_clock clock);
/* True if small copies must use a copy engine: they recently waited for other processes, or can wait for streams. */
bool cuda_needs_rows(struct cuda_gpu *gpu);

/* gather.c: as in ops.h. cuda_gather_close() ends the gathers of a GPU (NULL: none), or later, when its kernels have left. */
void cuda_gather_prepare(const struct pl_memory *memory);
void cuda_gather_close(struct cuda_gathers *gathers);
struct pl_gather *cuda_gather_take(const struct pl_memory *memory, unsigned count);
struct pl_gather_list *cuda_gather_keep(const struct pl_memory *memory, const struct pl_gather_range *ranges,
					unsigned count);
void cuda_gather_forget(struct pl_gather_list *list);
int cuda_gather_start(struct pl_gather *gather, unsigned blocks);
int cuda_gather_done(struct pl_gather *gather);
void cuda_gather_give(struct pl_gather *gather);

/* ipc.c */
int cuda_export_ipc(struct pl_memory *memory, size_t offset, size_t length, uint8_t handle[PL_IPC_HANDLE_MAX],
		    struct pl_ipc_fds *fds);
int cuda_import_ipc(const uint8_t *handle, size_t handle_length, size_t length, bool own,
		    const struct pl_memory *beside, struct pl_ipc_fds *fds, struct pl_memory *memory, const char **why);
void cuda_close_other(struct cuda_memory *own);
void cuda_close_ipc_fd(struct pl_ipc_fd *part);

/* stream.c */
int cuda_mark_new(void *stream, struct pl_stream_mark **mark, struct pl_error *error);
int cuda_mark_done(struct pl_stream_mark *mark);
void cuda_mark_free(struct pl_stream_mark *mark);
int cuda_stream_wait(const struct pl_memory *memory, void *stream, const uint64_t *word, uint64_t value,
		     struct pl_error *error);

/* dmabuf_export.c */
int cuda_export_dmabuf(struct pl_memory *memory, size_t offset, size_t length, uint64_t *skew);
int cuda_export_dmabuf_pcie(struct pl_memory *memory, size_t offset, size_t length, uint64_t *skew);
enum pl_memory_order cuda_order(const struct pl_memory *memory);
int cuda_flush(struct pl_memory *memory);

#endif
