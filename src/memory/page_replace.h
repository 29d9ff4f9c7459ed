/* SPDX-License-Identifier: BSD-2-Clause */
/* Replacement of mapped pages while other threads use them. */
#ifndef PL_MEMORY_PAGE_REPLACE_H
#define PL_MEMORY_PAGE_REPLACE_H

#include <stddef.h>

enum pl_pages {
	PL_PAGES_REPLACED, /* the new pages are at the address */
	PL_PAGES_KEPT,     /* the old ones are */
	PL_PAGES_TORN,     /* there may be none: other memory of the process may get the address, so never unmap it */
};

/*
 * Replaces the pages of a mapping by private, writable ones of the same size, and gives them the protection. The first
 * `used` bytes of the new pages matter. Unmaps the new pages if they are not moved.
 */
enum pl_pages pl_pages_replace(void *at, void *pages, size_t size, size_t used, int protection);

#endif
