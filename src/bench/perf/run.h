/* SPDX-License-Identifier: BSD-2-Clause */
/* Run of an endpoint: content before and after it, and its cost. */
#ifndef PL_BENCH_PERF_RUN_H
#define PL_BENCH_PERF_RUN_H

#include "bench/perf/endpoint.h"

/* Fills the content, clears the memory of peers' operations and posts receives, for ep->settings. */
int bench_run_prepare(struct bench_endpoint *ep);
/* Runs the initiator: warm-up, started(), and the measured part, into *result and ep->stats. */
int bench_run_measure(struct bench_endpoint *ep, int (*started)(struct bench_endpoint *ep),
		      struct bench_result *result);
/* Waits for all data messages, then verifies the content.  Needs peer->result of all peers. */
int bench_run_verify(struct bench_endpoint *ep, bool *verified);
/* Returns the number of message slots, from the first one on, that operations with `peer` used. */
uint64_t bench_slots_covered(const struct bench_endpoint *ep, const struct bench_peer *peer);

void bench_usage_begin(struct bench_endpoint *ep);
void bench_usage_end(struct bench_endpoint *ep, struct bench_result *result);

/* -- implementations of bench_operation.verify() --------------------------------------------------------- */

/* The old values of atomic operations. */
bool bench_verify_atomic(const struct bench_endpoint *ep);
/* The bytes that this endpoint read. */
bool bench_verify_read(const struct bench_endpoint *ep);
/* The bytes that peers wrote or sent. */
bool bench_verify_arrived(const struct bench_endpoint *ep);

#endif
