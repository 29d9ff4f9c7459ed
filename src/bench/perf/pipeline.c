/* SPDX-License-Identifier: BSD-2-Clause */
/* Times come from receipts: the loop of operations reads no clock, unless --rate is given. */
#include "bench/perf/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "bench/perf/fast_loop.h"

/*
 * Returns the request of an operation number.  Each peer has `depth` numbers in a row, which its connections share in
 * turn, and a window of its own in the local buffer.
 */
static struct bench_request make_request(const struct bench_endpoint *ep, uint32_t number)
{
	const struct bench_layout *layout = &ep->layout;
	uint32_t depth = ep->plan.depth, connections = ep->plan.connections, peer = number / depth;
	uint32_t index = number % depth; /* among the peer's numbers */
	uint64_t slot = (uint64_t)index * ep->plan.vector % layout->slots;

	return (struct bench_request){
		.remote = slot * layout->stride,
		.local = peer * layout->window + slot * layout->stride,
		.order = index / connections,
		.connection = (uint16_t)(peer * connections + index % connections),
		.peer = (uint16_t)peer,
	};
}

int bench_pipeline_allocate(struct bench_endpoint *ep)
{
	const struct bench_plan *plan = &ep->plan;
	struct bench_pipeline *pipeline = &ep->pipeline;
	uint32_t total = plan->depth * ep->peer_count, *next;

	memset(pipeline, 0, sizeof(*pipeline));
	pipeline->attributes = (struct pl_attributes)PL_ATTRIBUTES_INIT;
	pipeline->numbers = calloc(total, sizeof(*pipeline->numbers));
	pipeline->requests = calloc(total, sizeof(*pipeline->requests));
	pipeline->expected = calloc(total, sizeof(*pipeline->expected));
	pipeline->transfers = calloc(plan->vector, sizeof(*pipeline->transfers));
	if (!pipeline->numbers || !pipeline->requests || !pipeline->expected || !pipeline->transfers)
		return bench_fail(ep, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u operations", total);
	if (plan->operation->scattered && bench_scatter_open(&pipeline->scatter, ep->layout.slots) < 0)
		return bench_fail(ep, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for the order of the blocks");
	for (uint32_t number = 0; number < total; number++)
		pipeline->requests[number] = make_request(ep, number);
	next = pipeline->numbers;
	for (uint32_t connection = 0; connection < ep->peer_count * plan->connections; connection++) {
		pipeline->pools[connection].free = next;
		/* Low numbers are taken first, so that the used ones are the first ones. */
		for (uint32_t peer = connection / plan->connections, number = (peer + 1) * plan->depth;
		     number-- > peer * plan->depth;)
			if (pipeline->requests[number].connection == connection)
				*next++ = number;
		pipeline->pools[connection].free_count = (uint32_t)(next - pipeline->pools[connection].free);
	}
	pipeline->atomic = plan->operation->atomic;
	return 0;
}

void bench_pipeline_free(struct bench_pipeline *pipeline)
{
	free(pipeline->numbers);
	free(pipeline->requests);
	free(pipeline->expected);
	free(pipeline->transfers);
	for (uint32_t i = 0; i < pipeline->vector_count; i++)
		pl_vector_free(pipeline->vectors[i]);
	free(pipeline->vectors);
	bench_scatter_close(&pipeline->scatter);
	memset(pipeline, 0, sizeof(*pipeline));
}

void bench_pipeline_special(struct bench_endpoint *ep, const struct pl_completion *receipt, uint32_t number)
{
	struct bench_pipeline *pipeline = &ep->pipeline;
	const struct bench_request *request = &pipeline->requests[number];
	struct bench_peer *peer = &ep->peers[request->peer];

	if (peer->stats && pipeline->stats) {
		peer->completed++;
		peer->first = CLI_MIN(peer->first, receipt->posted);
		peer->last = CLI_MAX(peer->last, receipt->completed);
		stats_record(peer->stats, receipt->completed - receipt->posted);
	}
	if (pipeline->pingpong) {
		if (pipeline->last_post && pipeline->stats && receipt->posted > pipeline->last_post)
			stats_record(pipeline->stats, (receipt->posted - pipeline->last_post) / 2);
		pipeline->last_post = CLI_MAX(pipeline->last_post, receipt->posted);
	}
	if (pipeline->atomic)
		bench_check_old_value(pipeline, receipt, number);
	if (ep->plan.touch && ep->plan.operation->reads)
		bench_buffer_read(ep, &ep->local, request->local, ep->plan.size);
}

/* True if --rate delays the next operation.  The rate counts from the first post, so that delays are made up for. */
static bool delay_for_rate(struct bench_endpoint *ep)
{
	struct bench_pipeline *pipeline = &ep->pipeline;
	uint64_t now = cli_now();

	if (pipeline->posted == 0)
		pipeline->rate_begin = now;
	ep->due = pipeline->rate_begin + (uint64_t)((double)pipeline->posted * 1e12 / (double)ep->settings.rate);
	if (now < ep->due)
		return true;
	ep->due = 0;
	return false;
}

/*
 * Posts complete lists on one connection, at most `most` operations; at the end of a run also an incomplete list.
 * Returns their number or a negative errno.
 */
static inline int post_operation_lists(struct bench_endpoint *ep, struct bench_number_pool *pool, uint32_t most)
{
	struct bench_pipeline *pipeline = &ep->pipeline;
	uint32_t list = ep->plan.post_list, count = CLI_MIN(pool->free_count, most), in_list = 0;
	uint64_t left = pipeline->target - pipeline->posted;
	int rc = 0;

	if (left <= count)
		count = (uint32_t)left;
	else if (list > 1)
		count -= count % list;
	for (uint32_t i = 1; i <= count && rc == 0; i++) {
		bool more = ++in_list < list && i < count;

		rc = bench_post(ep, pool, more);
		if (!more)
			in_list = 0;
	}
	pipeline->stopped = pipeline->posted == pipeline->target;
	return rc < 0 ? rc : (int)count;
}

/* Posts one list on each connection in turn, until none has room for another list or the rate delays the next one. */
static int post_connections_in_turn(struct bench_endpoint *ep, uint32_t connection_count, bool paced)
{
	struct bench_pipeline *pipeline = &ep->pipeline;
	uint32_t idle = 0;

	for (uint32_t i = 0; idle < connection_count && !pipeline->stopped; i = i + 1 == connection_count ? 0 : i + 1) {
		int count;

		if (paced && delay_for_rate(ep))
			break;
		count = post_operation_lists(ep, &pipeline->pools[i], ep->plan.post_list);
		if (count < 0)
			return count;
		idle = count ? 0 : idle + 1;
	}
	return 0;
}

static inline int post_free_operations(struct bench_endpoint *ep)
{
	uint32_t connection_count = ep->peer_count * ep->plan.connections;
	bool paced = ep->settings.rate && ep->pipeline.stats;
	int rc = 0;

	if (ep->pipeline.stopped)
		return 0;
	if (connection_count > 1 || paced)
		return post_connections_in_turn(ep, connection_count, paced);
	rc = post_operation_lists(ep, &ep->pipeline.pools[0], UINT32_MAX);
	return CLI_MIN(rc, 0);
}

static void reset_counters(struct bench_endpoint *ep, struct stats *stats)
{
	struct bench_samples *samples = &ep->samples;
	struct bench_pipeline *pipeline = &ep->pipeline;

	pipeline->stats = stats;
	pipeline->posted = pipeline->completed = pipeline->last = 0;
	pipeline->first = UINT64_MAX;
	pipeline->stopped = pipeline->pingpong = false;
	pipeline->one_at_a_time = ep->plan.latency && ep->peer_count == 1;
	if (pipeline->one_at_a_time)
		pipeline->last = cli_now();
	pipeline->special = ep->peer_count > 1 || pipeline->atomic || ep->plan.touch;
	pipeline->sampled = stats && samples->interval;
	ep->due = 0;
	for (uint32_t i = 0; i < ep->peer_count; i++) {
		ep->peers[i].completed = ep->peers[i].last = 0;
		ep->peers[i].first = UINT64_MAX;
		if (ep->peers[i].stats)
			stats_reset(ep->peers[i].stats);
	}
	if (pipeline->sampled)
		bench_samples_begin(samples);
}

int bench_pipeline_run(struct bench_endpoint *ep, uint64_t iterations, uint64_t duration, struct stats *stats)
{
	struct bench_pipeline *pipeline = &ep->pipeline;
	uint64_t rounds = 0;
	int rc;

	pipeline->target = iterations ? iterations : UINT64_MAX;
	pipeline->duration = iterations ? UINT64_MAX : duration;
	reset_counters(ep, stats);
	bench_restart_timeout(ep);
	rc = post_free_operations(ep);
	if (rc == 0 && bench_fast_loop_fits(ep))
		rc = bench_fast_loop_run(ep);
	if (rc < 0)
		return rc;
	do {
		rc = post_free_operations(ep);
		if (rc == 0)
			rc = bench_progress(ep);
		/* While completions keep arriving, bench_idle() does not check for signals. */
		if (rc > 0 && ++rounds % BENCH_ROUNDS_PER_CHECK == 0)
			rc = bench_check_signals(ep);
		/* Operations have time-outs of their own. */
		if (rc == 0)
			rc = bench_idle(ep, 0);
		if (rc < 0)
			return rc;
	} while (!pipeline->stopped || pipeline->completed < pipeline->posted);
	pipeline->measured = pipeline->completed * ep->plan.vector;
	return 0;
}
