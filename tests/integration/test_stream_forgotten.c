/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A publisher keeps the accounts of 64 subscriptions that have ended. An end on one engine can forget a subscription whose end
 * on another engine goes on.
 */
#include <pthread.h>
#include <stdlib.h>

#include "stream/publisher.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/environment.h"
#include "support/process.h"

static const struct setting threads = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* Memory of the publisher's context. */
struct memory {
	struct pl_allocator allocator;
	_Atomic(void *) awaited; /* its release waits for `go_on` */
	atomic_bool waits, go_on;
	_Atomic(void *) spoiled; /* filled with other bytes, and kept, when it is released */
	atomic_bool gone;
};

static void memory_release(void *pointer, void *user)
{
	struct memory *memory = user;

	if (pointer && pointer == atomic_load(&memory->spoiled)) {
		memset(pointer, 0xa5, sizeof(struct pl_subscription));
		atomic_store(&memory->gone, true);
		return;
	}
	if (pointer && pointer == atomic_load(&memory->awaited)) {
		atomic_store(&memory->awaited, NULL);
		atomic_store(&memory->waits, true);
		while (!atomic_load(&memory->go_on))
			sleep_ms(1);
	}
	free(pointer);
}

static void send_message(struct pl_peer *peer, enum pl_stream_message_type type, uint32_t number)
{
	struct pl_stream_message message = { .type = type, .number = number };

	if (type == PL_STREAM_SUBSCRIBE) {
		strcpy(message.subscribe.name, "cam0");
		message.subscribe.every = 1;
	}
	pl_engine_lock(peer->home);
	check(pl_stream_send(peer, &message) == 0);
	pl_engine_unlock(peer->home);
}

static void await_subscribers(struct pl_publisher *publisher, unsigned count)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;

	do {
		sleep_ms(1);
		check(pl_publisher_query(publisher, &info) == 0);
	} while (info.subscribers != count);
}

/* Connects until the publisher's ends of two connections are on two engines. */
static void connect_two(struct scenario_environment *environment, struct pl_context *far, struct pl_peer *peers[2],
			struct pl_peer *far_peers[2])
{
	struct pl_listener *listener;
	char address[96];

	listener = listener_open(&threads, far, address);
	connect_pair(environment, environment->near, listener, &peers[0], &far_peers[0]);
	do
		connect_pair(environment, environment->near, listener, &peers[1], &far_peers[1]);
	while (far_peers[1]->home == far_peers[0]->home);
}

static void test_forgotten(void *argument)
{
	struct memory memory = { .allocator = { pl_system_allocator.allocate, pl_system_allocator.reallocate,
						memory_release, &memory } };
	struct pl_publisher_options publisher_options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_options options = setting_options(&threads);
	struct scenario_environment environment;
	struct pl_peer *peers[2], *far_peers[2];
	struct pl_publisher *publisher;
	struct pl_context *far;
	struct pl_error error;

	(void)argument;
	environment_open(&environment, &threads);
	options.allocator = &memory.allocator;
	far = context_open_with(&options);
	connect_two(&environment, far, peers, far_peers);
	publisher_options.slot_bytes = 1;
	publisher_options.subscribers = 200;
	check_ok(pl_publisher_open(far, "cam0", &publisher_options, &publisher, &error), &error);
	/* As many have ended as the publisher keeps, and the next end forgets the oldest of them. */
	for (uint32_t i = 0; i < PL_ENDED_MAX; i++)
		send_message(peers[1], PL_STREAM_SUBSCRIBE, 100 + i);
	await_subscribers(publisher, PL_ENDED_MAX);
	for (uint32_t i = 0; i < PL_ENDED_MAX; i++)
		send_message(peers[1], PL_STREAM_UNSUBSCRIBE, 100 + i);
	await_subscribers(publisher, 0);
	send_message(peers[0], PL_STREAM_SUBSCRIBE, 1);
	for (uint32_t i = 0; i < PL_ENDED_MAX; i++)
		send_message(peers[1], PL_STREAM_SUBSCRIBE, 200 + i);
	await_subscribers(publisher, 1 + PL_ENDED_MAX);
	pl_engine_lock(far_peers[0]->home);
	memory.spoiled = pl_subscription_find(far_peers[0], 1);
	check(memory.spoiled);
	pl_engine_unlock(far_peers[0]->home);
	pl_lock_take(&publisher->lock);
	memory.awaited = pl_list_first(&publisher->ended, struct pl_subscription, link);
	pl_lock_release(&publisher->lock);
	/* The first engine stands still within the end of its subscription, which the other engine forgets. */
	send_message(peers[0], PL_STREAM_UNSUBSCRIBE, 1);
	while (!atomic_load(&memory.waits))
		sleep_ms(1);
	for (uint32_t i = 0; i < PL_ENDED_MAX; i++)
		send_message(peers[1], PL_STREAM_UNSUBSCRIBE, 200 + i);
	while (!atomic_load(&memory.gone))
		sleep_ms(1);
	atomic_store(&memory.go_on, true);
	/* The first engine serves. */
	send_message(peers[0], PL_STREAM_SUBSCRIBE, 2);
	await_subscribers(publisher, 1);
	pl_close(far);
	free(memory.spoiled);
	environment_close(&environment);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "forgotten", test_forgotten, NULL, 30 },
	};

	return cases_run("stream-forgotten", cases, sizeof(cases) / sizeof(cases[0]));
}
