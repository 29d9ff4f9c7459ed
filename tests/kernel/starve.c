/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * No memory for the scatter table of a client.  sg_alloc_table() itself cannot be replaced, as the kernel's library is not
 * traced; so what it calls is, for one task.
 */
#include <linux/module.h>
#include <linux/pgtable.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "core.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 10, 0)
#define ALLOCATE __kmalloc
#else
#define ALLOCATE __kmalloc_noprof
#endif

static struct task_struct *starved;

static void *replaced(size_t size, gfp_t flags)
{
	return NULL;
}

/* What modules allocate by themselves they get. */
static void notrace redirect(unsigned long ip, unsigned long parent, struct ftrace_ops *ops, struct ftrace_regs *regs)
{
	if (current == READ_ONCE(starved) && !(parent >= MODULES_VADDR && parent < MODULES_END))
		core_redirect(regs, ops->private);
}

static struct ftrace_ops allocate = { .func = redirect, .flags = CORE_REDIRECTS, .private = replaced };

int starve_begin(void)
{
	int status = ftrace_set_filter_ip(&allocate, (unsigned long)ALLOCATE, 0, 0);

	status = status ?: register_ftrace_function(&allocate);
	if (!status)
		WRITE_ONCE(starved, current);
	return status;
}

void starve_end(void)
{
	WRITE_ONCE(starved, NULL);
	unregister_ftrace_function(&allocate);
	ftrace_free_filter(&allocate);
}
