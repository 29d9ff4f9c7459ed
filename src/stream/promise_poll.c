/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Engine that polls while a CUDA stream waits for a frame. A thread that sleeps takes longer to wake up than a small frame
 * takes to its GPU.
 *
 * The engine reads the cursors in memory of the publisher that this process maps, so that a frame is found before its
 * announcement has come. Over other fabrics the engine only stays awake. It sleeps if no frame comes for a while, and polls
 * again once a stream has waited for less than that.
 */
#include "stream/subscriber.h"

/* Time that the engine polls for, unless the context's threads poll for longer. */
#define POLL_LEAST PL_NS_PER_MS

/* Returns the time that the engine polls for a frame; 0: it sleeps at once. */
static uint64_t promise_poll_time(const struct pl_context *context)
{
	if (pl_context_manual(context) || context->options.poll_time == PL_NO_POLLING)
		return 0;
	return PL_MAX(context->options.poll_time, POLL_LEAST);
}

/* True if a stream waits for a frame that may come. subscriber->lock is held. */
static bool stream_waits(const struct pl_subscriber *subscriber)
{
	return !pl_list_empty(&subscriber->promises) && subscriber->phase == PL_SUBSCRIBER_LIVE;
}

static bool poll_for_promises(struct pl_watch *watch)
{
	struct pl_subscriber *subscriber = pl_container_of(watch, struct pl_subscriber, promise_watch);
	bool waits, over = pl_now() >= subscriber->promise_poll_end;
	/* The last look is later than the end. */
	bool news = pl_checks_look(subscriber);

	if (news)
		pl_subscriber_pump(subscriber);
	pl_lock_take(&subscriber->lock);
	waits = stream_waits(subscriber);
	over = over && !news;
	subscriber->promises_take_long |= waits && over;
	pl_lock_release(&subscriber->lock);
	if (!waits || over)
		pl_watch_remove(watch);
	return news;
}

void pl_promises_poll_init(struct pl_subscriber *subscriber)
{
	pl_watch_init(&subscriber->promise_watch, poll_for_promises);
}

void pl_promises_poll(struct pl_subscriber *subscriber)
{
	uint64_t time = promise_poll_time(subscriber->context);
	struct pl_copier *copier;
	struct pl_engine *engine;
	bool waits;

	pl_lock_take(&subscriber->lock);
	engine = subscriber->engine;
	waits = stream_waits(subscriber) && !subscriber->promises_take_long;
	pl_lock_release(&subscriber->lock);
	copier = time && waits ? pl_context_copier(subscriber->context, engine) : NULL;
	if (!copier)
		return;
	subscriber->promise_poll_end = pl_now() + time;
	pl_watch_add(copier, &subscriber->promise_watch);
}

void pl_promise_kept(struct pl_subscriber *subscriber, const struct pl_stream_frame *frame)
{
	if (subscriber->promises_take_long)
		subscriber->promises_take_long = pl_now() - frame->promised_at >= promise_poll_time(subscriber->context);
}
