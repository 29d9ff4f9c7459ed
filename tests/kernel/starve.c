/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Makes allocations of a client's scatter table fail for one task.  ftrace does not trace the kernel's lib/, so that
 * sg_alloc_table() itself cannot be replaced.  The stand-in replaces the allocation function that it calls.
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

static void *failing_kmalloc(size_t size, gfp_t flags)
{
	return NULL;
}

/* Redirects allocations of the starved task, but not allocations that a module itself makes. */
static void notrace redirect_kmalloc(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
				     struct ftrace_regs *regs)
{
	if (current == READ_ONCE(starved) && !(parent >= MODULES_VADDR && parent < MODULES_END))
		core_redirect(regs, ops->private);
}

static struct ftrace_ops allocate = { .func = redirect_kmalloc, .flags = CORE_REDIRECTS, .private = failing_kmalloc };

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
