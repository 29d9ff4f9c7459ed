/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/run.h"

#include <string.h>

#include "bench/common/process.h"
#include "bench/perf/pattern.h"
#include "bench/perf/pingpong.h"
#include "bench/perf/progress.h"
#include "bench/perf/receives.h"

/* Returns the seed of the content, which belongs to the initiator. */
static uint64_t content_seed(const struct bench_endpoint *ep, bool server)
{
	return ep->settings.seed ^ (server ? UINT64_MAX : 0);
}

/* Returns the pattern, in memory of this order, of the content that the server or the client initiates. */
static struct bench_pattern content_pattern(const struct bench_endpoint *ep, bool server, const uint32_t *order)
{
	bool needs_receive = ep->plan.operation->needs_receive, pingpong = bench_plan_pingpong(&ep->plan);

	return (struct bench_pattern){
		.size = ep->plan.size,
		.stride = ep->layout.stride,
		.slots = ep->layout.slots,
		.seed = content_seed(ep, server),
		.order = order,
		.same = needs_receive || pingpong,
		.markers = pingpong && !needs_receive,
	};
}

static int fill_content(struct bench_endpoint *ep)
{
	const struct bench_scatter *scatter = &ep->pipeline.scatter;
	struct bench_pattern ours = content_pattern(ep, ep->server, scatter->local),
			     theirs = content_pattern(ep, !ep->server, scatter->remote);
	bool read = ep->plan.operation->reads;
	int rc = 0;

	if (bench_endpoint_initiates(ep) && read)
		memset(ep->local.bytes, 0, ep->local.length);
	for (uint64_t at = 0; bench_endpoint_initiates(ep) && !read && at < ep->local.length; at += ep->layout.window)
		bench_pattern_fill(&ours, ep->local.bytes + at);
	for (uint64_t at = 0; bench_endpoint_is_target(ep) && read && at < ep->exposed.length; at += ep->layout.window)
		bench_pattern_fill(&theirs, ep->exposed.bytes + at);
	if (bench_endpoint_is_target(ep) && !read)
		memset(ep->exposed.bytes, 0, ep->exposed.length);
	if (bench_endpoint_initiates(ep))
		rc = bench_buffer_sync_in(ep, &ep->local, 0, ep->local.length);
	if (rc == 0 && bench_endpoint_is_target(ep))
		rc = bench_buffer_sync_in(ep, &ep->exposed, 0, ep->exposed.length);
	return rc;
}

int bench_run_prepare(struct bench_endpoint *ep)
{
	bool atomic = ep->plan.operation->atomic, pingpong = bench_plan_pingpong(&ep->plan);
	size_t zeroed = atomic ? ep->exposed.length : ep->plan.size;
	int rc = 0;

	if (ep->plan.validate && !atomic)
		rc = fill_content(ep);
	/* Atomic operations count from 0; no ping-pong message has arrived. */
	if (rc == 0 && (atomic || pingpong)) {
		memset(ep->exposed.bytes, 0, zeroed);
		rc = bench_buffer_sync_in(ep, &ep->exposed, 0, zeroed);
	}
	if (rc < 0)
		return rc;
	memset(ep->pipeline.expected, 0, ep->plan.depth * ep->peer_count * sizeof(*ep->pipeline.expected));
	for (uint32_t i = 0; i < BENCH_CONNECTIONS_MAX; i++)
		ep->pipeline.pools[i].used = 0;
	ep->pipeline.mismatch = false;
	ep->sample.kind = 0;
	ep->sample.lanes = 0;
	ep->round = 0;
	ep->tag = BENCH_MESSAGE_DATA;
	ep->received = ep->notified = 0;
	ep->started = ep->finished = false;
	for (uint32_t i = 0; i < ep->peer_count; i++)
		ep->peers[i].requests = 0;
	rc = bench_requests_prepare(ep);
	if (rc == 0 && bench_endpoint_is_target(ep))
		rc = bench_receives_post(ep);
	return rc;
}

void bench_usage_begin(struct bench_endpoint *ep)
{
	ep->cpu_start = bench_processor_time();
	ep->wall_start = cli_now();
	bench_cost_begin(&ep->cost);
}

void bench_usage_end(struct bench_endpoint *ep, struct bench_result *result)
{
	result->cpu = bench_processor_time() - ep->cpu_start;
	result->wall = cli_now() - ep->wall_start;
	bench_cost_end(&ep->cost, &ep->spent);
}

uint64_t bench_slots_covered(const struct bench_endpoint *ep, const struct bench_peer *peer)
{
	uint32_t connections = ep->plan.connections;
	const struct bench_number_pool *pools = &ep->pipeline.pools[(peer - ep->peers) * connections];
	uint64_t used = UINT64_MAX;

	if (ep->layout.turns)
		return CLI_MIN(peer->requests * ep->plan.vector, ep->layout.slots);
	/* The first number that a connection did not use ends the covered slots. */
	for (uint32_t i = 0; i < connections; i++)
		used = CLI_MIN(used, (uint64_t)pools[i].used * connections + i);
	return CLI_MIN(used * ep->plan.vector, ep->layout.slots);
}

int bench_run_measure(struct bench_endpoint *ep, int (*started)(struct bench_endpoint *ep), struct bench_result *result)
{
	int (*run)(struct bench_endpoint *, uint64_t, uint64_t, struct stats *) =
		bench_plan_pingpong(&ep->plan) ? bench_pingpong_client : bench_pipeline_run;
	const struct bench_run_settings *settings = &ep->settings;
	struct bench_pipeline *pipeline = &ep->pipeline;
	int rc = 0;

	if (settings->warmup)
		rc = run(ep, settings->warmup, 0, NULL);
	if (rc == 0)
		rc = started(ep);
	if (rc < 0)
		return rc;
	stats_reset(&ep->stats);
	bench_usage_begin(ep);
	rc = run(ep, settings->iterations, settings->duration, &ep->stats);
	bench_usage_end(ep, result);
	result->operations = pipeline->measured;
	result->elapsed = pipeline->last - pipeline->first;
	result->slots_covered = bench_slots_covered(ep, ep->peer);
	return rc;
}

bool bench_verify_read(const struct bench_endpoint *ep)
{
	struct bench_pattern pattern = content_pattern(ep, ep->server, ep->pipeline.scatter.local);

	for (uint32_t i = 0; bench_endpoint_initiates(ep) && i < ep->peer_count; i++) {
		pattern.slots = bench_slots_covered(ep, &ep->peers[i]);
		if (!bench_pattern_equal(&pattern, ep->local.bytes + i * ep->layout.window))
			return false;
	}
	return true;
}

static bool peer_content_correct(const struct bench_endpoint *ep, const struct bench_peer *peer)
{
	struct bench_pattern theirs = content_pattern(ep, !ep->server, ep->pipeline.scatter.remote);

	theirs.slots = CLI_MIN(peer->result.slots_covered, theirs.slots);
	if (ep->plan.operation->needs_receive)
		theirs.slots = CLI_MIN(CLI_MIN(peer->received, bench_receive_places(ep)), ep->layout.slots);
	else if (bench_plan_pingpong(&ep->plan))
		theirs.slots = 1;
	return bench_pattern_equal(&theirs, ep->exposed.bytes + bench_exposed_offset(ep, peer));
}

bool bench_verify_arrived(const struct bench_endpoint *ep)
{
	bool correct = true;

	for (uint32_t i = 0; bench_endpoint_is_target(ep) && i < ep->peer_count; i++)
		correct = correct && peer_content_correct(ep, &ep->peers[i]);
	return correct;
}

bool bench_verify_atomic(const struct bench_endpoint *ep)
{
	return !ep->pipeline.mismatch;
}

int bench_run_verify(struct bench_endpoint *ep, bool *verified)
{
	int rc = bench_requests_await(ep);

	while (rc == 0 && ep->posted_receives) {
		rc = bench_progress(ep);
		if (rc == 0)
			rc = bench_idle(ep, ep->timeout);
		rc = CLI_MIN(rc, 0);
	}
	if (rc < 0)
		return rc;
	*verified = false;
	if (ep->plan.validate) {
		rc = bench_buffer_sync_out(ep, &ep->local, 0, ep->local.length);
		if (rc == 0)
			rc = bench_buffer_sync_out(ep, &ep->exposed, 0, ep->exposed.length);
		if (rc < 0)
			return rc;
		*verified = ep->plan.operation->verify(ep);
	}
	return 0;
}
