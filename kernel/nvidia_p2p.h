/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The part of NVIDIA's interface for drivers of other devices that this module uses.  The declarations are the module's
 * own, so that it builds without the driver's headers.  interface.c compares them with installed headers.
 *
 * All functions are weak: a function that the driver lacks is NULL, and the module logs the reason when it is loaded.
 */
#ifndef PEERLANE_NVIDIA_P2P_H
#define PEERLANE_NVIDIA_P2P_H

#include <linux/types.h>

#include "layout.h"

struct pci_dev;

/* Versions of the driver's structures: the upper 16 bits are the major number, the lower 16 bits the minor number. */
#define NV_MAJOR(version) ((version) >> 16)

/* Structures of major versions 1 and 2 begin with the same members.  The module uses only these. */
#define NV_PAGE_TABLE_OLDEST 1
#define NV_PAGE_TABLE_NEWEST 2
#define NV_DMA_MAPPING_OLDEST 1
#define NV_DMA_MAPPING_NEWEST 2

#ifndef PM_THEIR_P2P
enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB = 0,
	NVIDIA_P2P_PAGE_SIZE_64KB,
	NVIDIA_P2P_PAGE_SIZE_128KB,
	NVIDIA_P2P_PAGE_SIZE_COUNT
};

struct nvidia_p2p_page;

/* Structures that the driver allocates.  Newer drivers may add members at the end. */
struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size; /* enum nvidia_p2p_page_size_type */
	struct nvidia_p2p_page **pages;
	u32 entries;
	u8 *gpu_uuid;
};

struct nvidia_p2p_dma_mapping {
	u32 version;
	enum nvidia_p2p_page_size_type page_size_type;
	u32 entries;
	u64 *dma_addresses;
};

#endif

/* Values and layouts that the module relies on, whether declared here or in the driver's header. */
_Static_assert(NVIDIA_P2P_PAGE_SIZE_4KB == 0, "sizes of pages");
_Static_assert(NVIDIA_P2P_PAGE_SIZE_64KB == 1, "sizes of pages");
_Static_assert(NVIDIA_P2P_PAGE_SIZE_128KB == 2, "sizes of pages");
PM_LAYOUT(struct nvidia_p2p_page_table, version, 0, 4);
PM_LAYOUT(struct nvidia_p2p_page_table, page_size, 4, 4);
PM_LAYOUT(struct nvidia_p2p_page_table, entries, 16, 4);
PM_LAYOUT(struct nvidia_p2p_dma_mapping, version, 0, 4);
PM_LAYOUT(struct nvidia_p2p_dma_mapping, page_size_type, 4, 4);
PM_LAYOUT(struct nvidia_p2p_dma_mapping, entries, 8, 4);
PM_LAYOUT(struct nvidia_p2p_dma_mapping, dma_addresses, 16, 8);

/* Pins [virtual_address, virtual_address + length).  When the memory is freed, the driver unpins and calls back. */
int __weak nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
				struct nvidia_p2p_page_table **page_table, void (*free_callback)(void *data),
				void *data);
int __weak nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
				struct nvidia_p2p_page_table *page_table);

/* Pins without a callback: freed memory stays allocated until nvidia_p2p_put_pages_persistent(). */
int __weak nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length, struct nvidia_p2p_page_table **page_table,
					   u32 flags);
int __weak nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table, u32 flags);

int __weak nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
				    struct nvidia_p2p_dma_mapping **dma_mapping);
int __weak nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
				      struct nvidia_p2p_dma_mapping *dma_mapping);

/* Calls for the free callback only, in place of nvidia_p2p_dma_unmap_pages() and nvidia_p2p_put_pages(). */
int __weak nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);
int __weak nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping);

#endif
