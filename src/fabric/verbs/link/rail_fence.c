/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fence of a failed rail. Work that came back may be posted on another rail only when the peer's queue pair takes
 * nothing of that generation any more: a late packet could overwrite newer bytes. So this end asks the peer over a rail
 * that is up. The peer fails its queue pair if that is still alive, and answers. Repeated questions do no harm, so all
 * unanswered ones are sent again when a rail breaks or comes up.
 */
#include "fabric/verbs/verbs.h"

static struct pl_frame frame_of(enum pl_frame_type type, unsigned rail, uint16_t generation)
{
	return (struct pl_frame){ .type = (uint8_t)type, .cookie = rail, .offset = generation };
}

/* True if the queue pair was never made, is gone, or is in the error state and flushed. */
static bool quiet(const struct verbs_rail *rail)
{
	return rail->link == VERBS_DOWN || rail->link == VERBS_ASKING ||
	       (rail->link == VERBS_DRAINING && pl_list_empty(&rail->posted));
}

static void answer_fence(struct verbs_rail *rail, uint16_t generation)
{
	const struct pl_frame frame = frame_of(PL_FRAME_FENCED, rail->index, generation);

	verbs_message_first(rail->endpoint, &frame);
}

void verbs_fence_release(struct verbs_rail *rail)
{
	struct verbs_endpoint *endpoint = rail->endpoint;

	/* Before work of other rails: this rail may have older frames. */
	pl_list_splice(&rail->held, &endpoint->again);
	pl_list_splice(&endpoint->again, &rail->held);
	rail->frames = 0;
}

void verbs_fence_ask(struct verbs_endpoint *endpoint)
{
	if (!verbs_rails_up(endpoint))
		return;
	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];
		const struct pl_frame frame = frame_of(PL_FRAME_FENCE, i, rail->held_generation);

		if (!pl_list_empty(&rail->held) && quiet(rail))
			verbs_message_first(endpoint, &frame);
	}
}

void verbs_fence_quiet(struct verbs_rail *rail)
{
	if (rail->cut)
		answer_fence(rail, rail->generation);
	rail->cut = false;
	verbs_fence_ask(rail->endpoint);
	verbs_flush(rail->endpoint);
}

int verbs_fence_arrived(struct verbs_endpoint *endpoint, const struct pl_frame *frame)
{
	uint16_t generation = (uint16_t)frame->offset;
	struct verbs_rail *rail;

	if (frame->cookie >= endpoint->rail_count || frame->offset > UINT16_MAX ||
	    (frame->type == PL_FRAME_FENCE && !verbs_takes_question(endpoint)))
		return -EPROTO;
	rail = &endpoint->rails[frame->cookie];
	if (frame->type == PL_FRAME_FENCED) {
		if (quiet(rail) && generation == rail->held_generation)
			verbs_fence_release(rail);
	} else if (generation == rail->generation && !quiet(rail)) {
		rail->cut = true;
		verbs_fail_soon(rail);
	} else {
		answer_fence(rail, generation);
	}
	verbs_flush(endpoint);
	return 0;
}
