/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of the streams of a peer. */
#include "stream/presented_token.h"
#include "stream/publisher.h"

struct listing {
	struct pl_list link; /* peer->listings; home */
	struct pl_turn turn;
	uint32_t number;
	bool answered, ended; /* home */
	struct pl_stream_message *answer;
};

/* Adds the publisher to a list, if the list shows it and it is one of those from message->from on. */
static void list_publisher(struct pl_publisher *publisher, const struct pl_stream_message *message,
			   struct pl_token_search *search, struct pl_stream_message *answer)
{
	pl_lock_take(&publisher->lock);
	if (pl_token_search_shows(search, publisher) && answer->listed.total++ >= message->from &&
	    answer->listed.count < PL_STREAM_LISTED_MAX)
		pl_publisher_describe(publisher, &answer->listed.entries[answer->listed.count++]);
	pl_lock_release(&publisher->lock);
}

int pl_listing_serve(struct pl_peer *peer, const struct pl_stream_message *message)
{
	struct pl_context *context = peer->context;
	struct pl_stream_message answer = { .type = PL_STREAM_LISTED, .number = message->number };
	struct pl_token_search search;

	pl_token_search_begin(&search, peer, &message->token);
	/* Publishers in the list exist: a close takes them out first, and waits for this engine's lock. */
	pthread_mutex_lock(&context->lock);
	pl_list_for_each(at, &context->publishers)
		list_publisher(pl_list_entry(at, struct pl_publisher, link), message, &search, &answer);
	pthread_mutex_unlock(&context->lock);
	answer.listed.status = pl_token_search_end(&search, peer);
	if (answer.listed.status)
		answer.listed.total = answer.listed.count = 0;
	pl_stream_send(peer, &answer);
	return 0;
}

/* True if names, content types and layouts keep their rules: programs print names, and index shapes by `dimensions`. */
static bool listed_entries_valid(const struct pl_stream_message *message)
{
	for (uint32_t i = 0; i < message->listed.count; i++) {
		const struct pl_stream_entry *entry = &message->listed.entries[i];

		if (!pl_stream_name_valid(entry->name) || !pl_content_type_valid(entry->content_type) ||
		    !pl_layout_valid(&entry->layout))
			return false;
	}
	return true;
}

int pl_listing_arrived(struct pl_peer *peer, const struct pl_stream_message *message)
{
	if (!listed_entries_valid(message))
		return -EPROTO;
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
static int listing_request(struct pl_peer *peer, const struct pl_stream_token *token, uint32_t from,
			   struct pl_stream_message *answer, uint64_t deadline)
{
	struct listing listing = { .answer = answer };
	struct pl_stream_message ask = { .type = PL_STREAM_LIST, .token = *token, .from = from };
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

static int listing_fail(struct pl_error *error, const char *call, int rc)
{
	if (rc == -ENOTCONN)
		return pl_fail(error, rc, "PEER-LOST", call, NULL, "connect again", "the connection is lost");
	return pl_fail(error, rc, "WAIT-TIMEOUT", call, NULL, "allow more time",
		       "the other end did not answer in time");
}

/* Fills the elements, and returns the number of streams, or a negative errno. `call`: of the program. */
static int listing_fetch(struct pl_peer *peer, const struct pl_stream_token *token, struct pl_publisher_info *infos,
			 unsigned n, uint64_t deadline, const char *call, struct pl_error *error)
{
	size_t size = n ? infos[0].size : sizeof(*infos);
	struct pl_stream_message *answer;
	uint32_t count = 0, total = 1;
	int rc = 0;

	answer = pl_alloc(&peer->context->allocator, sizeof(*answer));
	if (!answer)
		return pl_fail_memory(error, call);
	while (rc == 0 && count < total && (count < n || count == 0)) {
		rc = listing_request(peer, token, count, answer, deadline);
		if (rc < 0)
			rc = listing_fail(error, call, rc);
		else if (answer->listed.status)
			rc = pl_fail_token_status(answer->listed.status, call, NULL, error);
		if (rc < 0)
			break;
		total = answer->listed.total;
		for (uint32_t i = 0; i < answer->listed.count && count < n; i++) {
			struct pl_publisher_info full = PL_PUBLISHER_INFO_INIT;

			pl_stream_entry_info(&answer->listed.entries[i], &full);
			full.size = size;
			memcpy((char *)infos + count++ * size, &full, size);
		}
		/* An answer without entries ends the list, whatever number it tells. */
		if (answer->listed.count == 0)
			total = count;
		if (n == 0)
			break;
	}
	pl_free(&peer->context->allocator, answer);
	return rc < 0 ? rc : (int)PL_MAX(PL_MIN(total, (uint32_t)INT32_MAX), count);
}

/* Checks the arguments, and lists. `given` NULL: without a token. */
static int list_publishers(struct pl_peer *peer, const void *given, size_t token_length,
			   struct pl_publisher_info *infos, unsigned n, uint64_t timeout, const char *call,
			   struct pl_error *error)
{
	uint64_t deadline = pl_deadline(pl_now(), timeout);
	size_t size = n ? infos[0].size : sizeof(*infos);
	struct pl_presented_token presented;
	int rc;

	if (size < sizeof(size) || size > sizeof(*infos))
		return pl_fail(error, -EINVAL, "OPTION", call, "size", "use PL_PUBLISHER_INFO_INIT",
			       "descriptions of a newer library, or not initialised");
	if (!peer->streams)
		return pl_fail(error, -ENOTSUP, "STREAM-OLD", call, NULL, "update Peerlane at the other end",
			       "the other end (%s) has no streams", peer->software);
	rc = pl_presented_token_read(&presented, given, token_length, error);
	if (rc == 0)
		rc = pl_presented_token_check(&presented, peer, call, NULL, error);
	return rc < 0 ? rc : listing_fetch(peer, &presented.token, infos, n, deadline, call, error);
}

int pl_peer_publishers(struct pl_peer *peer, struct pl_publisher_info *infos, unsigned n, uint64_t timeout,
		       struct pl_error *error)
{
	return list_publishers(peer, NULL, 0, infos, n, timeout, "pl_peer_publishers", error);
}

int pl_peer_publishers_with_token(struct pl_peer *peer, const void *token, size_t token_length,
				  struct pl_publisher_info *infos, unsigned n, uint64_t timeout, struct pl_error *error)
{
	return list_publishers(peer, token, token_length, infos, n, timeout, "pl_peer_publishers_with_token", error);
}
