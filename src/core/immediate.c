/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations that are done before the call returns, on the program's thread: where the fabric reaches the
 * peer's memory itself, posting one to an engine would cost more than doing it.
 */
#include "core/core.h"

/* Without threads nobody looks at the sockets if no operation ever waits; so once in so many. */
#define LOOK_EVERY 256

/* Nothing that came before has to be waited for, and nothing is to follow. */
static bool possible(const struct pl_operation *operation)
{
	return !(operation->attributes.flags & (PL_FENCE | PL_NOTIFY)) && atomic_load(&operation->peer->fences) == 0;
}

static void look_at_sockets(struct pl_peer *peer)
{
	if (pl_context_manual(peer->context) &&
	    atomic_fetch_add_explicit(&peer->immediate, 1, memory_order_relaxed) % LOOK_EVERY == LOOK_EVERY - 1)
		pl_context_progress(peer->context);
}

static void fill_receipt(struct pl_operation *operation)
{
	struct pl_receipt *receipt = &operation->receipt;

	receipt->completed = pl_now();
	receipt->bytes = receipt->bytes_direct = operation->total;
	if (operation->total) {
		receipt->streams = 1;
		receipt->route = PL_ROUTE_DIRECT;
		receipt->reason = operation->way;
		receipt->visible = operation->peer->ops->visible;
		receipt->visibility = operation->peer->ops->visibility;
	}
	if (operation->old)
		*operation->old = receipt->value;
	operation->segment_count = 0;
	atomic_store_explicit(&operation->pending, 0, memory_order_relaxed);
}

bool pl_immediate(struct pl_operation *operation, const struct pl_segment *segment, struct pl_operation **handle)
{
	struct pl_peer *peer = operation->peer;

	if (!possible(operation))
		return false;
	operation->single = *segment;
	operation->segment_count = 1;
	operation->total = segment->length;
	operation->receipt.posted = pl_now();
	if (!peer->ops->immediate(peer->endpoint, operation)) {
		operation->segment_count = 0;
		operation->total = 0;
		return false;
	}
	fill_receipt(operation);
	atomic_store(&operation->state, PL_DONE);
	if (handle)
		pl_operation_hold(operation, handle);
	else
		pl_completion_push(operation->context, operation);
	look_at_sockets(peer);
	return true;
}
