/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the parts of the stand-in for IB core know of each other. */
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

/* A registered region of a client's. */
struct region {
	struct ib_umem umem; /* what soft-RoCE gets; first */
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
	struct ib_mr *mr; /* of soft-RoCE */
	struct ib_pd *pd; /* that mr had until it was revoked */
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
 * import.c: a dma-buf becomes the memory of the region that this task registers between begin and end; released along
 * with it.
 */
int import_begin(int fd, u64 offset, u64 length, u64 address);
void import_end(void);
struct ib_umem *import_umem(struct ib_device *device, int access); /* NULL: none was begun */
bool import_release(struct ib_umem *umem);                         /* whether it is of here */

/* starve.c: until the end, this task's scatter tables find no memory. */
int starve_begin(void);
void starve_end(void);

/* What a function that is traced is replaced by. */
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
