/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a queue pair that has something to do does anything.
 *
 * A device completes what it is given or, after as many tries as the connection allows, gives it up: that is a matter
 * of a few seconds.  Some do neither: soft-RoCE (Linux 6.1) at times sends nothing ever again on a queue pair whose link
 * was down for a moment.  So a connection on which nothing is done for so long is broken from here, and made
 * again, with less under way in case it was merely slow.  Otherwise all of it would end by its time-outs, though
 * another rail, or the next connection, could do it.
 *
 * A message may also have to wait for a receiver that has no buffers, which is no fault of the connection's: it has more
 * time, unless there is another rail, by which it would go on.
 */
#include "fabric/verbs/verbs.h"

/* Looks, not time, so that a program that was stopped meanwhile does not find that nothing was done. */
#define SPELL (2 * PL_NS_PER_S)
#define PATIENCE 4
#define PATIENCE_MESSAGE 8
/* Then requests are so small that some are done between two looks, whatever made it slow. */
#define CHUNK (512u << 10)

void verbs_watch_begin(struct verbs_rail *rail)
{
	rail->watch_done = rail->completed;
	rail->watch_looks = 0;
	pl_timer_set(rail->endpoint->base.peer->home, &rail->watch, pl_now() + SPELL);
}

/* How many looks at this the queue pair has. */
static unsigned patience(const struct verbs_rail *rail)
{
	const struct verbs_work *oldest = pl_list_first(&rail->posted, struct verbs_work, link);

	return oldest->kind == VERBS_FRAME && verbs_rails_up(rail->endpoint) == 1 ? PATIENCE_MESSAGE : PATIENCE;
}

void verbs_watch_look(struct pl_timer *timer)
{
	struct verbs_rail *rail = pl_container_of(timer, struct verbs_rail, watch);

	/* The next request begins it anew. */
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
	verbs_fail(rail);
}
