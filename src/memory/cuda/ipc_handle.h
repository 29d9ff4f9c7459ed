/* SPDX-License-Identifier: BSD-2-Clause */
/* Description of GPU memory for another process of the host, whose driver opens it. */
#ifndef PL_MEMORY_CUDA_IPC_HANDLE_H
#define PL_MEMORY_CUDA_IPC_HANDLE_H

#include "memory/cuda/cuda.h"

/* Reason in completions. */
#define CUDA_STAGED "local: through host memory and a socket, as "
#define CUDA_IPC_VERSION 3u

enum cuda_ipc_handle_way {
	CUDA_IPC_NONE, /* only its own process reaches the memory */
	CUDA_IPC_MEM,
	CUDA_IPC_HANDLES, /* one descriptor for each handle mapped there, in order */
	CUDA_IPC_POOL,    /* descriptor of the pool */
};

/* Reason why the memory cannot be shared. */
enum cuda_ipc_handle_why {
	CUDA_WHY_REFUSED,
	CUDA_WHY_HANDLES,
	CUDA_WHY_POOL,
	CUDA_WHY_MANY,
};

/* Between processes of one host; the version fixes the layout. */
struct cuda_ipc_handle {
	uint16_t version;
	uint8_t method, why;
	uint32_t check;   /* cuda_ipc_handle_check() */
	uint64_t address; /* address in the owner */
	uint64_t offset;  /* offset in the shared memory */
	uint64_t size;    /* size of the shared memory */
	uint64_t id;      /* number of the allocation: IPC handles may be used again */
	char pci[16];
	union {
		CUipcMemHandle handle;
		CUmemPoolPtrExportData pointer; /* pointer in the pool */
	};
};
_Static_assert(sizeof(struct cuda_ipc_handle) == PL_IPC_HANDLE_MAX, "fits, without gaps");

/*
 * Checksum of all other members. The driver trusts its own data: cuIpcOpenMemHandle() and cuMemPoolImportPointer() of
 * CUDA 13.0 crash if one bit of it differs.
 */
uint32_t cuda_ipc_handle_check(const struct cuda_ipc_handle *ipc);

/* Types of opened descriptors. */
enum { CUDA_FD_HANDLE = 1, CUDA_FD_POOL };

/* vmm_handle.c and pool_share.c: called with the gpu's context current. The first returns false with the reason. */
bool cuda_handles_export(const struct cuda_gpu *gpu, size_t length, struct cuda_ipc_handle *ipc,
			 struct pl_ipc_fds *fds);
/* Returns 0 with the address of the memory in *base, or a negative errno with the reason. */
int cuda_handles_import(const struct cuda_gpu *gpu, const struct cuda_ipc_handle *ipc, struct pl_ipc_fds *fds,
			CUdeviceptr *base, const char **why);
void cuda_handles_leave(const struct cuda_driver *driver, CUdeviceptr base, size_t size);
bool cuda_pool_export(const struct cuda_gpu *gpu, size_t length, struct cuda_ipc_handle *ipc, struct pl_ipc_fds *fds);
int cuda_pool_import(const struct cuda_gpu *gpu, const struct cuda_ipc_handle *ipc, struct pl_ipc_fds *fds,
		     CUdeviceptr *base, const char **why);

/*
 * own_memory.c: takes memory of this process for copies with `beside`: ipc->address. Sets ipc->offset. Returns 0 or a negative
 * errno with the reason, as in completions. *reason is NULL if no host memory takes part.
 */
int cuda_take_own(const struct cuda_driver *driver, struct cuda_ipc_handle *ipc, size_t length,
		  const struct pl_memory *beside, struct cuda_memory *own, const char **reason);
/*
 * Maps memory of this process, at own->base, a second time, for the copies of another GPU. Sets own->base and own->mapped, and
 * the memory's offset in the mapping.
 */
bool cuda_handles_map_again(const struct cuda_gpu *gpu, size_t length, struct cuda_memory *own, uint64_t *offset);

#endif
