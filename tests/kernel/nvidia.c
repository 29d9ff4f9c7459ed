/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The functions that NVIDIA's driver exports, in two flavours as it has them: open, for GPL modules only, and closed,
 * for all.  A module of the second flavour may itself use nothing that is for GPL modules, nor may its users.
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

/* What is not there any more: old drivers refuse to undo it, newer ones take it for done. */
#ifdef STANDIN_OLD
#define GONE (-EINVAL)
#else
#define GONE 0
#endif

static int undone(int status)
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
	return undone(standin_put_pages(table, false));
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
	return undone(standin_unmap_pages(peer, table, mapping));
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

MODULE_DESCRIPTION("Stand-in for what NVIDIA's driver exports, for tests");
MODULE_AUTHOR("The Peerlane authors");
MODULE_LICENSE(LICENCE);
