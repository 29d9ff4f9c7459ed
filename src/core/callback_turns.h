/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Turns of the program's callbacks `authorize` and `refused`: one call at a time in a context. An engine that finds the turn
 * taken queues the handshake and goes on with other work, so that a slow callback holds up the connections of its own engine only.
 * Handshakes of an engine get the turn in their order, and engines one after the other. An engine with a thread makes the calls
 * on that thread only, since a thread of the program that holds its lock may hold locks which the callback takes.
 */
#ifndef PL_CORE_CALLBACK_TURNS_H
#define PL_CORE_CALLBACK_TURNS_H

#include <pthread.h>

#include "engine/engine.h"

/* Handshake that may wait for the turn. Embedded in its owner. */
struct pl_callback_wait {
	struct pl_list link;
	/* Tries again. Called by a task or a timer, under the engine's lock. */
	void (*run)(struct pl_callback_wait *wait);
};

/* Handshakes of one engine that wait; its lock protects them. */
struct pl_callback_queue {
	struct pl_callback_turns *turns;
	struct pl_engine *engine;
	struct pl_list waiting;
	struct pl_callback_wait *running; /* tries again now; NULL: none */
	struct pl_task task;              /* the engine may have the turn */
	struct pl_timer timer;            /* the engine's own thread goes on */
};

struct pl_callback_turns {
	pthread_mutex_t lock; /* protects the members below; comes after an engine's lock */
	pthread_cond_t ended; /* a turn ended */
	bool taken;
	unsigned awaited; /* threads in pl_callback_turn_take(): engines leave them the turn */
	int next;         /* index of the engine that has the next turn; -1: the first one that comes */
	unsigned last;    /* index of the engine that had the last turn */
	uint64_t wanting; /* bits of the engines whose queues wait */
	struct pl_callback_queue queues[PL_ENGINES_MAX]; /* of each engine */
};

void pl_callback_turns_open(struct pl_callback_turns *turns);
void pl_callback_queue_init(struct pl_callback_turns *turns, unsigned index, struct pl_engine *engine);
void pl_callback_turns_close(struct pl_callback_turns *turns);

static inline void pl_callback_wait_init(struct pl_callback_wait *wait, void (*run)(struct pl_callback_wait *))
{
	pl_list_init(&wait->link);
	wait->run = run;
}

/*
 * Takes the turn if it is free, and the calling thread may make the call. Otherwise queues `wait`, whose run() is called later
 * and begins again. The queue's engine is locked, and the caller ends the turn before it unlocks.
 */
bool pl_callback_turn_begin(struct pl_callback_queue *queue, struct pl_callback_wait *wait);
/* Takes `wait` out of its queue, if it is in one. The queue's engine is locked. */
void pl_callback_turn_leave(struct pl_callback_wait *wait);
/* Waits for the turn, before engines that wait for it. No engine's lock is held; the caller may then lock engines. */
void pl_callback_turn_take(struct pl_callback_turns *turns);
/* Ends a turn that either function above gave. */
void pl_callback_turn_end(struct pl_callback_turns *turns);

#endif
