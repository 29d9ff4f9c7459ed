/* SPDX-License-Identifier: BSD-2-Clause */
/* End of rank 0 by a signal while its results are saved. */
#ifndef PL_BENCH_MATRIX_ENDING_H
#define PL_BENCH_MATRIX_ENDING_H

#include "cmd/common/cli.h"

struct ending;

/* Blocks the signals that end the process, in this thread and in threads that it starts. */
void ending_block_signals(void);
/* Unblocks them: a pending one ends the process. */
void ending_unblock_signals(void);

/*
 * Starts a thread that waits for these signals.  At a signal it prints the path of the results on standard error, and
 * ends the process by the signal.  `pairs` is the number of pairs to measure.
 */
int ending_open(struct ending **ending, const char *path, unsigned pairs, struct pl_error *error);
/* Delays the end of the process until ending_release(), but at most for a second. */
void ending_hold(struct ending *ending);
void ending_release(struct ending *ending);
/* Sets the number of pairs in the file. */
void ending_set_pairs(struct ending *ending, unsigned saved);
/* Ends the thread; NULL is allowed. */
void ending_close(struct ending *ending);

#endif
