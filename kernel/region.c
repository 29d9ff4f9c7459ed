/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The life of a region: GPU memory that a program registers with an RDMA device.
 *
 *     acquire      pins the memory.  Only a pin shows whether the memory is a GPU's.  The region keeps the pin.
 *     get_pages    stores IB core's handle of the region.
 *     dma_map      asks the driver for the addresses that the device must use.
 *     dma_unmap    undoes dma_map.
 *     put_pages    unpins the memory.
 *     release      undoes the remaining steps and ends the region.
 *
 * Memory with a revocable pin can be freed at any time.  The driver then calls free_callback(), in the task that frees
 * the memory and with the driver's lock held.  The page table and the mapping end with the callback.
 *
 * Invariants:
 *
 * 1. No use after free.  Calls of the driver that use the page table run between pm_enter() and pm_leave().  The
 *    callback first marks the region as revoked; no call begins afterwards.  Before the callback frees the page table,
 *    it waits until the running call has returned, or sleeps in the driver.  A call that sleeps there waits for the
 *    driver's lock, which the callback's task holds, so a longer wait would never end.  After the call gets the lock,
 *    the driver searches the page table again and does not find it.  (This is true of unpinning.  When it maps,
 *    NVIDIA's open driver uses the freed page table.  A client can prevent that only with persistent pins.)
 * 2. The region exists as long as IB core or the driver may use its address.  Each has a reference.  IB core's ends
 *    with release().  The driver's ends with the callback, or when the driver has unpinned the memory.
 *    A revocable pin belongs to the process that pinned.  If another process unpins, NVIDIA's driver returns success
 *    and keeps the pin.  So the module does not call the driver then.  The driver calls back when the memory is freed,
 *    at the latest at the end of its process.
 * 3. No deadlock.  IB core may hold its own lock when it calls dma_map, dma_unmap and put_pages, which wait for the
 *    driver's lock.  invalidate() waits for IB core's lock.  So the callback does not invalidate during such a call,
 *    nor after the first call that undoes.  In these cases the device has no access, or dma_map's status denies it.
 *    The calls do not enter the driver after the region is revoked.
 *
 * The lock is a spinlock, so that a task between pm_enter() and the driver does not sleep.
 */
#include "region.h"

#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "nvidia_p2p.h"

#ifndef task_is_running
#define task_is_running(task) (READ_ONCE((task)->state) == TASK_RUNNING)
#endif

/*
 * Times in jiffies, after which a task that sleeps in the driver counts as waiting for the callback's end.
 * BLOCKED_UNWOKEN (50 ms): the task was not woken in between; tasks that sleep for other reasons wake earlier.
 * BLOCKED_ASLEEP (5 s): the task was woken, but sleeps again, in case the driver polls for its lock.
 */
#define BLOCKED_UNWOKEN (HZ / 20)
#define BLOCKED_ASLEEP (5 * HZ)

struct pm_region *pm_region_new(struct pm_client *client, u64 addr, u64 size)
{
	struct pm_region *region;
	u64 end;

	if (!size || addr + size < addr || addr + size > U64_MAX - PM_GRANULE)
		return ERR_PTR(-EOVERFLOW);
	region = kzalloc(sizeof(*region), GFP_KERNEL);
	if (!region)
		return ERR_PTR(-ENOMEM);
	/* Keeps the module loaded while a region exists or the driver's callback runs. */
	if (!try_module_get(THIS_MODULE)) {
		kfree(region);
		return ERR_PTR(-ESHUTDOWN);
	}
	spin_lock_init(&region->lock);
	init_waitqueue_head(&region->left);
	refcount_set(&region->references, 1);
	region->client = client;
	region->owner = current->tgid;
	region->addr = addr;
	region->size = size;
	region->start = ALIGN_DOWN(addr, PM_GRANULE);
	end = ALIGN(addr + size, PM_GRANULE);
	region->length = end - region->start;
	return region;
}

void pm_region_put(struct pm_region *region)
{
	if (!refcount_dec_and_test(&region->references))
		return;
	sg_free_table(&region->table);
	kfree(region);
	/*
	 * Must be last.  The kernel waits for RCU before it frees the module's code, and so for the remaining
	 * instructions of this function.  A kernel that preempts the task here could free the code too early.
	 */
	module_put(THIS_MODULE);
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

bool pm_enter(struct pm_region *region)
{
	wait_event(region->left, try_enter(region));
	return READ_ONCE(region->caller) == current;
}

bool pm_leave(struct pm_region *region)
{
	bool valid;

	spin_lock(&region->lock);
	valid = !region->revoked;
	region->caller = NULL;
	spin_unlock(&region->lock);
	wake_up(&region->left);
	return valid;
}

/* Observations of a sleeping caller, in jiffies. */
struct sleep {
	unsigned long began;    /* start of the wait for the caller */
	unsigned long since;    /* start of the current sleep, as first observed */
	unsigned long switches; /* voluntary context switches of the task at that time; each sleep adds one */
};

/* True if the caller has left, or sleeps in the driver until the callback ends.  Call with the region's lock. */
static bool caller_left_or_blocked(const struct pm_region *region, struct sleep *sleep)
{
	unsigned long switches;

	if (!region->caller)
		return true;
	switches = READ_ONCE(region->caller->nvcsw);
	if (!region->in_driver || task_is_running(region->caller) || switches != sleep->switches) {
		sleep->switches = switches;
		sleep->since = jiffies;
	}
	return time_after(jiffies, sleep->since + BLOCKED_UNWOKEN) ||
	       (region->in_driver && time_after(jiffies, sleep->began + BLOCKED_ASLEEP) &&
		!task_is_running(region->caller));
}

static void await_caller(struct pm_region *region)
{
	struct sleep sleep = { .began = jiffies, .since = jiffies };

	spin_lock(&region->lock);
	while (!caller_left_or_blocked(region, &sleep)) {
		spin_unlock(&region->lock);
		wait_event_timeout(region->left, !READ_ONCE(region->caller), 1 + HZ / 200);
		spin_lock(&region->lock);
	}
	if (region->caller)
		pm_add(PM_OVERTAKEN, 1);
	spin_unlock(&region->lock);
}

/* Revokes the region.  The driver frees the memory, and forgets the page table and the mapping after the callback. */
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
	pm_region_put(region);
}

static int driver_pin(struct pm_region *region, struct nvidia_p2p_page_table **pages)
{
	if (pm_persistent(region))
		return nvidia_p2p_get_pages_persistent(region->start, region->length, pages, 0);
	return nvidia_p2p_get_pages(0, 0, region->start, region->length, pages, free_callback, region);
}

static int driver_unpin(struct pm_region *region)
{
	if (pm_persistent(region))
		return nvidia_p2p_put_pages_persistent(region->start, region->pages, 0);
	return nvidia_p2p_put_pages(0, 0, region->start, region->pages);
}

/* Pins the memory and takes the driver's reference.  The callback may already wait for the caller at the return. */
int pm_pin(struct pm_region *region)
{
	struct nvidia_p2p_page_table *pages = NULL;
	int status;

	if (!pm_persistent(region))
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
	if (!pm_persistent(region))
		refcount_dec(&region->references);
	return status;
}

/* True if only another process can unpin the region. */
static bool others_pin(const struct pm_region *region)
{
	return !pm_persistent(region) && region->owner != current->tgid;
}

void pm_unpin(struct pm_region *region)
{
	bool done = false;

	if (!pm_enter(region))
		return;
	if (region->pages && others_pin(region))
		pr_info_once("%s[%d] deregisters memory that process %d pinned: the pin stays until it is freed\n",
			     current->comm, current->pid, region->owner);
	else if (region->pages && !driver_unpin(region)) {
		spin_lock(&region->lock);
		/* While a driver frees the memory, old drivers refuse to unpin; newer ones return 0 and do nothing. */
		done = !region->revoked;
		if (done) {
			region->pages = NULL;
			region->mapping = NULL;
		}
		spin_unlock(&region->lock);
	}
	/* Otherwise the callback subtracts the bytes. */
	if (done)
		pm_add(PM_BYTES, -(s64)region->length);
	pm_leave(region);
	if (done && !pm_persistent(region))
		pm_region_put(region);
}

/* Unmaps in the driver, unless the callback now owns the mapping.  The task must be the caller. */
void pm_driver_unmap(struct pm_region *region)
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
	/* The driver refuses while it frees the memory; the callback then owns the mapping. */
	if (!status)
		region->mapping = NULL;
	spin_unlock(&region->lock);
}

void pm_unmap(struct pm_region *region)
{
	if (!pm_enter(region))
		return;
	pm_driver_unmap(region);
	pm_leave(region);
}

/* Maps in the driver for a device.  The task must be the caller. */
int pm_driver_map(struct pm_region *region, struct device *device)
{
	struct nvidia_p2p_dma_mapping *mapping = NULL;
	int status = nvidia_p2p_dma_map_pages(to_pci_dev(device), region->pages, &mapping);

	spin_lock(&region->lock);
	region->in_driver = false;
	/* Without pages, the callback ended before the driver returned: the mapping is invalid. */
	if (!status && region->pages) {
		region->mapping = mapping;
		region->device = to_pci_dev(device);
	} else if (!status) {
		status = -EFAULT;
	}
	spin_unlock(&region->lock);
	return status;
}
