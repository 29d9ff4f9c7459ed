/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dma-bufs of the GPU's memory.  As with NVIDIA's driver, a dma-buf keeps its memory: a program can free the memory,
 * but the stand-in allocates it again only after its last dma-buf is closed.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/pfn.h>
#include <linux/slab.h>

#include "standin_internal.h"

struct export
{
	struct gpu_allocation *allocation;
	u64 offset;
	u64 length;
};

static phys_addr_t memory;
static atomic_t count = ATOMIC_INIT(0);

/* Accepts only importers that support peer-to-peer access: the memory is a device's. */
static int export_attach(struct dma_buf *buffer, struct dma_buf_attachment *attachment)
{
	return attachment->peer2peer ? 0 : -EOPNOTSUPP;
}

static int export_pin(struct dma_buf_attachment *attachment)
{
	return 0;
}

static void export_unpin(struct dma_buf_attachment *attachment)
{
}

static void export_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
			 enum dma_data_direction direction)
{
	struct scatterlist *entry;
	int i;

	for_each_sgtable_dma_sg(table, entry, i)
	{
		if (sg_dma_len(entry))
			dma_unmap_resource(attachment->dev, sg_dma_address(entry), sg_dma_len(entry), direction, 0);
	}
	sg_free_table(table);
	kfree(table);
}

/* Returns a table with one entry for each GPU page. */
static struct sg_table *export_map(struct dma_buf_attachment *attachment, enum dma_data_direction direction)
{
	const struct export *export = attachment->dmabuf->priv;
	struct sg_table *table = kzalloc(sizeof(*table), GFP_KERNEL);
	struct scatterlist *entry;
	u64 position = 0;
	int i;

	if (!table || sg_alloc_table(table, DIV_ROUND_UP(export->length, GPU_PAGE), GFP_KERNEL)) {
		kfree(table);
		return ERR_PTR(-ENOMEM);
	}
	for_each_sgtable_sg(table, entry, i)
	{
		u64 length = min_t(u64, GPU_PAGE, export->length - position);
		dma_addr_t address =
			dma_map_resource(attachment->dev, memory + export->offset + position, length, direction, 0);

		if (dma_mapping_error(attachment->dev, address)) {
			export_unmap(attachment, table, direction);
			return ERR_PTR(-EIO);
		}
		sg_dma_address(entry) = address;
		sg_dma_len(entry) = length;
		position += length;
	}
	return table;
}

static void export_release(struct dma_buf *buffer)
{
	struct export *export = buffer->priv;

	p2p_put(export->allocation);
	kfree(export);
	atomic_dec(&count);
}

static const struct dma_buf_ops operations = {
	.attach = export_attach,
	.pin = export_pin,
	.unpin = export_unpin,
	.map_dma_buf = export_map,
	.unmap_dma_buf = export_unmap,
	.release = export_release,
};

/* Maps the buffer for a process.  The kernel has checked that the area is inside the buffer. */
static int export_mmap(struct dma_buf *buffer, struct vm_area_struct *area)
{
	const struct export *export = buffer->priv;

	return remap_pfn_range(area, area->vm_start, PHYS_PFN(memory + export->offset) + area->vm_pgoff,
			       area->vm_end - area->vm_start, area->vm_page_prot);
}

static const struct dma_buf_ops mappable_operations = {
	.attach = export_attach,
	.pin = export_pin,
	.unpin = export_unpin,
	.map_dma_buf = export_map,
	.unmap_dma_buf = export_unmap,
	.mmap = export_mmap,
	.release = export_release,
};

void export_init(phys_addr_t base)
{
	memory = base;
}

int exports(void)
{
	return atomic_read(&count);
}

int export_open(struct mm_struct *mm, const struct gpu_export *request, bool mappable)
{
	DEFINE_DMA_BUF_EXPORT_INFO(information);
	struct dma_buf *buffer;
	struct export *export;
	int fd;

	if (!request->length || !PAGE_ALIGNED(request->address | request->length))
		return -EINVAL;
	export = kzalloc(sizeof(*export), GFP_KERNEL);
	if (!export)
		return -ENOMEM;
	export->length = request->length;
	export->allocation = p2p_take(mm, request->address, request->length, &export->offset);
	if (!export->allocation) {
		kfree(export);
		return -EINVAL;
	}
	information.ops = mappable ? &mappable_operations : &operations;
	information.size = request->length;
	information.flags = O_RDWR | O_CLOEXEC;
	information.priv = export;
	buffer = dma_buf_export(&information);
	if (IS_ERR(buffer)) {
		p2p_put(export->allocation);
		kfree(export);
		return PTR_ERR(buffer);
	}
	atomic_inc(&count);
	fd = dma_buf_fd(buffer, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(buffer);
	return fd;
}
