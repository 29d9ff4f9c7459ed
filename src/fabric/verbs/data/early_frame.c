/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbered frames that overtook others. The sender has its numbered frames on one rail, in order, until that connection
 * fails. Then it sends the unfinished ones, and those after them, on another rail. So a frame of the new rail may be
 * polled before the last ones of the old rail, and waits for them here.
 *
 * A missing frame is no longer on its way: this end's card acknowledged it, or the sender would send it before the
 * others. Its completion is in a queue of this end, however slow the network is. If looks at all queues do not find it,
 * the card has lost it for good. The sender has given the frame up at the acknowledgement, so nobody can send it again,
 * and the peer is lost. With one rail there is nothing to wait for.
 */
#include "fabric/verbs/verbs.h"

/* Looks are counted, not time: after a stop of the program, the completion may be there and not polled yet. */
#define LOOKS 4
#define PAUSE (250 * PL_NS_PER_MS)

#define HINT \
	"connect again; if this happens often, see the kernel log of this host, and look for newer firmware of its RDMA " \
	"cards"

void verbs_frame_lost(struct verbs_endpoint *endpoint)
{
	struct pl_error error;

	pl_fail(&error, -EPROTO, "RDMA-MESSAGE-LOST", "receive", NULL, HINT,
		"frame %u did not come, but later ones did: a card of this host lost its completion, or the peer left it out",
		endpoint->received + 1);
	pl_peer_lose(endpoint->base.peer, &error);
}

/* Begins the looks for the first missing frame. */
static void look_anew(struct verbs_endpoint *endpoint)
{
	endpoint->gap.received = endpoint->received;
	endpoint->gap.looks = 0;
	pl_timer_set(endpoint->base.peer->home, &endpoint->gap.timer, pl_now() + PAUSE);
}

/*
 * Takes what the queues of all rails have now. Other peers may refill a queue as fast as it is polled, so the look at a queue
 * ends at the latest when it has yielded as many completions as it holds: then each one that was in it has been taken. The
 * queues are polled in turn, a batch each. One queue alone could yield so many frames that the short numbers of notifications
 * become ambiguous.
 */
static void poll_all_rails(struct verbs_endpoint *endpoint)
{
	unsigned left[VERBS_RAILS] = { 0 };
	bool any = true;

	for (unsigned i = 0; i < endpoint->rail_count; i++)
		left[i] = endpoint->rails[i].queue ? (unsigned)endpoint->rails[i].queue->cq->cqe : 0;
	while (any && !pl_list_empty(&endpoint->early)) {
		any = false;
		for (unsigned i = 0; i < endpoint->rail_count; i++) {
			struct verbs_cq *queue = endpoint->rails[i].queue;
			unsigned taken = left[i] && queue ? verbs_cq_poll(queue) : 0;

			left[i] = taken < left[i] && taken ? left[i] - taken : 0;
			any |= left[i];
		}
	}
}

void verbs_gap_look(struct pl_timer *timer)
{
	struct verbs_endpoint *endpoint = pl_container_of(timer, struct verbs_endpoint, gap.timer);

	poll_all_rails(endpoint);
	if (pl_list_empty(&endpoint->early) || verbs_finished(endpoint))
		return;
	/* The frame came; another one is missing now. */
	if (endpoint->received != endpoint->gap.received)
		look_anew(endpoint);
	else if (++endpoint->gap.looks < LOOKS)
		pl_timer_set(endpoint->base.peer->home, timer, pl_now() + PAUSE);
	else
		verbs_frame_lost(endpoint);
}

int verbs_early_keep(struct verbs_endpoint *endpoint, const struct pl_frame *frame, const uint8_t *payload)
{
	const struct pl_allocator *allocator = &endpoint->state->context->allocator;
	size_t length = pl_frame_payload(frame);
	struct verbs_early *early;

	if (endpoint->rail_count < 2 || endpoint->early_count == VERBS_EARLY)
		return -EBADMSG;
	early = pl_alloc(allocator, sizeof(*early) + length);
	if (!early)
		return -ENOMEM;
	early->frame = *frame;
	if (length)
		memcpy(early->payload, payload, length);
	pl_list_append(&endpoint->early, &early->link);
	endpoint->early_count++;
	if (pl_list_empty(&endpoint->gap.timer.link))
		look_anew(endpoint);
	return 0;
}

struct verbs_early *verbs_early_take(struct verbs_endpoint *endpoint)
{
	pl_list_for_each(at, &endpoint->early) {
		struct verbs_early *early = pl_list_entry(at, struct verbs_early, link);

		if ((int32_t)(early->frame.ack - endpoint->received) > 1)
			continue;
		pl_list_remove(at);
		endpoint->early_count--;
		return early;
	}
	return NULL;
}

void verbs_early_forget(struct verbs_endpoint *endpoint)
{
	pl_timer_clear(endpoint->base.peer->home, &endpoint->gap.timer);
	while (!pl_list_empty(&endpoint->early)) {
		struct verbs_early *early = pl_list_first(&endpoint->early, struct verbs_early, link);

		pl_list_remove(&early->link);
		pl_free(&endpoint->state->context->allocator, early);
	}
}
