/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Announcements: hints from a publisher to its subscribers. The ring has the truth, so an announcement that is left out
 * costs a read of descriptors at the subscriber, and no frame.
 */
#include "core/bulk_sender.h"
#include "stream/publisher.h"

/* Unsent bytes of a control channel from which on it gets no announcements. */
#define CHANNEL_FULL (32u << 10)
/* Time after which an announcer tells what it has not told: the channel was full, or the subscriber had enough to read. */
#define ANNOUNCE_PAUSE (5 * PL_NS_PER_MS)
/* Time after which a pass that an engine has not begun keeps no other engine from one. */
#define HANDED_TIME PL_NS_PER_MS

/* True if one end waits for the message, perhaps without limit of time, and no later message replaces it. */
static bool message_is_awaited(const struct pl_stream_message *message)
{
	switch (message->type) {
	case PL_STREAM_LIST:
	case PL_STREAM_LISTED:
	case PL_STREAM_SUBSCRIBE:
	case PL_STREAM_SUBSCRIBED:
	case PL_STREAM_UNSUBSCRIBE:
	case PL_STREAM_TAKEN:
	case PL_STREAM_CLOSED:
		return true;
	default:
		return false;
	}
}

int pl_stream_send(struct pl_peer *peer, const struct pl_stream_message *message)
{
	uint8_t body[PL_FRAME_SMALL_MAX];
	struct pl_control control = { .type = PL_CONTROL_STREAM };
	int length = pl_stream_message_encode(message, body, sizeof(body));

	if (length < 0)
		return length;
	control.message.payload = body;
	control.message.length = (uint16_t)length;
	return message_is_awaited(message) ? pl_channel_send_awaited(&peer->channel, &control)
					   : pl_channel_send(&peer->channel, &control);
}

void pl_stream_send_closed(struct pl_peer *peer, uint32_t number, enum pl_closed_reason reason)
{
	const struct pl_stream_message closed = { .type = PL_STREAM_CLOSED, .number = number, .closed = reason };

	pl_stream_send(peer, &closed);
}

/*
 * Copies the descriptors and metadata of the newest frames that the subscription does not know, as far as they fit. The
 * oldest comes first. publisher->lock is held.
 */
static void collect_descriptors(const struct pl_subscription *subscription, struct pl_stream_message *message,
				uint8_t *buffer)
{
	const struct pl_publisher *publisher = subscription->publisher;
	const struct pl_ring_geometry *geometry = &publisher->header.geometry;
	uint64_t least = PL_MAX(subscription->told, pl_publisher_oldest(publisher));
	uint64_t first = publisher->published;
	size_t length = 0;

	while (first > least) {
		const uint8_t *at = publisher->ring.control + pl_ring_descriptor_offset(geometry, first - 1);
		size_t bytes = pl_stream_frame_bytes(at, geometry->descriptor_stride);

		if (bytes == 0 || length + bytes > PL_STREAM_ANNOUNCE_MAX)
			break;
		length += bytes;
		first--;
	}
	message->announce.count = (uint32_t)(publisher->published - first);
	message->announce.frames = buffer;
	message->announce.frames_length = length;
	for (uint64_t sequence = first; sequence < publisher->published; sequence++) {
		const uint8_t *at = publisher->ring.control + pl_ring_descriptor_offset(geometry, sequence);
		size_t bytes = pl_stream_frame_bytes(at, geometry->descriptor_stride);

		memcpy(buffer, at, bytes);
		buffer += bytes;
	}
}

/* True if the subscriber must answer before it is told of more frames. */
static bool subscription_limited(const struct pl_subscription *subscription)
{
	return subscription->sent - subscription->answered >= PL_UNANSWERED_MAX;
}

/* Returns the number of frames that are enough to read: half a ring. */
static unsigned enough_frames(const struct pl_publisher *publisher)
{
	return PL_MAX(publisher->header.geometry.slots / 2, 2u);
}

/*
 * True if the next announcement asks for reports at once: a loan waits, or half a ring is on loan or not reported. publisher->lock is
 * held. Home.
 */
static bool subscription_asks(const struct pl_subscription *subscription)
{
	const struct pl_publisher *publisher = subscription->publisher;

	return subscription->awaited ||
	       (pl_subscription_must_ask(subscription) &&
		(publisher->blocked_since || publisher->claimed >= subscription->taken + enough_frames(publisher)));
}

static void announce_later(const struct pl_subscription *subscription)
{
	struct pl_announcer *announcer = pl_announcer_of(subscription->publisher, subscription->peer->home);

	if (pl_list_empty(&announcer->timer.link))
		pl_timer_set(announcer->engine, &announcer->timer, pl_now() + ANNOUNCE_PAUSE);
}

/*
 * True if the subscriber can read without news: it knows half a ring of frames that it has not reported. Its next reports bring the
 * announcement, which tells of all frames since; ANNOUNCE_PAUSE does if there is no report. An announcement does not wait
 * - if a loan does: a subscriber far away must know the whole ring;
 * - for frames in place: a program may release them only after it has got others;
 * - if the descriptors of one frame more might not fit.
 * publisher->lock is held. Home.
 */
static bool subscription_is_busy(const struct pl_subscription *subscription)
{
	const struct pl_publisher *publisher = subscription->publisher;
	uint64_t waiting = publisher->published - subscription->told;

	return subscription->blocks && !subscription->in_place && !publisher->blocked_since &&
	       subscription->told >= subscription->taken + enough_frames(publisher) &&
	       (waiting + 1) * publisher->header.geometry.descriptor_stride <= PL_STREAM_ANNOUNCE_MAX;
}

/* True if the subscription has other news than frames. publisher->lock is held. Home. */
static bool has_rare_news(const struct pl_subscription *subscription)
{
	return subscription->told_state != subscription->publisher->state ||
	       subscription->told_demoted != subscription->demoted || subscription->awaited;
}

/* Extent of an announcement. Its last value is that of a publisher that is closed: nothing else will tell of its frames. */
enum tell { TELL_ENOUGH, TELL_ALL, TELL_LAST };

/*
 * Builds an announcement. Returns false if there is no news that may be told now. Takes publisher->lock.
 */
static bool build_announcement(struct pl_subscription *subscription, enum tell tell, struct pl_stream_message *message,
			       uint8_t *buffer)
{
	struct pl_publisher *publisher = subscription->publisher;
	bool news, frames;

	pl_lock_take(&publisher->lock);
	frames = subscription->told != publisher->published &&
		 (tell == TELL_LAST || !subscription_limited(subscription));
	news = has_rare_news(subscription) || (frames && (tell != TELL_ENOUGH || !subscription_is_busy(subscription)));
	if (news) {
		*message = (struct pl_stream_message){ .type = PL_STREAM_ANNOUNCE, .number = subscription->number };
		message->announce.claimed = publisher->claimed;
		message->announce.published = publisher->published;
		message->announce.state = publisher->state;
		message->announce.demoted = subscription->demoted;
		message->announce.skipped = subscription->skipped;
		message->announce.waits = subscription->asked = subscription_asks(subscription);
		subscription->awaited = false;
		collect_descriptors(subscription, message, buffer);
		/* Before the message leaves: its answer may arrive at once. */
		subscription->announced = publisher->published;
	}
	pl_lock_release(&publisher->lock);
	if (frames && !news)
		announce_later(subscription);
	return news;
}

bool pl_subscription_must_wait(const struct pl_subscription *subscription)
{
	if (pl_channel_unsent(&subscription->peer->channel) <= CHANNEL_FULL)
		return false;
	announce_later(subscription);
	return true;
}

/* Repeats an announcement that had no memory: the next frame may come much later, or never. `announced`: as before it. */
static void repeat_announcement(struct pl_subscription *subscription, const struct pl_stream_message *message,
				uint64_t announced)
{
	struct pl_publisher *publisher = subscription->publisher;

	pl_lock_take(&publisher->lock);
	subscription->announced = announced;
	subscription->awaited |= message->announce.waits;
	pl_lock_release(&publisher->lock);
	announce_later(subscription);
}

/* Tells a subscription the news. */
static void announce_news(struct pl_subscription *subscription, enum tell tell)
{
	struct pl_stream_message message;
	uint64_t announced = subscription->announced;
	uint8_t buffer[PL_STREAM_ANNOUNCE_MAX];

	if (subscription->prepared)
		return;
	if (subscription->pushed) {
		pl_push_continue(subscription);
		return;
	}
	/* The answer to an earlier announcement brings the next one. A quiet subscriber looks for frames without answers. */
	if (tell != TELL_LAST && subscription_limited(subscription) && !subscription->quiet)
		return;
	/* The first one tells a subscriber of frames in place that it holds no slots back, before it uses any. */
	if (tell != TELL_LAST && subscription->sent && pl_subscription_must_wait(subscription))
		return;
	if (!build_announcement(subscription, tell, &message, buffer))
		return;
	if (pl_channel_left_out(pl_stream_send(subscription->peer, &message))) {
		repeat_announcement(subscription, &message, announced);
		return;
	}
	subscription->told = message.announce.published;
	subscription->told_state = message.announce.state;
	subscription->sent++;
	if (message.announce.demoted && !subscription->told_demoted)
		subscription->demotion = subscription->sent;
	subscription->told_demoted = message.announce.demoted;
}

void pl_subscription_announce(struct pl_subscription *subscription)
{
	announce_news(subscription, TELL_ENOUGH);
}

void pl_subscription_tell_last(struct pl_subscription *subscription)
{
	announce_news(subscription, TELL_LAST);
}

static void announce_all(struct pl_announcer *announcer, enum tell tell)
{
	/* Pushed writes that fail may lose their peer, and so end its subscriptions. */
	struct pl_list rest;
	bool silent = true;

	pl_list_init(&rest);
	pl_list_splice(&rest, &announcer->subscriptions);
	while (!pl_list_empty(&rest)) {
		struct pl_subscription *subscription = pl_list_first(&rest, struct pl_subscription, home_link);

		pl_list_remove(&subscription->home_link);
		pl_list_append(&announcer->subscriptions, &subscription->home_link);
		silent &= subscription_limited(subscription);
		announce_news(subscription, tell);
	}
	/* A store takes the cache line from publishing threads. */
	if (atomic_load(&announcer->silent) != silent)
		atomic_store(&announcer->silent, silent);
}

static void announcer_run(struct pl_task *task)
{
	announce_all(pl_container_of(task, struct pl_announcer, task), TELL_ENOUGH);
}

static void announcer_expire(struct pl_timer *timer)
{
	announce_all(pl_container_of(timer, struct pl_announcer, timer), TELL_ALL);
}

/* True if a subscription of the announcer can be told of a frame before its subscriber has answered. */
static bool announcer_may_tell(struct pl_announcer *announcer)
{
	return atomic_load(&announcer->count) && !atomic_load(&announcer->silent);
}

/* Runs all announcers that can tell of frames: those of idle engines in this thread, others in theirs. */
static void announcer_spread(struct pl_task *task)
{
	struct pl_announcer *announcer = pl_container_of(task, struct pl_announcer, spread_task);
	struct pl_publisher *publisher = announcer->publisher;

	atomic_store(&publisher->handed, 0);
	for (unsigned i = 0; i < publisher->context->engine_count; i++) {
		struct pl_announcer *other = &publisher->announcers[i];

		if (other != announcer && announcer_may_tell(other))
			pl_engine_post(other->engine, &other->task);
	}
	announce_all(announcer, TELL_ENOUGH);
}

void pl_announcer_init(struct pl_announcer *announcer, struct pl_publisher *publisher, struct pl_engine *engine)
{
	announcer->publisher = publisher;
	announcer->engine = engine;
	pl_task_init(&announcer->task, announcer_run);
	pl_task_init(&announcer->spread_task, announcer_spread);
	pl_timer_init(&announcer->timer, announcer_expire);
	pl_stream_token_watch_init(announcer);
	pl_list_init(&announcer->subscriptions);
}

void pl_publisher_announce(struct pl_publisher *publisher)
{
	for (unsigned i = 0; i < publisher->context->engine_count; i++) {
		struct pl_announcer *announcer = &publisher->announcers[i];

		if (atomic_load(&announcer->count))
			pl_engine_post(announcer->engine, &announcer->task);
	}
}

/* True while a thread holds the engine's lock, perhaps for a callback of the program that takes long. */
static bool announcer_is_busy(const struct pl_announcer *announcer)
{
	return atomic_load_explicit(&announcer->engine->owner, memory_order_relaxed);
}

/*
 * A message costs a system call and the wake-up of a process. The caller sends the message to a single subscriber itself: that is
 * the shortest way. For several, it leaves all subscriptions to the thread of one engine that is not busy, and wakes it if it
 * sleeps.
 *
 * An announcer stops to be silent before it looks at `published` for a subscription, and the caller has published under the same
 * lock before it looks at `silent`. So one of both sees the other.
 *
 * A pass that was handed over and has not begun will see this frame likewise: it sets `handed` to 0 first. So one frame of each pass
 * looks at the engines, whose cache lines take longer to load than the rest of the call. A pass that does not begin in time has an
 * engine that is stuck, and another engine gets the next one.
 */
void pl_publisher_announce_frames(struct pl_publisher *publisher, uint64_t now)
{
	struct pl_announcer *first = NULL, *chosen = NULL;
	uint64_t handed = atomic_load(&publisher->handed);
	unsigned count = 0;

	if (handed && now - handed < HANDED_TIME)
		return;

	for (unsigned i = 0; i < publisher->context->engine_count; i++) {
		struct pl_announcer *announcer = &publisher->announcers[i];

		if (!announcer_may_tell(announcer))
			continue;
		count += atomic_load(&announcer->count);
		if (!first)
			first = announcer;
		if (!chosen && !announcer_is_busy(announcer))
			chosen = announcer;
	}
	if (!chosen)
		chosen = first;
	if (count > 1) {
		atomic_store(&publisher->handed, now);
		pl_engine_hand_over(chosen->engine, &chosen->spread_task);
	} else if (first) {
		/* A publishing thread collects nothing, and sends each pushed frame itself as soon as it can. */
		pl_bulk_sender_waits(publisher->context);
		pl_engine_post(first->engine, &first->task);
	}
}
