/* SPDX-License-Identifier: BSD-2-Clause */
/* One run, at either end: content before and after, and what lies between. */
#include <string.h>
#include <sys/resource.h>

#include "bench/perf/endpoint.h"

/* Content belongs to the end that posts the operations. */
static uint64_t seed_of(const struct bench_end *end, bool server)
{
	return end->length.seed ^ (server ? UINT64_MAX : 0);
}

static struct bench_pattern pattern_of(const struct bench_end *end, bool server)
{
	return (struct bench_pattern){
		.size = end->plan.size,
		.stride = end->layout.stride,
		.slots = end->layout.slots,
		.seed = seed_of(end, server),
		.same = end->plan.op == BENCH_SEND || bench_plan_pingpong(&end->plan),
		.markers = end->plan.op == BENCH_WRITE && bench_plan_pingpong(&end->plan),
	};
}

static int prepare_content(struct bench_end *end)
{
	struct bench_pattern ours = pattern_of(end, end->server), theirs = pattern_of(end, !end->server);
	bool read = end->plan.op == BENCH_READ;
	int rc = 0;

	if (bench_active(end) && read)
		memset(end->own.bytes, 0, end->own.length);
	for (uint64_t at = 0; bench_active(end) && !read && at < end->own.length; at += end->layout.window)
		bench_pattern_fill(&ours, end->own.bytes + at);
	for (uint64_t at = 0; bench_passive(end) && read && at < end->exposed.length; at += end->layout.window)
		bench_pattern_fill(&theirs, end->exposed.bytes + at);
	if (bench_passive(end) && !read)
		memset(end->exposed.bytes, 0, end->exposed.length);
	if (bench_active(end))
		rc = bench_buffer_bring(end, &end->own, 0, end->own.length);
	if (rc == 0 && bench_passive(end))
		rc = bench_buffer_bring(end, &end->exposed, 0, end->exposed.length);
	return rc;
}

int bench_prepare(struct bench_end *end)
{
	bool atomic = bench_plan_atomic(&end->plan), pingpong = bench_plan_pingpong(&end->plan);
	size_t zeroed = atomic ? end->exposed.length : end->plan.size;
	int rc = 0;

	if (end->plan.validate && !atomic)
		rc = prepare_content(end);
	/* Words count from 0, and no message has come yet. */
	if (rc == 0 && (atomic || pingpong)) {
		memset(end->exposed.bytes, 0, zeroed);
		rc = bench_buffer_bring(end, &end->exposed, 0, zeroed);
	}
	if (rc < 0)
		return rc;
	memset(end->flow.expected, 0, end->plan.depth * end->far_count * sizeof(*end->flow.expected));
	for (uint32_t i = 0; i < BENCH_PEERS_MAX; i++)
		end->flow.lines[i].used = 0;
	end->flow.wrong = false;
	end->sample.kind = 0;
	end->sample.streams = 0;
	end->turn = 0;
	end->tag = BENCH_MESSAGE_DATA;
	end->received = 0;
	end->go = end->finished = false;
	return bench_passive(end) ? bench_receives_post(end) : 0;
}

static uint64_t processor_time(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * CLI_NS_PER_S +
	       ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000;
}

void bench_usage_begin(struct bench_end *end)
{
	end->cpu_start = processor_time();
	end->wall_start = cli_now();
	bench_cost_begin(&end->cost);
}

void bench_usage_end(struct bench_end *end, struct bench_result *result)
{
	result->cpu = processor_time() - end->cpu_start;
	result->wall = cli_now() - end->wall_start;
	bench_cost_end(&end->cost, &end->spent);
}

uint64_t bench_covered(const struct bench_end *end, const struct bench_far *far)
{
	uint32_t peers = end->plan.peers;
	const struct bench_line *lines = &end->flow.lines[(far - end->fars) * peers];
	uint64_t used = UINT64_MAX;

	/* Up to the first number that its connection did not use. */
	for (uint32_t i = 0; i < peers; i++)
		used = CLI_MIN(used, (uint64_t)lines[i].used * peers + i);
	return CLI_MIN(used * end->plan.vector, end->layout.slots);
}

int bench_run(struct bench_end *end, int (*started)(struct bench_end *end), struct bench_result *result)
{
	int (*run)(struct bench_end *, uint64_t, uint64_t, struct stats *) =
		bench_plan_pingpong(&end->plan) ? bench_pingpong_lead : bench_flow_run;
	const struct bench_length *length = &end->length;
	struct bench_flow *flow = &end->flow;
	int rc = 0;

	if (length->warmup)
		rc = run(end, length->warmup, 0, NULL);
	if (rc == 0)
		rc = started(end);
	if (rc < 0)
		return rc;
	stats_reset(&end->stats);
	bench_usage_begin(end);
	rc = run(end, length->iterations, length->duration, &end->stats);
	bench_usage_end(end, result);
	result->operations = flow->measured;
	result->elapsed = flow->last - flow->first;
	result->covered = bench_covered(end, end->far);
	return rc;
}

/* What was read, of each server. */
static bool read_right(const struct bench_end *end)
{
	struct bench_pattern pattern = pattern_of(end, end->server);

	for (uint32_t i = 0; i < end->far_count; i++) {
		pattern.slots = bench_covered(end, &end->fars[i]);
		if (!bench_pattern_equal(&pattern, end->own.bytes + i * end->layout.window))
			return false;
	}
	return true;
}

/* What one of the others wrote or sent. */
static bool arrived_right(const struct bench_end *end, const struct bench_far *far)
{
	struct bench_pattern theirs = pattern_of(end, !end->server);

	theirs.slots = CLI_MIN(far->result.covered, theirs.slots);
	if (end->plan.op == BENCH_SEND)
		theirs.slots = CLI_MIN(CLI_MIN(far->received, end->layout.receives), end->layout.slots);
	if (end->plan.op == BENCH_WRITE && end->plan.latency)
		theirs.slots = 1;
	return bench_pattern_equal(&theirs, end->exposed.bytes + bench_exposed_offset(end, far));
}

static bool content_right(const struct bench_end *end)
{
	bool right = true;

	if (bench_plan_atomic(&end->plan))
		return !end->flow.wrong;
	if (end->plan.op == BENCH_READ)
		return !bench_active(end) || read_right(end);
	for (uint32_t i = 0; bench_passive(end) && i < end->far_count; i++)
		right = right && arrived_right(end, &end->fars[i]);
	return right;
}

int bench_check(struct bench_end *end, bool *verified)
{
	while (end->receives) {
		int rc = bench_pump(end);

		if (rc == 0)
			rc = bench_idle(end, end->timeout);
		if (rc < 0)
			return rc;
	}
	*verified = false;
	if (end->plan.validate) {
		int rc = bench_buffer_fetch(end, &end->own, 0, end->own.length);

		if (rc == 0)
			rc = bench_buffer_fetch(end, &end->exposed, 0, end->exposed.length);
		if (rc < 0)
			return rc;
		*verified = content_right(end);
	}
	return 0;
}
