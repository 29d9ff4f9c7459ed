/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations under way, as many as the depth allows.  No clock is read here: receipts have the
 * times.  An operation has a number, which is free again once it completed.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"

#define ROUNDS_PER_CHECK 4096

/* Numbers of operations are a server's, one server's after the other's; its connections have them in turns. */
static uint32_t far_of(const struct bench_end *end, uint32_t number)
{
	return end->far_count > 1 ? number / end->plan.depth : 0;
}

static uint32_t line_of(const struct bench_end *end, uint32_t number)
{
	uint32_t peers = end->plan.peers, far = far_of(end, number);

	return peers > 1 ? far * peers + (number - far * end->plan.depth) % peers : far;
}

int bench_flow_allocate(struct bench_end *end)
{
	const struct bench_plan *plan = &end->plan;
	struct bench_flow *flow = &end->flow;
	uint32_t total = plan->depth * end->far_count, *next;

	memset(flow, 0, sizeof(*flow));
	flow->attributes = (struct pl_attributes)PL_ATTRIBUTES_INIT;
	flow->numbers = calloc(total, sizeof(*flow->numbers));
	flow->expected = calloc(total, sizeof(*flow->expected));
	flow->transfers = calloc(plan->vector, sizeof(*flow->transfers));
	if (!flow->numbers || !flow->expected || !flow->transfers)
		return bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u operations", total);
	next = flow->numbers;
	for (uint32_t line = 0; line < end->far_count * plan->peers; line++) {
		flow->lines[line].free = next;
		/* Low numbers come first, so that those used are the first ones. */
		for (uint32_t number = (line / plan->peers + 1) * plan->depth;
		     number-- > line / plan->peers * plan->depth;)
			if (line_of(end, number) == line)
				*next++ = number;
		flow->lines[line].free_count = (uint32_t)(next - flow->lines[line].free);
	}
	flow->atomic = bench_plan_atomic(plan);
	return 0;
}

void bench_flow_free(struct bench_flow *flow)
{
	free(flow->numbers);
	free(flow->expected);
	free(flow->transfers);
	memset(flow, 0, sizeof(*flow));
}

/* Where an operation has its bytes: each server's have a window of their own here. */
struct place {
	const struct bench_link *link;
	uint64_t slot, base;
};

static struct place place_of(const struct bench_end *end, uint32_t line, uint32_t number)
{
	uint32_t far = far_of(end, number);
	uint64_t slot = number - far * end->plan.depth;

	return (struct place){ &end->links[line], slot, far * end->layout.window };
}

static int post_vector(struct bench_end *end, const struct place *place, struct pl_error *error)
{
	const struct bench_layout *layout = &end->layout;
	const struct bench_link *link = place->link;
	struct bench_flow *flow = &end->flow;
	uint64_t slot = place->slot * end->plan.vector % layout->slots;

	for (uint32_t i = 0; i < end->plan.vector; i++) {
		uint64_t offset = slot * layout->stride;

		flow->transfers[i] = (struct pl_transfer){ link->remote, offset, end->own.region, place->base + offset,
							   end->plan.size };
		if (++slot == layout->slots)
			slot = 0;
	}
	if (end->plan.op == BENCH_WRITE)
		return pl_writev(link->peer, flow->transfers, end->plan.vector, &flow->attributes, NULL, error);
	return pl_readv(link->peer, flow->transfers, end->plan.vector, &flow->attributes, NULL, error);
}

static int post_plain(struct bench_end *end, const struct place *place, uint32_t number, struct pl_error *error)
{
	const struct bench_plan *plan = &end->plan;
	const struct bench_link *link = place->link;
	const struct pl_attributes *attributes = &end->flow.attributes;
	uint64_t slot = place->slot < end->layout.slots ? place->slot : place->slot % end->layout.slots;
	uint64_t offset = slot * end->layout.stride, own = place->base + offset;
	uint64_t value = end->flow.expected[number];

	switch (plan->op) {
	case BENCH_WRITE:
		/* In turns, the other end looks at one place. */
		return pl_write(link->peer, link->remote, plan->latency ? 0 : offset, end->own.region, own, plan->size,
				attributes, NULL, error);
	case BENCH_READ:
		return pl_read(link->peer, link->remote, offset, end->own.region, own, plan->size, attributes, NULL,
			       error);
	case BENCH_SEND:
		return pl_send(link->peer, BENCH_MESSAGE_DATA, end->own.region, own, plan->size, attributes, NULL,
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

int bench_post(struct bench_end *end, uint32_t line, bool more)
{
	struct bench_flow *flow = &end->flow;
	uint32_t number = flow->lines[line].free[--flow->lines[line].free_count];
	struct place place = place_of(end, line, number);
	uint32_t nth = end->plan.peers > 1 ? (uint32_t)place.slot / end->plan.peers : (uint32_t)place.slot;
	struct pl_error error;
	int rc;

	flow->attributes.user_data = BENCH_USER_DATA(BENCH_TAG_DATA, number);
	flow->attributes.flags = more ? PL_MORE : 0;
	rc = end->plan.vector > 1 ? post_vector(end, &place, &error) : post_plain(end, &place, number, &error);
	if (rc < 0)
		return bench_fail_as(end, &error);
	flow->posted++;
	if (nth >= flow->lines[line].used)
		flow->lines[line].used = nth + 1;
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

/* What belongs to one of several servers. */
static void share(struct bench_far *far, const struct pl_receipt *receipt)
{
	far->completed++;
	far->first = CLI_MIN(far->first, receipt->posted);
	far->last = CLI_MAX(far->last, receipt->completed);
	stats_record(far->stats, receipt->completed - receipt->posted);
}

void bench_flow_completed(struct bench_end *end, const struct pl_receipt *receipt)
{
	struct bench_flow *flow = &end->flow;
	uint32_t number = (uint32_t)receipt->user_data;
	struct bench_line *line = &flow->lines[line_of(end, number)];

	line->free[line->free_count++] = number;
	flow->completed++;
	if (receipt->posted < flow->first)
		flow->first = receipt->posted;
	if (receipt->completed > flow->last)
		flow->last = receipt->completed;
	if (flow->stats) {
		stats_record(flow->stats, receipt->completed - receipt->posted);
		if (end->far_count > 1)
			share(&end->fars[far_of(end, number)], receipt);
		if (end->samples.interval)
			sample(&end->samples, receipt->completed - flow->first);
	}
	if (flow->duration && flow->last - flow->first >= flow->duration)
		flow->ended = true;
	/* Each word has one operation at a time, so the old value is known. */
	if (flow->atomic && receipt->value != flow->expected[number]++)
		flow->wrong = true;
	if (end->plan.touch && end->plan.op == BENCH_READ) {
		struct place place = place_of(end, 0, number);

		bench_buffer_touch(end, &end->own, place.base + place.slot % end->layout.slots * end->layout.stride,
				   end->plan.size);
	}
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

/* A list for one connection, if so many can be; at the end of a run, what is left of one. */
static int post_list(struct bench_end *end, uint32_t line)
{
	struct bench_flow *flow = &end->flow;
	uint64_t left = flow->target - flow->posted;
	uint32_t count = end->plan.post_list;
	int rc = 0;

	if (left < count)
		count = (uint32_t)left;
	if (flow->lines[line].free_count < count)
		return 0;
	for (uint32_t i = 1; rc == 0 && i <= count; i++)
		rc = bench_post(end, line, i < count);
	return rc < 0 ? rc : 1;
}

static int post_all(struct bench_end *end)
{
	struct bench_flow *flow = &end->flow;
	bool paced = end->length.rate && flow->stats;
	uint32_t lines = end->far_count * end->plan.peers, idle = 0;
	int rc = 0;

	/* Each connection in turn, until none of them takes any more. */
	for (uint32_t line = 0; rc >= 0 && idle < lines && !flow->ended; line = line + 1 == lines ? 0 : line + 1) {
		if (flow->posted == flow->target)
			flow->ended = true;
		else if (paced && is_early(end))
			break;
		else
			rc = post_list(end, line);
		idle = rc > 0 ? 0 : idle + 1;
	}
	return CLI_MIN(rc, 0);
}

static void begin_counting(struct bench_end *end, struct stats *stats)
{
	struct bench_samples *samples = &end->samples;
	struct bench_flow *flow = &end->flow;

	flow->stats = stats;
	flow->posted = flow->completed = flow->last = 0;
	flow->first = UINT64_MAX;
	flow->ended = false;
	end->due = 0;
	for (uint32_t i = 0; i < end->far_count; i++) {
		end->fars[i].completed = end->fars[i].last = 0;
		end->fars[i].first = UINT64_MAX;
		if (end->fars[i].stats)
			stats_reset(end->fars[i].stats);
	}
	if (stats && samples->interval) {
		memset(samples->counts, 0, samples->used * sizeof(*samples->counts));
		samples->used = 0;
	}
}

int bench_flow_run(struct bench_end *end, uint64_t iterations, uint64_t duration, struct stats *stats)
{
	struct bench_flow *flow = &end->flow;
	uint64_t rounds = 0;
	int rc;

	flow->target = iterations ? iterations : UINT64_MAX;
	flow->duration = iterations ? 0 : duration;
	begin_counting(end, stats);
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
	rc = pl_receive(end->far->peer, BENCH_MESSAGE_DATA, UINT64_MAX, end->exposed.region, offset, end->plan.size,
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
	return post_receive(end, number);
}

int bench_receives_release(struct bench_end *end)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.user_data = BENCH_USER_DATA(BENCH_TAG_OTHER, 0);
	for (uint32_t i = 0; i < end->layout.receives; i++)
		if (pl_send_copy(end->far->peer, BENCH_MESSAGE_DATA, "", 0, &attributes, NULL, &error) < 0)
			return bench_fail_as(end, &error);
	return 0;
}
