/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of the streams of a peer. */
#include "stream/publisher.h"

struct listing {
	struct pl_list link; /* peer->listings; home */
	struct pl_turn turn;
	uint32_t number;
	bool answered, ended; /* home */
	struct pl_stream_message *answer;
};

int pl_listing_serve(struct pl_peer *peer, const struct pl_stream_message *message)
{
	struct pl_context *context = peer->context;
	struct pl_stream_message answer = { .type = PL_STREAM_LISTED, .number = message->number };
	uint32_t index = 0;

	/* Publishers in the list exist: a close takes them out first, and waits for this engine's lock. */
	pthread_mutex_lock(&context->lock);
	pl_list_for_each(at, &context->publishers) {
		struct pl_publisher *publisher = pl_list_entry(at, struct pl_publisher, link);

		if (index++ < message->from || answer.listed.count == PL_STREAM_LISTED_MAX)
			continue;
		pl_lock_take(&publisher->lock);
		pl_publisher_describe(publisher, &answer.listed.entries[answer.listed.count++]);
		pl_lock_release(&publisher->lock);
	}
	pthread_mutex_unlock(&context->lock);
	answer.listed.total = index;
	pl_stream_send(peer, &answer);
	return 0;
}

int pl_listing_arrived(struct pl_peer *peer, const struct pl_stream_message *message)
{
	pl_list_for_each(at, &peer->listings) {
		struct listing *listing = pl_list_entry(at, struct listing, link);

		if (listing->number != message->number)
			continue;
		*listing->answer = *message;
		listing->answered = true;
		pl_turn_next(peer->context, &listing->turn);
		return 0;
	}
	return 0; /* the program has given up */
}

void pl_listings_end(struct pl_peer *peer)
{
	while (!pl_list_empty(&peer->listings)) {
		struct listing *listing = pl_list_first(&peer->listings, struct listing, link);

		pl_list_remove(&listing->link);
		listing->ended = true;
		pl_turn_next(peer->context, &listing->turn);
	}
}

/* Asks for the entries from an index on, and waits for the answer. */
static int listing_request(struct pl_peer *peer, uint32_t from, struct pl_stream_message *answer, uint64_t deadline)
{
	struct listing listing = { .answer = answer };
	struct pl_stream_message ask = { .type = PL_STREAM_LIST, .from = from };
	bool waiting = true;
	int rc = 0;

	pl_list_init(&listing.link);
	pl_engine_lock(peer->home);
	if (atomic_load(&peer->state) == PL_PEER_UP) {
		ask.number = listing.number = ++peer->next_stream;
		pl_list_append(&peer->listings, &listing.link);
		pl_stream_send(peer, &ask);
	} else {
		listing.ended = true;
	}
	pl_engine_unlock(peer->home);
	while (waiting) {
		unsigned seen = pl_turn_read(&listing.turn);

		pl_engine_lock(peer->home);
		waiting = !listing.answered && !listing.ended;
		pl_engine_unlock(peer->home);
		if (waiting && !pl_turn_wait(peer->context, &listing.turn, seen, deadline))
			break;
	}
	pl_engine_lock(peer->home);
	if (!listing.answered)
		rc = listing.ended ? -ENOTCONN : -ETIMEDOUT;
	pl_list_remove(&listing.link);
	pl_engine_unlock(peer->home);
	return rc;
}

static int listing_fail(struct pl_error *error, int rc)
{
	if (rc == -ENOTCONN)
		return pl_fail(error, rc, "PEER-LOST", "pl_peer_publishers", NULL, "connect again",
			       "the connection is lost");
	return pl_fail(error, rc, "WAIT-TIMEOUT", "pl_peer_publishers", NULL, "allow more time",
		       "the other end did not answer in time");
}

int pl_peer_publishers(struct pl_peer *peer, struct pl_publisher_info *infos, unsigned n, uint64_t timeout,
		       struct pl_error *error)
{
	uint64_t deadline = pl_deadline(pl_now(), timeout);
	size_t size = n ? infos[0].size : sizeof(*infos);
	struct pl_stream_message *answer;
	uint32_t count = 0, total = 1;
	int rc = 0;

	if (size < sizeof(size) || size > sizeof(*infos))
		return pl_fail(error, -EINVAL, "OPTION", "pl_peer_publishers", "size", "use PL_PUBLISHER_INFO_INIT",
			       "descriptions of a newer library, or not initialised");
	if (!peer->streams)
		return pl_fail(error, -ENOTSUP, "STREAM-OLD", "pl_peer_publishers", NULL,
			       "update Peerlane at the other end", "the other end (%s) has no streams", peer->software);
	answer = pl_alloc(&peer->context->allocator, sizeof(*answer));
	if (!answer)
		return pl_fail_memory(error, "pl_peer_publishers");
	while (rc == 0 && count < total && (count < n || count == 0)) {
		rc = listing_request(peer, count, answer, deadline);
		if (rc < 0)
			break;
		total = answer->listed.total;
		for (uint32_t i = 0; i < answer->listed.count && count < n; i++) {
			struct pl_publisher_info full = PL_PUBLISHER_INFO_INIT;

			pl_stream_entry_info(&answer->listed.entries[i], &full);
			full.size = size;
			memcpy((char *)infos + count++ * size, &full, size);
		}
		if (answer->listed.count == 0 || n == 0)
			break;
	}
	pl_free(&peer->context->allocator, answer);
	if (rc < 0)
		return listing_fail(error, rc);
	return (int)PL_MAX(PL_MIN(total, (uint32_t)INT32_MAX), count);
}
