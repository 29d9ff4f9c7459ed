/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A region and its operations.  region.c lists the invariants. */
#ifndef PEERLANE_PEERMEM_REGION_H
#define PEERLANE_PEERMEM_REGION_H

#include "peermem.h"

#include <linux/refcount.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

struct nvidia_p2p_page_table;
struct pci_dev;
struct task_struct;

struct pm_region {
	spinlock_t lock;        /* protects the members below that change */
	wait_queue_head_t left; /* woken when the caller leaves */
	refcount_t references;
	struct pm_client *client;
	pid_t owner; /* the process that pinned it */
	u64 addr;    /* range that IB core requests */
	u64 size;
	u64 start; /* pinned range: whole granules around the requested range */
	u64 length;
	u64 core_context;
	struct nvidia_p2p_page_table *pages;    /* NULL: not pinned */
	struct nvidia_p2p_dma_mapping *mapping; /* NULL: not mapped */
	struct pci_dev *device;
	struct sg_table table;        /* allocated by dma_map; IB core may read it until release() */
	struct task_struct *caller;   /* the task between pm_enter() and pm_leave() */
	struct task_struct *callback; /* the task that runs the free callback */
	bool in_driver;               /* the caller is in a call of the driver, or just before or after it */
	bool closing;                 /* IB core has begun to undo the registration */
	bool revoked;                 /* the free callback has begun */
};

struct pm_region *pm_region_new(struct pm_client *client, u64 addr, u64 size);
void pm_region_put(struct pm_region *region);

static inline bool pm_persistent(const struct pm_region *region)
{
	return region->client->persistent;
}

/* Returns true if the driver may be called; the task is then the caller until pm_leave(). */
bool pm_enter(struct pm_region *region);
/* Ends the caller's access.  Returns false if the region was revoked. */
bool pm_leave(struct pm_region *region);

/* Pin and map; the task must be the caller.  When pm_pin() returns, the free callback may wait for the caller. */
int pm_pin(struct pm_region *region);
int pm_driver_map(struct pm_region *region, struct device *device);
/* Unmaps, unless the free callback now owns the mapping; the task must be the caller. */
void pm_driver_unmap(struct pm_region *region);

/* Enter, undo and leave.  They do nothing if the region was revoked. */
void pm_unmap(struct pm_region *region);
void pm_unpin(struct pm_region *region);

#endif
