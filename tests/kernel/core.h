/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Declarations that the files of the stand-in for IB core share. */
#ifndef STANDIN_CORE_H
#define STANDIN_CORE_H

#include <linux/ftrace.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>
#include <linux/version.h>
#include <rdma/ib_umem.h>

#include "../../kernel/peer_memory.h"
#include "standin_internal.h"

struct client;

/* Registered region of a client. */
struct region {
	struct ib_umem umem; /* memory as soft-RoCE sees it; must be the first member */
	struct list_head link;
	refcount_t references;
	struct mutex lock;
	struct client *client;
	void *context;
	struct mm_struct *mm; /* only compared */
	struct device *device;
	struct sg_table table;
	int entries;
	u64 handle;
	u64 address;
	u64 length;
	bool mapped;
	bool access; /* the device may use it */
	struct task_struct *registering;
	struct ib_mr *mr; /* soft-RoCE's memory region */
	struct ib_pd *pd; /* protection domain of mr before its revocation */
};

/* core.c */
int region_register(u64 address, u64 length, struct device *device, struct region **registered);
void region_deregister(struct region *region);
struct region *region_find(u64 handle);
struct region *region_of_umem(const struct ib_umem *umem);
struct region *region_of_task(const struct task_struct *task);
struct region *region_of_mr(const struct ib_mr *mr);
void region_put(struct region *region);

/* edu.c */
struct device *edu_device(void);
int edu_init(void);
void edu_exit(void);
int edu_copy(struct region *region, const struct core_dma *dma);

/*
 * import.c: makes a dma-buf the memory of the region that this task registers between begin and end.  The buffer is
 * released with the region.
 */
int import_begin(int fd, u64 offset, u64 length, u64 address);
void import_end(void);
struct ib_umem *import_umem(struct ib_device *device, int access); /* NULL: the task has not called import_begin() */
bool import_release(struct ib_umem *umem);                         /* false: not memory of a dma-buf */

/* starve.c: allocations of this task's scatter tables fail between begin and end. */
int starve_begin(void);
void starve_end(void);

/* Replaces a traced function: continues at `function`. */
#define CORE_REDIRECTS (FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_RECURSION)
static __always_inline void core_redirect(struct ftrace_regs *regs, void *function)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
	ftrace_instruction_pointer_set(regs, (unsigned long)function);
#else
	ftrace_regs_set_instruction_pointer(regs, (unsigned long)function);
#endif
}

/* soft_roce.c */
int soft_roce_init(void);
void soft_roce_exit(void);
void soft_roce_revoke(struct region *region);

#endif
