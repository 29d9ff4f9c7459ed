/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The interface between IB core and clients, owners of memory that IB core cannot pin itself.  MLNX_OFED, DOCA-OFED
 * and patched kernels have it.  The declarations are the module's own; interface.c compares them with installed ones.
 */
#ifndef PEERLANE_PEER_MEMORY_H
#define PEERLANE_PEER_MEMORY_H

#include <linux/types.h>

#include "layout.h"

struct device;
struct sg_table;

#ifndef PM_THEIR_PEER_MEMORY
#define IB_PEER_MEMORY_NAME_MAX 64
#define IB_PEER_MEMORY_VER_MAX 16

struct peer_memory_client {
	char name[IB_PEER_MEMORY_NAME_MAX];
	char version[IB_PEER_MEMORY_VER_MAX];
	/* Returns 1 if the memory is this client's. */
	int (*acquire)(unsigned long addr, size_t size, void *peer_mem_private_data, char *peer_mem_name,
		       void **client_context);
	int (*get_pages)(unsigned long addr, size_t size, int write, int force, struct sg_table *sg_head,
			 void *client_context, u64 core_context);
	int (*dma_map)(struct sg_table *sg_head, void *client_context, struct device *dma_device, int dmasync,
		       int *nmap);
	int (*dma_unmap)(struct sg_table *sg_head, void *client_context, struct device *dma_device);
	void (*put_pages)(struct sg_table *sg_head, void *client_context);
	unsigned long (*get_page_size)(void *client_context);
	void (*release)(void *client_context);
	void *(*get_context_private_data)(u64 peer_id);
	void (*put_context_private_data)(void *context);
};

/* Flag: the client itself unmaps and unpins invalidated regions.  IB core calls no callback while it invalidates. */
#define PEER_MEM_INVALIDATE_UNMAPS 1

/* Client with more members.  Byte IB_PEER_MEMORY_VER_MAX - 1 of the version is 1 to announce them. */
struct peer_memory_client_ex {
	struct peer_memory_client client;
	size_t ex_size;
	u32 flags;
};

/* Invalidates a region: returns after the last device has stopped using the memory. */
typedef int (*invalidate_peer_memory)(void *reg_handle, u64 core_context);

#endif

/* Values and layouts that the module relies on, whether declared here or in OFED's header. */
_Static_assert(IB_PEER_MEMORY_NAME_MAX == 64 && IB_PEER_MEMORY_VER_MAX == 16, "names and versions of clients");
PM_LAYOUT(struct peer_memory_client, acquire, 80, 8);
PM_LAYOUT(struct peer_memory_client, get_pages, 88, 8);
PM_LAYOUT(struct peer_memory_client, dma_map, 96, 8);
PM_LAYOUT(struct peer_memory_client, dma_unmap, 104, 8);
PM_LAYOUT(struct peer_memory_client, put_pages, 112, 8);
PM_LAYOUT(struct peer_memory_client, get_page_size, 120, 8);
PM_LAYOUT(struct peer_memory_client, release, 128, 8);
/* The header of MLNX_OFED 4.9 ends here. */
#ifndef PM_THEIR_OLD_PEER_MEMORY
_Static_assert(PEER_MEM_INVALIDATE_UNMAPS == 1, "flags of clients");
PM_LAYOUT(struct peer_memory_client_ex, ex_size, sizeof(struct peer_memory_client), 8);
PM_LAYOUT(struct peer_memory_client_ex, flags, sizeof(struct peer_memory_client) + 8, 4);
#endif

__weak void *ib_register_peer_memory_client(const struct peer_memory_client *peer_client,
					    invalidate_peer_memory *invalidate_callback);
void __weak ib_unregister_peer_memory_client(void *reg_handle);

#endif
