/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limit of unsent answers to a peer. An answer waits until the peer posts a receive for it. A peer that asks and posts none would
 * fill the memory of this end.
 */
#include "fabric/verbs/verbs.h"

/* Questions between two counts of unsent answers, and fewest answers of a count that are too many. */
#define ANSWERS_MAX 65536u

static unsigned count_unsent_answers(const struct pl_list *list)
{
	unsigned count = 0;

	pl_list_for_each(at, list) {
		const struct verbs_work *work = pl_list_entry(at, struct verbs_work, link);

		count += work->kind == VERBS_FRAME &&
			 (work->frame.type == PL_FRAME_FENCED || work->frame.type == PL_FRAME_FLUSHED);
	}
	return count;
}

bool verbs_takes_question(struct verbs_endpoint *endpoint)
{
	if (++endpoint->asked < ANSWERS_MAX)
		return true;
	endpoint->asked = 0;
	return count_unsent_answers(&endpoint->waiting) + count_unsent_answers(&endpoint->again) < ANSWERS_MAX;
}
