/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/leader.h"

#include <poll.h>

#include "core/fabric.h"
#include "support/pair.h"

#define LENGTH 64u
/* Message that the progressing thread takes, and the leader's. */
#define TAG 5u
#define LEADER_TAG 6u

/*
 * Does what a waiting thread does before it sleeps: sleep_on_epoll(). The thread itself would race with the test for the events
 * of the descriptor.
 */
static void leader_begin_sleep(struct pl_engine *engine)
{
	check(!atomic_exchange(&engine->led, true));
	pl_engine_lock(engine);
	pl_engine_cool_all(engine);
	pl_engine_unlock(engine);
}

static struct pl_operation *leader_receive(struct pair *pair, uint64_t tag)
{
	const struct pl_buffer to = { pair->far.region, 0, LENGTH };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_receive(pair->environment.far_peer, tag, UINT64_MAX, &to, NULL, &operation, &error), &error);
	return operation;
}

static struct pl_operation *leader_send(struct pair *pair, uint64_t tag)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send_copy(pair->environment.near_peer, tag, "12345678", 8, NULL, &operation, &error), &error);
	return operation;
}

/* The leader wakes up. */
static void leader_end_sleep(struct pair *pair, struct pl_operation *sent, struct pl_operation *received)
{
	atomic_store(&pair->environment.far_peer->home->led, false);
	complete(&pair->environment, received, NULL);
	complete(&pair->environment, sent, NULL);
}

void leader_acknowledges(void *argument)
{
	struct pl_operation *received, *written;
	struct pl_engine *near, *far;
	volatile uint64_t *word;
	struct pl_error error;
	struct pair pair;

	pair_open(&pair, argument, LENGTH);
	near = pair.environment.near_peer->home;
	far = pair.environment.far_peer->home;
	received = leader_receive(&pair, LEADER_TAG);
	word = (volatile uint64_t *)pair.far.bytes;
	*word = 0;
	memcpy(pair.near.bytes, "12345678", 8);
	leader_begin_sleep(far);
	check_ok(pl_write(pair.environment.near_peer,
			  &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, sizeof(*word) }, NULL, &written,
			  &error),
		 &error);
	/* The thread polls for the bytes, and stops then. */
	while (!*word) {
		pl_engine_progress(near);
		pl_engine_progress(far);
	}
	check_ok(pl_wait(written, AMPLE_TIME, NULL, &error), &error);
	leader_end_sleep(&pair, leader_send(&pair, LEADER_TAG), received);
	pair_close(&pair);
}

void leader_is_woken(void *argument)
{
	struct pl_operation *received, *other, *sent, *sent_other;
	struct pl_engine *near, *far;
	struct pollfd sleeper;
	struct pair pair;
	uint64_t end;

	pair_open(&pair, argument, LENGTH);
	near = pair.environment.near_peer->home;
	far = pair.environment.far_peer->home;
	received = leader_receive(&pair, LEADER_TAG);
	other = leader_receive(&pair, TAG);
	leader_begin_sleep(far);
	sent_other = leader_send(&pair, TAG);
	while (atomic_load(&other->state) != PL_DONE) {
		pl_engine_progress(near);
		pl_engine_progress(far);
	}
	sent = leader_send(&pair, LEADER_TAG);
	sleeper = (struct pollfd){ .fd = far->epoll_fd, .events = POLLIN };
	end = clock_now() + AMPLE_TIME;
	while (poll(&sleeper, 1, 1) == 0) {
		check(clock_now() < end);
		pl_engine_progress(near);
	}
	leader_end_sleep(&pair, sent, received);
	complete(&pair.environment, other, NULL);
	complete(&pair.environment, sent_other, NULL);
	pair_close(&pair);
}
