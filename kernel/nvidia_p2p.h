/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The interface that NVIDIA's driver offers to drivers of other devices, as far as this module uses it: own
 * declarations, so that the module builds without the driver's headers.  Where those are there, interface.c compares.
 *
 * All functions are weak: what a driver lacks is NULL, and the module says so instead of not loading without a word.
 */
#ifndef PEERLANE_NVIDIA_P2P_H
#define PEERLANE_NVIDIA_P2P_H

#include <linux/types.h>

#include "layout.h"

struct pci_dev;

/* Structures of the driver have a version: the major number in the upper half, the minor one in the lower. */
#define NV_MAJOR(version) ((version) >> 16)

/* Both majors begin with the same members, and those are all that is used here. */
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

/* The driver makes these, and they may be longer than known here. */
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

/* What this module counts on, of whichever declarations these are. */
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

/* Pins [virtual_address, + length).  Once the memory is freed, the driver calls back, and has then unpinned it. */
int __weak nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
				struct nvidia_p2p_page_table **page_table, void (*free_callback)(void *data),
				void *data);
int __weak nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
				struct nvidia_p2p_page_table *page_table);

/* The same without calling back: memory that is freed stays until it is unpinned. */
int __weak nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length, struct nvidia_p2p_page_table **page_table,
					   u32 flags);
int __weak nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table, u32 flags);

int __weak nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
				    struct nvidia_p2p_dma_mapping **dma_mapping);
int __weak nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
				      struct nvidia_p2p_dma_mapping *dma_mapping);

/* In place of the calls that unmap and unpin, for the free callback, and for nobody else. */
int __weak nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);
int __weak nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping);

#endif
