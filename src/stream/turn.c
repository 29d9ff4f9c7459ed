/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream/turn.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/bulk_sender.h"

/* Rounds without progress after which a waiter without threads sleeps. */
#define ROUNDS_BEFORE_SLEEP 2000

void pl_turn_next(struct pl_context *context, struct pl_turn *turn)
{
	atomic_fetch_add(&turn->number, 1);
	if (!atomic_load(&turn->sleepers))
		return;
	if (pl_context_manual(context))
		pl_engine_wake(context->engines[0]);
	else
		syscall(SYS_futex, &turn->number, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static bool turn_wait_by_progress(struct pl_context *context, struct pl_turn *turn, unsigned seen, uint64_t deadline)
{
	struct pl_engine *engine = context->engines[0];

	for (unsigned idle = 0; idle < ROUNDS_BEFORE_SLEEP; idle++) {
		if (pl_turn_read(turn) != seen)
			return true;
		/* Traffic of other peers is progress, too, and must not delay the end. */
		if (pl_context_progress(context))
			return pl_turn_read(turn) != seen || pl_now() < deadline;
		if (pl_now() >= deadline)
			return false;
	}
	atomic_fetch_add(&turn->sleepers, 1);
	for (unsigned engine_turn = atomic_load(&engine->turn); pl_turn_read(turn) == seen;
	     engine_turn = atomic_load(&engine->turn)) {
		if (pl_context_progress(context))
			break;
		if (pl_now() >= deadline)
			break;
		pl_engine_sleep(engine, engine_turn, deadline);
	}
	atomic_fetch_sub(&turn->sleepers, 1);
	return pl_turn_read(turn) != seen || pl_now() < deadline;
}

/* True if polling rests in one of the engines at least. A turn does not tell which one begins the next. */
static bool context_polling_rests(const struct pl_context *context, uint64_t now)
{
	for (unsigned i = 0; i < context->engine_count; i++)
		if (pl_pace_rests(&context->engines[i]->pace, now))
			return true;
	return false;
}

bool pl_turn_poll(struct pl_context *context, struct pl_turn *turn, unsigned seen, const uint64_t *word, uint64_t value,
		  uint64_t deadline)
{
	uint64_t most = context->options.poll_time, now, end;

	if (most == PL_NO_POLLING)
		return false;
	now = pl_now();
	if (context_polling_rests(context, now))
		return false;
	end = PL_MIN(now + most, deadline);
	do {
		for (unsigned i = 0; i < 16; i++) {
			if (pl_turn_read(turn) != seen || (word && __atomic_load_n(word, __ATOMIC_RELAXED) != value))
				return true;
			pl_relax();
		}
	} while (pl_now() < end);
	return false;
}

bool pl_turn_wait(struct pl_context *context, struct pl_turn *turn, unsigned seen, uint64_t deadline)
{
	bool changed;

	if (pl_context_manual(context))
		return turn_wait_by_progress(context, turn, seen, deadline);
	pl_bulk_sender_waits(context);
	if (pl_turn_poll(context, turn, seen, NULL, 0, deadline))
		return true;
	atomic_fetch_add(&turn->sleepers, 1);
	while (!(changed = pl_turn_read(turn) != seen)) {
		uint64_t now = pl_now();
		struct timespec timeout;

		if (now >= deadline)
			break;
		timeout.tv_sec = (time_t)((deadline - now) / PL_NS_PER_S);
		timeout.tv_nsec = (long)((deadline - now) % PL_NS_PER_S);
		syscall(SYS_futex, &turn->number, FUTEX_WAIT_PRIVATE, seen, deadline == UINT64_MAX ? NULL : &timeout,
			NULL, 0);
	}
	atomic_fetch_sub(&turn->sleepers, 1);
	return changed;
}
