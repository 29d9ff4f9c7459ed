/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/allocation_hook.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

static void run_hook(struct allocation_hook *hook, size_t size)
{
	bool armed = true;

	if (atomic_load(&hook->armed) && size == hook->size &&
	    atomic_compare_exchange_strong(&hook->armed, &armed, false))
		hook->run(hook->argument);
}

static void *hooked_allocate(size_t size, void *user)
{
	run_hook(user, size);
	return malloc(size);
}

static void *hooked_reallocate(void *pointer, size_t size, void *user)
{
	(void)user;
	return realloc(pointer, size);
}

static void hooked_release(void *pointer, void *user)
{
	(void)user;
	/* A later use of the memory fails without a sanitizer, too. */
	if (pointer)
		memset(pointer, 0xdb, malloc_usable_size(pointer));
	free(pointer);
}

void allocation_hook_init(struct allocation_hook *hook)
{
	*hook = (struct allocation_hook){ .allocator = { hooked_allocate, hooked_reallocate, hooked_release, hook } };
}

void allocation_hook_arm(struct allocation_hook *hook, size_t size, void (*run)(void *argument), void *argument)
{
	hook->size = size;
	hook->run = run;
	hook->argument = argument;
	atomic_store(&hook->armed, true);
}

void allocation_hook_check(struct allocation_hook *hook)
{
	check(!atomic_load(&hook->armed));
}
