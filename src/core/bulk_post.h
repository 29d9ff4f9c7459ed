/* SPDX-License-Identifier: BSD-2-Clause */
/* Posts of bulk data, and of large messages and receives, that a thread of the program leaves to the peer's home engine. */
#ifndef PL_CORE_BULK_POST_H
#define PL_CORE_BULK_POST_H

#include "core/bulk_sender.h"
#include "core/fabric.h"

/*
 * True if the calling thread leaves the post of an operation to the thread of the peer's home engine. A thread that posts much
 * bulk data to many peers, or many large messages, would be the limit. It posts the first large message and the first large
 * receive after a wait itself, so one message at a time needs no other thread. A sleeping thread would take longer to wake up.
 */
static inline bool pl_bulk_post_is_left(struct pl_peer *peer, enum pl_kind kind)
{
	if (!peer->ops->posts_bulk_at_home || !peer->home->poll_time || pl_engine_asleep(peer->home))
		return false;
	if (kind == PL_KIND_RECEIVE ? pl_bulk_sender_receives(peer->context)
				    : pl_bulk_sender_is_occupied(peer->context))
		return true;
	if (kind == PL_KIND_RECEIVE)
		pl_bulk_sender_posts_receive(peer->context);
	else if (kind == PL_KIND_SEND)
		pl_bulk_sender_sends(peer->context);
	return false;
}

PL_ALWAYS_INLINE bool pl_bulk_post_leaves(struct pl_peer *peer, enum pl_kind kind, uint64_t length)
{
	return length >= PL_BULK_FROM && pl_bulk_post_is_left(peer, kind);
}

/* Posts the operation to its home, whose thread runs it if this thread leaves it. */
static inline void pl_bulk_post_submit(struct pl_operation *operation, void (*run)(struct pl_task *),
				       struct pl_operation **handle)
{
	if (pl_bulk_post_leaves(operation->peer, operation->completion.kind, operation->total))
		pl_operation_leave(operation, run, handle);
	else
		pl_operation_submit(operation, run, handle);
}

#endif
