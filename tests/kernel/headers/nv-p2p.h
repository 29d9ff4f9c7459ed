/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Stand-in for the header of NVIDIA's driver, with C99 types as in the original. */
#ifndef STANDIN_NV_P2P_H
#define STANDIN_NV_P2P_H

#include <linux/types.h>

struct pci_dev;

enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB = 0,
	NVIDIA_P2P_PAGE_SIZE_64KB,
	NVIDIA_P2P_PAGE_SIZE_128KB,
	NVIDIA_P2P_PAGE_SIZE_COUNT
};

struct nvidia_p2p_page {
	uint64_t physical_address;
	uint32_t registers[3];
};

struct nvidia_p2p_page_table {
	uint32_t version;
	uint32_t page_size;
	struct nvidia_p2p_page **pages;
	uint32_t entries;
	uint8_t *gpu_uuid;
	uint32_t flags;
};

struct nvidia_p2p_dma_mapping {
	uint32_t version;
	enum nvidia_p2p_page_size_type page_size_type;
	uint32_t entries;
	uint64_t *dma_addresses;
	void *private;
	struct pci_dev *pci_dev;
};

int nvidia_p2p_get_pages(uint64_t p2p_token, uint32_t va_space, uint64_t start, uint64_t length,
			 struct nvidia_p2p_page_table **table, void (*callback)(void *data), void *data);
int nvidia_p2p_get_pages_persistent(uint64_t start, uint64_t length, struct nvidia_p2p_page_table **table,
				    uint32_t flags);
int nvidia_p2p_put_pages(uint64_t p2p_token, uint32_t va_space, uint64_t start, struct nvidia_p2p_page_table *table);
int nvidia_p2p_put_pages_persistent(uint64_t start, struct nvidia_p2p_page_table *table, uint32_t flags);
int nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *table,
			     struct nvidia_p2p_dma_mapping **mapping);
int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *table,
			       struct nvidia_p2p_dma_mapping *mapping);
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *table);
int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *mapping);

#endif
