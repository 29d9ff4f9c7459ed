/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations in flight, as many as the depth allows.  Each has an operation number, which is free again after its
 * completion.
 */
#ifndef PL_BENCH_PERF_PIPELINE_H
#define PL_BENCH_PERF_PIPELINE_H

#include "bench/perf/plan.h"
#include "bench/perf/requests.h"
#include "cmd/common/stats.h"

/* Upper bits of an operation's user_data; the lower bits are its number. */
enum bench_tag {
	BENCH_TAG_DATA = 1,
	BENCH_TAG_RECEIVE,
	BENCH_TAG_CONTROL,
	BENCH_TAG_OTHER,
};
#define BENCH_TAG_SHIFT 56
#define BENCH_USER_DATA(tag, number) ((uint64_t)(tag) << BENCH_TAG_SHIFT | (number))

/* Connection and offsets of an operation number. */
struct bench_request {
	uint64_t remote, local;    /* offsets in the peer's and in the own memory */
	uint32_t order;            /* position among the numbers of its connection */
	uint16_t connection, peer; /* indices */
};

/* Operation numbers of one connection. */
struct bench_number_pool {
	uint32_t *free; /* numbers that are not in flight; the next one is the last */
	uint32_t free_count;
	uint32_t used; /* count of numbers that this run used so far: the first ones */
};

struct bench_pipeline {
	uint64_t target, duration; /* limits of a run: operations, nanoseconds */
	uint64_t rate_begin;       /* --rate: time of the first post */
	uint64_t posted, completed;
	uint64_t first, last;           /* time of the first post, of the last completion */
	uint64_t measured;              /* messages of the last run */
	uint32_t *numbers;              /* memory of all pools */
	struct bench_request *requests; /* by number */
	struct bench_number_pool pools[BENCH_CONNECTIONS_MAX];
	uint64_t *expected; /* atomic operations: current value of each number's word */
	struct pl_transfer *transfers;
	struct bench_scatter scatter; /* scattered operations: slots of the blocks */
	struct pl_vector **vectors;   /* prepared vector of each number; NULL: none */
	uint32_t vector_count;
	struct pl_attributes attributes;
	bool atomic;         /* plan.operation->atomic */
	bool stopped;        /* posts no more operations */
	bool special;        /* completions need bench_pipeline_special() */
	bool sampled;        /* completions are counted by interval */
	bool mismatch;       /* an atomic operation returned an unexpected value */
	struct stats *stats; /* NULL during the warm-up */
	bool one_at_a_time;  /* the next operation is posted after the completion of the previous one */
	bool pingpong;
	uint64_t last_post; /* ping-pong: posting time of the last completed message; 0: none */
};

/* Allocates memory for the operations of ep->plan.  Returns 0 or a negative errno. */
int bench_pipeline_allocate(struct bench_endpoint *ep);
void bench_pipeline_free(struct bench_pipeline *pipeline);
/*
 * Keeps operations in flight until `iterations` (0: for `duration`) and records their times in *stats unless NULL.
 * Returns 0 or a negative errno.
 */
int bench_pipeline_run(struct bench_endpoint *ep, uint64_t iterations, uint64_t duration, struct stats *stats);

#endif
