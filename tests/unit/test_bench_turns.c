/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the messages of a measurement use: with more than those in flight need, each takes the slot behind the last one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bench/perf/post.h"
#include "bench/perf/receives.h"
#include "bench/perf/run.h"

#define SIZE 100u
#define STRIDE 128u
#define SLOTS 7u
#define DEPTH 4u

static struct bench_request last_request;

static int note_request(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number,
			uint32_t vector, struct pl_error *error)
{
	(void)ep, (void)number, (void)vector, (void)error;
	last_request = *request;
	return 0;
}

static const struct bench_operation noting = { .name = "noting", .post = note_request };

static struct bench_endpoint *open_bench(uint64_t working_set, uint32_t vector, struct bench_peer *peers,
					 uint32_t count)
{
	struct bench_endpoint *ep = bench_endpoint_new();

	assert_non_null(ep);
	ep->plan = (struct bench_plan){ .operation = &noting,
					.size = SIZE,
					.depth = DEPTH,
					.vector = vector,
					.post_list = 1,
					.connections = 1,
					.working_set = working_set };
	ep->peers = ep->peer = peers;
	ep->peer_count = count;
	bench_plan_layout(&ep->plan, &ep->layout);
	assert_int_equal(bench_pipeline_allocate(ep), 0);
	return ep;
}

static void close_bench(struct bench_endpoint *ep)
{
	bench_pipeline_free(&ep->pipeline);
	free(ep);
}

/* Posts the next operation of a peer, and completes it. Returns its slot. */
static uint64_t post_one(struct bench_endpoint *ep, uint32_t peer)
{
	struct bench_number_pool *pool = &ep->pipeline.pools[peer];

	assert_int_equal(bench_post(ep, pool, false), 0);
	pool->free_count++;
	assert_int_equal(last_request.peer, peer);
	assert_int_equal(last_request.local, peer * ep->layout.window + last_request.remote);
	return last_request.remote / ep->layout.stride;
}

static void test_all_slots_in_turn(void **state)
{
	struct bench_peer peers[2] = { { .requests = 0 } };
	struct bench_endpoint *ep = open_bench(SLOTS * STRIDE, 1, peers, 2);

	(void)state;
	assert_true(ep->layout.turns);
	for (uint32_t i = 0; i < 2 * SLOTS + 1; i++) {
		assert_int_equal(post_one(ep, 0), i % SLOTS);
		assert_int_equal(bench_slots_covered(ep, &peers[0]), i < SLOTS ? i + 1 : SLOTS);
	}
	/* Another peer has a window, and turns, of its own. */
	assert_int_equal(post_one(ep, 1), 0);
	assert_int_equal(bench_slots_covered(ep, &peers[1]), 1);
	close_bench(ep);
}

/* The messages of a vector take one slot each, and the next vector those behind. */
static void test_vectors_in_turn(void **state)
{
	struct bench_peer peer = { .requests = 0 };
	struct bench_endpoint *ep = open_bench((SLOTS + DEPTH) * STRIDE, 2, &peer, 1);

	(void)state;
	assert_int_equal(post_one(ep, 0), 0);
	assert_int_equal(post_one(ep, 0), 2);
	assert_int_equal(bench_slots_covered(ep, &peer), 4);
	for (uint32_t i = 4; i < SLOTS + DEPTH - 1; i += 2)
		assert_int_equal(post_one(ep, 0), i);
	assert_int_equal(post_one(ep, 0), SLOTS + DEPTH - 1);
	assert_int_equal(post_one(ep, 0), 1);
	assert_int_equal(bench_slots_covered(ep, &peer), SLOTS + DEPTH);
	close_bench(ep);
}

/* Without more slots than operations in flight, each operation number has its own. */
static void test_few_slots(void **state)
{
	static const uint64_t sets[] = { 0, DEPTH * STRIDE, STRIDE };
	struct bench_peer peer = { .requests = 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		struct bench_endpoint *ep = open_bench(sets[i], 1, &peer, 1);

		assert_false(ep->layout.turns);
		assert_int_equal(post_one(ep, 0), 0);
		assert_int_equal(post_one(ep, 0), 0);
		assert_int_equal(bench_slots_covered(ep, &peer), 1);
		close_bench(ep);
	}
}

/* A receiver has as many numbers as slots, also with fewer receives than messages in flight. */
static void test_receives(void **state)
{
	static const struct bench_operation receiving = { .name = "receiving",
							  .post = note_request,
							  .needs_receive = true };
	struct bench_peer peer = { .requests = 0 };
	struct bench_endpoint *ep = open_bench(0, 1, &peer, 1);

	(void)state;
	ep->plan.operation = &receiving;
	ep->plan.depth = 1024;
	ep->plan.working_set = 600 * STRIDE;
	bench_plan_layout(&ep->plan, &ep->layout);
	assert_true(ep->layout.turns);
	assert_int_equal(ep->layout.receives, 512);
	assert_int_equal(bench_receive_places(ep), 600);
	ep->plan.working_set = 0;
	bench_plan_layout(&ep->plan, &ep->layout);
	assert_int_equal(bench_receive_places(ep), 512);
	close_bench(ep);
}

/* A server refuses plans of messages whose slot both ends know. */
static void test_latency(void **state)
{
	static const struct {
		const char *operation;
		bool valid;
	} cases[] = { { "read", true }, { "write", false }, { "send", false }, { "fetch-add", false } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bench_plan plan = { .operation = bench_operation_by_name(cases[i].operation),
					   .latency = true,
					   .size = 8,
					   .depth = 1,
					   .vector = 1,
					   .post_list = 1,
					   .connections = 1 };

		assert_true(bench_plan_valid(&plan));
		plan.working_set = 64 * STRIDE;
		assert_int_equal(bench_plan_valid(&plan), cases[i].valid);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_slots_in_turn), cmocka_unit_test(test_vectors_in_turn),
		cmocka_unit_test(test_few_slots),         cmocka_unit_test(test_receives),
		cmocka_unit_test(test_latency),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
