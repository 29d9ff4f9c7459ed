/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations under way, as many as the depth allows.  No clock is read here: receipts have the
 * times.  An operation has a number, which is free again once it completed.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"

#define ROUNDS_PER_CHECK 4096

int bench_flow_allocate(struct bench_end *end)
{
	const struct bench_plan *plan = &end->plan;
	struct bench_flow *flow = &end->flow;

	memset(flow, 0, sizeof(*flow));
	flow->attributes = (struct pl_attributes)PL_ATTRIBUTES_INIT;
	flow->free = calloc(plan->depth, sizeof(*flow->free));
	flow->expected = calloc(plan->depth, sizeof(*flow->expected));
	flow->transfers = calloc(plan->vector, sizeof(*flow->transfers));
	if (!flow->free || !flow->expected || !flow->transfers)
		return bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u operations", plan->depth);
	/* Low numbers come first, so that those used are the first ones. */
	for (uint32_t i = 0; i < plan->depth; i++)
		flow->free[i] = plan->depth - 1 - i;
	flow->free_count = plan->depth;
	flow->atomic = bench_plan_atomic(plan);
	return 0;
}

void bench_flow_free(struct bench_flow *flow)
{
	free(flow->free);
	free(flow->expected);
	free(flow->transfers);
	memset(flow, 0, sizeof(*flow));
}

static const struct bench_link *link_of(const struct bench_end *end, uint32_t number)
{
	return &end->links[end->plan.peers > 1 ? number % end->plan.peers : 0];
}

static int post_vector(struct bench_end *end, uint32_t number, struct pl_error *error)
{
	const struct bench_link *link = link_of(end, number);
	const struct bench_layout *layout = &end->layout;
	struct bench_flow *flow = &end->flow;
	uint64_t slot = (uint64_t)number * end->plan.vector % layout->slots;

	for (uint32_t i = 0; i < end->plan.vector; i++) {
		uint64_t offset = slot * layout->stride;

		flow->transfers[i] =
			(struct pl_transfer){ link->remote, offset, end->own.region, offset, end->plan.size };
		if (++slot == layout->slots)
			slot = 0;
	}
	if (end->plan.op == BENCH_WRITE)
		return pl_writev(link->peer, flow->transfers, end->plan.vector, &flow->attributes, NULL, error);
	return pl_readv(link->peer, flow->transfers, end->plan.vector, &flow->attributes, NULL, error);
}

static int post_plain(struct bench_end *end, uint32_t number, struct pl_error *error)
{
	const struct bench_link *link = link_of(end, number);
	const struct bench_plan *plan = &end->plan;
	const struct pl_attributes *attributes = &end->flow.attributes;
	uint64_t slot = number < end->layout.slots ? number : number % end->layout.slots;
	uint64_t offset = slot * end->layout.stride;
	uint64_t value = end->flow.expected[number];

	switch (plan->op) {
	case BENCH_WRITE:
		/* In turns, the other end looks at one place. */
		return pl_write(link->peer, link->remote, plan->latency ? 0 : offset, end->own.region, offset,
				plan->size, attributes, NULL, error);
	case BENCH_READ:
		return pl_read(link->peer, link->remote, offset, end->own.region, offset, plan->size, attributes, NULL,
			       error);
	case BENCH_SEND:
		return pl_send(link->peer, BENCH_MESSAGE_DATA, end->own.region, offset, plan->size, attributes, NULL,
			       error);
	case BENCH_FETCH_ADD:
		return pl_fetch_add(link->peer, link->remote, offset, 1, NULL, attributes, NULL, error);
	case BENCH_COMPARE_SWAP:
		return pl_compare_swap(link->peer, link->remote, offset, value, value + 1, NULL, attributes, NULL,
				       error);
	case BENCH_REGISTER:
	case BENCH_CONNECT:
		break;
	}
	return -EINVAL;
}

int bench_post(struct bench_end *end, uint32_t number)
{
	struct bench_flow *flow = &end->flow;
	struct pl_error error;
	int rc;

	flow->attributes.user_data = BENCH_USER_DATA(BENCH_TAG_DATA, number);
	rc = end->plan.vector > 1 ? post_vector(end, number, &error) : post_plain(end, number, &error);
	if (rc < 0)
		return bench_fail_as(end, &error);
	flow->posted++;
	if (number >= flow->used)
		flow->used = number + 1;
	return 0;
}

static void sample(struct bench_samples *samples, uint64_t since)
{
	uint64_t interval = since / samples->interval;

	if (interval >= BENCH_SAMPLES_MAX)
		return;
	samples->counts[interval]++;
	if (interval >= samples->used)
		samples->used = (uint32_t)interval + 1;
}

void bench_flow_completed(struct bench_end *end, const struct pl_receipt *receipt)
{
	struct bench_flow *flow = &end->flow;
	uint32_t number = (uint32_t)receipt->user_data;

	flow->free[flow->free_count++] = number;
	flow->completed++;
	if (receipt->posted < flow->first)
		flow->first = receipt->posted;
	if (receipt->completed > flow->last)
		flow->last = receipt->completed;
	if (flow->stats) {
		stats_record(flow->stats, receipt->completed - receipt->posted);
		if (end->samples.interval)
			sample(&end->samples, receipt->completed - flow->first);
	}
	if (flow->duration && flow->last - flow->first >= flow->duration)
		flow->ended = true;
	/* Each word has one operation at a time, so the old value is known. */
	if (flow->atomic && receipt->value != flow->expected[number]++)
		flow->wrong = true;
	if (end->plan.touch && end->plan.op == BENCH_READ)
		bench_buffer_touch(end, &end->own, number % end->layout.slots * end->layout.stride, end->plan.size);
	if (!end->sample.kind || receipt->streams > end->sample.streams)
		end->sample = *receipt;
}

/* Whether the rate has the next operation wait; it counts from the first one, so that delays are made up for. */
static bool is_early(struct bench_end *end)
{
	struct bench_flow *flow = &end->flow;
	uint64_t now = cli_now();

	if (flow->posted == 0)
		flow->begun = now;
	end->due = flow->begun + (uint64_t)((double)flow->posted * 1e12 / (double)end->length.rate);
	if (now < end->due)
		return true;
	end->due = 0;
	return false;
}

static int post_all(struct bench_end *end)
{
	struct bench_flow *flow = &end->flow;
	bool paced = end->length.rate && flow->stats;
	int rc = 0;

	if (flow->free_count < end->plan.post_list)
		return 0;
	while (rc == 0 && flow->free_count && !flow->ended) {
		if (flow->posted == flow->target)
			flow->ended = true;
		else if (paced && is_early(end))
			break;
		else
			rc = bench_post(end, flow->free[--flow->free_count]);
	}
	return rc;
}

int bench_flow_run(struct bench_end *end, uint64_t iterations, uint64_t duration, struct stats *stats)
{
	struct bench_flow *flow = &end->flow;
	uint64_t rounds = 0;
	int rc;

	flow->target = iterations ? iterations : UINT64_MAX;
	flow->duration = iterations ? 0 : duration;
	flow->stats = stats;
	flow->posted = flow->completed = flow->last = 0;
	flow->first = UINT64_MAX;
	flow->ended = false;
	end->due = 0;
	if (stats && end->samples.interval) {
		memset(end->samples.counts, 0, end->samples.used * sizeof(*end->samples.counts));
		end->samples.used = 0;
	}
	bench_patience(end);
	do {
		rc = post_all(end);
		if (rc == 0)
			rc = bench_pump(end);
		/* Where each round brings something, nobody else looks for signals. */
		if (rc > 0 && ++rounds % ROUNDS_PER_CHECK == 0)
			rc = bench_signals(end);
		/* Operations have their own time-outs. */
		if (rc == 0)
			rc = bench_idle(end, 0);
		if (rc < 0)
			return rc;
	} while (!flow->ended || flow->completed < flow->posted);
	flow->measured = flow->completed * end->plan.vector;
	return 0;
}

/* -- receives ------------------------------------------------------------------------------------- */

static int post_receive(struct bench_end *end, uint32_t number)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint64_t offset = number % end->layout.slots * end->layout.stride;
	struct pl_error error;
	int rc;

	attributes.timeout = UINT64_MAX;
	attributes.user_data = BENCH_USER_DATA(BENCH_TAG_RECEIVE, number);
	rc = pl_receive(end->peer, BENCH_MESSAGE_DATA, UINT64_MAX, end->exposed.region, offset, end->plan.size,
			&attributes, NULL, &error);
	if (rc < 0)
		return bench_fail_as(end, &error);
	end->receives++;
	return 0;
}

int bench_receives_post(struct bench_end *end)
{
	int rc = 0;

	end->received = 0;
	end->renewing = false;
	for (uint32_t i = 0; rc == 0 && i < end->layout.receives; i++)
		rc = post_receive(end, i);
	return rc;
}

int bench_received(struct bench_end *end, uint32_t number, uint64_t bytes)
{
	end->receives--;
	if (bytes == 0)
		return 0;
	end->received++;
	if (bytes != end->plan.size)
		return bench_fail(end, -EPROTO, "BENCH-PROTOCOL", NULL, NULL, "a message of %llu bytes, not %llu",
				  (unsigned long long)bytes, (unsigned long long)end->plan.size);
	if (end->plan.touch && !end->plan.latency)
		bench_buffer_touch(end, &end->exposed, number % end->layout.slots * end->layout.stride, bytes);
	if (!end->plan.latency)
		return post_receive(end, number);
	if (bench_receives_renew(end) < 0)
		return end->error.code;
	end->renewed = number;
	end->renewing = true;
	return 0;
}

int bench_receives_renew(struct bench_end *end)
{
	if (!end->renewing)
		return 0;
	end->renewing = false;
	return post_receive(end, end->renewed);
}

int bench_receives_release(struct bench_end *end)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.user_data = BENCH_USER_DATA(BENCH_TAG_OTHER, 0);
	for (uint32_t i = 0; i < end->layout.receives; i++)
		if (pl_send_copy(end->peer, BENCH_MESSAGE_DATA, "", 0, &attributes, NULL, &error) < 0)
			return bench_fail_as(end, &error);
	return 0;
}
