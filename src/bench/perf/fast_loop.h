/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loop of most measurements: one connection, operations without vectors or lists, no rate.  It counts as pipeline.c
 * does.  Everything that stays the same is decided before the loop, and a completed operation is posted again at once,
 * with the same number.  The loop's time is measured along with the library's, so operation.c specialises the loop for
 * each operation.
 */
#ifndef PL_BENCH_PERF_FAST_LOOP_H
#define PL_BENCH_PERF_FAST_LOOP_H

#include "bench/perf/post.h"
#include "bench/perf/progress.h"

#define BENCH_ROUNDS_PER_CHECK 4096

/* State of the loop: a copy that no called function can access. */
struct bench_fast_loop {
	uint64_t first, last, minimum, maximum, sum;
	uint64_t done, target; /* operations that completed and were posted again: so far, at the end */
	int from, count;       /* completions that are left over when the run stops */
};

/* True if the loop can run ep->plan: all operations are in flight, and nothing but times is recorded. */
bool bench_fast_loop_fits(const struct bench_endpoint *ep);
/* Runs the loop until no more operations are to be posted.  Returns 0 or a negative errno. */
int bench_fast_loop_run(struct bench_endpoint *ep);

/* A function of bench_operation.post(), which the loop inlines. */
typedef int bench_post_function(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number,
				uint32_t vector, struct pl_error *error);

/* Records a time; count, sum, minimum and maximum stay in *loop until its end. */
static inline void bench_fast_loop_record(struct stats *stats, struct bench_fast_loop *loop, uint64_t value)
{
	stats->buckets[stats_bucket(value)]++;
	loop->sum += value;
	if (value < loop->minimum)
		loop->minimum = value;
	if (value > loop->maximum)
		loop->maximum = value;
}

/* Handles completions and posts the operations again.  Returns 0, 1 when the run stops, or a negative errno. */
static inline __attribute__((always_inline)) int bench_fast_loop_handle(struct bench_endpoint *ep,
									bench_post_function *post, bool atomic,
									bool sampled, struct bench_fast_loop *loop,
									int count)
{
	uint64_t depth = ep->plan.depth, duration = ep->pipeline.duration, origin, last;
	const uint64_t first_number = BENCH_USER_DATA(BENCH_TAG_DATA, 0);
	bool one_at_a_time = ep->pipeline.one_at_a_time;
	struct stats *stats = ep->pipeline.stats;
	struct pl_error error;

	for (int i = 0; i < count; i++) {
		const struct pl_completion *receipt = &ep->completions[i];
		uint64_t number = receipt->user_data - first_number;

		if (number >= depth || receipt->status < 0) {
			bench_handle_completion(ep, &ep->completions[i]);
			if (ep->error.code)
				return ep->error.code;
			continue;
		}
		origin = bench_time_origin(one_at_a_time, loop->last, receipt);
		if (receipt->posted < loop->first)
			loop->first = receipt->posted;
		last = CLI_MAX(loop->last, receipt->completed);
		if (last - loop->first >= duration || loop->done == loop->target) {
			loop->from = i;
			loop->count = count;
			return 1;
		}
		loop->last = last;
		bench_fast_loop_record(stats, loop, receipt->completed - origin);
		if (sampled)
			bench_sample(&ep->samples, receipt->completed - loop->first);
		if (atomic)
			bench_check_old_value(&ep->pipeline, receipt, number);
		loop->done++;
		ep->pipeline.attributes.user_data = receipt->user_data;
		if (post(ep, &ep->pipeline.requests[number], number, 1, &error) < 0)
			return bench_fail_with(ep, &error);
	}
	return 0;
}

static inline __attribute__((always_inline)) int bench_fast_loop_poll(struct bench_endpoint *ep,
								      bench_post_function *post, bool atomic,
								      bool sampled, struct bench_fast_loop *loop)
{
	uint32_t rounds = 0;

	for (;;) {
		int count = pl_poll(ep->context, ep->completions, BENCH_BATCH);
		int rc = bench_fast_loop_handle(ep, post, atomic, sampled, loop, count);

		if (rc)
			return CLI_MIN(rc, 0);
		if (count == 0)
			rc = bench_idle(ep, 0);
		else if (++rounds % BENCH_ROUNDS_PER_CHECK == 0)
			rc = bench_check_signals(ep);
		if (rc < 0)
			return rc;
	}
}

/* Defines NAME_fast_loop(), for bench_operation.fast_loop, from NAME_post(). */
#define BENCH_DEFINE_FAST_LOOP(name, atomic) \
	static int name##_fast_loop(struct bench_endpoint *ep, struct bench_fast_loop *loop) \
	{ \
		return ep->pipeline.sampled ? bench_fast_loop_poll(ep, name##_post, atomic, true, loop) \
					    : bench_fast_loop_poll(ep, name##_post, atomic, false, loop); \
	}

#endif
