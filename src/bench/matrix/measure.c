/* SPDX-License-Identifier: BSD-2-Clause */
/* Rates and latencies of links, by Peerlane's transfers. */
#include <stdlib.h>

#include "bench/matrix/link.h"

#define DEPTH 8
#define DEPTH_SHARED 2   /* operations in flight on each of several links, at least */
#define LATENCY_SHARE 2  /* latency takes half of the duration, and its warm-up a quarter of that */
#define IDLE_WAIT 100000 /* nanoseconds of sleep if no operation of several links is done */

/* Operations in flight on a link. */
struct flow {
	struct link *link;
	struct pl_operation *operations[DEPTH];
	uint64_t posted, done, ended;
	struct pl_completion last;
};

static int post_link_write(const struct link_end *end, struct flow *flow, uint64_t length)
{
	struct link *link = flow->link;
	int rc = pl_write(link->peer, &(struct pl_transfer){ link->remote, 0, end->region, 0, length }, NULL,
			  &flow->operations[flow->posted % DEPTH], &link->error);

	flow->posted += rc == 0;
	return rc;
}

/* Waits for all operations, which end before the region is freed, also after a failure. */
static void drain_flow(const struct link_end *end, struct flow *flow)
{
	struct pl_error later;

	while (flow->done < flow->posted) {
		int rc = pl_wait(flow->operations[flow->done++ % DEPTH], end->options->step_timeout, &flow->last,
				 flow->link->rc == 0 ? &flow->link->error : &later);

		flow->ended = cli_now();
		flow->link->rc = flow->link->rc == 0 ? rc : flow->link->rc;
	}
}

/* Writes for `duration`, with `depth` operations in flight.  Times are in end->stats. */
static int measure_flow(const struct link_end *end, struct flow *flow, uint64_t length, unsigned depth,
			uint64_t duration, double *rate)
{
	struct link *link = flow->link;
	uint64_t begun = cli_now();

	flow->posted = flow->done = 0;
	flow->ended = begun;
	stats_reset(end->stats);
	while (link->rc == 0 && (flow->posted == 0 || cli_now() - begun < duration)) {
		while (link->rc == 0 && flow->posted - flow->done < depth)
			link->rc = post_link_write(end, flow, length);
		if (flow->posted == flow->done)
			break;
		if (link->rc == 0)
			link->rc = pl_wait(flow->operations[flow->done++ % DEPTH], end->options->step_timeout,
					   &flow->last, &link->error);
		flow->ended = cli_now();
		if (link->rc == 0)
			stats_record(end->stats, flow->last.completed - flow->last.posted);
	}
	drain_flow(end, flow);
	*rate = (double)length * (double)flow->posted * 1e9 / (double)CLI_MAX(flow->ended - begun, 1ull);
	return link->rc;
}

/* Keeps the rate and the route of a flow. */
static void keep_rate(struct flow *flow, double rate)
{
	struct matrix_cell *cell = &flow->link->cell;

	cell->bytes_per_second = rate;
	cell->staged = flow->last.route == PL_ROUTE_STAGED;
	snprintf(cell->fabric, sizeof(cell->fabric), "%s", flow->last.fabric ? flow->last.fabric : "");
	snprintf(cell->reason, sizeof(cell->reason), "%s", flow->last.reason ? flow->last.reason : "");
}

static void keep_failure(struct link *link)
{
	link->cell.failed = 1;
	snprintf(link->cell.reason, sizeof(link->cell.reason), "%.68s [%.23s]", link->error.message, link->error.id);
}

void link_measure(const struct link_end *end, struct link *link)
{
	uint64_t size = end->options->size, duration = end->options->duration, part = duration / LATENCY_SHARE;
	struct flow flow = { .link = link };
	double rate;

	if (link->rc == 0)
		measure_flow(end, &flow, size, DEPTH, duration / 8, &rate);
	if (link->rc == 0)
		measure_flow(end, &flow, size, DEPTH, duration, &rate);
	if (link->rc == 0) {
		keep_rate(&flow, rate);
		measure_flow(end, &flow, MATRIX_LATENCY_SIZE, 1, part / 4, &rate);
	}
	if (link->rc == 0)
		measure_flow(end, &flow, MATRIX_LATENCY_SIZE, 1, part, &rate);
	if (link->rc == 0)
		link->cell.latency_us = (double)stats_percentile(end->stats, 50) / 1000;
	else
		keep_failure(link);
}

/* Posts operations of a flow, and collects those that are done.  Returns true if it did one of both. */
static bool move_flow(const struct link_end *end, struct flow *flow, unsigned depth)
{
	uint64_t before = flow->posted + flow->done;
	struct link *link = flow->link;

	while (link->rc == 0 && flow->posted - flow->done < depth)
		link->rc = post_link_write(end, flow, end->options->size);
	while (link->rc == 0 && flow->done < flow->posted) {
		int rc = pl_test(flow->operations[flow->done % DEPTH], &flow->last, &link->error);

		if (rc == -EINPROGRESS)
			break;
		link->rc = rc;
		flow->done++;
		flow->ended = cli_now();
	}
	return flow->posted + flow->done > before;
}

/* Sleeps until the oldest operation of a flow is done, at most for a short time. */
static void await_flow(struct flow *flow)
{
	int rc = pl_try_wait(flow->operations[flow->done % DEPTH], IDLE_WAIT, &flow->last, &flow->link->error);

	if (rc == -EINPROGRESS)
		return;
	flow->link->rc = rc;
	flow->done++;
	flow->ended = cli_now();
}

static void move_flows(const struct link_end *end, struct flow *flows, int count)
{
	unsigned depth = (unsigned)CLI_MAX(DEPTH / count, DEPTH_SHARED), next = 0;
	uint64_t until = cli_now() + end->options->duration;

	while (cli_now() < until) {
		struct flow *idle = NULL;
		bool moved = false;

		for (int i = 0; i < count; i++) {
			struct flow *flow = &flows[(next + (unsigned)i) % (unsigned)count];

			moved = move_flow(end, flow, depth) || moved;
			idle = flow->link->rc == 0 ? flow : idle;
		}
		if (!idle)
			return;
		if (!moved && idle->done < idle->posted)
			await_flow(idle);
		next++;
	}
}

void links_measure(const struct link_end *end, struct link *const *links, int count)
{
	struct flow *flows = calloc((size_t)CLI_MAX(count, 1), sizeof(*flows));
	uint64_t begun = cli_now();

	for (int i = 0; flows && i < count; i++) {
		flows[i].link = links[i];
		flows[i].ended = begun;
	}
	if (flows && count)
		move_flows(end, flows, count);
	for (int i = 0; i < count; i++) {
		struct link *link = links[i];

		if (!flows)
			link->rc = link->rc < 0 ? link->rc : cli_fail_errno(&link->error, -ENOMEM, "malloc", NULL);
		else
			drain_flow(end, &flows[i]);
		if (link->rc < 0)
			keep_failure(link);
		else
			keep_rate(&flows[i], (double)end->options->size * (double)flows[i].posted * 1e9 /
						     (double)CLI_MAX(flows[i].ended - begun, 1ull));
	}
	free(flows);
}
