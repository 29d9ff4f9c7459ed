/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations under way, as many as the depth allows.  No clock is read here: receipts have the
 * times.  An operation has a number, which is free again once it completed.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/perf/post.h"

#define ROUNDS_PER_CHECK 4096

/*
 * Numbers of operations are a server's, one server's after the other's; its connections have them in turns.  Each
 * server's bytes have a window of their own at this end.
 */
static struct bench_place place_of(const struct bench_end *end, uint32_t number)
{
	const struct bench_layout *layout = &end->layout;
	uint32_t depth = end->plan.depth, peers = end->plan.peers, far = number / depth, of_far = number % depth;
	uint64_t slot = (uint64_t)of_far * end->plan.vector % layout->slots;

	return (struct bench_place){
		.remote = slot * layout->stride,
		.own = far * layout->window + slot * layout->stride,
		.nth = of_far / peers,
		.line = (uint16_t)(far * peers + of_far % peers),
		.far = (uint16_t)far,
	};
}

int bench_flow_allocate(struct bench_end *end)
{
	const struct bench_plan *plan = &end->plan;
	struct bench_flow *flow = &end->flow;
	uint32_t total = plan->depth * end->far_count, *next;

	memset(flow, 0, sizeof(*flow));
	flow->attributes = (struct pl_attributes)PL_ATTRIBUTES_INIT;
	flow->numbers = calloc(total, sizeof(*flow->numbers));
	flow->places = calloc(total, sizeof(*flow->places));
	flow->expected = calloc(total, sizeof(*flow->expected));
	flow->transfers = calloc(plan->vector, sizeof(*flow->transfers));
	if (!flow->numbers || !flow->places || !flow->expected || !flow->transfers)
		return bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u operations", total);
	for (uint32_t number = 0; number < total; number++)
		flow->places[number] = place_of(end, number);
	next = flow->numbers;
	for (uint32_t line = 0; line < end->far_count * plan->peers; line++) {
		flow->lines[line].free = next;
		/* Low numbers come first, so that those used are the first ones. */
		for (uint32_t far = line / plan->peers, number = (far + 1) * plan->depth; number-- > far * plan->depth;)
			if (flow->places[number].line == line)
				*next++ = number;
		flow->lines[line].free_count = (uint32_t)(next - flow->lines[line].free);
	}
	flow->atomic = bench_plan_atomic(plan);
	return 0;
}

void bench_flow_free(struct bench_flow *flow)
{
	free(flow->numbers);
	free(flow->places);
	free(flow->expected);
	free(flow->transfers);
	memset(flow, 0, sizeof(*flow));
}

int bench_post_vector(struct bench_end *end, const struct bench_place *place, struct pl_error *error)
{
	const struct bench_link *link = &end->links[place->line];
	const struct bench_layout *layout = &end->layout;
	uint64_t offset = place->remote, base = place->own - place->remote;
	struct bench_flow *flow = &end->flow;

	for (uint32_t i = 0; i < end->plan.vector; i++) {
		flow->transfers[i] =
			(struct pl_transfer){ link->remote, offset, end->own.region, base + offset, end->plan.size };
		offset += layout->stride;
		if (offset == layout->window)
			offset = 0;
	}
	if (end->plan.op == BENCH_WRITE)
		return pl_writev(link->peer, flow->transfers, end->plan.vector, &flow->attributes, NULL, error);
	return pl_readv(link->peer, flow->transfers, end->plan.vector, &flow->attributes, NULL, error);
}

void bench_flow_special(struct bench_end *end, const struct pl_receipt *receipt, uint32_t number)
{
	struct bench_flow *flow = &end->flow;
	const struct bench_place *place = &flow->places[number];
	struct bench_far *far = &end->fars[place->far];

	if (far->stats && flow->stats) {
		far->completed++;
		far->first = CLI_MIN(far->first, receipt->posted);
		far->last = CLI_MAX(far->last, receipt->completed);
		stats_record(far->stats, receipt->completed - receipt->posted);
	}
	if (flow->in_turns) {
		if (flow->turn && flow->stats && receipt->posted > flow->turn)
			stats_record(flow->stats, (receipt->posted - flow->turn) / 2);
		flow->turn = CLI_MAX(flow->turn, receipt->posted);
	}
	if (flow->atomic)
		bench_check_old(flow, receipt, number);
	if (end->plan.touch && end->plan.op == BENCH_READ)
		bench_buffer_touch(end, &end->own, place->own, end->plan.size);
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

/* Lists for one connection, `most` operations at most; at the end of a run, what is left of one.  Their number. */
static inline int post_lists(struct bench_end *end, struct bench_line *line, uint32_t most)
{
	struct bench_flow *flow = &end->flow;
	uint32_t list = end->plan.post_list, count = CLI_MIN(line->free_count, most), in_list = 0;
	uint64_t left = flow->target - flow->posted;
	int rc = 0;

	if (left <= count)
		count = (uint32_t)left;
	else if (list > 1)
		count -= count % list;
	for (uint32_t i = 1; i <= count && rc == 0; i++) {
		bool more = ++in_list < list && i < count;

		rc = bench_post(end, line, more);
		if (!more)
			in_list = 0;
	}
	flow->ended = flow->posted == flow->target;
	return rc < 0 ? rc : (int)count;
}

/* Each connection in turn has a list, until none of them takes any more, or the rate wants to wait. */
static int post_in_turns(struct bench_end *end, uint32_t lines, bool paced)
{
	struct bench_flow *flow = &end->flow;
	uint32_t idle = 0;

	for (uint32_t line = 0; idle < lines && !flow->ended; line = line + 1 == lines ? 0 : line + 1) {
		int count;

		if (paced && is_early(end))
			break;
		count = post_lists(end, &flow->lines[line], end->plan.post_list);
		if (count < 0)
			return count;
		idle = count ? 0 : idle + 1;
	}
	return 0;
}

static inline int post_all(struct bench_end *end)
{
	uint32_t lines = end->far_count * end->plan.peers;
	bool paced = end->length.rate && end->flow.stats;
	int rc = 0;

	if (end->flow.ended)
		return 0;
	if (lines > 1 || paced)
		return post_in_turns(end, lines, paced);
	rc = post_lists(end, &end->flow.lines[0], UINT32_MAX);
	return CLI_MIN(rc, 0);
}

static void begin_counting(struct bench_end *end, struct stats *stats)
{
	struct bench_samples *samples = &end->samples;
	struct bench_flow *flow = &end->flow;

	flow->stats = stats;
	flow->posted = flow->completed = flow->last = 0;
	flow->first = UINT64_MAX;
	flow->ended = flow->in_turns = false;
	flow->alone = end->plan.latency && end->far_count == 1;
	if (flow->alone)
		flow->last = cli_now();
	flow->special = end->far_count > 1 || flow->atomic || end->plan.touch;
	flow->sampled = stats && samples->interval;
	end->due = 0;
	for (uint32_t i = 0; i < end->far_count; i++) {
		end->fars[i].completed = end->fars[i].last = 0;
		end->fars[i].first = UINT64_MAX;
		if (end->fars[i].stats)
			stats_reset(end->fars[i].stats);
	}
	if (flow->sampled)
		bench_samples_begin(samples);
}

int bench_flow_run(struct bench_end *end, uint64_t iterations, uint64_t duration, struct stats *stats)
{
	struct bench_flow *flow = &end->flow;
	uint64_t rounds = 0;
	int rc;

	flow->target = iterations ? iterations : UINT64_MAX;
	flow->duration = iterations ? UINT64_MAX : duration;
	begin_counting(end, stats);
	bench_patience(end);
	rc = post_all(end);
	if (rc == 0 && bench_steady_fits(end))
		rc = bench_steady_run(end);
	if (rc < 0)
		return rc;
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

/* Numbers of receives are one of the others', then the next one's. */
static struct bench_far *far_of_receive(const struct bench_end *end, uint32_t number)
{
	return &end->fars[number / end->layout.receives];
}

static uint64_t offset_of_receive(const struct bench_end *end, uint32_t number)
{
	return bench_exposed_offset(end, far_of_receive(end, number)) +
	       number % end->layout.receives % end->layout.slots * end->layout.stride;
}

static int post_receive(struct bench_end *end, uint32_t number)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint64_t offset = offset_of_receive(end, number);
	struct pl_error error;
	int rc;

	attributes.timeout = UINT64_MAX;
	attributes.user_data = BENCH_USER_DATA(BENCH_TAG_RECEIVE, number);
	rc = pl_receive(far_of_receive(end, number)->peer, BENCH_MESSAGE_DATA, BENCH_MESSAGE_KINDS, end->exposed.region,
			offset, end->plan.size, &attributes, NULL, &error);
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
	for (uint32_t i = 0; i < end->far_count; i++)
		end->fars[i].received = 0;
	for (uint32_t i = 0; rc == 0 && i < end->layout.receives * end->far_count; i++)
		rc = post_receive(end, i);
	return rc;
}

int bench_received(struct bench_end *end, uint32_t number, const struct pl_receipt *receipt)
{
	uint64_t bytes = receipt->bytes;

	end->receives--;
	if (bytes == 0)
		return 0;
	end->received++;
	end->tag_arrived = receipt->tag;
	far_of_receive(end, number)->received++;
	if (bytes != end->plan.size)
		return bench_fail(end, -EPROTO, "BENCH-PROTOCOL", NULL, NULL, "a message of %llu bytes, not %llu",
				  (unsigned long long)bytes, (unsigned long long)end->plan.size);
	if (end->plan.touch && !end->plan.latency)
		bench_buffer_touch(end, &end->exposed, offset_of_receive(end, number), bytes);
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
		if (pl_send_copy(end->far->peer, BENCH_MESSAGE_DATA, "", 0, &attributes, NULL, &error) < 0)
			return bench_fail_as(end, &error);
	return 0;
}
