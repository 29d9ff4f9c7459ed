/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls of the core. */
#include "stream/publisher.h"
#include "stream/subscriber.h"

static int stream_message(struct pl_peer *peer, const uint8_t *body, size_t length)
{
	struct pl_stream_message message;

	/* A peer that names no capability knows no such messages. */
	if (!peer->streams || pl_stream_message_decode(body, length, &message) < 0 ||
	    (message.token.given && !peer->stream_tokens))
		return -EPROTO;
	switch (message.type) {
	case PL_STREAM_LIST:
		return pl_listing_serve(peer, &message);
	case PL_STREAM_LISTED:
		return pl_listing_arrived(peer, &message);
	case PL_STREAM_SUBSCRIBE:
		return pl_subscription_open(peer, &message);
	case PL_STREAM_SUBSCRIBED:
		return pl_subscriber_subscribed(peer, &message);
	case PL_STREAM_UNSUBSCRIBE:
		return pl_subscription_close(peer, &message);
	case PL_STREAM_ANNOUNCE:
		return pl_subscriber_announced(peer, &message);
	case PL_STREAM_TAKEN:
		return pl_subscription_taken(peer, &message);
	case PL_STREAM_CLOSED:
		return pl_subscriber_closed(peer, &message);
	case PL_STREAM_SLOTS:
		return pl_push_slots(peer, &message);
	case PL_STREAM_CREDIT:
		return pl_push_credit(peer, &message);
	case PL_STREAM_PUSHED:
		return pl_subscriber_pushed(peer, &message);
	}
	return -EPROTO;
}

static void stream_peer_ended(struct pl_peer *peer)
{
	while (!pl_list_empty(&peer->subscriptions))
		pl_subscription_end(pl_list_first(&peer->subscriptions, struct pl_subscription, peer_link));
	while (!pl_list_empty(&peer->subscribers)) {
		struct pl_subscriber *subscriber = pl_list_first(&peer->subscribers, struct pl_subscriber, peer_link);

		pl_subscriber_follow_lost(subscriber);
		pl_subscriber_leave(subscriber);
	}
	pl_listings_end(peer);
}

static void stream_close(struct pl_context *context)
{
	pl_subscriber_close_all(context);
	pl_publisher_close_all(context);
}

const struct pl_stream_ops pl_stream_ops = {
	.message = stream_message,
	.peer_ended = stream_peer_ended,
	.close = stream_close,
};
