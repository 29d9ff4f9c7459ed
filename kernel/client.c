/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Callbacks of a client, in the order in which IB core calls them in a region's life (see region.c). */
#include "region.h"

#include <linux/err.h>
#include <linux/pci.h>
#include <linux/printk.h>
#include <linux/ratelimit.h>
#include <linux/sched.h>

#include "nvidia_p2p.h"

/* Returns the bytes of a page; 0 for an unknown type. */
static u64 page_type_bytes(u32 type)
{
	static const u64 sizes[NVIDIA_P2P_PAGE_SIZE_COUNT] = {
		[NVIDIA_P2P_PAGE_SIZE_4KB] = 4096,
		[NVIDIA_P2P_PAGE_SIZE_64KB] = 65536,
		[NVIDIA_P2P_PAGE_SIZE_128KB] = 131072,
	};

	return type < NVIDIA_P2P_PAGE_SIZE_COUNT ? sizes[type] : 0;
}

/*
 * True if pages of that type can describe the region.  get_page_size() promises IB core entries that begin and end at
 * granules.  So a page has at least a granule's size, and the first page begins where the range begins.
 */
static bool page_type_fits(const struct pm_region *region, u32 type)
{
	u64 bytes = page_type_bytes(type);

	return bytes >= PM_GRANULE && IS_ALIGNED(region->start, bytes);
}

/*
 * Returns why the driver's page table cannot be used; NULL if it can.  The task must be the region's caller, outside
 * the driver.
 */
static const char *unusable_pages(const struct pm_region *region, u32 *value)
{
	const struct nvidia_p2p_page_table *pages = region->pages;

	*value = pages->version;
	if (NV_MAJOR(pages->version) < NV_PAGE_TABLE_OLDEST || NV_MAJOR(pages->version) > NV_PAGE_TABLE_NEWEST)
		return "the driver's page tables have a version that this module does not know";
	*value = pages->page_size;
	if (!page_type_fits(region, pages->page_size))
		return "the driver's pages have a size that does not fit the range";
	*value = pages->entries;
	if (page_type_bytes(pages->page_size) * pages->entries < region->length)
		return "the driver has pinned fewer bytes than requested";
	return NULL;
}

/* Returns why the driver's DMA mapping cannot be used; NULL if it can.  Same conditions as unusable_pages(). */
static const char *unusable_mapping(const struct pm_region *region, u32 *value)
{
	const struct nvidia_p2p_dma_mapping *mapping = region->mapping;

	*value = mapping->version;
	if (NV_MAJOR(mapping->version) < NV_DMA_MAPPING_OLDEST || NV_MAJOR(mapping->version) > NV_DMA_MAPPING_NEWEST)
		return "the driver's mappings have a version that this module does not know";
	*value = mapping->page_size_type;
	if (!page_type_fits(region, mapping->page_size_type))
		return "the driver's mapping has pages of a size that does not fit the range";
	*value = mapping->entries;
	if (page_type_bytes(mapping->page_size_type) * mapping->entries < region->length)
		return "the driver has mapped fewer bytes than requested";
	return NULL;
}

/* Pins the memory and checks the page table.  Returns true if the region can be used.  The task must be the caller. */
static bool pin_checked(struct pm_region *region)
{
	const char *reason = NULL;
	u32 value = 0;
	int status = pm_pin(region);
	bool valid;

	if (!status)
		reason = unusable_pages(region, &value);
	valid = pm_leave(region);
	if (!status && !valid)
		status = -EFAULT;
	if (status) {
		/* Only the last client reports: IB core asks the other client next, which pins by another call. */
		if (region->client->last)
			pm_refuse(PM_STEP_PIN, region->addr, region->size, status);
		return false;
	}
	if (reason) {
		pm_refuse_because(region->addr, region->size, reason, value);
		pm_unpin(region);
	}
	return !reason;
}

int pm_acquire(struct pm_client *client, unsigned long addr, size_t size, void **context)
{
	struct pm_region *region;

	/* IB core may call this before ib_register_peer_memory_client() has returned the handle. */
	if (!smp_load_acquire(&client->handle))
		return 0;
	region = pm_region_new(client, addr, size);
	if (IS_ERR(region)) {
		if (client->last)
			pm_refuse(PM_STEP_PIN, addr, size, PTR_ERR(region));
		return 0;
	}
	/* No other task knows the region yet.  The free callback waits for pm_leave(): it needs region->pages. */
	region->caller = current;
	if (!pin_checked(region)) {
		pm_region_put(region);
		return 0;
	}
	pm_add(PM_REGIONS, 1);
	pm_add(PM_REGISTERED, 1);
	if (pm_persistent(region))
		pm_add(PM_PERSISTENT, 1);
	*context = region;
	return 1;
}

static int get_pages(unsigned long addr, size_t size, int write, int force, struct sg_table *table, void *context,
		     u64 core_context)
{
	struct pm_region *region = context;
	int status = 0;

	spin_lock(&region->lock);
	if (addr != region->addr || size != region->size)
		status = -EINVAL;
	else if (region->revoked)
		status = -EFAULT;
	else
		region->core_context = core_context;
	spin_unlock(&region->lock);
	if (status)
		pm_refuse(PM_STEP_TAKE, addr, size, status);
	return status;
}

/* Fills the region's scatter table from the mapping.  The task must be the caller, outside the driver. */
static int region_fill_table(struct pm_region *region, struct device *device)
{
	u32 value;
	const char *reason = unusable_mapping(region, &value);
	int status;

	if (reason) {
		pm_refuse_because(region->addr, region->size, reason, value);
		return -EOPNOTSUPP;
	}
	sg_free_table(&region->table);
	status = pm_table_fill(&region->table, region->mapping,
			       page_type_bytes(region->mapping->page_size_type), region->length, device);
	if (status)
		pm_refuse(PM_STEP_MAP, region->addr, region->size, status);
	return status;
}

/* Maps the region for a device and fills its scatter table.  The task must be the caller. */
static int region_map(struct pm_region *region, struct device *device)
{
	int status = pm_driver_map(region, device);

	if (status) {
		pm_refuse(PM_STEP_MAP, region->addr, region->size, status);
		return status;
	}
	status = region_fill_table(region, device);
	if (status)
		pm_driver_unmap(region);
	return status;
}

static int dma_map(struct sg_table *table, void *context, struct device *device, int dmasync, int *entries)
{
	struct pm_region *region = context;
	int status = dev_is_pci(device) ? 0 : -ENODEV;

	if (!status && !pm_enter(region))
		status = -EFAULT;
	if (status) {
		pm_refuse(PM_STEP_MAP, region->addr, region->size, status);
		return status;
	}
	status = region_map(region, device);
	if (!pm_leave(region) && !status) {
		status = -EFAULT;
		pm_refuse(PM_STEP_MAP, region->addr, region->size, status);
	}
	if (status)
		return status;
	*table = region->table;
	*entries = region->table.nents;
	pm_add(PM_MAPPED, 1);
	return 0;
}

/*
 * Marks the region as closing; call it before any undoing step.  Returns false in the task that runs the free callback:
 * the callback undoes all by itself.
 */
static bool region_begin_close(struct pm_region *region)
{
	bool own;

	spin_lock(&region->lock);
	own = region->callback == current;
	region->closing = true;
	spin_unlock(&region->lock);
	if (own) {
		pm_add(PM_OLD_CORE, 1);
		pr_info_once("IB core unmaps while it invalidates: it lacks the fix for inverted locks (2696789)\n");
	}
	return !own;
}

static int dma_unmap(struct sg_table *table, void *context, struct device *device)
{
	struct pm_region *region = context;

	if (region_begin_close(region))
		pm_unmap(region);
	pm_add(PM_UNMAPPED, 1);
	return 0;
}

static void put_pages(struct sg_table *table, void *context)
{
	struct pm_region *region = context;

	if (region_begin_close(region)) {
		pm_unmap(region);
		pm_unpin(region);
	}
}

/* Returns the alignment of a table's first byte. */
static unsigned long get_page_size(void *context)
{
	return PM_GRANULE;
}

/* Ends a region.  IB core calls only this after get_pages() has failed. */
static void release(void *context)
{
	struct pm_region *region = context;

	if (region_begin_close(region)) {
		pm_unmap(region);
		pm_unpin(region);
	}
	/* The driver itself removes a revocable pin when the memory is freed; a persistent pin would stay for ever. */
	if (pm_persistent(region) && region->pages) {
		pm_add(PM_DRIVER_ERRORS, 1);
		pr_warn_ratelimited("%llu bytes at 0x%llx stay pinned: the driver refuses to unpin them\n",
				    region->size, region->addr);
	}
	pm_add(PM_REGIONS, -1);
	pm_region_put(region);
}

const struct peer_memory_client pm_callbacks = {
	.get_pages = get_pages,
	.dma_map = dma_map,
	.dma_unmap = dma_unmap,
	.put_pages = put_pages,
	.get_page_size = get_page_size,
	.release = release,
};
