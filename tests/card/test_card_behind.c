/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Notifications and reads that flush go behind the bytes of their write on a queue pair, without waiting for their
 * completion. They must not do so while a part of the write waits for its registration: they would overtake that part.
 * The stand-in card holds the registration, and places bytes late.
 */
#include <stdlib.h>

#include "card/card.h"
#include "card/settings.h"
#include "support/cases.h"
#include "support/pair.h"

/* The card holds the registration of this much, and not those of the small parts and of the library's own buffers. */
#define LARGE (8u << 20)
#define HELD (6u << 20)
/* Small parts lie apart, so that they are not joined. */
#define PART 64u
#define STRIDE 128u
/* More than the chunks that become work requests at once (VERBS_LIST). */
#define MANY 70u

/* Write of some small parts, whose memory is registered at once, and of a large one behind them. */
struct order {
	unsigned rails, parts, flags;
	enum pl_visible visible;
};

struct rig {
	struct pair pair; /* the large part */
	struct buffer small;
	struct card_counts before;
};

static void rig_open(struct rig *rig, const struct order *order)
{
	rail_limit = order->rails;
	setenv("STANDIN_MOOD", "order", 1);
	pair_open(&rig->pair, &card_manual, LARGE + MANY * STRIDE);
	buffer_open(&rig->small, rig->pair.environment.near, MANY * STRIDE, PL_ACCESS_LOCAL);
	await_lanes(&rig->pair.environment, order->rails);
	pattern_fill(rig->pair.near.bytes, LARGE, 1, 0);
	pattern_fill(rig->small.bytes, MANY * STRIDE, 2, 0);
	rig->before = card_counts_now();
}

static void rig_close(struct rig *rig)
{
	buffer_close(&rig->small);
	pair_close(&rig->pair);
}

static unsigned requests(const struct rig *rig, enum ibv_wr_opcode opcode)
{
	return card_counts_now().requests[opcode] - rig->before.requests[opcode];
}

static struct pl_operation *post(struct rig *rig, const struct order *order)
{
	struct pl_transfer transfers[MANY + 1];
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	for (unsigned i = 0; i < order->parts; i++)
		transfers[i] = (struct pl_transfer){ rig->pair.remote, LARGE + i * STRIDE, rig->small.region, i * STRIDE, PART };
	transfers[order->parts] = (struct pl_transfer){ rig->pair.remote, 0, rig->pair.near.region, 0, LARGE };
	attributes.flags = order->flags;
	attributes.visible = order->visible;
	attributes.notify = 77;
	check_ok(pl_writev(rig->pair.environment.near_peer, transfers, order->parts + 1, &attributes, &operation, &error),
		 &error);
	return operation;
}

static void check_bytes(const struct rig *rig, const struct order *order)
{
	pattern_check(rig->pair.far.bytes, LARGE, 1, 0);
	for (unsigned i = 0; i < order->parts; i++)
		pattern_check(rig->pair.far.bytes + LARGE + i * STRIDE, PART, 2, i * STRIDE);
}

/* Nothing is posted behind the small parts while the large one waits, and all bytes are there at the promised moment. */
static void in_order(void *argument)
{
	const struct order *order = argument;
	struct scenario_environment *environment;
	struct pl_operation *operation;
	struct pl_completion completion;
	struct rig rig;

	rig_open(&rig, order);
	environment = &rig.pair.environment;
	card_hold(HELD);
	operation = post(&rig, order);
	progress_until(environment, card_held() == 1 && requests(&rig, IBV_WR_RDMA_WRITE) == order->parts);
	settle(environment, 20);
	check_number(pl_poll(environment->far, &completion, 1), 0);
	check_number(requests(&rig, IBV_WR_RDMA_READ), 0);
	check_number(requests(&rig, IBV_WR_RDMA_WRITE_WITH_IMM), 0);
	card_hold(0);
	if (order->flags & PL_NOTIFY) {
		collect(environment, environment->far, &completion, 1);
		check_number(completion.kind, PL_KIND_NOTIFIED);
		check_number(completion.value, 77);
		check_bytes(&rig, order);
	}
	complete(environment, operation, &completion);
	check_bytes(&rig, order);
	check_number(completion.visible, order->visible);
	if (order->visible == PL_VISIBLE_PLACED)
		check(requests(&rig, IBV_WR_RDMA_READ) > 0);
	rig_close(&rig);
}

#define READ PL_VISIBLE_PLACED
#define NOTIFY PL_VISIBLE_ACKNOWLEDGED

static const struct test_case cases[] = {
	{ "notification", in_order, &(const struct order){ 1, 1, PL_NOTIFY, NOTIFY }, 30 },
	{ "notification, 2 rails", in_order, &(const struct order){ 2, 1, PL_NOTIFY, NOTIFY }, 30 },
	{ "notification, many parts", in_order, &(const struct order){ 1, MANY, PL_NOTIFY, NOTIFY }, 30 },
	{ "read", in_order, &(const struct order){ 1, 0, 0, READ }, 30 },
	{ "read, 2 parts", in_order, &(const struct order){ 1, 1, 0, READ }, 30 },
	{ "read, 2 rails", in_order, &(const struct order){ 2, 1, 0, READ }, 30 },
	{ "read, many parts", in_order, &(const struct order){ 1, MANY, 0, READ }, 30 },
	{ "read, many parts, 2 rails", in_order, &(const struct order){ 2, MANY, 0, READ }, 30 },
};

int main(void)
{
	return cases_run("card behind", cases, sizeof(cases) / sizeof(cases[0]));
}
