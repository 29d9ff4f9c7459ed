/* SPDX-License-Identifier: BSD-2-Clause */
/* Meaning of a call's error: likely causes, the likeliest first, and the row of the check that tells. */
#ifndef PL_DIAG_CHECK_DECODE_H
#define PL_DIAG_CHECK_DECODE_H

#include "base/base.h"

#define PL_DECODE_CAUSES 6

struct pl_decode_cause {
	const char *text;
	const char *run; /* command that tells or mends; may be NULL */
	const char *row; /* row of the check; NULL if none tells */
};

struct pl_decode_entry {
	const char *call;
	int error; /* errno, CUresult or status of a work completion, as the call reports it; 0: any other */
	struct pl_decode_cause causes[PL_DECODE_CAUSES];
};

/* Kind of a call's error numbers. */
enum pl_decode_kind { PL_DECODE_ERRNO, PL_DECODE_CUDA, PL_DECODE_COMPLETION };

/* Returns the known calls in order; NULL at the end. */
const char *pl_decode_call_at(size_t index);
/*
 * Returns the kind of a call's errors, or -ENOENT. Names such as rdma_resolve_route and ibv_reg_mr_iova2 map to others.
 */
int pl_decode_kind_of(const char *call, const char **known);
/* Converts "EFAULT", "14", "-14", "CUDA_ERROR_NOT_SUPPORTED", "IBV_WC_RETRY_EXC_ERR" to a number, or -EINVAL. */
int pl_decode_number(enum pl_decode_kind kind, const char *text);
/* Returns the symbol of a number, such as "EFAULT"; NULL if there is none. */
const char *pl_decode_symbol(enum pl_decode_kind kind, int number);
/* Returns the text of a number, such as "Bad address". */
const char *pl_decode_meaning(enum pl_decode_kind kind, int number);
/* Returns NULL if nothing is known of the error. */
const struct pl_decode_entry *pl_decode_find(const char *call, int number);

#endif
