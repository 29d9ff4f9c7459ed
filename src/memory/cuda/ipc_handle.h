/* SPDX-License-Identifier: BSD-2-Clause */
/* Description of GPU memory for another process of the host, whose driver opens it. */
#ifndef PL_MEMORY_CUDA_IPC_HANDLE_H
#define PL_MEMORY_CUDA_IPC_HANDLE_H

#include "memory/cuda/cuda.h"

/* Reason in completions. */
#define CUDA_STAGED "local: through host memory and a socket, as "
#define CUDA_TICKET_VERSION 3u

enum cuda_ticket_way {
	CUDA_TICKET_NONE, /* only its own process reaches the memory */
	CUDA_TICKET_IPC,
	CUDA_TICKET_HANDLES, /* one descriptor for each handle mapped there, in order */
	CUDA_TICKET_POOL,    /* descriptor of the pool */
};

/* Reason why the memory cannot be shared. */
enum cuda_ticket_why {
	CUDA_WHY_REFUSED,
	CUDA_WHY_HANDLES,
	CUDA_WHY_POOL,
	CUDA_WHY_MANY,
};

/* Between processes of one host; the version fixes the layout. */
struct cuda_ticket {
	uint16_t version;
	uint8_t way, why;
	uint32_t check;   /* cuda_ticket_check() */
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
_Static_assert(sizeof(struct cuda_ticket) == PL_IPC_HANDLE_MAX, "fits, without gaps");

/*
 * Checksum of all other members. The driver trusts its own data: cuIpcOpenMemHandle() and cuMemPoolImportPointer() of
 * CUDA 13.0 crash if one bit of it differs.
 */
uint32_t cuda_ticket_check(const struct cuda_ticket *ticket);

/* Types of opened descriptors. */
enum { CUDA_PART_HANDLE = 1, CUDA_PART_POOL };

/* vmm_handle.c and pool_share.c: called with the place's context current. The first returns false with the reason. */
bool cuda_handles_offer(const struct cuda_place *place, size_t length, struct cuda_ticket *ticket,
			struct pl_ipc_fds *parts);
/* Returns 0 with the address of the memory in *base, or a negative errno with the reason. */
int cuda_handles_take(const struct cuda_place *place, const struct cuda_ticket *ticket, struct pl_ipc_fds *parts,
		      CUdeviceptr *base, const char **why);
void cuda_handles_leave(const struct cuda_driver *driver, CUdeviceptr base, size_t size);
bool cuda_pool_offer(const struct cuda_place *place, size_t length, struct cuda_ticket *ticket,
		     struct pl_ipc_fds *parts);
int cuda_pool_take(const struct cuda_place *place, const struct cuda_ticket *ticket, struct pl_ipc_fds *parts,
		   CUdeviceptr *base, const char **why);

#endif
