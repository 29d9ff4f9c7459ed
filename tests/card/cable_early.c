/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Joins the card's cable before main() if STANDIN_EARLY is set: a program that enters a sandbox before it opens a card
 * can make no socket in the cable's folder then. The kernel's cards need no file but those that a sandbox permits.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void join_early(void) __attribute__((constructor));

static void join_early(void)
{
	void *library, *found;
	void (*join)(void);

	if (!getenv("STANDIN_EARLY"))
		return;
	/* Stays open: the program's own look finds it. */
	library = dlopen("libibverbs.so.1", RTLD_NOW);
	found = library ? dlsym(library, "standin_cable_join") : NULL;
	if (!found)
		abort();
	memcpy(&join, &found, sizeof(join));
	join();
}
