/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Stand-in for a GPU.  Its memory is BAR 2 of QEMU's ivshmem-plain, a file on the host, where a test can read it.
 * While the driver is bound, the device has NVIDIA's vendor and device numbers, so that programs find it as a GPU.
 */
#include <linux/genalloc.h>
#include <linux/memremap.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "standin_internal.h"

/* Offset where allocatable memory begins.  Tests name offsets below. */
#define POOL SZ_64M

/* PCI numbers of an H200. */
#define NVIDIA 0x10de
#define NVIDIA_H200 0x2335
#define CLASS_3D 0x030200

static struct {
	struct dev_pagemap map;
	struct gen_pool *pool;
	phys_addr_t base;
	resource_size_t size;
	u32 class;
	u16 vendor, device;
} gpu;

/* Sets flags of an area.  Linux has vm_flags_set() since 6.3; before, drivers wrote the member. */
static void flags_set(struct vm_area_struct *area, unsigned long flags)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
	area->vm_flags |= flags;
#else
	vm_flags_set(area, flags);
#endif
}

static void area_close(struct vm_area_struct *area)
{
	p2p_forget(area->vm_private_data);
}

static int area_may_split(struct vm_area_struct *area, unsigned long address)
{
	return -EINVAL;
}

static const struct vm_operations_struct area_operations = { .close = area_close, .may_split = area_may_split };

/* Maps GPU memory as pages with a struct page, which any program can pin. */
static int gpu_map_pages(struct vm_area_struct *area, u64 offset, u64 length)
{
	int status = offset > gpu.size || length > gpu.size - offset ? -EINVAL : 0;
	u64 position;

	flags_set(area, VM_MIXEDMAP | VM_DONTCOPY | VM_DONTDUMP | VM_DONTEXPAND);
	for (position = 0; position < length && !status; position += PAGE_SIZE)
		status = vm_insert_page(area, area->vm_start + position,
					pfn_to_page(PHYS_PFN(gpu.base + offset + position)));
	return status;
}

static void pool_free(u64 offset, u64 length)
{
	gen_pool_free(gpu.pool, offset, length);
}

/* Maps GPU memory without struct page, which get_user_pages() cannot pin. */
static int gpu_mmap(struct file *file, struct vm_area_struct *area)
{
	u64 offset = (u64)area->vm_pgoff << PAGE_SHIFT;
	u64 length = area->vm_end - area->vm_start;
	bool anywhere = offset == GPU_ANYWHERE;
	int status;

	if (offset & GPU_PAGES)
		return gpu_map_pages(area, offset & ~GPU_PAGES, length);
	if (anywhere) {
		offset = gen_pool_alloc(gpu.pool, length);
		if (!offset)
			return -ENOSPC;
	}
	status = offset % GPU_PAGE || area->vm_start % GPU_PAGE || offset > gpu.size || length > gpu.size - offset;
	if (status || (!anywhere && offset + length > POOL))
		status = -EINVAL;
	status = status
			 ?: remap_pfn_range(area, area->vm_start, PHYS_PFN(gpu.base + offset), length,
					    area->vm_page_prot);
	if (!status)
		area->vm_private_data =
			p2p_allocate(area->vm_mm, area->vm_start, length, offset, anywhere ? pool_free : NULL);
	if (status || !area->vm_private_data) {
		if (anywhere)
			pool_free(offset, length);
		return status ?: -ENOMEM;
	}
	area->vm_ops = &area_operations;
	flags_set(area, VM_DONTCOPY | VM_DONTDUMP | VM_DONTEXPAND);
	return 0;
}

static int gpu_find_offset(u64 __user *to)
{
	struct gpu_allocation *allocation;
	u64 address, offset;

	if (copy_from_user(&address, to, sizeof(address)))
		return -EFAULT;
	allocation = p2p_take(current->mm, address, 1, &offset);
	if (!allocation)
		return -ENOENT;
	p2p_put(allocation);
	return copy_to_user(to, &offset, sizeof(offset)) ? -EFAULT : 0;
}

static long gpu_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *from = (void __user *)argument;
	struct gpu_export export;
	struct gpu_fault fault;
	struct gpu_walk walk;
	u64 address;

	switch (command) {
	case GPU_FREE:
		return copy_from_user(&address, from, sizeof(address)) ? -EFAULT : p2p_free(current->mm, address);
	case GPU_PINS:
		return p2p_pins();
	case GPU_VIOLATIONS:
		return p2p_violations();
	case GPU_OVERSLEPT:
		return p2p_overslept();
	case GPU_FAULT:
		return copy_from_user(&fault, from, sizeof(fault)) ? -EFAULT : p2p_fault(&fault);
	case GPU_WALK:
		if (copy_from_user(&walk, from, sizeof(walk)))
			return -EFAULT;
		standin_walk_set(&walk);
		return 0;
	case GPU_ROLE:
		standin_walk_role(argument);
		return 0;
	case GPU_ROLE_DONE:
		return standin_walk_done();
	case GPU_EXPORT:
	case GPU_EXPORT_MAPPABLE:
		if (copy_from_user(&export, from, sizeof(export)))
			return -EFAULT;
		return export_open(current->mm, &export, command == GPU_EXPORT_MAPPABLE);
	case GPU_EXPORTS:
		return exports();
	case GPU_WHERE:
		return gpu_find_offset(from);
	}
	return -ENOTTY;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.mmap = gpu_mmap,
	.unlocked_ioctl = gpu_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "standin_gpu",
	.fops = &operations,
};

static void set_pci_numbers(struct pci_dev *pci, u16 vendor, u16 device, u32 class)
{
	pci->vendor = vendor;
	pci->device = device;
	pci->class = class;
}

static int gpu_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	int status = pcim_enable_device(pci);

	if (status)
		return status;
	pci_set_master(pci);
	gpu.base = pci_resource_start(pci, 2);
	gpu.size = pci_resource_len(pci, 2);
	if (gpu.size <= POOL)
		return -EINVAL;
	gpu.pool = devm_gen_pool_create(&pci->dev, ilog2(GPU_PAGE), NUMA_NO_NODE, NULL);
	if (IS_ERR(gpu.pool))
		return PTR_ERR(gpu.pool);
	status = gen_pool_add(gpu.pool, POOL, gpu.size - POOL, NUMA_NO_NODE);
	if (status)
		return status;
	/* soft-RoCE copies with the processor, so it needs struct pages with kernel addresses. */
	gpu.map.type = MEMORY_DEVICE_GENERIC;
	gpu.map.range.start = gpu.base;
	gpu.map.range.end = gpu.base + gpu.size - 1;
	gpu.map.nr_range = 1;
	if (IS_ERR(devm_memremap_pages(&pci->dev, &gpu.map)))
		return -ENOMEM;
	p2p_init(gpu.base);
	export_init(gpu.base);
	status = misc_register(&device);
	if (status)
		return status;
	gpu.vendor = pci->vendor;
	gpu.device = pci->device;
	gpu.class = pci->class;
	set_pci_numbers(pci, NVIDIA, NVIDIA_H200, CLASS_3D);
	return 0;
}

static void gpu_remove(struct pci_dev *pci)
{
	set_pci_numbers(pci, gpu.vendor, gpu.device, gpu.class);
	misc_deregister(&device);
	p2p_exit();
}

static const struct pci_device_id ids[] = { { PCI_DEVICE(0x1af4, 0x1110) }, {} };

static struct pci_driver gpu_driver = { .name = "nvidia", .id_table = ids, .probe = gpu_probe, .remove = gpu_remove };
module_pci_driver(gpu_driver);

MODULE_DEVICE_TABLE(pci, ids);
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS(DMA_BUF);
#else
MODULE_IMPORT_NS("DMA_BUF");
#endif
MODULE_DESCRIPTION("Stand-in for an NVIDIA GPU and its driver, for tests");
MODULE_AUTHOR("The Peerlane authors");
MODULE_LICENSE("Dual BSD/GPL");
