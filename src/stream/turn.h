/* SPDX-License-Identifier: BSD-2-Clause */
/* Sleep of threads that wait for a change of a publisher or subscriber. */
#ifndef PL_STREAM_TURN_H
#define PL_STREAM_TURN_H

#include "core/context.h"

struct pl_turn {
	atomic_uint number;   /* each change adds 1 */
	atomic_uint sleepers; /* threads that sleep, or are about to */
};

/* Begins a new turn, and wakes all sleepers. Any thread, any locks. */
void pl_turn_next(struct pl_context *context, struct pl_turn *turn);

/*
 * Waits for a turn after `seen`, which the caller read before it looked for what it waits for. Makes progress in
 * contexts without threads, and may return early there. Returns false at the deadline (time of pl_now()).
 */
bool pl_turn_wait(struct pl_context *context, struct pl_turn *turn, unsigned seen, uint64_t deadline);

/*
 * Polls for the context's time, so that a change meanwhile costs neither thread a system call. Also ends if `word`, unless it
 * is NULL, no longer has this value. Returns false if nothing changed. Not with PL_PROGRESS_MANUAL.
 */
bool pl_turn_poll(struct pl_context *context, struct pl_turn *turn, unsigned seen, const uint64_t *word, uint64_t value,
		  uint64_t deadline);

static inline unsigned pl_turn_read(struct pl_turn *turn)
{
	return atomic_load(&turn->number);
}

#endif
