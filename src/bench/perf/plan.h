/* SPDX-License-Identifier: BSD-2-Clause */
/* Parameters of a measurement: limits, the plan of one size, the settings of one run. */
#ifndef PL_BENCH_PERF_PLAN_H
#define PL_BENCH_PERF_PLAN_H

#include "bench/perf/operation.h"

#define BENCH_SIZE_MIN 1ull
#define BENCH_SIZE_MARKED 8ull /* smallest ping-pong message: it holds a marker */
#define BENCH_SIZE_MAX (1ull << 30)
#define BENCH_WORKING_SET_MAX (1ull << 30)
#define BENCH_DEPTH_MAX 16384u
#define BENCH_DEPTH_DEFAULT 128u
#define BENCH_SIZES_MAX 64u
#define BENCH_CONNECTIONS_MAX 256u
#define BENCH_REPEAT_MAX 1000u

/* Parameters of one size; client and server have the same. */
struct bench_plan {
	const struct bench_operation *operation; /* NULL: unknown to this version */
	bool latency, both_ways, validate, touch;
	bool prepared; /* scattered operations: post prepared vectors */
	uint64_t size;
	uint32_t depth, vector;
	uint32_t post_list;   /* operations that are posted at a time, as one list */
	uint32_t connections; /* to one server */
	uint64_t working_set; /* bytes of each end that messages use in turn; 0: the default */
};

/* Settings of one run. */
struct bench_run_settings {
	uint64_t iterations; /* 0: as many as fit into `duration` */
	uint64_t duration;   /* nanoseconds */
	uint64_t warmup;     /* operations before the measured ones */
	uint64_t seed;       /* of the content */
	uint64_t rate;       /* operations in 1,000 s; 0: no limit */
};

/* Memory layout that follows from a plan.  Operations use `slots` messages of `stride` bytes each, in turn. */
struct bench_layout {
	uint64_t stride, slots, window;
	uint32_t receives; /* posted for each peer that sends */
	bool turns;        /* more slots than operations in flight: each message takes the slot behind the last one */
};

bool bench_plan_valid(const struct bench_plan *plan);
/* True if messages may use any number of slots in turn. */
bool bench_plan_allows_working_set(const struct bench_plan *plan);
/* True if operations may use several connections in turn. */
bool bench_plan_allows_connections(const struct bench_plan *plan);
uint64_t bench_plan_min_size(const struct bench_plan *plan);
/*
 * True if client and server send messages to and fro. With a depth of 1 the latency is the time until the completion instead, as
 * for reads.
 */
bool bench_plan_pingpong(const struct bench_plan *plan);
/*
 * Returns the depth of a ping-pong: messages of an endpoint, used in turn.  With several messages, completions are
 * collected many at a time, and not between a message and its answer.
 */
uint32_t bench_plan_pingpong_depth(uint64_t size);
void bench_plan_layout(const struct bench_plan *plan, struct bench_layout *layout);

#endif
