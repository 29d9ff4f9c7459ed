/* SPDX-License-Identifier: BSD-2-Clause */
/* One operation of a measurement.  Inline, as whatever is spent here is measured along with the library. */
#ifndef PL_CLI_BENCH_POST_H
#define PL_CLI_BENCH_POST_H

#include "bench/perf/endpoint.h"

static inline __attribute__((always_inline)) int bench_post_plain(struct bench_end *end, enum bench_op op,
								  const struct bench_place *place, uint64_t number,
								  struct pl_error *error)
{
	const struct bench_plan *plan = &end->plan;
	const struct bench_link *link = &end->links[place->line];
	const struct pl_attributes *attributes = &end->flow.attributes;
	uint64_t value;

	switch (op) {
	case BENCH_WRITE:
		/* In turns, the other end looks at one place. */
		return pl_write(link->peer, link->remote, plan->latency ? 0 : place->remote, end->own.region,
				place->own, plan->size, attributes, NULL, error);
	case BENCH_READ:
		return pl_read(link->peer, link->remote, place->remote, end->own.region, place->own, plan->size,
			       attributes, NULL, error);
	case BENCH_SEND:
		return pl_send(link->peer, end->tag, end->own.region, place->own, plan->size, attributes, NULL, error);
	case BENCH_FETCH_ADD:
		return pl_fetch_add(link->peer, link->remote, place->remote, 1, NULL, attributes, NULL, error);
	case BENCH_COMPARE_SWAP:
		value = end->flow.expected[number];
		return pl_compare_swap(link->peer, link->remote, place->remote, value, value + 1, NULL, attributes,
				       NULL, error);
	case BENCH_REGISTER:
	case BENCH_CONNECT:
		break;
	}
	return -EINVAL;
}

int bench_post_vector(struct bench_end *end, const struct bench_place *place, struct pl_error *error);

/* The next operation of a connection; `more`: another follows at once. */
static inline __attribute__((always_inline)) int bench_post(struct bench_end *end, struct bench_line *line, bool more)
{
	struct bench_flow *flow = &end->flow;
	uint32_t number = line->free[--line->free_count];
	const struct bench_place *place = &flow->places[number];
	struct pl_error error;
	int rc;

	flow->attributes.user_data = BENCH_USER_DATA(BENCH_TAG_DATA, number);
	flow->attributes.flags = more ? PL_MORE : 0;
	rc = end->plan.vector > 1 ? bench_post_vector(end, place, &error)
				  : bench_post_plain(end, end->plan.op, place, number, &error);
	if (rc < 0)
		return bench_fail_as(end, &error);
	flow->posted++;
	if (place->nth >= line->used)
		line->used = place->nth + 1;
	return 0;
}

/* Each word has one operation at a time, so the old value is known. */
static inline void bench_check_old(struct bench_flow *flow, const struct pl_receipt *receipt, uint64_t number)
{
	if (receipt->value != flow->expected[number]++)
		flow->wrong = true;
}

/* What few runs ask for of a completion. */
void bench_flow_special(struct bench_end *end, const struct pl_receipt *receipt, uint32_t number);

/*
 * Since when an operation took time: it was posted, or, if there is one at a time, the one before completed, or all began.
 * So what lies between those is not left out: the rest of the library's call, and what this program does.
 */
static inline uint64_t bench_since(bool alone, uint64_t last, const struct pl_receipt *receipt)
{
	return alone ? last : receipt->posted;
}

static inline void bench_flow_completed(struct bench_end *end, const struct pl_receipt *receipt)
{
	struct bench_flow *flow = &end->flow;
	uint32_t number = (uint32_t)receipt->user_data;
	struct bench_line *line = &flow->lines[flow->places[number].line];
	uint64_t since = bench_since(flow->alone, flow->last, receipt);

	line->free[line->free_count++] = number;
	flow->completed++;
	if (receipt->posted < flow->first)
		flow->first = receipt->posted;
	if (receipt->completed > flow->last)
		flow->last = receipt->completed;
	if (flow->stats && !flow->in_turns)
		stats_record(flow->stats, receipt->completed - since);
	if (flow->sampled)
		bench_sample(&end->samples, receipt->completed - flow->first);
	if (flow->last - flow->first >= flow->duration)
		flow->ended = true;
	if (flow->special)
		bench_flow_special(end, receipt, number);
	if (!end->sample.kind || receipt->streams > end->sample.streams)
		end->sample = *receipt;
}

#endif
