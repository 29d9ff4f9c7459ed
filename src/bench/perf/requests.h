/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of `peerlane bench kv`: each moves blocks that are scattered at both ends, as those of a KV cache, and ends
 * with a notification.  Functions return 0, or a negative errno with the error in ep->error unless they say otherwise.
 */
#ifndef PL_BENCH_PERF_REQUESTS_H
#define PL_BENCH_PERF_REQUESTS_H

#include "bench/perf/plan.h"

/* Most bytes of the blocks of all requests in flight with one server, and most blocks of a request. */
#define BENCH_POOL_MAX (16ull << 30)
#define BENCH_BLOCKS_MAX 65536u

/* Position of each block among the slots of the initiator's and of the target's memory.  Both ends compute the same. */
struct bench_scatter {
	uint32_t *local, *remote; /* NULL: block N has slot N */
};

/* Shuffles the slots.  Returns 0 or -ENOMEM. */
int bench_scatter_open(struct bench_scatter *scatter, uint64_t slots);
void bench_scatter_close(struct bench_scatter *scatter);

/* Prepares a vector for each operation number, if the plan asks for it.  Needs the imported memory. */
int bench_requests_prepare(struct bench_endpoint *ep);
/*
 * Target: waits until the notifications of all requests of ep->peer have arrived; its result has their number, warm-up
 * included.
 */
int bench_requests_await(struct bench_endpoint *ep);

/* Implementations of bench_operation.post(). */
int bench_read_blocks(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number, uint32_t vector,
		      struct pl_error *error);
int bench_write_blocks(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number, uint32_t vector,
		       struct pl_error *error);

#endif
