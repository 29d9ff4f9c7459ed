/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting and completion of one operation.  Inline, as their time is measured along with the library's. */
#ifndef PL_BENCH_PERF_POST_H
#define PL_BENCH_PERF_POST_H

#include "bench/perf/endpoint.h"

/* Gives an operation the slots behind those of the last operation with the same peer. */
static inline void bench_take_turn(struct bench_endpoint *ep, struct bench_request *request)
{
	uint64_t slot = ep->peers[request->peer].requests++ * ep->plan.vector % ep->layout.slots;

	request->remote = slot * ep->layout.stride;
	request->local = request->peer * ep->layout.window + request->remote;
}

/* Posts the next operation of a connection.  `more`: another one follows at once.  Returns 0 or a negative errno. */
static inline __attribute__((always_inline)) int bench_post(struct bench_endpoint *ep, struct bench_number_pool *pool,
							    bool more)
{
	struct bench_pipeline *pipeline = &ep->pipeline;
	uint32_t number = pool->free[--pool->free_count];
	struct bench_request *request = &pipeline->requests[number];
	struct pl_error error;
	int rc;

	if (ep->layout.turns)
		bench_take_turn(ep, request);
	pipeline->attributes.user_data = BENCH_USER_DATA(BENCH_TAG_DATA, number);
	pipeline->attributes.flags = more ? PL_MORE : 0;
	rc = ep->plan.operation->post(ep, request, number, ep->plan.vector, &error);
	if (rc < 0)
		return bench_fail_with(ep, &error);
	pipeline->posted++;
	if (request->order >= pool->used)
		pool->used = request->order + 1;
	return 0;
}

/* Checks the old value of an atomic operation, which is known: each word has one operation at a time. */
static inline void bench_check_old_value(struct bench_pipeline *pipeline, const struct pl_completion *receipt,
					 uint64_t number)
{
	if (receipt->value != pipeline->expected[number]++)
		pipeline->mismatch = true;
}

/* Handles a completion that needs more than its times recorded. */
void bench_pipeline_special(struct bench_endpoint *ep, const struct pl_completion *receipt, uint32_t number);

/*
 * Returns the time from which an operation counts: its post, or, with one operation at a time, the completion of the
 * previous one.  The latter includes the rest of the library's call and this program's own time.
 */
static inline uint64_t bench_time_origin(bool one_at_a_time, uint64_t last, const struct pl_completion *receipt)
{
	return one_at_a_time ? last : receipt->posted;
}

static inline void bench_pipeline_complete(struct bench_endpoint *ep, const struct pl_completion *receipt)
{
	struct bench_pipeline *pipeline = &ep->pipeline;
	uint32_t number = (uint32_t)receipt->user_data;
	struct bench_number_pool *pool = &pipeline->pools[pipeline->requests[number].connection];
	uint64_t origin = bench_time_origin(pipeline->one_at_a_time, pipeline->last, receipt);

	pool->free[pool->free_count++] = number;
	pipeline->completed++;
	if (receipt->posted < pipeline->first)
		pipeline->first = receipt->posted;
	if (receipt->completed > pipeline->last)
		pipeline->last = receipt->completed;
	if (pipeline->stats && !pipeline->pingpong)
		stats_record(pipeline->stats, receipt->completed - origin);
	if (pipeline->sampled)
		bench_sample(&ep->samples, receipt->completed - pipeline->first);
	if (pipeline->last - pipeline->first >= pipeline->duration)
		pipeline->stopped = true;
	if (pipeline->special)
		bench_pipeline_special(ep, receipt, number);
	if (!ep->sample.kind || receipt->lanes > ep->sample.lanes)
		ep->sample = *receipt;
}

#endif
