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
 * 1. Nothing is used after it was freed.  A call of the driver that uses the page table is made between pm_enter() and
 *    pm_leave(), and no call begins once the region is revoked, which the callback does first.  It frees nothing before
 *    the call that has begun has returned, or is asleep in the driver: there it waits for the lock that the callback's
 *    task has, so that to wait longer would be to wait for ever.  When it gets the lock, the driver looks for the page
 *    table anew, and does not find it.  (To unpin; to map, NVIDIA's open driver goes on with the one that it has freed.
 *    No client can keep it from that but by persistent pins.)
 * 2. The region is there as long as IB core or the driver may name it.  Each has a reference: IB core's goes with
 *    release(); the driver's with the callback, or with the pin when the driver took it back.
 *    A pin that is not persistent is the process's that made it.  Told by another to unpin, NVIDIA's driver says that
 *    it did, and does not; so it is not told, and calls back once the memory is freed, with its process at the latest.
 * 3. Nobody waits for the other in a circle.  IB core can have a lock of its own when it calls dma_map, dma_unmap and
 *    put_pages, which then wait for the driver's lock; and invalidate() waits for IB core's.  So the callback does not
 *    invalidate while such a call is under way, nor after the first that undoes: then the device has no access, or is
 *    denied it by what dma_map returns.  And those calls do not go to the driver once the region is revoked.
 *
 * The lock is a spinlock, so that a task which has entered does not sleep until it is in the driver.
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
 * A task that sleeps in the driver, and is not woken for so long, waits for the callback's end.  Others wake now and
 * then; should the driver wait in that way, a task which is found asleep after a much longer time counts as well.
 */
#define PATIENCE (HZ / 20)
#define MUCH_LONGER (5 * HZ)

struct pm_region *pm_region_new(struct pm_client *client, u64 addr, u64 size)
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
	 * Last.  Whoever unloads waits for RCU before the code goes, and thus for the few instructions that are left,
	 * unless the kernel preempts in them, and unloads meanwhile.
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

/* What is known of the caller's sleep. */
struct sleep {
	unsigned long began;    /* to wait for it */
	unsigned long since;    /* seen in this one */
	unsigned long switches; /* the number that a task has of each */
};

/* With the lock: the caller has left, or is asleep in the driver, and will be. */
static bool out_of_the_way(const struct pm_region *region, struct sleep *sleep)
{
	unsigned long switches;

	if (!region->caller)
		return true;
	switches = READ_ONCE(region->caller->nvcsw);
	if (!region->in_driver || task_is_running(region->caller) || switches != sleep->switches) {
		sleep->switches = switches;
		sleep->since = jiffies;
	}
	return time_after(jiffies, sleep->since + PATIENCE) ||
	       (region->in_driver && time_after(jiffies, sleep->began + MUCH_LONGER) &&
		!task_is_running(region->caller));
}

static void await_caller(struct pm_region *region)
{
	struct sleep sleep = { .began = jiffies, .since = jiffies };

	spin_lock(&region->lock);
	while (!out_of_the_way(region, &sleep)) {
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

/* Pins, and takes a reference for the driver; the callback may be waiting for the caller when this returns. */
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
		pr_info_once("%s[%d] deregisters what process %d has pinned: it stays pinned until it is freed\n",
			     current->comm, current->pid, region->owner);
	else if (region->pages && !driver_unpin(region)) {
		spin_lock(&region->lock);
		/* A driver that is freeing the memory refuses this; newer ones do nothing, and say that they did. */
		done = !region->revoked;
		if (done) {
			region->pages = NULL;
			region->mapping = NULL;
		}
		spin_unlock(&region->lock);
	}
	/* If not, the callback is on its way and does it. */
	if (done)
		pm_add(PM_BYTES, -(s64)region->length);
	pm_leave(region);
	if (done && !pm_persistent(region))
		pm_region_put(region);
}

/* As the caller, not in the driver: has it unmap, unless that is the callback's by now. */
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
	/* If it is refused, the memory is being freed, and the mapping is the callback's. */
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

/* As the caller: has the driver map for a device. */
int pm_driver_map(struct pm_region *region, struct device *device)
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
