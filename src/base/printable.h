/* SPDX-License-Identifier: BSD-2-Clause */
/* Text of other programs, which a terminal must not interpret. */
#ifndef PL_PRINTABLE_H
#define PL_PRINTABLE_H

#include <string.h>

/* Copies a text, of which at most `size` - 1 bytes are read; control characters become '?'. */
static inline void pl_copy_printable(char *to, size_t size, const char *from)
{
	size_t length = strnlen(from, size - 1);

	for (size_t i = 0; i < length; i++)
		to[i] = (unsigned char)from[i] < ' ' || from[i] == 0x7f ? '?' : from[i];
	to[length] = '\0';
}

#endif
