/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Detection of queue pairs that have work and make no progress.
 *
 * A device completes a request, or gives up after the connection's retries, within a few seconds. Some do neither:
 * soft-RoCE (Linux 6.1) at times never sends again after its link was down for a moment. Such a connection is broken
 * here and made again, with less under way in case it was only slow. Otherwise all its operations would time out,
 * although another rail, or the next connection, could do them.
 *
 * A message may also wait for a receiver without buffers, which is not the connection's fault. It gets more time,
 * unless another rail could carry it.
 */
#include "fabric/verbs/verbs.h"

/* Checks are counted, not time: after a stop of the program no progress is normal. */
#define SPELL (2 * PL_NS_PER_S)
#define PATIENCE 4
#define PATIENCE_MESSAGE 8
/* Requests of this size make progress between two checks on any working connection. */
#define CHUNK (512u << 10)

void verbs_watch_begin(struct verbs_rail *rail)
{
	rail->watch_done = rail->completed;
	rail->watch_looks = 0;
	pl_timer_set(rail->endpoint->base.peer->home, &rail->watch, pl_now() + SPELL);
}

/* Returns the checks that the queue pair has at this chunk size. A card with longer retries is not interrupted. */
static unsigned patience(const struct verbs_rail *rail)
{
	const struct verbs_work *oldest = pl_list_first(&rail->posted, struct verbs_work, link);
	bool waits = oldest->kind == VERBS_FRAME && verbs_rails_up(rail->endpoint) == 1;
	uint64_t retries = 4 * verbs_retry_time(&rail->endpoint->state->context->options) / SPELL + 1;

	return (unsigned)PL_MAX(retries, waits ? PATIENCE_MESSAGE : PATIENCE);
}

void verbs_watch_look(struct pl_timer *timer)
{
	struct verbs_rail *rail = pl_container_of(timer, struct verbs_rail, watch);

	/* The next request starts a new watch. */
	if (rail->link != VERBS_UP || pl_list_empty(&rail->posted))
		return;
	if (rail->completed != rail->watch_done) {
		verbs_watch_begin(rail);
		return;
	}
	if (++rail->watch_looks < patience(rail)) {
		pl_timer_set(rail->endpoint->base.peer->home, timer, pl_now() + SPELL);
		return;
	}
	rail->chunk = PL_MIN(rail->chunk, CHUNK);
	verbs_pace_broke(&rail->pace, pl_now());
	verbs_fail(rail, "the device completed no request in time");
}
