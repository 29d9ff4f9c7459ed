/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Regions of dma-bufs for soft-RoCE, which does not support them.  The stand-in maps the buffer for a device, as a
 * card's driver does.  soft-RoCE gets the pages behind the DMA addresses as the region's memory.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "core.h"

struct import {
	struct ib_umem umem; /* memory as soft-RoCE sees it; must be the first member */
	struct list_head link;
	struct dma_buf *buffer;
	struct dma_buf_attachment *attachment;
	struct sg_table *table;
	u64 offset; /* of the region in the buffer */
	u64 length;
	u64 address;                     /* address of the region for peers */
	struct task_struct *registering; /* NULL after import_end() */
	bool used;
};

static DEFINE_MUTEX(lock);
static LIST_HEAD(imports);

/* Counts a violation: pinned memory must not move. */
static void import_moved(struct dma_buf_attachment *attachment)
{
	standin_violation("a pinned dma-buf moved");
}

static const struct dma_buf_attach_ops attach_operations = { .allow_peer2peer = true, .move_notify = import_moved };

static void import_detach(struct import *import)
{
	dma_resv_lock(import->buffer->resv, NULL);
	if (import->table) {
		dma_buf_unmap_attachment(import->attachment, import->table, DMA_BIDIRECTIONAL);
		dma_buf_unpin(import->attachment);
	}
	dma_resv_unlock(import->buffer->resv);
	dma_buf_detach(import->buffer, import->attachment);
}

static int import_attach(struct import *import, struct device *device)
{
	struct sg_table *table = NULL;
	int status;

	import->attachment = dma_buf_dynamic_attach(import->buffer, device, &attach_operations, import);
	if (IS_ERR(import->attachment))
		return PTR_ERR(import->attachment);
	dma_resv_lock(import->buffer->resv, NULL);
	status = dma_buf_pin(import->attachment);
	if (!status) {
		table = dma_buf_map_attachment(import->attachment, DMA_BIDIRECTIONAL);
		if (IS_ERR(table)) {
			status = PTR_ERR(table);
			dma_buf_unpin(import->attachment);
		} else {
			import->table = table;
		}
	}
	dma_resv_unlock(import->buffer->resv);
	if (status)
		dma_buf_detach(import->buffer, import->attachment);
	return status;
}

static void import_close(struct import *import)
{
	mutex_lock(&lock);
	list_del(&import->link);
	mutex_unlock(&lock);
	import_detach(import);
	dma_buf_put(import->buffer);
	kfree(import);
}

int import_begin(int fd, u64 offset, u64 length, u64 address)
{
	struct import *import = kzalloc(sizeof(*import), GFP_KERNEL);
	int status = -EINVAL;

	if (!import)
		return -ENOMEM;
	import->offset = offset;
	import->length = length;
	import->address = address;
	import->registering = current;
	import->buffer = dma_buf_get(fd);
	if (IS_ERR(import->buffer)) {
		status = PTR_ERR(import->buffer);
		kfree(import);
		return status;
	}
	if (length && offset % PAGE_SIZE == address % PAGE_SIZE && offset <= import->buffer->size &&
	    length <= import->buffer->size - offset)
		status = import_attach(import, edu_device());
	if (status) {
		dma_buf_put(import->buffer);
		kfree(import);
		return status;
	}
	mutex_lock(&lock);
	list_add(&import->link, &imports);
	mutex_unlock(&lock);
	return 0;
}

static struct import *import_of_current_task(void)
{
	struct import *import, *found = NULL;

	mutex_lock(&lock);
	list_for_each_entry(import, &imports, link)
	{
		if (import->registering == current)
			found = import;
	}
	mutex_unlock(&lock);
	return found;
}

void import_end(void)
{
	struct import *import = import_of_current_task();

	if (!import)
		return;
	import->registering = NULL;
	if (!import->used)
		import_close(import);
}

static int import_fill_pages(struct import *import)
{
	u64 start = ALIGN_DOWN(import->offset, PAGE_SIZE), end = ALIGN(import->offset + import->length, PAGE_SIZE);
	struct sg_table *pages = &import->umem.sgt_append.sgt;
	struct scatterlist *entry, *page;
	u64 position = 0, within;
	int i;

	if (sg_alloc_table(pages, (end - start) >> PAGE_SHIFT, GFP_KERNEL))
		return -ENOMEM;
	page = pages->sgl;
	for_each_sgtable_dma_sg(import->table, entry, i)
	{
		for (within = 0; within < sg_dma_len(entry); within += PAGE_SIZE, position += PAGE_SIZE) {
			if (position < start || position >= end)
				continue;
			sg_set_page(page, pfn_to_page(PHYS_PFN(sg_dma_address(entry) + within)), PAGE_SIZE, 0);
			page = sg_next(page);
		}
	}
	return 0;
}

struct ib_umem *import_umem(struct ib_device *device, int access)
{
	struct import *import = import_of_current_task();
	struct ib_umem *umem;
	int status;

	if (!import || import->used)
		return NULL;
	status = import_fill_pages(import);
	if (status)
		return ERR_PTR(status);
	umem = &import->umem;
	umem->ibdev = device;
	umem->length = import->length;
	umem->address = import->address;
	umem->iova = import->address;
	umem->writable = ib_access_writable(access);
	umem->owning_mm = current->mm;
	mmgrab(current->mm);
	import->used = true;
	return umem;
}

bool import_release(struct ib_umem *umem)
{
	struct import *import, *found = NULL;

	mutex_lock(&lock);
	list_for_each_entry(import, &imports, link)
	{
		if (&import->umem == umem)
			found = import;
	}
	mutex_unlock(&lock);
	if (!found)
		return false;
	sg_free_table(&umem->sgt_append.sgt);
	mmdrop(umem->owning_mm);
	import_close(found);
	return true;
}
