/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Scatter tables for IB core. */
#include "peermem.h"

#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

#include "nvidia_p2p.h"

/* The longest entry: what the device takes, in whole pages of the GPU, and such that the length fits its type. */
static u64 entry_limit(struct device *device, u64 page_size)
{
	u64 limit = min_t(u64, dma_get_max_seg_size(device), SZ_2G);

	return max_t(u64, round_down(limit, page_size), page_size);
}

/*
 * Joins pages that lie one behind the other; returns the number of entries, and writes them if there are some.  Of the
 * last page there is no more than was asked for: IB core counts on it.
 */
static unsigned int join(struct scatterlist *entry, const struct nvidia_p2p_dma_mapping *mapping, u64 page_size,
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
			/* There is no struct page: IB core uses nothing but DMA addresses. */
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
	unsigned int entries = join(NULL, mapping, page_size, bytes, limit);
	struct sg_table filled;
	int status;

	status = sg_alloc_table(&filled, entries, GFP_KERNEL);
	if (status)
		return status;
	join(filled.sgl, mapping, page_size, bytes, limit);
	*table = filled;
	pm_add(PM_PAGES, DIV_ROUND_UP(bytes, page_size));
	pm_add(PM_ENTRIES, entries);
	return 0;
}
