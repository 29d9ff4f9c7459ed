/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_DIAG_CHECK_DECODE_TABLE_H
#define PL_DIAG_CHECK_DECODE_TABLE_H

#include "diag/check/decode.h"

/* Entries of one call are adjacent; the one with error 0 stands for all other errors of the call. */
extern const struct pl_decode_entry pl_decode_entries[];
extern const size_t pl_decode_entry_count;

#endif
