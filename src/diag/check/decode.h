/* SPDX-License-Identifier: BSD-2-Clause */
/* What an error of a call means: the causes, the likeliest first, and which row of the check tells. */
#ifndef PL_DIAG_CHECK_DECODE_H
#define PL_DIAG_CHECK_DECODE_H

#include "base/base.h"

#define PL_DECODE_CAUSES 6

struct pl_decode_cause {
	const char *text;
	const char *run; /* a command that tells or mends; may be NULL */
	const char *row; /* of the check; NULL if none tells */
};

struct pl_decode_entry {
	const char *call;
	int error; /* an errno, a CUresult or a status of a work completion, as the call has it; 0: any other */
	struct pl_decode_cause causes[PL_DECODE_CAUSES];
};

/* Which numbers a call's errors are. */
enum pl_decode_kind { PL_DECODE_ERRNO, PL_DECODE_CUDA, PL_DECODE_COMPLETION };

/* The calls that are known, in order; NULL at the end. */
const char *pl_decode_call_at(size_t index);
/* The kind of a call's errors, or -ENOENT.  Names such as rdma_resolve_route and ibv_reg_mr_iova2 stand for others. */
int pl_decode_kind_of(const char *call, const char **known);
/* "EFAULT", "14", "-14", "CUDA_ERROR_NOT_SUPPORTED", "IBV_WC_RETRY_EXC_ERR" as a number, or -EINVAL. */
int pl_decode_number(enum pl_decode_kind kind, const char *text);
/* The symbol of a number, such as "EFAULT"; NULL if there is none. */
const char *pl_decode_symbol(enum pl_decode_kind kind, int number);
/* What the number says by itself, such as "Bad address". */
const char *pl_decode_meaning(enum pl_decode_kind kind, int number);
/* NULL if nothing is known of it. */
const struct pl_decode_entry *pl_decode_find(const char *call, int number);

#endif
