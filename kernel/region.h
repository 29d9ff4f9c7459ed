/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A region, and what may be done with it: region.c says what must hold. */
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
	spinlock_t lock;        /* of all below that changes */
	wait_queue_head_t left; /* the caller has left */
	refcount_t references;
	struct pm_client *client;
	pid_t owner; /* the process that pinned it */
	u64 addr;    /* what was asked for */
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

struct pm_region *pm_region_new(struct pm_client *client, u64 addr, u64 size);
void pm_region_put(struct pm_region *region);

static inline bool pm_persistent(const struct pm_region *region)
{
	return region->client->persistent;
}

/* Whether the driver may be called; if so, the task is the caller until pm_leave(). */
bool pm_enter(struct pm_region *region);
/* Returns whether the region is still there. */
bool pm_leave(struct pm_region *region);

/* By the caller.  The free callback may be waiting for it when this returns. */
int pm_pin(struct pm_region *region);
int pm_driver_map(struct pm_region *region, struct device *device);
/* Undoes that, unless it is the callback's by now. */
void pm_driver_unmap(struct pm_region *region);

/* By others: nothing, if there is nothing to undo any more. */
void pm_unmap(struct pm_region *region);
void pm_unpin(struct pm_region *region);

#endif
