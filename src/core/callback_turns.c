/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/callback_turns.h"

#define NOBODY (-1)

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
	for (unsigned i = 1; turns->wanting && i <= PL_CALLBACK_QUEUES; i++) {
		unsigned index = (turns->last + i) % PL_CALLBACK_QUEUES;

		if (!(turns->wanting & 1ull << index))
			continue;
		turns->wanting &= ~(1ull << index);
		return (int)index;
	}
	return NOBODY;
}

/* Tells an engine that it has the next turn. Only its own threads run callbacks: the caller may hold another engine's lock. */
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
	mine = !turns->taken && (turns->next == NOBODY || turns->next == (int)index);
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
		turns->next = next = pick_next(turns);
	pthread_mutex_unlock(&turns->lock);
	call_next(turns, next);
}

static void run_waiting(struct pl_task *task)
{
	struct pl_callback_queue *queue = pl_container_of(task, struct pl_callback_queue, task);

	while (!pl_list_empty(&queue->waiting)) {
		struct pl_callback_wait *wait = first_waiting(queue);

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

bool pl_callback_turn_begin(struct pl_callback_queue *queue, struct pl_callback_wait *wait)
{
	const bool first = queue->running == wait;

	if ((first || pl_list_empty(&queue->waiting)) && try_turn(queue))
		return true;
	if (first)
		pl_list_prepend(&queue->waiting, &wait->link);
	else
		pl_list_append(&queue->waiting, &wait->link);
	return false;
}

void pl_callback_turn_leave(struct pl_callback_wait *wait)
{
	pl_list_remove(&wait->link);
}

void pl_callback_turn_take(struct pl_callback_turns *turns)
{
	pthread_mutex_lock(&turns->lock);
	while (turns->taken)
		pthread_cond_wait(&turns->ended, &turns->lock);
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
	turns->next = next = pick_next(turns);
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
	pl_task_init(&queue->task, run_waiting);
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
