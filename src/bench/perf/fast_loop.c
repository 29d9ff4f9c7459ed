/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loop of most measurements: one connection, single operations, as fast as they go.  It counts what bench_flow.c
 * counts for all others; but whatever stays the same is decided before it, and an operation that completed is posted
 * again at once, at its place, as all places are taken.  Whatever is spent here is measured along with the library.
 */
#include "bench/perf/post.h"

#define ROUNDS_PER_CHECK 4096
#define FIRST_NUMBER BENCH_USER_DATA(BENCH_TAG_DATA, 0)

/* What changes: a copy, which no call reaches. */
struct steady {
	uint64_t first, last, minimum, maximum, sum;
	uint64_t done, left; /* operations that completed and were posted again; that are to be */
	int from, count;     /* completions that are still to be taken, when the end has come */
};

bool bench_steady_fits(const struct bench_end *end)
{
	const struct bench_flow *flow = &end->flow;
	const struct bench_plan *plan = &end->plan;

	return flow->stats && !flow->ended && !flow->lines[0].free_count && !end->length.rate && !plan->touch &&
	       end->far_count == 1 && plan->peers == 1 && plan->vector == 1 && plan->post_list == 1;
}

/* The time of one more; the sums are in *steady until the end. */
static inline void record(struct stats *stats, struct steady *steady, uint64_t value)
{
	stats->buckets[stats_bucket(value)]++;
	steady->sum += value;
	if (value < steady->minimum)
		steady->minimum = value;
	if (value > steady->maximum)
		steady->maximum = value;
}

/* 0: go on; 1: the end has come. */
static inline __attribute__((always_inline)) int take(struct bench_end *end, enum bench_op op, bool sampled,
						      struct steady *steady, int count)
{
	bool atomic = op == BENCH_FETCH_ADD || op == BENCH_COMPARE_SWAP;
	uint64_t depth = end->plan.depth, duration = end->flow.duration, since, last;
	bool alone = end->flow.alone;
	struct stats *stats = end->flow.stats;
	struct pl_error error;

	for (int i = 0; i < count; i++) {
		const struct pl_receipt *receipt = &end->completions[i].receipt;
		uint64_t number = receipt->user_data - FIRST_NUMBER;

		if (number >= depth || receipt->status < 0) {
			bench_take(end, &end->completions[i]);
			if (end->error.code)
				return end->error.code;
			continue;
		}
		since = bench_since(alone, steady->last, receipt);
		if (receipt->posted < steady->first)
			steady->first = receipt->posted;
		last = CLI_MAX(steady->last, receipt->completed);
		if (last - steady->first >= duration || steady->done == steady->left) {
			steady->from = i;
			steady->count = count;
			return 1;
		}
		steady->last = last;
		record(stats, steady, receipt->completed - since);
		if (sampled)
			bench_sample(&end->samples, receipt->completed - steady->first);
		if (atomic)
			bench_check_old(&end->flow, receipt, number);
		steady->done++;
		end->flow.attributes.user_data = receipt->user_data;
		if (bench_post_plain(end, op, &end->flow.places[number], number, &error) < 0)
			return bench_fail_as(end, &error);
	}
	return 0;
}

static inline __attribute__((always_inline)) int loop(struct bench_end *end, enum bench_op op, bool sampled,
						      struct steady *steady)
{
	uint32_t rounds = 0;

	for (;;) {
		int count = pl_poll(end->context, end->completions, BENCH_BATCH);
		int rc = take(end, op, sampled, steady, count);

		if (rc)
			return CLI_MIN(rc, 0);
		if (count == 0)
			rc = bench_idle(end, 0);
		else if (++rounds % ROUNDS_PER_CHECK == 0)
			rc = bench_signals(end);
		if (rc < 0)
			return rc;
	}
}

/* One loop for each, so that none of them chooses. */
static int loop_of(struct bench_end *end, struct steady *steady)
{
	bool sampled = end->flow.sampled;

	switch (end->plan.op) {
	case BENCH_WRITE:
		return sampled ? loop(end, BENCH_WRITE, true, steady) : loop(end, BENCH_WRITE, false, steady);
	case BENCH_READ:
		return sampled ? loop(end, BENCH_READ, true, steady) : loop(end, BENCH_READ, false, steady);
	case BENCH_FETCH_ADD:
		return sampled ? loop(end, BENCH_FETCH_ADD, true, steady) : loop(end, BENCH_FETCH_ADD, false, steady);
	case BENCH_COMPARE_SWAP:
		return sampled ? loop(end, BENCH_COMPARE_SWAP, true, steady)
			       : loop(end, BENCH_COMPARE_SWAP, false, steady);
	default:
		return sampled ? loop(end, BENCH_SEND, true, steady) : loop(end, BENCH_SEND, false, steady);
	}
}

int bench_steady_run(struct bench_end *end)
{
	struct bench_flow *flow = &end->flow;
	struct steady steady = { .first = flow->first,
				 .last = flow->last,
				 .minimum = flow->stats->minimum,
				 .maximum = flow->stats->maximum,
				 .sum = flow->stats->sum,
				 .left = flow->target - flow->posted };
	int rc;

	flow->attributes.flags = 0;
	rc = loop_of(end, &steady);
	flow->first = steady.first;
	flow->last = steady.last;
	flow->posted += steady.done;
	flow->completed += steady.done;
	flow->stats->minimum = steady.minimum;
	flow->stats->maximum = steady.maximum;
	flow->stats->sum = steady.sum;
	flow->stats->count += steady.done;
	end->events += steady.done;
	flow->ended = true;
	/* The rest of what was polled is not posted again, and takes the way of all others. */
	for (int i = steady.from; i < steady.count; i++)
		bench_take(end, &end->completions[i]);
	return rc < 0 ? rc : end->error.code;
}
