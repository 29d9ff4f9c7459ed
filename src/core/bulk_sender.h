/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads of the program that have sent bulk data over a socket themselves, or posted a large message, since they last had
 * nothing to collect. One operation at a time reaches its socket soonest in the posting thread. A thread with more work leaves
 * further bulk data, and its posts, to engines' threads: otherwise it alone would copy and post. A thread that publishes a frame
 * for a single subscriber has nothing to collect. Two threads may share a place: then both send more themselves.
 */
#ifndef PL_CORE_BULK_SENDER_H
#define PL_CORE_BULK_SENDER_H

#include "core/context.h"

/* Least bytes of an operation with bulk data. */
#define PL_BULK_FROM (16u << 10)

static inline atomic_ulong *pl_bulk_sender_place(struct pl_context *context)
{
	/* Threads lie a few MiB apart. */
	return &context->bulk_senders[(uint64_t)pl_thread_self() * 0x9e3779b97f4a7c15u >> 58].thread;
}

/* Added to a thread that has only posted large receives: its next message is sent as soon as that of another thread. */
#define PL_BULK_RECEIVER 1ul

static inline unsigned long pl_bulk_sender_look(struct pl_context *context)
{
	if (context->options.poll_time == PL_NO_POLLING)
		return 0;
	return atomic_load_explicit(pl_bulk_sender_place(context), memory_order_relaxed);
}

/* True if the calling thread has sent bulk data itself, and not waited since. Always false where engines do not poll. */
static inline bool pl_bulk_sender_is_occupied(struct pl_context *context)
{
	return pl_bulk_sender_look(context) == pl_thread_self();
}

/* True if the calling thread has sent bulk data, or posted a large receive, and not waited since. */
static inline bool pl_bulk_sender_receives(struct pl_context *context)
{
	return (pl_bulk_sender_look(context) & ~PL_BULK_RECEIVER) == pl_thread_self();
}

/* Notes that the calling thread sends bulk data itself. */
static inline void pl_bulk_sender_sends(struct pl_context *context)
{
	atomic_store_explicit(pl_bulk_sender_place(context), pl_thread_self(), memory_order_relaxed);
}

/* Notes that the calling thread, which has not sent any, posts a large receive. */
static inline void pl_bulk_sender_posts_receive(struct pl_context *context)
{
	atomic_store_explicit(pl_bulk_sender_place(context), pl_thread_self() | PL_BULK_RECEIVER, memory_order_relaxed);
}

/* Notes that the calling thread has nothing to collect. */
static inline void pl_bulk_sender_waits(struct pl_context *context)
{
	if (pl_bulk_sender_receives(context))
		atomic_store_explicit(pl_bulk_sender_place(context), 0, memory_order_relaxed);
}

_Static_assert(PL_BULK_SENDERS == 64, "the shift leaves six bits");

#endif
