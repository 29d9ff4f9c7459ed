/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copying and clearing of a constant number of bytes in vector registers. The compiler's own code for structures of some
 * hundred bytes is a loop with four times as many instructions.
 */
#ifndef PL_VECTOR_BYTES_H
#define PL_VECTOR_BYTES_H

#include "base/base.h"

typedef long long pl_vector_word __attribute__((vector_size(16), aligned(8), may_alias));

/* `bytes` is a constant multiple of 16, at most 128. */
PL_ALWAYS_INLINE void pl_vectors_copy(void *to, const void *from, size_t bytes)
{
	const pl_vector_word *words = from;

#pragma GCC unroll 8
	for (unsigned i = 0; i < bytes / sizeof(*words); i++)
		((pl_vector_word *)to)[i] = words[i];
}

/* `bytes` is a constant multiple of 16, at most 128. */
PL_ALWAYS_INLINE void pl_vectors_clear(void *to, size_t bytes)
{
#pragma GCC unroll 8
	for (unsigned i = 0; i < bytes / sizeof(pl_vector_word); i++)
		((pl_vector_word *)to)[i] = (pl_vector_word){ 0 };
}

#endif
