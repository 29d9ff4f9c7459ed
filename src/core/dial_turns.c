/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/dial_turns.h"

#include "core/fabric.h"

/* Most turns of an engine at a time. */
#define TURNS 64
/* Longest turn. A peer goes on connecting after it, so that hosts that do not answer hold nobody up. */
#define TURN_TIME (500 * PL_NS_PER_MS)

static struct pl_dial_turns *turns_of(const struct pl_peer *peer)
{
	return &peer->context->dial_turns[pl_context_engine_index(peer->context, peer->home)];
}

static struct pl_peer *first_of(const struct pl_list *list)
{
	return pl_list_first(list, struct pl_peer, turn_link);
}

/* The timer is that of the oldest turn. */
static void set_timer(struct pl_dial_turns *turns)
{
	if (pl_list_empty(&turns->running))
		pl_timer_clear(turns->engine, &turns->timer);
	else
		pl_timer_set(turns->engine, &turns->timer, first_of(&turns->running)->turn_end);
}

static void begin_turn(struct pl_dial_turns *turns, struct pl_peer *peer)
{
	peer->turn_end = pl_now() + TURN_TIME;
	pl_list_append(&turns->running, &peer->turn_link);
	if (turns->count++ == 0)
		set_timer(turns);
	pl_peer_dial(peer);
}

static void begin_turns(struct pl_task *task)
{
	struct pl_dial_turns *turns = pl_container_of(task, struct pl_dial_turns, task);

	while (turns->count < TURNS && !pl_list_empty(&turns->waiting)) {
		struct pl_peer *peer = first_of(&turns->waiting);

		pl_list_remove(&peer->turn_link);
		begin_turn(turns, peer);
	}
}

static void expire_turn(struct pl_timer *timer)
{
	struct pl_dial_turns *turns = pl_container_of(timer, struct pl_dial_turns, timer);
	const uint64_t now = pl_now();

	while (!pl_list_empty(&turns->running) && first_of(&turns->running)->turn_end <= now)
		pl_dial_turn_over(first_of(&turns->running));
}

void pl_dial_turns_init(struct pl_dial_turns *turns, struct pl_engine *engine)
{
	turns->engine = engine;
	pl_list_init(&turns->running);
	pl_list_init(&turns->waiting);
	pl_task_init(&turns->task, begin_turns);
	pl_timer_init(&turns->timer, expire_turn);
}

void pl_dial_in_turn(struct pl_peer *peer)
{
	struct pl_dial_turns *turns = turns_of(peer);

	if (turns->count < TURNS)
		begin_turn(turns, peer);
	else
		pl_list_append(&turns->waiting, &peer->turn_link);
}

void pl_dial_turn_over(struct pl_peer *peer)
{
	struct pl_dial_turns *turns;

	if (pl_list_empty(&peer->turn_link))
		return;
	turns = turns_of(peer);
	pl_list_remove(&peer->turn_link);
	if (peer->turn_end) {
		peer->turn_end = 0;
		turns->count--;
		set_timer(turns);
	}
	if (pl_list_empty(&turns->waiting))
		pl_engine_withdraw(turns->engine, &turns->task);
	else if (turns->count < TURNS)
		pl_engine_post(turns->engine, &turns->task);
}
