/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Scatter tables for IB core: joins adjacent pages of a DMA mapping. */
#include "peermem.h"

#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

#include "nvidia_p2p.h"

/* Returns the longest entry in bytes: the device's limit, at most 2 GiB (u32), in whole GPU pages. */
static u64 entry_limit(struct device *device, u64 page_size)
{
	u64 limit = min_t(u64, dma_get_max_seg_size(device), SZ_2G);

	return max_t(u64, round_down(limit, page_size), page_size);
}

/*
 * Joins adjacent pages.  Returns the number of entries; writes them if `entry` is not NULL.  The last entry ends with
 * the requested bytes, inside the last page: IB core relies on it.
 */
static unsigned int join_pages(struct scatterlist *entry, const struct nvidia_p2p_dma_mapping *mapping, u64 page_size,
			 u64 bytes, u64 limit)
{
	unsigned int entries = 0;
	u64 length = 0;
	u32 i;

	for (i = 0; bytes; i++) {
		u64 piece = min(page_size, bytes);
		bool neighbour = i && mapping->dma_addresses[i] == mapping->dma_addresses[i - 1] + page_size;

		if (!neighbour || length + piece > limit) {
			if (entry && i)
				entry = sg_next(entry);
			if (entry)
				sg_dma_address(entry) = mapping->dma_addresses[i];
			entries++;
			length = 0;
		}
		length += piece;
		bytes -= piece;
		if (entry) {
			/* GPU memory has no struct page; IB core uses only the DMA addresses. */
			sg_set_page(entry, NULL, length, 0);
			sg_dma_len(entry) = length;
		}
	}
	return entries;
}

int pm_table_fill(struct sg_table *table, const struct nvidia_p2p_dma_mapping *mapping, u64 page_size, u64 bytes,
		  struct device *device)
{
	u64 limit = entry_limit(device, page_size);
	unsigned int entries = join_pages(NULL, mapping, page_size, bytes, limit);
	struct sg_table filled;
	int status;

	status = sg_alloc_table(&filled, entries, GFP_KERNEL);
	if (status)
		return status;
	join_pages(filled.sgl, mapping, page_size, bytes, limit);
	*table = filled;
	pm_add(PM_PAGES, DIV_ROUND_UP(bytes, page_size));
	pm_add(PM_ENTRIES, entries);
	return 0;
}
