/* SPDX-License-Identifier: BSD-2-Clause */
/* What the owner of GPU memory tells another process of the host, whose driver is to open it. */
#ifndef PL_MEMORY_CUDA_IPC_HANDLE_H
#define PL_MEMORY_CUDA_IPC_HANDLE_H

#include "memory/cuda/cuda.h"

/* Receipts say it so. */
#define CUDA_STAGED "local: by way of host memory and a socket, as "
#define CUDA_TICKET_VERSION 3u

enum cuda_ticket_way {
	CUDA_TICKET_NONE, /* only its own process reaches the memory */
	CUDA_TICKET_IPC,
	CUDA_TICKET_HANDLES, /* a descriptor for each handle that is mapped there, in order */
	CUDA_TICKET_POOL,    /* a descriptor of the pool */
};

/* Why there is no way. */
enum cuda_ticket_why {
	CUDA_WHY_REFUSED,
	CUDA_WHY_HANDLES,
	CUDA_WHY_POOL,
	CUDA_WHY_MANY,
};

/* Between processes of one host and, as both know the version, of one layout. */
struct cuda_ticket {
	uint16_t version;
	uint8_t way, why;
	uint32_t check;   /* cuda_ticket_check() */
	uint64_t address; /* in the owner */
	uint64_t offset;  /* in what is shared */
	uint64_t size;    /* of that */
	uint64_t id;      /* of the allocation: IPC handles may be used again */
	char pci[16];
	union {
		CUipcMemHandle handle;
		CUmemPoolPtrExportData pointer; /* in the pool */
	};
};
_Static_assert(sizeof(struct cuda_ticket) == PL_IPC_HANDLE_MAX, "fits, without gaps");

/*
 * Of everything else in it.  The driver believes what it once gave: cuIpcOpenMemHandle() and cuMemPoolImportPointer() of
 * CUDA 13.0 crash when a bit of that is another.
 */
uint32_t cuda_ticket_check(const struct cuda_ticket *ticket);

/* Types of parts that were opened. */
enum { CUDA_PART_HANDLE = 1, CUDA_PART_POOL };

/* handles.c and pool.c: with the place's context current.  The first: false, and why not. */
bool cuda_handles_offer(const struct cuda_place *place, size_t length, struct cuda_ticket *ticket,
			struct pl_ipc_fds *parts);
/* 0, with the address at which the memory lies in *base, or a negative errno, and why. */
int cuda_handles_take(const struct cuda_place *place, const struct cuda_ticket *ticket, struct pl_ipc_fds *parts,
		      CUdeviceptr *base, const char **why);
void cuda_handles_leave(const struct cuda_driver *driver, CUdeviceptr base, size_t size);
bool cuda_pool_offer(const struct cuda_place *place, size_t length, struct cuda_ticket *ticket,
		     struct pl_ipc_fds *parts);
int cuda_pool_take(const struct cuda_place *place, const struct cuda_ticket *ticket, struct pl_ipc_fds *parts,
		   CUdeviceptr *base, const char **why);

#endif
