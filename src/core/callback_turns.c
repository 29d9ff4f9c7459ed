/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/callback_turns.h"

#define NOBODY (-1)
/* Most handshakes that go on under one hold of the engine's lock. */
#define AT_ONCE 4

static struct pl_callback_wait *first_waiting(const struct pl_callback_queue *queue)
{
	return pl_list_first(&queue->waiting, struct pl_callback_wait, link);
}

static unsigned index_of_queue(const struct pl_callback_queue *queue)
{
	return (unsigned)(queue - queue->turns->queues);
}

/* Picks the engine that has the next turn: engines that want one get it in a circle. Under the lock. */
static int pick_next(struct pl_callback_turns *turns)
{
	for (unsigned i = 1; turns->wanting && i <= PL_ENGINES_MAX; i++) {
		unsigned index = (turns->last + i) % PL_ENGINES_MAX;

		if (!(turns->wanting & 1ull << index))
			continue;
		turns->wanting &= ~(1ull << index);
		return (int)index;
	}
	return NOBODY;
}

/* A turn that ended, or is not needed: the engine that has the next one. None if a reload waits. Under the lock. */
static int hand_turn_on(struct pl_callback_turns *turns)
{
	turns->next = turns->awaited ? NOBODY : pick_next(turns);
	return turns->next;
}

/* Tells an engine that it has the next turn. Only its own thread runs callbacks: the caller may hold another engine's lock. */
static void call_next(struct pl_callback_turns *turns, int next)
{
	if (next != NOBODY)
		pl_engine_hand_over(turns->queues[next].engine, &turns->queues[next].task);
}

static bool try_turn(struct pl_callback_queue *queue)
{
	struct pl_callback_turns *turns = queue->turns;
	const unsigned index = index_of_queue(queue);
	bool mine;

	pthread_mutex_lock(&turns->lock);
	mine = !turns->taken && !turns->awaited && (turns->next == NOBODY || turns->next == (int)index);
	if (mine) {
		turns->taken = true;
		turns->next = NOBODY;
		turns->last = index;
	} else {
		turns->wanting |= 1ull << index;
	}
	pthread_mutex_unlock(&turns->lock);
	return mine;
}

/* Passes on a turn that this engine does not need any more. */
static void pass_turn(struct pl_callback_queue *queue)
{
	struct pl_callback_turns *turns = queue->turns;
	int next = NOBODY;

	pthread_mutex_lock(&turns->lock);
	if (!turns->taken && turns->next == (int)index_of_queue(queue))
		next = hand_turn_on(turns);
	pthread_mutex_unlock(&turns->lock);
	call_next(turns, next);
}

/* False on a thread of the program that holds the lock of an engine with its own thread: it may hold locks that callbacks take. */
static bool may_call(const struct pl_callback_queue *queue)
{
	const struct pl_engine *engine = queue->engine;

	return !engine->threaded || pthread_equal(engine->thread, pthread_self());
}

/* The engine's own thread goes on soon. The engine keeps the next turn, if it has it. */
static void run_later(struct pl_callback_queue *queue)
{
	if (pl_list_empty(&queue->timer.link))
		pl_timer_set(queue->engine, &queue->timer, pl_now());
}

static void run_waiting(struct pl_callback_queue *queue)
{
	for (unsigned i = 0; !pl_list_empty(&queue->waiting); i++) {
		struct pl_callback_wait *wait = first_waiting(queue);

		if (i == AT_ONCE || !may_call(queue)) {
			run_later(queue);
			return;
		}
		pl_list_remove(&wait->link);
		queue->running = wait;
		wait->run(wait); /* may free it */
		queue->running = NULL;
		/* Another engine has the turn: this one is called again. */
		if (!pl_list_empty(&queue->waiting) && first_waiting(queue) == wait)
			return;
	}
	pass_turn(queue);
}

static void turn_came(struct pl_task *task)
{
	run_waiting(pl_container_of(task, struct pl_callback_queue, task));
}

static void time_came(struct pl_timer *timer)
{
	run_waiting(pl_container_of(timer, struct pl_callback_queue, timer));
}

bool pl_callback_turn_begin(struct pl_callback_queue *queue, struct pl_callback_wait *wait)
{
	const bool first = queue->running == wait;
	const bool may = may_call(queue);

	if (may && (first || pl_list_empty(&queue->waiting)) && try_turn(queue))
		return true;
	if (first)
		pl_list_prepend(&queue->waiting, &wait->link);
	else
		pl_list_append(&queue->waiting, &wait->link);
	if (!may)
		run_later(queue);
	return false;
}

void pl_callback_turn_leave(struct pl_callback_wait *wait)
{
	pl_list_remove(&wait->link);
}

void pl_callback_turn_take(struct pl_callback_turns *turns)
{
	pthread_mutex_lock(&turns->lock);
	turns->awaited++;
	while (turns->taken)
		pthread_cond_wait(&turns->ended, &turns->lock);
	turns->awaited--;
	turns->taken = true;
	/* The engine that had the next turn gets one after this. */
	if (turns->next != NOBODY)
		turns->wanting |= 1ull << turns->next;
	turns->next = NOBODY;
	pthread_mutex_unlock(&turns->lock);
}

void pl_callback_turn_end(struct pl_callback_turns *turns)
{
	int next;

	pthread_mutex_lock(&turns->lock);
	turns->taken = false;
	next = hand_turn_on(turns);
	pthread_cond_signal(&turns->ended);
	pthread_mutex_unlock(&turns->lock);
	call_next(turns, next);
}

void pl_callback_queue_init(struct pl_callback_turns *turns, unsigned index, struct pl_engine *engine)
{
	struct pl_callback_queue *queue = &turns->queues[index];

	queue->turns = turns;
	queue->engine = engine;
	pl_list_init(&queue->waiting);
	pl_task_init(&queue->task, turn_came);
	pl_timer_init(&queue->timer, time_came);
}

void pl_callback_turns_open(struct pl_callback_turns *turns)
{
	pthread_mutex_init(&turns->lock, NULL);
	pthread_cond_init(&turns->ended, NULL);
	turns->next = NOBODY;
}

void pl_callback_turns_close(struct pl_callback_turns *turns)
{
	pthread_mutex_destroy(&turns->lock);
	pthread_cond_destroy(&turns->ended);
}
