/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/fast_loop.h"

bool bench_fast_loop_fits(const struct bench_endpoint *ep)
{
	const struct bench_pipeline *pipeline = &ep->pipeline;
	const struct bench_plan *plan = &ep->plan;

	return plan->operation->fast_loop && pipeline->stats && !pipeline->stopped && !pipeline->pools[0].free_count &&
	       !ep->settings.rate && !plan->touch && ep->peer_count == 1 && plan->connections == 1 &&
	       plan->vector == 1 && plan->post_list == 1 && !ep->layout.turns;
}

int bench_fast_loop_run(struct bench_endpoint *ep)
{
	struct bench_pipeline *pipeline = &ep->pipeline;
	struct bench_fast_loop loop = { .first = pipeline->first,
					.last = pipeline->last,
					.minimum = pipeline->stats->minimum,
					.maximum = pipeline->stats->maximum,
					.sum = pipeline->stats->sum,
					.target = pipeline->target - pipeline->posted };
	int rc;

	pipeline->attributes.flags = 0;
	rc = ep->plan.operation->fast_loop(ep, &loop);
	pipeline->first = loop.first;
	pipeline->last = loop.last;
	pipeline->posted += loop.done;
	pipeline->completed += loop.done;
	pipeline->stats->minimum = loop.minimum;
	pipeline->stats->maximum = loop.maximum;
	pipeline->stats->sum = loop.sum;
	pipeline->stats->count += loop.done;
	ep->events += loop.done;
	pipeline->stopped = true;
	/* The remaining operations are not posted again. */
	for (int i = loop.from; i < loop.count; i++)
		bench_handle_completion(ep, &ep->completions[i]);
	return rc < 0 ? rc : ep->error.code;
}
