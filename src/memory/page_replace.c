/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/page_replace.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/*
 * Maps pages where mremap(2) may have left a hole, and copies the bytes. Kernels before 4.17 take the address as a wish, and use it if it
 * is free.
 */
static enum pl_pages fill_hole(void *at, const void *pages, size_t size, size_t used, int protection)
{
	void *filled = mmap(at, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (filled == at) {
		memcpy(at, pages, used);
		mprotect(at, size, protection);
		return PL_PAGES_REPLACED;
	}
	if (filled == MAP_FAILED)
		return errno == EEXIST ? PL_PAGES_KEPT : PL_PAGES_TORN;
	munmap(filled, size);
	return PL_PAGES_KEPT;
}

/*
 * Moves the pages, because mmap(2) with MAP_FIXED unmaps the old ones before it knows that it can map others. mremap(2) checks most
 * limits first, but can still fail afterwards, for lack of the kernel's own memory.
 */
enum pl_pages pl_pages_replace(void *at, void *pages, size_t size, size_t used, int protection)
{
	enum pl_pages result = PL_PAGES_KEPT;

	if (mprotect(pages, size, protection) == 0) {
		if (mremap(pages, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
			return PL_PAGES_REPLACED;
		result = fill_hole(at, pages, size, used, protection);
	}
	munmap(pages, size);
	return result;
}
