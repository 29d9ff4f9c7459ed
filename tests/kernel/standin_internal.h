/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Declarations that the stand-ins' files share. */
#ifndef STANDIN_INTERNAL_H
#define STANDIN_INTERNAL_H

#include <linux/types.h>

#include "../../kernel/nvidia_p2p.h"
#include "standin.h"

struct mm_struct;
struct pci_dev;

#define NV_PAGE_TABLE_VERSION 0x00020000
#define NV_DMA_MAPPING_VERSION 0x00020003

void standin_point(enum standin_point point);
void standin_violation(const char *what);

/* Sets a check that runs after memory was freed and all clients were called back: no device may have access then. */
void standin_on_freed(void (*check)(struct mm_struct *mm, u64 address, u64 length));

/* Implementation of nvidia_p2p_*, for the modules that export these functions. */
int standin_get_pages(u64 address, u64 length, struct nvidia_p2p_page_table **table, void (*callback)(void *data),
		      void *data, bool persistent);
int standin_put_pages(struct nvidia_p2p_page_table *table, bool persistent);
int standin_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *table,
		      struct nvidia_p2p_dma_mapping **mapping);
int standin_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *table,
			struct nvidia_p2p_dma_mapping *mapping);
int standin_free_page_table(struct nvidia_p2p_page_table *table);
int standin_free_dma_mapping(struct nvidia_p2p_dma_mapping *mapping);

/* walk.c */
void standin_walk_set(const struct gpu_walk *set);
void standin_walk_role(enum standin_role role);
int standin_walk_done(void);

/* p2p.c: allocations and pins */
struct gpu_allocation;
int p2p_init(phys_addr_t base);
void p2p_exit(void);
/* Adds an allocation.  Calls `release` after the last reference to the memory is gone. */
struct gpu_allocation *p2p_allocate(struct mm_struct *mm, u64 address, u64 length, u64 offset,
				    void (*release)(u64 offset, u64 length));
/* Returns a reference to the allocation that contains the whole range, and the range's offset; NULL if none does. */
struct gpu_allocation *p2p_take(struct mm_struct *mm, u64 address, u64 length, u64 *offset);
void p2p_put(struct gpu_allocation *allocation);
void p2p_forget(struct gpu_allocation *allocation); /* frees the memory and removes the allocation */
int p2p_free(struct mm_struct *mm, u64 address);    /* frees the memory, like cudaFree() */
int p2p_pins(void);
int p2p_violations(void);
int p2p_overslept(void);
int p2p_fault(const struct gpu_fault *set);

/* export.c: dma-bufs */
void export_init(phys_addr_t base);
int export_open(struct mm_struct *mm, const struct gpu_export *request, bool mappable);
int exports(void);

#endif
