/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The life of a region: memory of a GPU that a program registers with an RDMA device.
 *
 *     acquire      pins it.  That is how it is found out whose memory it is, and the pin is kept for
 *     get_pages    which takes it over, and notes what IB core calls the region.
 *     dma_map      asks the driver for the addresses that the device has to use.
 *     dma_unmap    \
 *     put_pages     > in turn undo these.
 *     release      /
 *
 * Unless the pin is persistent, the memory can be freed at any time.  Then the driver calls free_callback(), in the
 * task that frees and with the driver's own lock, after which the page table and the mapping are no more.
 *
 * What must hold:
 *
 * 1. Nothing is used after it was freed.  A call of the driver that uses the page table is made between enter() and
 *    leave(), and no call begins once the region is revoked, which the callback does first.  It frees nothing before the
 *    call that has begun has returned, or is asleep in the driver: there it waits for the lock that the callback's task
 *    has, and the driver looks for the page table anew when it gets it, and does not find it.
 * 2. The region is there as long as IB core or the driver may name it.  Each has a reference: IB core's goes with
 *    release(); the driver's with the callback, or with the pin when the driver says that it took it back.
 * 3. Nobody waits for the other in a circle.  IB core can have a lock of its own when it calls dma_map, dma_unmap and
 *    put_pages, which then wait for the driver's lock; and invalidate() waits for IB core's.  So the callback does not
 *    invalidate while such a call is under way, nor after the first that undoes: then the device has no access, or is
 *    denied it by what dma_map returns.  And those calls do not go to the driver once the region is revoked.
 *
 * The lock is a spinlock, so that a task which has entered does not sleep until it is in the driver.
 */
#include "peermem.h"

#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "nvidia_p2p.h"

#ifndef task_is_running
#define task_is_running(task) (READ_ONCE((task)->state) == TASK_RUNNING)
#endif

/* How long a task has to be in the driver until being asleep there means that it waits for the callback's end. */
#define PATIENCE (HZ / 20)

struct pm_region {
	spinlock_t lock;
	wait_queue_head_t left; /* the caller has left */
	refcount_t references;
	struct pm_client *client;
	u64 addr; /* what was asked for */
	u64 size;
	u64 start; /* and what is pinned for it, whole granules */
	u64 length;
	u64 core_context;
	struct nvidia_p2p_page_table *pages;    /* NULL: not pinned */
	struct nvidia_p2p_dma_mapping *mapping; /* NULL: not mapped */
	struct pci_dev *device;
	struct sg_table table;        /* what dma_map allocated: IB core may look at it until release() */
	struct task_struct *caller;   /* has entered, and not left */
	struct task_struct *callback; /* runs the free callback */
	bool in_driver;               /* the caller is in a call, or just before or behind it */
	bool closing;                 /* IB core has begun to undo */
	bool revoked;                 /* the callback has begun */
};

static struct pm_region *region_new(struct pm_client *client, u64 addr, u64 size)
{
	struct pm_region *region;
	u64 end;

	if (!size || addr + size < addr || addr + size > U64_MAX - PM_GRANULE)
		return ERR_PTR(-EOVERFLOW);
	region = kzalloc(sizeof(*region), GFP_KERNEL);
	if (!region)
		return ERR_PTR(-ENOMEM);
	/* Whoever loads, it is not unloaded while a region or a callback of the driver is under way. */
	if (!try_module_get(THIS_MODULE)) {
		kfree(region);
		return ERR_PTR(-EBUSY);
	}
	spin_lock_init(&region->lock);
	init_waitqueue_head(&region->left);
	refcount_set(&region->references, 1);
	region->client = client;
	region->addr = addr;
	region->size = size;
	region->start = ALIGN_DOWN(addr, PM_GRANULE);
	end = ALIGN(addr + size, PM_GRANULE);
	region->length = end - region->start;
	return region;
}

static void region_put(struct pm_region *region)
{
	if (!refcount_dec_and_test(&region->references))
		return;
	sg_free_table(&region->table);
	kfree(region);
	/* Last, as a jump: the callback is on the driver's stack from here on. */
	module_put(THIS_MODULE);
}

static bool persistent(const struct pm_region *region)
{
	return region->client->persistent;
}

static bool try_enter(struct pm_region *region)
{
	bool done;

	spin_lock(&region->lock);
	done = region->revoked || !region->caller;
	if (done && !region->revoked) {
		region->caller = current;
		region->in_driver = true;
	}
	spin_unlock(&region->lock);
	return done;
}

/* Whether the driver may be called; if so, until leave(). */
static bool enter(struct pm_region *region)
{
	wait_event(region->left, try_enter(region));
	return READ_ONCE(region->caller) == current;
}

/* Returns whether the region is still there. */
static bool leave(struct pm_region *region)
{
	bool valid;

	spin_lock(&region->lock);
	valid = !region->revoked;
	region->caller = NULL;
	spin_unlock(&region->lock);
	wake_up(&region->left);
	return valid;
}

/* With the lock: the caller has left, or is asleep in the driver. */
static bool out_of_the_way(const struct pm_region *region, unsigned long began)
{
	return !region->caller ||
	       (region->in_driver && time_after(jiffies, began + PATIENCE) && !task_is_running(region->caller));
}

static void await_caller(struct pm_region *region)
{
	unsigned long began = jiffies;

	spin_lock(&region->lock);
	while (!out_of_the_way(region, began)) {
		spin_unlock(&region->lock);
		wait_event_timeout(region->left, !READ_ONCE(region->caller), 1 + HZ / 200);
		spin_lock(&region->lock);
	}
	if (region->caller)
		pm_add(PM_OVERTAKEN, 1);
	spin_unlock(&region->lock);
}

/* The driver frees the memory; afterwards it knows neither page table nor mapping. */
static void free_callback(void *data)
{
	struct pm_region *region = data;
	struct nvidia_p2p_dma_mapping *mapping;
	struct nvidia_p2p_page_table *pages;
	bool tell;

	spin_lock(&region->lock);
	region->revoked = true;
	region->callback = current;
	tell = region->mapping && !region->caller && !region->closing;
	spin_unlock(&region->lock);

	pm_add(tell ? PM_REVOKED : PM_REVOKED_EARLY, 1);
	if (tell)
		region->client->invalidate(region->client->handle, region->core_context);
	await_caller(region);

	spin_lock(&region->lock);
	pages = region->pages;
	mapping = region->mapping;
	region->pages = NULL;
	region->mapping = NULL;
	region->callback = NULL;
	spin_unlock(&region->lock);
	if (mapping && nvidia_p2p_free_dma_mapping(mapping))
		pm_add(PM_DRIVER_ERRORS, 1);
	if (nvidia_p2p_free_page_table(pages))
		pm_add(PM_DRIVER_ERRORS, 1);
	pm_add(PM_BYTES, -(s64)region->length);
	region_put(region);
}

static int driver_pin(struct pm_region *region, struct nvidia_p2p_page_table **pages)
{
	if (persistent(region))
		return nvidia_p2p_get_pages_persistent(region->start, region->length, pages, 0);
	return nvidia_p2p_get_pages(0, 0, region->start, region->length, pages, free_callback, region);
}

static int driver_unpin(struct pm_region *region)
{
	if (persistent(region))
		return nvidia_p2p_put_pages_persistent(region->start, region->pages, 0);
	return nvidia_p2p_put_pages(0, 0, region->start, region->pages);
}

/* Pins, and takes a reference for the driver; the callback may be waiting for the caller when this returns. */
static int pin(struct pm_region *region)
{
	struct nvidia_p2p_page_table *pages = NULL;
	int status;

	if (!persistent(region))
		refcount_inc(&region->references);
	pm_add(PM_BYTES, region->length);
	status = driver_pin(region, &pages);
	if (!status) {
		spin_lock(&region->lock);
		region->pages = pages;
		spin_unlock(&region->lock);
		return 0;
	}
	pm_add(PM_BYTES, -(s64)region->length);
	if (!persistent(region))
		refcount_dec(&region->references);
	return status;
}

static void unpin(struct pm_region *region)
{
	bool done;

	if (!enter(region))
		return;
	done = region->pages && !driver_unpin(region);
	if (done) {
		spin_lock(&region->lock);
		region->pages = NULL;
		region->mapping = NULL;
		spin_unlock(&region->lock);
		pm_add(PM_BYTES, -(s64)region->length);
	}
	/* If not, the callback is on its way and does it. */
	leave(region);
	if (done && !persistent(region))
		region_put(region);
}

/* As the caller, not in the driver: has it unmap, unless that is the callback's by now. */
static void driver_unmap(struct pm_region *region)
{
	bool valid;
	int status;

	spin_lock(&region->lock);
	valid = region->mapping && !region->revoked;
	region->in_driver = valid;
	spin_unlock(&region->lock);
	if (!valid)
		return;
	status = nvidia_p2p_dma_unmap_pages(region->device, region->pages, region->mapping);
	spin_lock(&region->lock);
	region->in_driver = false;
	/* If it is refused, the memory is being freed, and the mapping is the callback's. */
	if (!status)
		region->mapping = NULL;
	spin_unlock(&region->lock);
}

static void unmap(struct pm_region *region)
{
	if (!enter(region))
		return;
	driver_unmap(region);
	leave(region);
}

/* As the caller: has the driver map for a device. */
static int driver_map(struct pm_region *region, struct device *device)
{
	struct nvidia_p2p_dma_mapping *mapping = NULL;
	int status = nvidia_p2p_dma_map_pages(to_pci_dev(device), region->pages, &mapping);

	spin_lock(&region->lock);
	region->in_driver = false;
	/* If the callback did not wait for this, then because the driver refuses. */
	if (!status && region->pages) {
		region->mapping = mapping;
		region->device = to_pci_dev(device);
	} else if (!status) {
		status = -EFAULT;
	}
	spin_unlock(&region->lock);
	return status;
}

static u64 page_bytes(u32 type)
{
	static const u64 sizes[NVIDIA_P2P_PAGE_SIZE_COUNT] = {
		[NVIDIA_P2P_PAGE_SIZE_4KB] = 4096,
		[NVIDIA_P2P_PAGE_SIZE_64KB] = 65536,
		[NVIDIA_P2P_PAGE_SIZE_128KB] = 131072,
	};

	return type < NVIDIA_P2P_PAGE_SIZE_COUNT ? sizes[type] : 0;
}

/* As the caller, not in the driver: why its page table cannot be used; NULL if it can. */
static const char *unusable_pages(const struct pm_region *region, u32 *value)
{
	const struct nvidia_p2p_page_table *pages = region->pages;
	u64 bytes = page_bytes(pages->page_size);

	*value = pages->version;
	if (NV_MAJOR(pages->version) < NV_PAGE_TABLE_OLDEST || NV_MAJOR(pages->version) > NV_PAGE_TABLE_NEWEST)
		return "the driver's page tables have a version that this module does not know";
	*value = pages->page_size;
	if (!bytes || !IS_ALIGNED(region->start, bytes))
		return "the driver's pages have a size that does not fit the range";
	*value = pages->entries;
	if (bytes * pages->entries < region->length)
		return "the driver has pinned less than was asked for";
	return NULL;
}

/* The same of its mapping. */
static const char *unusable_mapping(const struct pm_region *region, u32 *value)
{
	const struct nvidia_p2p_dma_mapping *mapping = region->mapping;

	*value = mapping->version;
	if (NV_MAJOR(mapping->version) < NV_DMA_MAPPING_OLDEST || NV_MAJOR(mapping->version) > NV_DMA_MAPPING_NEWEST)
		return "the driver's mappings have a version that this module does not know";
	*value = mapping->entries;
	if (page_bytes(mapping->page_size_type) * mapping->entries < region->length)
		return "the driver has mapped less than was asked for";
	return NULL;
}

/* As the caller: pins and looks at what came of it; returns whether the region can be used. */
static bool pin_checked(struct pm_region *region)
{
	const char *reason = NULL;
	u32 value = 0;
	int status = pin(region);
	bool valid;

	if (!status)
		reason = unusable_pages(region, &value);
	valid = leave(region);
	if (!status && !valid)
		status = -EFAULT;
	if (status) {
		/* The client after this one asks again, in its own way. */
		if (region->client->last)
			pm_refuse(PM_STEP_PIN, region->addr, region->size, status);
		return false;
	}
	if (reason) {
		pm_refuse_because(region->addr, region->size, reason, value);
		unpin(region);
	}
	return !reason;
}

int pm_acquire(struct pm_client *client, unsigned long addr, size_t size, void **context)
{
	struct pm_region *region = region_new(client, addr, size);

	if (IS_ERR(region)) {
		pm_refuse(PM_STEP_PIN, addr, size, PTR_ERR(region));
		return 0;
	}
	/* Nobody else knows it yet.  The callback waits for leave() however long pinning takes: it needs the pages. */
	region->caller = current;
	if (!pin_checked(region)) {
		region_put(region);
		return 0;
	}
	pm_add(PM_REGIONS, 1);
	pm_add(PM_REGISTERED, 1);
	if (persistent(region))
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

/* As the caller, not in the driver: makes a table of the mapping. */
static int describe(struct pm_region *region, struct device *device)
{
	u32 value;
	const char *reason = unusable_mapping(region, &value);
	int status;

	if (reason) {
		pm_refuse_because(region->addr, region->size, reason, value);
		return -EOPNOTSUPP;
	}
	sg_free_table(&region->table);
	status = pm_table_fill(&region->table, region->mapping, page_bytes(region->mapping->page_size_type), device);
	if (status)
		pm_refuse(PM_STEP_MAP, region->addr, region->size, status);
	return status;
}

/* As the caller: maps, and describes it. */
static int map(struct pm_region *region, struct device *device)
{
	int status = driver_map(region, device);

	if (status) {
		pm_refuse(PM_STEP_MAP, region->addr, region->size, status);
		return status;
	}
	status = describe(region, device);
	if (status)
		driver_unmap(region);
	return status;
}

static int dma_map(struct sg_table *table, void *context, struct device *device, int dmasync, int *entries)
{
	struct pm_region *region = context;
	int status = dev_is_pci(device) ? 0 : -ENODEV;

	if (!status && !enter(region))
		status = -EFAULT;
	if (status) {
		pm_refuse(PM_STEP_MAP, region->addr, region->size, status);
		return status;
	}
	status = map(region, device);
	if (!leave(region) && !status) {
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

/* Before anything is undone.  Returns false in the callback's own task, where all that is to be done is done there. */
static bool closing(struct pm_region *region)
{
	bool own;

	spin_lock(&region->lock);
	own = region->callback == current;
	region->closing = true;
	spin_unlock(&region->lock);
	if (own) {
		pm_add(PM_OLD_CORE, 1);
		pr_info_once("this IB core unmaps while it invalidates: it lacks its correction for inverted locks "
			     "(2696789)\n");
	}
	return !own;
}

static int dma_unmap(struct sg_table *table, void *context, struct device *device)
{
	struct pm_region *region = context;

	if (closing(region))
		unmap(region);
	pm_add(PM_UNMAPPED, 1);
	return 0;
}

static void put_pages(struct sg_table *table, void *context)
{
	struct pm_region *region = context;

	if (closing(region)) {
		unmap(region);
		unpin(region);
	}
}

/* Tables begin at a multiple of this. */
static unsigned long get_page_size(void *context)
{
	return PM_GRANULE;
}

/* After a refusal of get_pages nothing else is called. */
static void release(void *context)
{
	struct pm_region *region = context;

	if (closing(region)) {
		unmap(region);
		unpin(region);
	}
	pm_add(PM_REGIONS, -1);
	region_put(region);
}

const struct peer_memory_client pm_callbacks = {
	.get_pages = get_pages,
	.dma_map = dma_map,
	.dma_unmap = dma_unmap,
	.put_pages = put_pages,
	.get_page_size = get_page_size,
	.release = release,
};
