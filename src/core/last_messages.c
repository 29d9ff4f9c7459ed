/* SPDX-License-Identifier: BSD-2-Clause */
/* The last messages of a peer that this end closes: sent before the close, for a limited time, or ended in their order. */
#include <time.h>

#include "control/socket_io.h"
#include "core/fastpath.h"
#include "core/operation_index.h"

/* Pauses between two looks at messages that wait: each is twice the last one. */
#define PAUSE_FIRST (20 * 1000ull)
#define PAUSE_LAST PL_NS_PER_MS

bool pl_operation_sends_message(const struct pl_operation *operation)
{
	/* Not by PL_NOTIFY, which the engine clears that sends the notification. */
	return !operation->internal && (pl_fast_is_message(operation) || operation->notifies);
}

static bool any_sends_message(struct pl_peer *peer)
{
	bool any = false;
	struct pl_list all;

	/* Only programs that have cancelled operations have some outside the list. */
	pl_list_init(&all);
	pl_operations_take(peer, &all);
	pl_list_splice(&peer->operations, &all);
	pl_list_for_each(at, &peer->operations) {
		const struct pl_operation *operation = pl_list_entry(at, struct pl_operation, peer_link);

		any = pl_operation_sends_message(operation) && !atomic_load(&operation->canceled);
		if (any)
			break;
	}
	return any;
}

/* Looks once. Returns true if nothing is left to send, or can be sent. Home. */
static bool has_sent_last(struct pl_peer *peer)
{
	pl_peer_sweep_before_end(peer);
	if (atomic_load(&peer->state) != PL_PEER_UP || peer->leaving || atomic_load(&peer->ending))
		return true;
	/* The fabric sends, also if it has ended no message yet. */
	if (peer->ops->send_last && !peer->ops->send_last(peer->endpoint))
		return false;
	if (any_sends_message(peer))
		return false;
	return !peer->sent_by_control ||
	       (pl_channel_unsent(&peer->channel) == 0 && pl_socket_unacknowledged(peer->channel.stream.fd) == 0);
}

void pl_peer_send_last(struct pl_peer *peer, uint64_t until)
{
	struct timespec pause = { .tv_nsec = PAUSE_FIRST };
	bool done = atomic_load(&peer->state) != PL_PEER_UP;

	while (!done) {
		pl_engine_lock(peer->home);
		done = has_sent_last(peer);
		pl_engine_unlock(peer->home);
		if (done || pl_now() >= until)
			break;
		/* The engines' threads go on meanwhile. Bytes of the other end may be on their way. */
		if (pl_context_manual(peer->context) && pl_context_progress(peer->context))
			continue;
		nanosleep(&pause, NULL);
		pause.tv_nsec = PL_MIN(2 * pause.tv_nsec, (long)PAUSE_LAST);
	}
}

void pl_peer_explain_unsent(struct pl_error *error)
{
	pl_fail(error, -ECANCELED, "PEER-CLOSING", "pl_peer_close", NULL,
		"have the other end receive all messages before this end closes the connection",
		"the connection was closed at this end, and the message could not be sent in time");
}

/*
 * True if home has a pending count of a message, so that no other engine ends the last one now. Others may serve the key of a large
 * message.
 */
static bool is_held_by_home(const struct pl_operation *operation)
{
	bool large = operation->completion.kind == PL_KIND_SEND && operation->total > operation->peer->eager_max;

	return pl_fast_is_message(operation) && atomic_load(&operation->pending) &&
	       (!large || !pl_list_empty(&operation->queue_link));
}

void pl_peer_hold_messages(struct pl_peer *peer)
{
	pl_list_for_each(at, &peer->operations) {
		struct pl_operation *operation = pl_list_entry(at, struct pl_operation, peer_link);

		if (!is_held_by_home(operation))
			continue;
		operation->held_at_end = true;
		atomic_fetch_add(&operation->pending, 1);
	}
}

void pl_peer_release_messages(struct pl_peer *peer)
{
	struct pl_operation *operation;
	struct pl_list all;

	pl_list_init(&all);
	pl_operations_take(peer, &all);
	while ((operation = pl_peer_operation_next(peer, &all))) {
		if (!operation->held_at_end)
			continue;
		operation->held_at_end = false;
		pl_operation_pending_done(operation);
	}
}
