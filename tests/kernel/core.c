/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Stand-in for the part of MLNX_OFED's ib_core that asks clients for memory that it cannot pin.  The stand-in registers
 * clients' regions for a test, or for soft-RoCE (soft_roce.c), and counts forbidden actions of a client as violations.
 *
 * old=1 selects an ib_core without the fix for inverted locks: it holds the region's lock while it unmaps, and it
 * unmaps during invalidations.
 */
#include <linux/jiffies.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/wait.h>

#include "core.h"

/* Wait for a lock that counts as a deadlock: 1 s.  Normal waits take about a millisecond. */
#define DEADLOCK HZ

static bool old;
module_param(old, bool, 0444);

static int refuse;
module_param(refuse, int, 0444);
MODULE_PARM_DESC(refuse, "index, from 1, of the client whose registration fails");

struct client {
	struct list_head link;
	const struct peer_memory_client *calls;
	bool unmaps; /* the client itself unmaps invalidated regions */
	bool invalidates;
	atomic_t regions;
	wait_queue_head_t gone;
};

static DEFINE_MUTEX(clients_lock);
static LIST_HEAD(clients);
static DEFINE_SPINLOCK(lock); /* protects the list of regions */
static LIST_HEAD(regions);
static u64 last_handle;
static int count;
static atomic_t invalidated = ATOMIC_INIT(0);
static struct miscdevice misc;

void region_put(struct region *region)
{
	if (refcount_dec_and_test(&region->references))
		kfree(region);
}

static struct region *region_find_if(bool (*matches)(const struct region *region, const void *key), const void *key)
{
	struct region *region;

	spin_lock(&lock);
	list_for_each_entry(region, &regions, link)
	{
		if (matches(region, key)) {
			refcount_inc(&region->references);
			spin_unlock(&lock);
			return region;
		}
	}
	spin_unlock(&lock);
	return NULL;
}

static bool has_handle(const struct region *region, const void *key)
{
	return region->handle == *(const u64 *)key;
}

static bool has_umem(const struct region *region, const void *key)
{
	return &region->umem == key;
}

static bool has_task(const struct region *region, const void *key)
{
	return region->registering == key;
}

static bool has_mr(const struct region *region, const void *key)
{
	return region->mr == key;
}

struct region *region_find(u64 handle)
{
	return region_find_if(has_handle, &handle);
}

struct region *region_of_umem(const struct ib_umem *umem)
{
	return region_find_if(has_umem, umem);
}

struct region *region_of_task(const struct task_struct *task)
{
	return region_find_if(has_task, task);
}

struct region *region_of_mr(const struct ib_mr *mr)
{
	return region_find_if(has_mr, mr);
}

static void region_unmap_and_put(struct region *region)
{
	const struct peer_memory_client *calls = region->client->calls;

	calls->dma_unmap(&region->table, region->context, region->device);
	standin_point(POINT_UNMAPPED);
	calls->put_pages(&region->table, region->context);
	standin_point(POINT_PUT);
}

/* Invalidates a region: a client's free callback calls it with the GPU driver's lock. */
static int core_invalidate(void *handle, u64 core_context)
{
	struct region *region = region_find(core_context);
	unsigned long end = jiffies + DEADLOCK;

	atomic_inc(&invalidated);
	standin_point(POINT_INVALIDATE);
	if (!region || region->client != handle) {
		if (region)
			region_put(region);
		return -EINVAL;
	}
	while (!mutex_trylock(&region->lock)) {
		if (time_after(jiffies, end)) {
			standin_violation("deadlock: the free callback waits for a lock whose owner waits for it");
			region_put(region);
			return -EDEADLK;
		}
		schedule_timeout_uninterruptible(1);
	}
	if (region->mapped) {
		soft_roce_revoke(region);
		region->access = false;
		region->mapped = false;
		if (!region->client->unmaps)
			region_unmap_and_put(region);
	}
	mutex_unlock(&region->lock);
	region_put(region);
	standin_point(POINT_INVALIDATED);
	return 0;
}

/* Counts a violation for each region in freed memory that a device can still access.  Runs after all free callbacks. */
static void check_freed(struct mm_struct *mm, u64 address, u64 length)
{
	struct region *region;

	spin_lock(&lock);
	list_for_each_entry(region, &regions, link)
	{
		if (region->access && region->client->invalidates && region->mm == mm && region->address >= address &&
		    region->address < address + length)
			standin_violation("memory was freed that a device has access to");
	}
	spin_unlock(&lock);
}

void *ib_register_peer_memory_client(const struct peer_memory_client *calls, invalidate_peer_memory *callback)
{
	struct client *client;
	void *context;

	if (!calls->acquire || !calls->get_pages || !calls->dma_map || !calls->dma_unmap || !calls->put_pages ||
	    !calls->get_page_size || !calls->release || !--refuse)
		return NULL;
	client = kzalloc(sizeof(*client), GFP_KERNEL);
	if (!client)
		return NULL;
	client->calls = calls;
	init_waitqueue_head(&client->gone);
	if (calls->version[IB_PEER_MEMORY_VER_MAX - 1] == 1 && !old) {
		const struct peer_memory_client_ex *ex = container_of(calls, struct peer_memory_client_ex, client);

		client->unmaps = ex->ex_size >= sizeof(*ex) && ex->flags & PEER_MEM_INVALIDATE_UNMAPS;
	}
	if (callback) {
		*callback = core_invalidate;
		client->invalidates = true;
	}
	pr_info("standin: client %s\n", calls->name);
	mutex_lock(&clients_lock);
	list_add_tail(&client->link, &clients);
	mutex_unlock(&clients_lock);
	/* A program may register memory from here on, although the client does not have its handle yet. */
	if (calls->acquire(GPU_PAGE, GPU_PAGE, NULL, NULL, &context) == 1)
		standin_violation("a client took memory before it was registered");
	return client;
}
EXPORT_SYMBOL(ib_register_peer_memory_client);

void ib_unregister_peer_memory_client(void *handle)
{
	struct client *client = handle;

	mutex_lock(&clients_lock);
	list_del(&client->link);
	mutex_unlock(&clients_lock);
	wait_event(client->gone, !atomic_read(&client->regions));
	kfree(client);
}
EXPORT_SYMBOL(ib_unregister_peer_memory_client);

static int region_acquire(struct region *region)
{
	struct client *client;

	mutex_lock(&clients_lock);
	list_for_each_entry(client, &clients, link)
	{
		if (client->calls->acquire(region->address, region->length, NULL, NULL, &region->context) == 1) {
			region->client = client;
			atomic_inc(&client->regions);
			break;
		}
	}
	mutex_unlock(&clients_lock);
	return region->client ? 0 : -EFAULT;
}

static void list_region(struct region *region)
{
	spin_lock(&lock);
	region->handle = ++last_handle;
	list_add(&region->link, &regions);
	count++;
	spin_unlock(&lock);
}

static void region_release(struct region *region)
{
	struct client *client = region->client;

	spin_lock(&lock);
	list_del(&region->link);
	count--;
	spin_unlock(&lock);
	client->calls->release(region->context);
	standin_point(POINT_RELEASED);
	if (atomic_dec_and_test(&client->regions))
		wake_up(&client->gone);
	region_put(region);
}

/* Maps the region.  Checks that the client fills the table on success, and leaves it unchanged on failure. */
static int region_map(struct region *region)
{
	static const struct sg_table untouched = { .nents = 0x7e57, .orig_nents = 0x7e57 };
	int status;

	region->table = untouched;
	status = region->client->calls->dma_map(&region->table, region->context, region->device, 0, &region->entries);
	if (status && memcmp(&region->table, &untouched, sizeof(untouched)))
		standin_violation("dma_map failed and changed the table");
	if (!status && region->table.nents != region->entries)
		standin_violation("dma_map returns another number of entries than the table has");
	region->mapped = !status;
	region->access = !status;
	return status;
}

static struct region *region_new(u64 address, u64 length, struct device *device)
{
	struct region *region = kzalloc(sizeof(*region), GFP_KERNEL);

	if (region) {
		refcount_set(&region->references, 1);
		mutex_init(&region->lock);
		region->address = address;
		region->length = length;
		region->device = device;
		region->mm = current->mm;
		region->registering = current;
	}
	return region;
}

int region_register(u64 address, u64 length, struct device *device, struct region **registered)
{
	struct region *region = region_new(address, length, device);
	int status;

	if (!region)
		return -ENOMEM;
	standin_point(POINT_BEGIN);
	status = region_acquire(region);
	if (status) {
		kfree(region);
		return status;
	}
	standin_point(POINT_ACQUIRED);
	list_region(region);
	status = region->client->calls->get_pages(address, length, 1, 0, &region->table, region->context,
						  region->handle);
	if (!status) {
		standin_point(POINT_TAKEN);
		mutex_lock(&region->lock);
		status = region_map(region);
		mutex_unlock(&region->lock);
		if (status)
			region->client->calls->put_pages(&region->table, region->context);
	}
	if (status) {
		region_release(region);
		return status;
	}
	standin_point(POINT_LIVE);
	*registered = region;
	return 0;
}

void region_deregister(struct region *region)
{
	bool mapped;

	standin_point(POINT_CLOSING);
	mutex_lock(&region->lock);
	mapped = region->mapped;
	region->mapped = false;
	region->access = false;
	if (mapped && old)
		region_unmap_and_put(region);
	mutex_unlock(&region->lock);
	if (mapped && !old)
		region_unmap_and_put(region);
	region_release(region);
}

static struct device *device_of_kind(u32 kind)
{
	return kind == DEVICE_EDU ? edu_device() : misc.this_device;
}

static void region_fill_reply(struct region *region, struct core_region *request)
{
	struct scatterlist *entry;
	int i;

	request->handle = region->handle;
	request->entries = region->entries;
	request->total = 0;
	for_each_sgtable_dma_sg(&region->table, entry, i) request->total += sg_dma_len(entry);
	request->first = sg_dma_address(region->table.sgl);
	request->first_length = sg_dma_len(region->table.sgl);
	strscpy(request->client, region->client->calls->name, sizeof(request->client));
	if (region->client->calls->get_page_size(region->context) != GPU_PAGE)
		standin_violation("get_page_size differs from the size of the pages");
}

/* Acquires and releases a region without mapping; with `other`, get_pages() for another range comes in between. */
static int region_acquire_and_release(struct region *region, bool other)
{
	int status = region_acquire(region);

	if (status) {
		kfree(region);
		return status;
	}
	list_region(region);
	if (other)
		status = region->client->calls->get_pages(region->address, region->length + 1, 1, 0, &region->table,
							  region->context, region->handle);
	region_release(region);
	return status;
}

static int region_remap(struct region *region)
{
	int status;

	mutex_lock(&region->lock);
	region->client->calls->dma_unmap(&region->table, region->context, region->device);
	status = region_map(region);
	mutex_unlock(&region->lock);
	return status;
}

static int core_register(struct core_region *request, void __user *to)
{
	struct device *device = device_of_kind(request->device);
	struct region *region;
	int status;

	if (!device)
		return -ENODEV;
	if (request->abandon) {
		region = region_new(request->address, request->length, device);
		return region ? region_acquire_and_release(region, request->abandon == 2) : -ENOMEM;
	}
	status = request->starve ? starve_begin() : 0;
	if (status)
		return status;
	status = region_register(request->address, request->length, device, &region);
	if (request->starve)
		starve_end();
	if (!status && request->again)
		status = region_remap(region);
	if (status)
		return status;
	region->registering = NULL;
	region_fill_reply(region, request);
	return copy_to_user(to, request, sizeof(*request)) ? -EFAULT : 0;
}

static int core_cycle(const struct core_region *request)
{
	struct region *region;
	int status = region_register(request->address, request->length, device_of_kind(request->device), &region);

	if (!status)
		region_deregister(region);
	return status;
}

static int core_deregister(u64 handle)
{
	struct region *region = region_find(handle);

	if (!region)
		return -ENOENT;
	region_put(region);
	region_deregister(region);
	return 0;
}

static int core_dma_copy(const struct core_dma *request)
{
	struct region *region = region_find(request->handle);
	int status;

	if (!region)
		return -ENOENT;
	status = edu_copy(region, request);
	region_put(region);
	return status;
}

static long core_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *from = (void __user *)argument;
	struct core_region request;
	struct core_dma copy;
	u64 handle;

	switch (command) {
	case CORE_REGISTER:
		return copy_from_user(&request, from, sizeof(request)) ? -EFAULT : core_register(&request, from);
	case CORE_CYCLE:
		return copy_from_user(&request, from, sizeof(request)) ? -EFAULT : core_cycle(&request);
	case CORE_DEREGISTER:
		return copy_from_user(&handle, from, sizeof(handle)) ? -EFAULT : core_deregister(handle);
	case CORE_REGIONS:
		return READ_ONCE(count);
	case CORE_INVALIDATED:
		return atomic_read(&invalidated);
	case CORE_DMA:
		return copy_from_user(&copy, from, sizeof(copy)) ? -EFAULT : core_dma_copy(&copy);
	}
	return -ENOTTY;
}

static const struct file_operations operations = { .owner = THIS_MODULE, .unlocked_ioctl = core_ioctl };

static struct miscdevice misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "standin_core",
	.fops = &operations,
};

static int __init core_init(void)
{
	int status = edu_init();

	if (!status)
		status = soft_roce_init();
	if (!status)
		status = misc_register(&misc);
	if (!status)
		standin_on_freed(check_freed);
	return status;
}

static void __exit core_exit(void)
{
	standin_on_freed(NULL);
	misc_deregister(&misc);
	soft_roce_exit();
	edu_exit();
}

module_init(core_init);
module_exit(core_exit);

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS(DMA_BUF);
#else
MODULE_IMPORT_NS("DMA_BUF");
#endif
MODULE_DESCRIPTION("Stand-in for the peer memory interface of IB core, for tests");
MODULE_AUTHOR("The Peerlane authors");
MODULE_LICENSE("Dual BSD/GPL");
