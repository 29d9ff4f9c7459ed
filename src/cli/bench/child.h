/* SPDX-License-Identifier: BSD-2-Clause */
/* The other process, where no other machine is named. */
#ifndef PL_CLI_BENCH_CHILD_H
#define PL_CLI_BENCH_CHILD_H

#include <sys/types.h>

#include "cli/bench/bench.h"

struct bench_child {
	pid_t pid; /* 0: none */
	int output;
	char address[80];
};

/* Starts `peerlane bench --server`, which does not outlive this process. */
int bench_child_start(struct bench_child *child, const struct bench_options *options, struct pl_error *error);
void bench_child_stop(struct bench_child *child);

#endif
