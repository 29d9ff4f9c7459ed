/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Stand-in for the part of NVIDIA's driver that pins memory for other devices.  The stand-in is strict: it counts each
 * forbidden action of a client as a violation.  As in the driver, the task that frees memory holds one lock while it
 * calls clients back, and every call waits for that lock.
 */
#include <linux/dma-mapping.h>
#include <linux/export.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "standin_internal.h"

struct gpu_allocation {
	struct list_head link;
	struct kref references;
	struct mm_struct *mm; /* only compared */
	u64 address;
	u64 length;
	u64 offset;
	void (*release)(u64 offset, u64 length);
	bool freed;
};

struct gpu_pin {
	struct list_head link;
	struct list_head mappings;
	struct gpu_allocation *allocation;
	struct nvidia_p2p_page_table *table;
	void (*callback)(void *data);
	void *data;
	u64 offset;
	u64 length;
	pid_t owner;               /* the process that pinned */
	struct task_struct *freer; /* the task that runs the callback; NULL before */
	bool table_freed;
};

struct gpu_mapping {
	struct list_head link;
	struct nvidia_p2p_dma_mapping mapping;
	struct pci_dev *peer;
	u64 page; /* bytes */
	u32 pages;
};

static DEFINE_MUTEX(driver);   /* held while memory is freed; every call takes it */
static DEFINE_SPINLOCK(lists); /* protects the lists; held for short times only */
static LIST_HEAD(allocations);
static LIST_HEAD(pins);
static phys_addr_t memory;
static atomic_t violations = ATOMIC_INIT(0);
static atomic_t overslept = ATOMIC_INIT(0);
static struct gpu_fault fault;
static void (*on_freed)(struct mm_struct *mm, u64 address, u64 length);

void standin_violation(const char *what)
{
	atomic_inc(&violations);
	pr_notice("standin: VIOLATION: %s\n", what);
}
EXPORT_SYMBOL(standin_violation);

void standin_on_freed(void (*check)(struct mm_struct *mm, u64 address, u64 length))
{
	mutex_lock(&driver);
	on_freed = check;
	mutex_unlock(&driver);
}
EXPORT_SYMBOL(standin_on_freed);

int p2p_violations(void)
{
	return atomic_read(&violations);
}

int p2p_overslept(void)
{
	return atomic_read(&overslept);
}

int p2p_fault(const struct gpu_fault *set)
{
	mutex_lock(&driver);
	fault = *set;
	mutex_unlock(&driver);
	return 0;
}

/* Returns the status with which a call must fail; 0 if it succeeds.  Call with the driver's lock. */
static int fault_take_status(enum gpu_call call)
{
	if (!fault.status || fault.call != call || !fault.times)
		return 0;
	fault.times--;
	return fault.status;
}

static struct gpu_pin *find_pin(const struct nvidia_p2p_page_table *table)
{
	struct gpu_pin *pin;

	list_for_each_entry(pin, &pins, link)
	{
		if (pin->table == table)
			return pin;
	}
	return NULL;
}

static struct gpu_mapping *find_mapping(struct gpu_pin *pin, const struct nvidia_p2p_dma_mapping *mapping)
{
	struct gpu_mapping *found;

	list_for_each_entry(found, &pin->mappings, link)
	{
		if (&found->mapping == mapping)
			return found;
	}
	return NULL;
}

/* Returns true if a client's pointer is a page table; counts a violation if not.  The driver does not check it. */
static bool page_table_exists(const struct nvidia_p2p_page_table *table, const char *call)
{
	bool found;

	spin_lock(&lists);
	found = find_pin(table);
	spin_unlock(&lists);
	if (!found)
		standin_violation(call);
	return found;
}

/*
 * Sleeps `fault.naps` times for 1 jiffy, as a call does that sleeps for other reasons than the driver's lock.  Returns
 * true if the page table was freed in the meantime.
 */
static bool sleep_in_call(const struct nvidia_p2p_page_table *table, enum gpu_call call)
{
	u32 naps = fault.call == call ? fault.naps : 0;
	bool found;

	if (!naps)
		return false;
	while (naps--)
		schedule_timeout_uninterruptible(1);
	spin_lock(&lists);
	found = find_pin(table);
	spin_unlock(&lists);
	if (!found)
		atomic_inc(&overslept);
	return !found;
}

static void allocation_release(struct kref *references)
{
	struct gpu_allocation *allocation = container_of(references, struct gpu_allocation, references);

	if (allocation->release)
		allocation->release(allocation->offset, allocation->length);
	kfree(allocation);
}

static void mapping_destroy(struct gpu_mapping *mapping)
{
	u32 i;

	for (i = 0; i < mapping->pages; i++)
		dma_unmap_resource(&mapping->peer->dev, mapping->mapping.dma_addresses[i], mapping->page,
				   DMA_BIDIRECTIONAL, 0);
	kfree(mapping->mapping.dma_addresses);
	kfree(mapping);
}

static void pin_destroy(struct gpu_pin *pin)
{
	struct gpu_mapping *mapping, *next;

	spin_lock(&lists);
	list_del(&pin->link);
	spin_unlock(&lists);
	list_for_each_entry_safe(mapping, next, &pin->mappings, link) mapping_destroy(mapping);
	/* Poisons the table, so that a use after free shows. */
	memset(pin->table, 0x6b, sizeof(*pin->table));
	kfree(pin->table);
	kref_put(&pin->allocation->references, allocation_release);
	kfree(pin);
}

static struct gpu_allocation *find_allocation(struct mm_struct *mm, u64 address, u64 length)
{
	struct gpu_allocation *allocation;

	list_for_each_entry(allocation, &allocations, link)
	{
		if (allocation->mm == mm && !allocation->freed && address >= allocation->address &&
		    address + length <= allocation->address + ALIGN(allocation->length, GPU_PAGE))
			return allocation;
	}
	return NULL;
}

/* Returns the page size in bytes: 64 KiB, or 128 KiB if the fault asks for it. */
static u64 fault_page_bytes(void)
{
	return fault.page_size == NVIDIA_P2P_PAGE_SIZE_128KB + 1 ? 2 * GPU_PAGE : GPU_PAGE;
}

static int make_pin(u64 address, u64 length, struct gpu_pin **made)
{
	struct gpu_allocation *allocation = find_allocation(current->mm, address, length);
	struct gpu_pin *pin;

	if (!allocation)
		return -EINVAL;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL);
	if (!pin)
		return -ENOMEM;
	pin->table = kzalloc(sizeof(*pin->table), GFP_KERNEL);
	if (!pin->table) {
		kfree(pin);
		return -ENOMEM;
	}
	INIT_LIST_HEAD(&pin->mappings);
	pin->table->version = fault.table_version ?: NV_PAGE_TABLE_VERSION;
	pin->table->page_size = fault.page_size ? fault.page_size - 1 : NVIDIA_P2P_PAGE_SIZE_64KB;
	pin->table->entries = DIV_ROUND_UP(length, fault_page_bytes()) - fault.missing;
	pin->offset = allocation->offset + (address - allocation->address);
	pin->length = length;
	pin->owner = current->tgid;
	pin->allocation = allocation;
	kref_get(&allocation->references);
	*made = pin;
	return 0;
}

int standin_get_pages(u64 address, u64 length, struct nvidia_p2p_page_table **table, void (*callback)(void *data),
		      void *data, bool persistent)
{
	struct gpu_pin *pin;
	int status;

	if (!length || address % GPU_PAGE || length % GPU_PAGE || (!persistent && (!callback || !data))) {
		standin_violation("get_pages of a range that is not whole pages, or without a callback");
		return -EINVAL;
	}
	standin_point(POINT_GET_ENTER);
	mutex_lock(&driver);
	status = fault_take_status(persistent ? CALL_GET_PERSISTENT : CALL_GET) ?: make_pin(address, length, &pin);
	if (!status) {
		pin->callback = callback;
		pin->data = data;
		*table = pin->table;
		spin_lock(&lists);
		list_add(&pin->link, &pins);
		spin_unlock(&lists);
	}
	standin_point(POINT_GET_LOCKED);
	mutex_unlock(&driver);
	/* Another task can free the memory, and run the callback, from here on. */
	standin_point(POINT_GET_LEAVE);
	return status;
}
EXPORT_SYMBOL(standin_get_pages);

int standin_put_pages(struct nvidia_p2p_page_table *table, bool persistent)
{
	struct gpu_pin *pin;
	int status;

	standin_point(POINT_PUT_ENTER);
	if (!page_table_exists(table, "put_pages of a page table that no longer exists"))
		return -EINVAL;
	mutex_lock(&driver);
	standin_point(POINT_PUT_LOCKED);
	pin = find_pin(table);
	/* NVIDIA's driver searches only the page tables of the calling process. */
	status = pin && (persistent || pin->owner == current->tgid) ? fault_take_status(CALL_PUT) : -ENOENT;
	if (!status) {
		if (persistent == !!pin->callback)
			standin_violation("put_pages of the other kind");
		if (!list_empty(&pin->mappings))
			standin_violation("put_pages with a mapping");
		pin_destroy(pin);
	}
	mutex_unlock(&driver);
	standin_point(POINT_PUT_LEAVE);
	return status;
}
EXPORT_SYMBOL(standin_put_pages);

static int map_all(struct gpu_mapping *mapping, u64 offset)
{
	u32 count = mapping->mapping.entries, i;

	for (i = 0; i < count; i++) {
		u32 page = fault.scattered ? count - 1 - i : i;
		u64 address = dma_map_resource(&mapping->peer->dev, memory + offset + page * mapping->page,
					       mapping->page, DMA_BIDIRECTIONAL, 0);

		if (dma_mapping_error(&mapping->peer->dev, address))
			return -EIO;
		mapping->mapping.dma_addresses[i] = address;
		mapping->pages++;
	}
	return 0;
}

static int make_mapping(struct gpu_pin *pin, struct pci_dev *peer, struct nvidia_p2p_dma_mapping **made)
{
	struct gpu_mapping *mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
	int status;

	if (!mapping)
		return -ENOMEM;
	mapping->peer = peer;
	mapping->mapping.version = fault.mapping_version ?: NV_DMA_MAPPING_VERSION;
	mapping->page = fault_page_bytes();
	mapping->mapping.page_size_type =
		mapping->page == GPU_PAGE ? NVIDIA_P2P_PAGE_SIZE_64KB : NVIDIA_P2P_PAGE_SIZE_128KB;
	mapping->mapping.entries = DIV_ROUND_UP(pin->length, mapping->page);
	mapping->mapping.dma_addresses = kcalloc(mapping->mapping.entries, sizeof(u64), GFP_KERNEL);
	status = mapping->mapping.dma_addresses ? map_all(mapping, pin->offset) : -ENOMEM;
	if (status) {
		mapping_destroy(mapping);
		return status;
	}
	mapping->mapping.entries -= fault.missing;
	spin_lock(&lists);
	list_add(&mapping->link, &pin->mappings);
	spin_unlock(&lists);
	*made = &mapping->mapping;
	return 0;
}

int standin_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *table,
		      struct nvidia_p2p_dma_mapping **mapping)
{
	struct gpu_pin *pin;
	int status;

	standin_point(POINT_MAP_ENTER);
	if (!page_table_exists(table, "dma_map_pages of a page table that no longer exists"))
		return -EINVAL;
	mutex_lock(&driver);
	standin_point(POINT_MAP_LOCKED);
	pin = find_pin(table);
	status = pin ? fault_take_status(CALL_MAP) : -EINVAL;
	if (!status)
		status = make_mapping(pin, peer, mapping);
	mutex_unlock(&driver);
	standin_point(POINT_MAP_LEAVE);
	return status;
}
EXPORT_SYMBOL(standin_map_pages);

int standin_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *table,
			struct nvidia_p2p_dma_mapping *mapping)
{
	struct gpu_mapping *found = NULL;
	struct gpu_pin *pin;
	int status;

	standin_point(POINT_UNMAP_ENTER);
	if (sleep_in_call(table, CALL_UNMAP))
		return -EINVAL;
	if (!page_table_exists(table, "dma_unmap_pages of a page table that no longer exists"))
		return -EINVAL;
	mutex_lock(&driver);
	standin_point(POINT_UNMAP_LOCKED);
	pin = find_pin(table);
	status = pin ? fault_take_status(CALL_UNMAP) : -ENOENT;
	if (!status) {
		found = find_mapping(pin, mapping);
		status = found ? 0 : -ENOENT;
	}
	if (found) {
		if (found->peer != peer)
			standin_violation("dma_unmap_pages for another device");
		spin_lock(&lists);
		list_del(&found->link);
		spin_unlock(&lists);
		mapping_destroy(found);
	}
	mutex_unlock(&driver);
	standin_point(POINT_UNMAP_LEAVE);
	return status;
}
EXPORT_SYMBOL(standin_unmap_pages);

/* Frees a page table.  Permitted only in the callback of the table's pin. */
int standin_free_page_table(struct nvidia_p2p_page_table *table)
{
	struct gpu_pin *pin;
	bool allowed;

	standin_point(POINT_FREE_TABLE);
	spin_lock(&lists);
	pin = find_pin(table);
	allowed = pin && pin->freer == current && !pin->table_freed;
	if (allowed)
		pin->table_freed = true;
	spin_unlock(&lists);
	if (!allowed)
		standin_violation("free_page_table outside of its callback, or twice");
	return allowed ? 0 : -EINVAL;
}
EXPORT_SYMBOL(standin_free_page_table);

int standin_free_dma_mapping(struct nvidia_p2p_dma_mapping *mapping)
{
	struct gpu_mapping *found = NULL;
	struct gpu_pin *pin;

	standin_point(POINT_FREE_MAPPING);
	spin_lock(&lists);
	list_for_each_entry(pin, &pins, link)
	{
		if (pin->freer == current)
			found = find_mapping(pin, mapping);
		if (found) {
			list_del(&found->link);
			break;
		}
	}
	spin_unlock(&lists);
	if (!found) {
		standin_violation("free_dma_mapping outside of its callback, or twice");
		return -EINVAL;
	}
	mapping_destroy(found);
	return 0;
}
EXPORT_SYMBOL(standin_free_dma_mapping);

struct gpu_allocation *p2p_allocate(struct mm_struct *mm, u64 address, u64 length, u64 offset,
				    void (*release)(u64 offset, u64 length))
{
	struct gpu_allocation *allocation = kzalloc(sizeof(*allocation), GFP_KERNEL);

	if (!allocation)
		return NULL;
	kref_init(&allocation->references);
	allocation->mm = mm;
	allocation->address = address;
	allocation->length = length;
	allocation->offset = offset;
	allocation->release = release;
	mutex_lock(&driver);
	list_add(&allocation->link, &allocations);
	mutex_unlock(&driver);
	return allocation;
}

struct gpu_allocation *p2p_take(struct mm_struct *mm, u64 address, u64 length, u64 *offset)
{
	struct gpu_allocation *allocation;

	mutex_lock(&driver);
	allocation = find_allocation(mm, address, length);
	if (allocation) {
		kref_get(&allocation->references);
		*offset = allocation->offset + (address - allocation->address);
	}
	mutex_unlock(&driver);
	return allocation;
}

void p2p_put(struct gpu_allocation *allocation)
{
	kref_put(&allocation->references, allocation_release);
}

static struct gpu_pin *next_pin(struct gpu_allocation *allocation)
{
	struct gpu_pin *pin;

	list_for_each_entry(pin, &pins, link)
	{
		if (pin->allocation == allocation && pin->callback)
			return pin;
	}
	return NULL;
}

/* Marks an allocation as freed and calls back the clients that have pinned it.  Call with the driver's lock. */
static void free_allocation(struct gpu_allocation *allocation)
{
	struct gpu_pin *pin;

	allocation->freed = true;
	for (pin = next_pin(allocation); pin; pin = next_pin(allocation)) {
		spin_lock(&lists);
		pin->freer = current;
		spin_unlock(&lists);
		standin_point(POINT_UNLINKED);
		pin->callback(pin->data);
		if (!pin->table_freed)
			standin_violation("a callback did not free the page table");
		if (!list_empty(&pin->mappings))
			standin_violation("a callback left a mapping");
		pin_destroy(pin);
	}
	if (on_freed)
		on_freed(allocation->mm, allocation->address, allocation->length);
	standin_point(POINT_CALLED_BACK);
}

void p2p_forget(struct gpu_allocation *allocation)
{
	mutex_lock(&driver);
	if (!allocation->freed)
		free_allocation(allocation);
	list_del(&allocation->link);
	mutex_unlock(&driver);
	kref_put(&allocation->references, allocation_release);
}

int p2p_free(struct mm_struct *mm, u64 address)
{
	struct gpu_allocation *allocation;

	standin_point(POINT_FREE);
	mutex_lock(&driver);
	allocation = find_allocation(mm, address, 1);
	if (allocation)
		free_allocation(allocation);
	mutex_unlock(&driver);
	standin_point(POINT_FREED);
	return allocation ? 0 : -ENOENT;
}

int p2p_pins(void)
{
	struct gpu_pin *pin;
	int count = 0;

	spin_lock(&lists);
	list_for_each_entry(pin, &pins, link) count++;
	spin_unlock(&lists);
	return count;
}

int p2p_init(phys_addr_t base)
{
	memory = base;
	return 0;
}

void p2p_exit(void)
{
	struct gpu_pin *pin, *next;

	list_for_each_entry_safe(pin, next, &pins, link)
	{
		standin_violation("a pin is left at unload");
		pin_destroy(pin);
	}
}
