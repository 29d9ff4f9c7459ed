/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#ifndef PEERLANE_PEERMEM_LAYOUT_H
#define PEERLANE_PEERMEM_LAYOUT_H

#include <linux/stddef.h>

/* Compile-time check of a member's offset and size in bytes.  The numbers hold on 64-bit systems only. */
#define PM_LAYOUT(type, member, offset, size) \
	_Static_assert(offsetof(type, member) == (offset) && sizeof(((type *)0)->member) == (size), \
		       #type " has another layout: " #member)

#endif
