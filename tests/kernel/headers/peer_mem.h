/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Stand-in for OFED's header, with declarations in the original's style. */
#if !defined(PEER_MEM_H)
#define PEER_MEM_H

#include <linux/types.h>

struct device;
struct sg_table;

#define IB_PEER_MEMORY_NAME_MAX 64
#define IB_PEER_MEMORY_VER_MAX 16

enum {
	PEER_MEM_INVALIDATE_UNMAPS = 1 << 0,
};

struct peer_memory_client {
	char name[IB_PEER_MEMORY_NAME_MAX];
	char version[IB_PEER_MEMORY_VER_MAX];
	int (*acquire)(unsigned long start, size_t length, void *private_data, char *name, void **context);
	int (*get_pages)(unsigned long start, size_t length, int writable, int force, struct sg_table *table,
			 void *context, u64 core_context);
	int (*dma_map)(struct sg_table *table, void *context, struct device *device, int sync, int *entries);
	int (*dma_unmap)(struct sg_table *table, void *context, struct device *device);
	void (*put_pages)(struct sg_table *table, void *context);
	unsigned long (*get_page_size)(void *context);
	void (*release)(void *context);
	void *(*get_context_private_data)(u64 id);
	void (*put_context_private_data)(void *context);
};

struct peer_memory_client_ex {
	struct peer_memory_client client;
	size_t ex_size;
	u32 flags;
};

typedef int (*invalidate_peer_memory)(void *handle, u64 core_context);

void *ib_register_peer_memory_client(const struct peer_memory_client *client, invalidate_peer_memory *callback);
void ib_unregister_peer_memory_client(void *handle);

#endif
