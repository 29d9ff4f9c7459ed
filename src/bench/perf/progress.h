/* SPDX-License-Identifier: BSD-2-Clause */
/* Completions of an endpoint, and waiting for them. */
#ifndef PL_BENCH_PERF_PROGRESS_H
#define PL_BENCH_PERF_PROGRESS_H

#include "bench/perf/endpoint.h"

/* Polls once and handles the completions.  Returns their number, or a negative errno after any failure. */
int bench_progress(struct bench_endpoint *ep);
/* Handles one completion; sets ep->error if it failed. */
void bench_handle_completion(struct bench_endpoint *ep, const struct pl_completion *completion);
/*
 * Spins or sleeps after a poll without completions.  Returns 0, -EINTR after a signal, or -ETIMEDOUT if nothing
 * completed for `timeout` nanoseconds (0: no limit) since bench_restart_timeout().
 */
int bench_idle(struct bench_endpoint *ep, uint64_t timeout);
/* The same for a caller that polls memory, and must not sleep. */
int bench_spin(struct bench_endpoint *ep, uint64_t timeout);
void bench_restart_timeout(struct bench_endpoint *ep);
/* True after SIGINT or SIGTERM. */
bool bench_interrupted(struct bench_endpoint *ep);
/* Returns 1, or -EINTR after a signal. */
int bench_check_signals(struct bench_endpoint *ep);

#endif
