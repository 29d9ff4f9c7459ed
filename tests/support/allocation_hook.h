/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocator of a context that runs a function of the test in the middle of a call: at its next allocation of a given size. */
#ifndef TEST_ALLOCATION_HOOK_H
#define TEST_ALLOCATION_HOOK_H

#include <stdatomic.h>

#include <peerlane/peerlane.h>

struct allocation_hook {
	struct pl_allocator allocator; /* for pl_options.allocator */
	size_t size;
	void (*run)(void *argument);
	void *argument;
	atomic_bool armed;
};

/* The hook must outlive the context. */
void allocation_hook_init(struct allocation_hook *hook);
/* Runs the function once, on the thread that allocates `size` bytes. Other threads may allocate meanwhile. */
void allocation_hook_arm(struct allocation_hook *hook, size_t size, void (*run)(void *argument), void *argument);
/* Checks that the function has run. */
void allocation_hook_check(struct allocation_hook *hook);

#endif
