/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The functions that NVIDIA's driver exports, in the driver's two flavours.  The open flavour exports to GPL modules
 * only, the closed flavour to all.  The closed flavour and its users may not use GPL-only symbols.
 */
#include <linux/module.h>

#include "standin_internal.h"

#ifdef STANDIN_CLOSED
#define EXPORT EXPORT_SYMBOL
#define LICENCE "Proprietary"
#else
#define EXPORT EXPORT_SYMBOL_GPL
#define LICENCE "Dual MIT/GPL"
#endif

/* Status of undoing a pin or mapping that no longer exists: old drivers refuse, newer ones return success. */
#ifdef STANDIN_OLD
#define GONE (-EINVAL)
#else
#define GONE 0
#endif

static int undo_status(int status)
{
	return status == -ENOENT ? GONE : status;
}

int nvidia_p2p_get_pages(u64 token, u32 space, u64 address, u64 length, struct nvidia_p2p_page_table **table,
			 void (*callback)(void *data), void *data)
{
	return standin_get_pages(address, length, table, callback, data, false);
}
EXPORT(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(u64 token, u32 space, u64 address, struct nvidia_p2p_page_table *table)
{
	return undo_status(standin_put_pages(table, false));
}
EXPORT(nvidia_p2p_put_pages);

#ifndef STANDIN_OLD
int nvidia_p2p_get_pages_persistent(u64 address, u64 length, struct nvidia_p2p_page_table **table, u32 flags)
{
	return standin_get_pages(address, length, table, NULL, NULL, true);
}
EXPORT(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages_persistent(u64 address, struct nvidia_p2p_page_table *table, u32 flags)
{
	return standin_put_pages(table, true);
}
EXPORT(nvidia_p2p_put_pages_persistent);
#endif

int nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *table,
			     struct nvidia_p2p_dma_mapping **mapping)
{
	return standin_map_pages(peer, table, mapping);
}
EXPORT(nvidia_p2p_dma_map_pages);

int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *table,
			       struct nvidia_p2p_dma_mapping *mapping)
{
	return undo_status(standin_unmap_pages(peer, table, mapping));
}
EXPORT(nvidia_p2p_dma_unmap_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *table)
{
	return standin_free_page_table(table);
}
EXPORT(nvidia_p2p_free_page_table);

int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *mapping)
{
	return standin_free_dma_mapping(mapping);
}
EXPORT(nvidia_p2p_free_dma_mapping);

MODULE_DESCRIPTION("Stand-in for the functions that NVIDIA's driver exports, for tests");
MODULE_AUTHOR("The Peerlane authors");
MODULE_LICENSE(LICENCE);
