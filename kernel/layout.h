/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#ifndef PEERLANE_PEERMEM_LAYOUT_H
#define PEERLANE_PEERMEM_LAYOUT_H

#include <linux/stddef.h>

/* That a member of a structure lies there and has that size, in the systems with 64 bits that have such drivers. */
#define PM_LAYOUT(type, member, offset, size) \
	_Static_assert(offsetof(type, member) == (offset) && sizeof(((type *)0)->member) == (size), \
		       #type " has another layout: " #member)

#endif
