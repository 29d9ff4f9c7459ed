/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Connects soft-RoCE with clients of the peer memory interface, which the kernel's own ib_core lacks.  The module
 * replaces ib_umem_get(): if the original cannot pin, it asks clients, as MLNX_OFED's does.  soft-RoCE copies with the
 * processor, so it gets the pages behind the DMA addresses.  The module also adds regions of dma-bufs, which soft-RoCE
 * lacks.
 */
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "core.h"

static struct ib_device *roce;
static struct ib_device_ops original;
/* Protection domain of revoked regions.  It has no queue pair, so that soft-RoCE denies all access. */
static struct ib_pd nowhere;

/* Invalidates a region's key, as a card does when its region is invalidated. */
void soft_roce_revoke(struct region *region)
{
	if (!region->mr)
		return;
	region->pd = region->mr->pd;
	WRITE_ONCE(region->mr->pd, &nowhere);
	/* Waits for readers that looked the region up before. */
	synchronize_rcu();
}

static struct ib_mr *register_mr(struct ib_pd *pd, u64 start, u64 length, u64 address, int access,
				 struct ib_udata *data)
{
	struct ib_mr *mr = original.reg_user_mr(pd, start, length, address, access, data);
	struct region *region = region_of_task(current);

	if (region) {
		region->mr = IS_ERR(mr) ? NULL : mr;
		region->registering = NULL;
		region_put(region);
	}
	return mr;
}

static struct ib_mr *register_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 address, int fd, int access,
				     struct ib_udata *data)
{
	int status = import_begin(fd, offset, length, address);
	struct ib_mr *mr;

	if (status)
		return ERR_PTR(status);
	mr = original.reg_user_mr(pd, address, length, address, access, data);
	import_end();
	if (!IS_ERR(mr)) {
		mr->iova = address;
		mr->length = length;
	}
	return mr;
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#define REGISTER_DMABUF register_dmabuf
#else
static struct ib_mr *register_dmabuf_bundle(struct ib_pd *pd, u64 offset, u64 length, u64 address, int fd, int access,
					    struct uverbs_attr_bundle *bundle)
{
	return register_dmabuf(pd, offset, length, address, fd, access, &bundle->driver_udata);
}
#define REGISTER_DMABUF register_dmabuf_bundle
#endif

static int deregister_mr(struct ib_mr *mr, struct ib_udata *data)
{
	struct region *region = region_of_mr(mr);
	struct ib_pd *pd = region ? region->pd : NULL;
	int status;

	if (region) {
		mutex_lock(&region->lock);
		region->mr = NULL;
		if (pd)
			mr->pd = pd;
		mutex_unlock(&region->lock);
		region_put(region);
	}
	status = original.dereg_mr(mr, data);
	/*
	 * The caller decrements the count of `nowhere`, which it read before; the count of the region's domain needs
	 * this.
	 */
	if (!status && pd)
		atomic_dec(&pd->usecnt);
	return status;
}

/* Fills the umem with the pages of [address, address + length), one entry each. */
static int region_fill_pages(struct region *region)
{
	u64 position = ALIGN_DOWN(region->address, GPU_PAGE);
	u64 start = ALIGN_DOWN(region->address, PAGE_SIZE);
	u64 end = ALIGN(region->address + region->length, PAGE_SIZE);
	struct sg_table *pages = &region->umem.sgt_append.sgt;
	struct scatterlist *entry, *page;
	u64 offset;
	int i;

	if (sg_alloc_table(pages, (end - start) >> PAGE_SHIFT, GFP_KERNEL))
		return -ENOMEM;
	page = pages->sgl;
	for_each_sgtable_dma_sg(&region->table, entry, i)
	{
		for (offset = 0; offset < sg_dma_len(entry); offset += PAGE_SIZE, position += PAGE_SIZE) {
			if (position < start || position >= end)
				continue;
			sg_set_page(page, pfn_to_page(PHYS_PFN(sg_dma_address(entry) + offset)), PAGE_SIZE, 0);
			page = sg_next(page);
		}
	}
	return 0;
}

static struct ib_umem *replaced_get(struct ib_device *device, unsigned long address, size_t size, int access)
{
	struct ib_umem *umem = import_umem(device, access);
	struct region *region;

	if (umem)
		return umem;
	umem = ib_umem_get(device, address, size, access);
	if (!IS_ERR(umem) || PTR_ERR(umem) != -EFAULT)
		return umem;
	if (region_register(address, size, edu_device(), &region))
		return umem;
	region->umem.ibdev = device;
	region->umem.length = size;
	region->umem.address = address;
	region->umem.iova = address;
	region->umem.writable = ib_access_writable(access);
	region->umem.owning_mm = current->mm;
	mmgrab(current->mm);
	if (!region_fill_pages(region))
		return &region->umem;
	mmdrop(current->mm);
	region_deregister(region);
	return ERR_PTR(-ENOMEM);
}

static void replaced_release(struct ib_umem *umem)
{
	struct region *region;

	if (import_release(umem))
		return;
	region = region_of_umem(umem);
	if (!region) {
		ib_umem_release(umem);
		/* Prevents a tail call: redirect_umem() would take the jump for a call from outside, and loop. */
		barrier();
		return;
	}
	region_put(region);
	sg_free_table(&umem->sgt_append.sgt);
	mmdrop(umem->owning_mm);
	region_deregister(region);
}

/* Redirects calls, except for this module's own, which go to the original. */
static void notrace redirect_umem(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
				  struct ftrace_regs *regs)
{
	if (!within_module(parent, THIS_MODULE))
		core_redirect(regs, ops->private);
}

static struct ftrace_ops get = { .func = redirect_umem, .flags = CORE_REDIRECTS, .private = replaced_get };
static struct ftrace_ops release = { .func = redirect_umem, .flags = CORE_REDIRECTS, .private = replaced_release };

int soft_roce_init(void)
{
	int status;

	roce = ib_device_get_by_name("rxe0", RDMA_DRIVER_UNKNOWN);
	if (!roce)
		return 0;
	original = roce->ops;
	roce->ops.reg_user_mr = register_mr;
	roce->ops.reg_user_mr_dmabuf = REGISTER_DMABUF;
	roce->ops.dereg_mr = deregister_mr;
	status = ftrace_set_filter_ip(&get, (unsigned long)ib_umem_get, 0, 0);
	status = status ?: ftrace_set_filter_ip(&release, (unsigned long)ib_umem_release, 0, 0);
	status = status ?: register_ftrace_function(&get);
	return status ?: register_ftrace_function(&release);
}

void soft_roce_exit(void)
{
	if (!roce)
		return;
	unregister_ftrace_function(&release);
	unregister_ftrace_function(&get);
	ftrace_free_filter(&release);
	ftrace_free_filter(&get);
	roce->ops.reg_user_mr = original.reg_user_mr;
	roce->ops.reg_user_mr_dmabuf = original.reg_user_mr_dmabuf;
	roce->ops.dereg_mr = original.dereg_mr;
	ib_device_put(roce);
}
