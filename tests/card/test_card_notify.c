/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes that notify or read back, over one rail and several: the requests that they cost, and the order that they
 * promise. Each case has a process of its own, because the card reads its variables once.
 */
#include <stdio.h>
#include <stdlib.h>

#include "card/card.h"
#include "card/settings.h"
#include "core/peer.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/pair.h"

#define LIMIT 20 /* seconds, times slowness() */
#define SMALL 4096u
#define LARGE (64u << 10)
#define DIVIDED (1u << 20)

/* -- requests of one write ------------------------------------------------------------------------ */

/* One write, its rails, and the requests that it costs. */
struct cost {
	unsigned rails, flags;
	enum pl_visible visible;
	uint32_t length;
	bool divided; /* writes: at least two */
	unsigned writes, notifying, reads, sends;
	uint64_t bytes; /* of the writes with immediate data */
	uint64_t number; /* of the notification */
	size_t data;     /* bytes that come with it */
};

static const struct cost costs[] = {
	{ 1, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, SMALL, false, 0, 1, 0, 0, SMALL, 77, 0 },
	{ 2, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, SMALL, false, 0, 1, 0, 0, SMALL, 77, 0 },
	{ 8, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, 0, false, 0, 1, 0, 0, 0, 77, 0 },
	{ 1, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, LARGE, false, 1, 1, 0, 0, 0, 77, 0 },
	{ 2, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, LARGE, false, 1, 1, 0, 0, 0, 77, 0 },
	{ 1, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, DIVIDED, false, 1, 1, 0, 0, 0, 77, 0 },
	{ 2, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, DIVIDED, true, 2, 0, 0, 1, 0, 77, 0 },
	{ 1, 0, PL_VISIBLE_PLACED, SMALL, false, 1, 0, 1, 0, 0, 77, 0 },
	{ 2, 0, PL_VISIBLE_PLACED, SMALL, false, 1, 0, 1, 0, 0, 77, 0 },
	{ 2, 0, PL_VISIBLE_PLACED, LARGE, false, 1, 0, 1, 0, 0, 77, 0 },
	{ 2, 0, PL_VISIBLE_PLACED, DIVIDED, true, 2, 0, 2, 0, 0, 77, 0 },
	{ 2, PL_NOTIFY, PL_VISIBLE_PLACED, SMALL, false, 1, 0, 1, 1, 0, 77, 0 },
	/* Only a notification needs immediate data. One with data, or a number of more than 22 bits, does not fit. */
	{ 1, 0, PL_VISIBLE_ACKNOWLEDGED, SMALL, false, 1, 0, 0, 0, 0, 77, 0 },
	{ 1, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, SMALL, false, 0, 1, 0, 0, SMALL, (1u << 22) - 1, 0 },
	{ 1, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, SMALL, false, 1, 0, 0, 1, 0, 1u << 22, 0 },
	{ 1, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, SMALL, false, 1, 0, 0, 1, 0, 77, 8 },
	/* The limits of lengths. */
	{ 1, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, 8192, false, 0, 1, 0, 0, 8192, 77, 0 },
	{ 2, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, (128u << 10) - 1, false, 1, 1, 0, 0, 0, 77, 0 },
	{ 2, PL_NOTIFY, PL_VISIBLE_ACKNOWLEDGED, 128u << 10, true, 2, 0, 0, 1, 0, 77, 0 },
};

static void expect_notification(struct scenario_environment *environment, uint64_t value)
{
	struct pl_completion completion;

	collect(environment, environment->far, &completion, 1);
	check_number(completion.kind, PL_KIND_NOTIFIED);
	check_number(completion.value, value);
	pl_notification_free(environment->far, &completion);
}

static void write_costs(void *argument)
{
	const struct cost *cost = argument;
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct card_counts before, after;
	struct pl_error error;
	struct pair pair;

	rail_limit = cost->rails;
	pair_open(&pair, &card_manual, DIVIDED);
	pair_spread(&pair, cost->rails);
	pattern_fill(pair.near.bytes, cost->length, 1, 0);
	attributes.flags = cost->flags;
	attributes.visible = cost->visible;
	attributes.notify = cost->number;
	attributes.notify_data = cost->data ? pair.near.bytes : NULL;
	attributes.notify_length = cost->data;
	before = card_counts_now();
	check_ok(pl_write(pair.environment.near_peer,
			  &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, cost->length }, &attributes,
			  &operation, &error),
		 &error);
	complete(&pair.environment, operation, NULL);
	if (cost->flags & PL_NOTIFY)
		expect_notification(&pair.environment, attributes.notify);
	after = card_counts_now();
	pattern_check(pair.far.bytes, cost->length, 1, 0);
	for (unsigned i = 0; i < CARD_OPCODES; i++)
		after.requests[i] -= before.requests[i];
	if (cost->divided)
		check(after.requests[IBV_WR_RDMA_WRITE] >= cost->writes);
	else
		check_number(after.requests[IBV_WR_RDMA_WRITE], cost->writes);
	check_number(after.requests[IBV_WR_RDMA_WRITE_WITH_IMM], cost->notifying);
	check_number(after.requests[IBV_WR_RDMA_READ], cost->reads);
	check_number(after.requests[IBV_WR_SEND] + after.requests[IBV_WR_SEND_WITH_IMM], cost->sends);
	check_number(after.immediate_bytes - before.immediate_bytes, cost->bytes);
	pair_close(&pair);
}

/* A peer of an older release expects the notification in a message if there are several rails. */
static void older_peer(void *argument)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct card_counts before, after;
	struct pl_error error;
	struct pair pair;

	(void)argument;
	rail_limit = 2;
	pair_open(&pair, &card_manual, SMALL);
	await_lanes(&pair.environment, rail_limit);
	pair.environment.near_peer->notify_rails = false;
	attributes.flags = PL_NOTIFY;
	attributes.notify = 77;
	before = card_counts_now();
	check_ok(pl_write(pair.environment.near_peer,
			  &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, SMALL }, &attributes, &operation,
			  &error),
		 &error);
	complete(&pair.environment, operation, NULL);
	expect_notification(&pair.environment, 77);
	after = card_counts_now();
	check_number(after.requests[IBV_WR_RDMA_WRITE] - before.requests[IBV_WR_RDMA_WRITE], 1);
	check_number(after.requests[IBV_WR_RDMA_WRITE_WITH_IMM], before.requests[IBV_WR_RDMA_WRITE_WITH_IMM]);
	pair_close(&pair);
}

/* -- order, in moods ------------------------------------------------------------------------------ */

#define SLOTS 16u
#define SLOT (512u << 10)

struct mood {
	const char *faults, *most, *memory;
	unsigned rails, rounds;
	bool breaks;
};

static const struct mood moods[] = {
	{ "order:5000", "1000000", NULL, 1, 300, false },
	{ "order:5000", "1000000", NULL, 4, 300, false },
	{ "order:5000,late:1000,rnr:500", "1000000", NULL, 8, 200, false },
	{ "order:5000,late:1000", "1000000", "alloc", 4, 100, false },
	{ "unanswered:100", "6", NULL, 1, 300, true },
	{ "unanswered:100", "6", NULL, 2, 300, true },
	{ "unanswered:100,order:3000", "8", NULL, 4, 300, true },
	{ "unanswered:100,undelivered:50,late:300", "6", NULL, 3, 300, true },
	{ "undelivered:100,order:3000", "20", NULL, 4, 300, true },
	{ "unanswered:100,order:3000", "6", "alloc", 4, 100, true },
	{ "undelivered:100,order:3000", "6", "alloc", 2, 100, true },
};

struct flow {
	struct pair pair;
	struct pl_operation *operations[SLOTS];
	uint32_t lengths[SLOTS];
	uint64_t values[SLOTS]; /* of the notification; 0: none is due */
	uint64_t random, next;
	unsigned notified, done;
};

/* Takes notifications: each came once, and its bytes are there. */
static void flow_take(struct flow *flow)
{
	struct pl_completion completions[8];
	int count = pl_poll(flow->pair.environment.far, completions, 8);

	for (int i = 0; i < count; i++) {
		unsigned slot = (unsigned)completions[i].value % SLOTS;

		check_number(completions[i].kind, PL_KIND_NOTIFIED);
		check_number(completions[i].value, flow->values[slot]);
		flow->values[slot] = 0;
		flow->notified++;
		pattern_check(flow->pair.far.bytes + slot * SLOT, flow->lengths[slot], completions[i].value, 0);
	}
}

/* Waits until the slot's write is done, and has notified. */
static void flow_finish(struct flow *flow, unsigned slot)
{
	struct scenario_environment *environment = &flow->pair.environment;
	struct pl_error error;
	int status;

	while ((status = pl_test(flow->operations[slot], NULL, &error)) == -EINPROGRESS)
		flow_take(flow);
	check_status(status, 0, &error);
	while (flow->values[slot]) {
		pl_poll(environment->near, NULL, 0);
		flow_take(flow);
	}
	flow->done++;
	flow->values[slot] = 0;
	flow->operations[slot] = NULL;
}

static void flow_start(struct flow *flow, unsigned slot)
{
	static const uint32_t most[] = { 64, 8192, 8193, LARGE, SLOT };
	const struct pl_transfer transfer = { flow->pair.remote, slot * SLOT, flow->pair.near.region, slot * SLOT,
					      flow->lengths[slot] = 1 + (uint32_t)(random_next(&flow->random) %
										   most[random_next(&flow->random) % 5]) };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.flags = PL_NOTIFY;
	attributes.notify = flow->values[slot] = SLOTS * ++flow->next + slot;
	pattern_fill(flow->pair.near.bytes + slot * SLOT, transfer.length, attributes.notify, 0);
	bytes_set(flow->pair.far.bytes + slot * SLOT, 0, transfer.length);
	check_ok(pl_write(flow->pair.environment.near_peer, &transfer, &attributes, &flow->operations[slot], &error), &error);
}

/* Places buffers in memory of a GPU that needs a read of the card to see what the card wrote. */
static void use_gpu(const char *kind)
{
	void (*order)(int ordering, int options);

	check(gpu_open(kind));
	gpu_driver_find(&order, "standin_order");
	check(order);
	order(0, 0);
}

static void notify_in_mood(void *argument)
{
	const struct mood *mood = argument;
	struct flow flow = { .random = 1 };
	struct card_counts counts;
	unsigned faults = 0;

	if (mood->memory)
		use_gpu(mood->memory);
	rail_limit = mood->rails;
	setenv("STANDIN_MOOD", mood->faults, 1);
	setenv("STANDIN_FAULTS", mood->most, 1);
	pair_open(&flow.pair, &card_manual, SLOTS * SLOT);
	for (unsigned i = 0; i < mood->rounds; i++) {
		unsigned slot = i % SLOTS;

		if (flow.operations[slot])
			flow_finish(&flow, slot);
		flow_start(&flow, slot);
	}
	for (unsigned i = 0; i < SLOTS; i++)
		if (flow.operations[i])
			flow_finish(&flow, i);
	/* A second one would come by now. */
	settle(&flow.pair.environment, 20);
	flow_take(&flow);
	check_number(flow.notified, flow.done);
	counts = card_counts_now();
	for (unsigned i = 0; i < CARD_FAULTS; i++)
		faults += counts.faults[i];
	check(faults > 0);
	check(counts.connects <= mood->rails + (mood->breaks ? 3 * faults : 0));
	pair_close(&flow.pair);
}

/* -- a repeated notification, with many later messages ---------------------------------------------- */

#define MESSAGES 900u

/*
 * The write is done, and all messages behind it arrive, but no acknowledgement does. So the notification is repeated
 * when the receiver has taken the messages.
 */
static void repeat_behind_many(void *argument)
{
	static struct pl_operation *sent[MESSAGES], *received[MESSAGES];
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct scenario_environment *environment;
	struct pl_operation *operation;
	struct pl_completion completion;
	struct pl_error error;
	struct pair pair;

	rail_limit = *(const unsigned *)argument;
	pair_open(&pair, &card_manual, SMALL);
	environment = &pair.environment;
	await_lanes(&pair.environment, rail_limit);
	for (unsigned i = 0; i < MESSAGES; i++)
		check_ok(pl_receive(environment->far_peer, 5, UINT64_MAX, &(struct pl_buffer){ pair.far.region, 0, 8 }, NULL,
				    &received[i], &error),
			 &error);
	card_fault_next(CARD_UNANSWERED);
	attributes.flags = PL_NOTIFY;
	attributes.notify = 5;
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, SMALL },
			  &attributes, &operation, &error),
		 &error);
	for (unsigned i = 0; i < MESSAGES; i++)
		check_ok(pl_send(environment->near_peer, 5, &(struct pl_buffer){ pair.near.region, 0, 8 }, NULL, &sent[i],
				 &error),
			 &error);
	complete(environment, operation, NULL);
	for (unsigned i = 0; i < MESSAGES; i++) {
		complete(environment, sent[i], NULL);
		complete(environment, received[i], NULL);
	}
	check_number(card_counts_now().faults[CARD_UNANSWERED], 1);
	expect_notification(environment, 5);
	settle(environment, 20);
	check_number(pl_poll(environment->far, &completion, 1), 0);
	pair_close(&pair);
}

/* Opens a pair whose memory is in a GPU that needs a read of the card. */
static void pair_open_gpu(struct pair *pair, unsigned rails, size_t bytes)
{
	setenv("STANDIN_MOOD", "order", 1);
	rail_limit = rails;
	use_gpu("alloc");
	pair_open(pair, &card_manual, bytes);
	await_lanes(&pair->environment, rails);
}

/* A read that a broken connection returns flushes nothing: with another rail, the owner is asked then. */
static void read_behind_lost(void *argument)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;
	struct pair pair;

	(void)argument;
	pair_open_gpu(&pair, 2, SMALL);
	pattern_fill(pair.near.bytes, SMALL, 1, 0);
	attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	card_fault_next(CARD_BAD_READS);
	check_ok(pl_write(pair.environment.near_peer,
			  &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, SMALL }, &attributes, &operation,
			  &error),
		 &error);
	complete(&pair.environment, operation, &receipt);
	pattern_check(pair.far.bytes, SMALL, 1, 0);
	check_number(card_counts_now().faults[CARD_BAD_READS], 1);
	check(strstr(receipt.visibility, "queue pair connected to itself"));
	pair_close(&pair);
}

/* Writes to memory of a GPU that this end may not read. Returns the reads with which the owner flushed. */
static unsigned write_visible(struct pair *pair, struct pl_remote *remote)
{
	unsigned before = card_counts_now().requests[IBV_WR_RDMA_READ];
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	check_ok(pl_write(pair->environment.near_peer, &(struct pl_transfer){ remote, 0, pair->near.region, 0, SMALL },
			  &attributes, &operation, &error),
		 &error);
	complete(&pair->environment, operation, &receipt);
	check(strstr(receipt.visibility, "queue pair connected to itself"));
	pattern_check(pair->far.bytes, SMALL, 1, 0);
	return card_counts_now().requests[IBV_WR_RDMA_READ] - before;
}

/* A card whose connection ended may still hold back bytes that it has acknowledged: the owner reads through it, too. */
static void flush_behind_lost(void *argument)
{
	struct pl_grant_options writable = PL_GRANT_OPTIONS_INIT;
	struct pl_remote *remote;
	struct pair pair;
	unsigned qps;

	(void)argument;
	setenv("STANDIN_CARDS", "2", 1);
	pair_open_gpu(&pair, 2, SMALL);
	writable.rights = PL_ACCESS_WRITE;
	remote = share(&pair.environment, pair.far.region, pair.environment.near_peer, &writable);
	pattern_fill(pair.near.bytes, SMALL, 1, 0);
	check_number(write_visible(&pair, remote), 2);
	qps = card_counts_now().qps;
	card_port(0, false);
	/* Both ends have dropped their queue pairs of the rail. */
	progress_until(&pair.environment, card_counts_now().qps == qps - 2);
	check_number(write_visible(&pair, remote), 2);
	pl_remote_release(remote);
	pair_close(&pair);
}

/* Bytes that a connection may have under way after it broke: LIMIT_FIRST of pace.c. */
#define PACED (64u << 10)

/* The write leaves less of the limit than the read behind it asks for. */
static void read_behind_limit(void *argument)
{
	static const uint32_t lengths[] = { SMALL, PACED - 3 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct card_counts before, after;
	struct pl_error error;
	struct pair pair;

	(void)argument;
	pair_open_gpu(&pair, 1, PACED);
	attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	card_fault_next(CARD_UNDELIVERED);
	before = card_counts_now();
	for (unsigned i = 0; i < 2; i++) {
		pattern_fill(pair.near.bytes, lengths[i], i, 0);
		check_ok(pl_write(pair.environment.near_peer,
				  &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, lengths[i] }, &attributes,
				  &operation, &error),
			 &error);
		complete(&pair.environment, operation, NULL);
		pattern_check(pair.far.bytes, lengths[i], i, 0);
		after = card_counts_now();
	}
	check_number(after.faults[CARD_UNDELIVERED], 1);
	check(after.requests[IBV_WR_RDMA_READ] > before.requests[IBV_WR_RDMA_READ]);
	pair_close(&pair);
}

/* -- the program ---------------------------------------------------------------------------------- */

#define COSTS (sizeof(costs) / sizeof(costs[0]))
#define MOODS (sizeof(moods) / sizeof(moods[0]))

int main(void)
{
	static const unsigned rails[] = { 1, 2 };
	static char names[COSTS + MOODS][96];
	struct test_case tests[COSTS + MOODS + 6];

	for (size_t i = 0; i < COSTS; i++) {
		snprintf(names[i], sizeof(names[i]), "cost-%u-bytes-%u-rails-flags-%u-visible-%d-%zu", costs[i].length,
			 costs[i].rails, costs[i].flags, (int)costs[i].visible, i);
		tests[i] = (struct test_case){ names[i], write_costs, &costs[i], LIMIT };
	}
	for (size_t i = 0; i < MOODS; i++) {
		char *name = names[COSTS + i];

		snprintf(name, sizeof(names[0]), "%s-%u-rails-%s", moods[i].faults, moods[i].rails,
			 moods[i].memory ? moods[i].memory : "host");
		tests[COSTS + i] = (struct test_case){ name, notify_in_mood, &moods[i], LIMIT };
	}
	tests[COSTS + MOODS] = (struct test_case){ "repeat-1-rail", repeat_behind_many, &rails[0], LIMIT };
	tests[COSTS + MOODS + 1] = (struct test_case){ "repeat-2-rails", repeat_behind_many, &rails[1], LIMIT };
	tests[COSTS + MOODS + 2] = (struct test_case){ "read-behind-lost", read_behind_lost, NULL, LIMIT };
	tests[COSTS + MOODS + 3] = (struct test_case){ "read-behind-limit", read_behind_limit, NULL, LIMIT };
	tests[COSTS + MOODS + 4] = (struct test_case){ "older-peer", older_peer, NULL, LIMIT };
	tests[COSTS + MOODS + 5] = (struct test_case){ "flush-behind-lost", flush_behind_lost, NULL, LIMIT };
	return cases_run("notifications", tests, COSTS + MOODS + 6);
}
