/* SPDX-License-Identifier: BSD-2-Clause */
/* Subscribing: question, answer, keys. Runs on the program's thread. */
#include "stream/connect.h"

#include "core/call.h"

/* -- question and answer -------------------------------------------------------------------------------------------- */

/* True if the subscriber has been connected before, and can continue. */
static bool continues(const struct pl_subscriber *subscriber)
{
	return subscriber->geometry.slots != 0;
}

/* Returns the first sequence of the known instance that has no fate. */
static uint64_t next_wanted(const struct pl_subscriber *subscriber)
{
	return subscriber->restarted ? subscriber->restart_first : subscriber->accounts.next;
}

/* True if the answer is of the instance that the subscriber knows. */
static bool is_same_instance(const struct pl_subscriber *subscriber, const struct pl_stream_message *answer)
{
	return continues(subscriber) && !memcmp(answer->subscribed.entry.instance, subscriber->entry.instance,
						sizeof(subscriber->entry.instance));
}

static int fail_lost(const struct pl_subscriber *subscriber, struct pl_error *error)
{
	return pl_fail(error, -ENOTCONN, "PEER-LOST", "pl_subscriber_open", subscriber->name, "connect again",
		       "the connection is lost");
}

/* Fills SUBSCRIBE. subscriber->lock is held. */
static void fill_subscribe(const struct pl_subscriber *subscriber, struct pl_stream_message *ask)
{
	ask->number = subscriber->number;
	memcpy(ask->subscribe.name, subscriber->name, sizeof(ask->subscribe.name));
	ask->subscribe.start = subscriber->start;
	ask->subscribe.from = subscriber->from;
	ask->subscribe.overflow = subscriber->overflow;
	ask->subscribe.every = subscriber->every;
	ask->subscribe.in_place = subscriber->in_place;
	ask->subscribe.push = subscriber->push;
	if (!continues(subscriber))
		return;
	ask->subscribe.start = PL_START_SEQUENCE;
	ask->subscribe.from = next_wanted(subscriber);
	ask->subscribe.base = subscriber->restarted ? subscriber->restart_first : subscriber->accounts.first;
	memcpy(ask->subscribe.instance, subscriber->entry.instance, sizeof(ask->subscribe.instance));
}

/* Forgets the earlier connection, and asks the peer. subscriber->lock is held. */
static void begin_to_ask(struct pl_subscriber *subscriber, struct pl_peer *peer, struct pl_stream_message *answer)
{
	if (subscriber->engine && subscriber->engine != peer->home)
		subscriber->earlier_homes |= 1ull << pl_context_engine_index(peer->context, subscriber->engine);
	subscriber->engine = peer->home;
	subscriber->peer = peer;
	subscriber->phase = PL_SUBSCRIBER_ASKED;
	subscriber->answer = answer;
	subscriber->number = ++peer->next_stream;
	subscriber->arrived = subscriber->reported_arrived = 0;
	subscriber->reported_taken = 0;
	subscriber->reported_end = false;
	subscriber->demoted = subscriber->report_due = subscriber->awaited = false;
	subscriber->failure.code = 0;
	/* A connection that ended may have been the reason for a failure. */
	subscriber->state = PL_STREAM_LIVE;
}

/* Sends SUBSCRIBE with a token that may be shown to the peer. `answer` receives SUBSCRIBED. */
static int subscriber_ask(struct pl_subscriber *subscriber, struct pl_peer *peer, const struct pl_stream_token *token,
			  struct pl_stream_message *answer, struct pl_error *error)
{
	struct pl_stream_message ask = { .type = PL_STREAM_SUBSCRIBE, .token = *token };
	int rc;

	pl_engine_lock(peer->home);
	rc = pl_call_check_peer(peer, "pl_subscriber_open", error);
	if (rc == 0) {
		pl_lock_take(&subscriber->lock);
		begin_to_ask(subscriber, peer, answer);
		fill_subscribe(subscriber, &ask);
		ask.subscribe.prepare = peer->prepared_frames;
		pl_lock_release(&subscriber->lock);
		pl_list_append(&peer->subscribers, &subscriber->peer_link);
		pl_stream_send(peer, &ask);
	}
	pl_engine_unlock(peer->home);
	return rc;
}

/* Asks the peer to begin the subscription that is prepared. */
static int ask_to_begin(struct pl_subscriber *subscriber, struct pl_peer *peer, struct pl_error *error)
{
	struct pl_stream_message ask = { .type = PL_STREAM_SUBSCRIBE };
	bool prepared;
	int rc;

	pl_engine_lock(peer->home);
	rc = pl_call_check_peer(peer, "pl_subscriber_open", error);
	if (rc == 0) {
		pl_lock_take(&subscriber->lock);
		prepared = subscriber->phase == PL_SUBSCRIBER_ANSWERED;
		if (prepared) {
			fill_subscribe(subscriber, &ask);
			subscriber->phase = PL_SUBSCRIBER_ASKED;
		}
		pl_lock_release(&subscriber->lock);
		if (prepared)
			pl_stream_send(peer, &ask);
		else
			rc = fail_lost(subscriber, error);
	}
	pl_engine_unlock(peer->home);
	return rc;
}

static int await_answer(struct pl_subscriber *subscriber, uint64_t deadline, struct pl_error *error)
{
	enum pl_subscriber_phase phase;
	bool waited = true;

	for (;;) {
		unsigned seen = pl_turn_read(&subscriber->turn);

		pl_lock_take(&subscriber->lock);
		phase = subscriber->phase;
		pl_lock_release(&subscriber->lock);
		if (phase != PL_SUBSCRIBER_ASKED || !waited)
			break;
		waited = pl_turn_wait(subscriber->context, &subscriber->turn, seen, deadline);
	}
	if (phase == PL_SUBSCRIBER_ASKED)
		return pl_fail(error, -ETIMEDOUT, "WAIT-TIMEOUT", "pl_subscriber_open", subscriber->name,
			       "allow more time, and check that the other end makes progress",
			       "the other end did not answer in time");
	if (phase == PL_SUBSCRIBER_AWAY)
		return fail_lost(subscriber, error);
	return 0;
}

/* Derives the geometry of the answer. Returns -EPROTO for values that cannot be. */
static int check_answer(struct pl_subscriber *subscriber, const struct pl_stream_message *answer,
			struct pl_ring_geometry *geometry)
{
	const struct pl_stream_entry *entry = &answer->subscribed.entry;
	int rc = 0;

	*geometry = (struct pl_ring_geometry){ .slots = entry->slots,
					       .metadata_bytes = entry->metadata_bytes,
					       .slot_bytes = entry->slot_bytes };
	if (strcmp(entry->name, subscriber->name) || pl_ring_geometry_init(geometry) < 0 ||
	    !pl_layout_valid(&entry->layout) || pl_layout_bytes(&entry->layout) > entry->slot_bytes ||
	    !pl_content_type_valid(entry->content_type) || entry->claimed > PL_RING_SEQUENCE_MAX ||
	    entry->claimed - entry->published >= entry->slots || answer->subscribed.first > PL_RING_SEQUENCE_MAX)
		return -EPROTO;
	pl_lock_take(&subscriber->lock);
	if (is_same_instance(subscriber, answer) &&
	    (answer->subscribed.first < next_wanted(subscriber) || entry->slots != subscriber->geometry.slots ||
	     entry->published < subscriber->published))
		rc = -EPROTO;
	pl_lock_release(&subscriber->lock);
	return rc;
}

/* Takes over the answer: the stream goes on, or begins with another instance. subscriber->lock is held. */
static void accept_answer(struct pl_subscriber *subscriber, const struct pl_stream_message *answer,
			  const struct pl_ring_geometry *geometry)
{
	const struct pl_stream_entry *entry = &answer->subscribed.entry;
	struct pl_accounts *accounts = &subscriber->accounts;
	uint64_t first = answer->subscribed.first;

	if (!continues(subscriber)) {
		*accounts = (struct pl_accounts){ .first = first, .next = first };
		subscriber->last_delivered = first;
	} else if (is_same_instance(subscriber, answer)) {
		/* The accounts of a new instance that the program has not seen yet begin with its first sequence. */
		if (subscriber->restarted)
			subscriber->restart_next = first;
		else
			pl_subscriber_miss(subscriber, first);
	} else {
		pl_subscriber_miss_known(subscriber, accounts);
		subscriber->restarted = true;
		subscriber->restart_first = subscriber->restart_next = first;
		subscriber->read_claimed = subscriber->read_published = subscriber->claimed = subscriber->published = 0;
	}
	subscriber->entry = *entry;
	subscriber->layout_bytes = pl_layout_bytes(&entry->layout);
	subscriber->geometry = *geometry;
	subscriber->published = subscriber->history_end = entry->published;
	subscriber->claimed = PL_MAX(subscriber->claimed, entry->claimed);
	/* The new subscription begins there, and copies of earlier frames hold no slots of it. */
	subscriber->reported_taken = first;
	subscriber->laps = (struct pl_laps){ 0 };
	subscriber->blocks = subscriber->overflow == PL_OVERFLOW_BLOCK && !subscriber->demoted;
	/* An announcement may have arrived after the answer. */
	pl_subscriber_follow(subscriber);
}

static int import_keys(struct pl_subscriber *subscriber, struct pl_peer *peer, const struct pl_stream_message *answer,
		       const struct pl_ring_geometry *geometry, struct pl_remote *remotes[2], uint64_t deadline,
		       struct pl_error *error)
{
	uint64_t now = pl_now(), left = now < deadline ? deadline - now : 1;
	int rc = pl_remote_import(peer, answer->subscribed.control, PL_TOKEN_SIZE, left, &remotes[0], error);

	if (rc == 0)
		rc = pl_remote_import(peer, answer->subscribed.payload, PL_TOKEN_SIZE, left, &remotes[1], error);
	if (rc < 0)
		return rc;
	remotes[0]->whole_words = true;
	remotes[0]->internal = remotes[1]->internal = true;
	remotes[1]->trailing = peer->trailing_words && peer->ops->trailing_words;
	if (remotes[0]->length < pl_ring_control_size(geometry) || remotes[1]->length < pl_ring_payload_size(geometry))
		return pl_fail(error, -EPROTO, "STREAM-PROTOCOL", "pl_subscriber_open", subscriber->name, NULL,
			       "the publisher's keys do not cover its ring");
	return 0;
}

/* Maps the ring, if frames are to be used in place. */
static int subscriber_map_ring(const struct pl_subscriber *subscriber, struct pl_peer *peer,
			       struct pl_remote *remotes[2], const struct pl_ring_geometry *geometry,
			       struct pl_ring_view **view, struct pl_error *error)
{
	int rc;

	if (!subscriber->in_place)
		return 0;
	pl_engine_lock(peer->home);
	rc = pl_call_check_peer(peer, "pl_subscriber_open", error);
	if (rc == 0)
		rc = pl_ring_view_open(peer, remotes[0], remotes[1], geometry, subscriber->name, view, error);
	pl_engine_unlock(peer->home);
	return rc;
}

/* Begins to read. Returns -ENOTCONN if the connection was lost meanwhile. */
static int subscriber_begin(struct pl_subscriber *subscriber, struct pl_remote *remotes[2], struct pl_ring_view **view,
			    const struct pl_stream_message *answer, const struct pl_ring_geometry *geometry,
			    struct pl_error *error)
{
	struct pl_engine *engine = subscriber->engine;
	int rc = 0;

	pl_engine_lock(engine);
	pl_lock_take(&subscriber->lock);
	if (subscriber->phase == PL_SUBSCRIBER_ANSWERED) {
		accept_answer(subscriber, answer, geometry);
		subscriber->phase = PL_SUBSCRIBER_LIVE;
		subscriber->control = remotes[0];
		subscriber->payload = remotes[1];
		remotes[0] = remotes[1] = NULL;
		/* A subscriber that was demoted since the answer reads copies. */
		if (!subscriber->demoted) {
			subscriber->view = *view;
			*view = NULL;
			pl_subscriber_begin_polling(subscriber);
		}
	} else {
		rc = fail_lost(subscriber, error);
	}
	subscriber->answer = NULL;
	pl_subscriber_wake(subscriber);
	pl_lock_release(&subscriber->lock);
	if (rc == 0)
		pl_subscriber_pump(subscriber);
	pl_engine_unlock(engine);
	return rc;
}

/* Waits for the answer to SUBSCRIBE, and derives the geometry of the ring. */
static int take_answer(struct pl_subscriber *subscriber, const struct pl_stream_message *answer,
		       struct pl_ring_geometry *geometry, uint64_t deadline, struct pl_error *error)
{
	int rc = await_answer(subscriber, deadline, error);

	if (rc == 0 && answer->subscribed.status)
		rc = pl_fail_subscribe_status(answer->subscribed.status, subscriber->name, error);
	if (rc == 0 && check_answer(subscriber, answer, geometry) < 0)
		rc = pl_fail(error, -EPROTO, "STREAM-PROTOCOL", "pl_subscriber_open", subscriber->name, NULL,
			     "the publisher described its ring by values that cannot be");
	return rc;
}

/* Makes the first copies, and asks for the first sequence. The subscriber can take frames as soon as there is one. */
static int prepare_to_begin(struct pl_subscriber *subscriber, struct pl_peer *peer, struct pl_stream_message *answer,
			    const struct pl_ring_geometry *prepared, struct pl_remote *payload, uint64_t deadline,
			    struct pl_error *error)
{
	bool gpu = answer->subscribed.entry.gpu || pl_memory_staged(&subscriber->memory.payloads->memory);
	struct pl_ring_geometry geometry;
	int rc = 0;

	if (gpu && payload && !subscriber->in_place)
		rc = pl_subscriber_warm_up(subscriber, peer, payload, prepared, deadline, error);
	if (rc == 0)
		rc = ask_to_begin(subscriber, peer, error);
	if (rc == 0)
		rc = take_answer(subscriber, answer, &geometry, deadline, error);
	if (rc == 0 && (geometry.slots != prepared->slots || geometry.slot_bytes != prepared->slot_bytes ||
			geometry.metadata_bytes != prepared->metadata_bytes))
		rc = pl_fail(error, -EPROTO, "STREAM-PROTOCOL", "pl_subscriber_open", subscriber->name, NULL,
			     "the publisher described its ring anew");
	return rc;
}

/* Waits for the answer to SUBSCRIBE, and begins to read. */
static int subscribe_by_answer(struct pl_subscriber *subscriber, struct pl_peer *peer, struct pl_stream_message *answer,
			       uint64_t deadline, struct pl_error *error)
{
	struct pl_remote *remotes[2] = { NULL, NULL };
	struct pl_ring_view *view = NULL;
	struct pl_ring_geometry geometry = { 0 };
	int rc = take_answer(subscriber, answer, &geometry, deadline, error);

	if (rc == 0)
		rc = pl_subscriber_allocate(subscriber, &geometry, error);
	if (rc == 0 && !subscriber->push)
		rc = import_keys(subscriber, peer, answer, &geometry, remotes, deadline, error);
	if (rc == 0)
		rc = subscriber_map_ring(subscriber, peer, remotes, &geometry, &view, error);
	if (rc == 0 && peer->prepared_frames)
		rc = prepare_to_begin(subscriber, peer, answer, &geometry, remotes[1], deadline, error);
	if (rc == 0)
		rc = subscriber_begin(subscriber, remotes, &view, answer, &geometry, error);
	pl_ring_view_put(view);
	pl_remote_release(remotes[0]);
	pl_remote_release(remotes[1]);
	return rc;
}

/*
 * Names the reason if the subscription was over before it began: its publisher was closed, which revokes its keys, or failed; or the
 * connection was lost during an import.
 */
static int fail_if_over(struct pl_subscriber *subscriber, int rc, struct pl_error *error)
{
	pl_lock_take(&subscriber->lock);
	if (rc == -ECONNRESET)
		rc = fail_lost(subscriber, error);
	if (subscriber->phase == PL_SUBSCRIBER_OVER)
		rc = pl_subscriber_fail_take(subscriber, "pl_subscriber_open",
					     subscriber->failure.code ? subscriber->failure.code : -ENODATA, error);
	pl_lock_release(&subscriber->lock);
	return rc;
}

int pl_subscriber_connect(struct pl_subscriber *subscriber, struct pl_peer *peer, uint64_t deadline,
			  struct pl_error *error)
{
	struct pl_presented_token presented;
	struct pl_stream_message *answer;
	int rc;

	if (!peer->streams)
		return pl_fail(error, -ENOTSUP, "STREAM-OLD", "pl_subscriber_open", subscriber->name,
			       "update Peerlane at the other end", "the other end (%s) has no streams", peer->software);
	if (subscriber->in_place && !peer->frames_in_place)
		return pl_fail(error, -ENOTSUP, "STREAM-OLD", "pl_subscriber_open", subscriber->name,
			       "update Peerlane at the other end, or subscribe without in_place",
			       "the other end (%s) has no frames in place", peer->software);
	if (subscriber->push && !peer->pushed_frames)
		return pl_fail(error, -ENOTSUP, "STREAM-OLD", "pl_subscriber_open", subscriber->name,
			       "update Peerlane at the other end, or subscribe without push",
			       "the other end (%s) does not push frames", peer->software);
	pl_lock_take(&subscriber->lock);
	presented = subscriber->presented;
	subscriber->subscription++;
	pl_lock_release(&subscriber->lock);
	rc = pl_presented_token_check(&presented, peer, "pl_subscriber_open", subscriber->name, error);
	if (rc < 0)
		return rc;
	answer = pl_zalloc(&subscriber->context->allocator, sizeof(*answer));
	if (!answer)
		return pl_fail_memory(error, "pl_subscriber_open");
	rc = subscriber_ask(subscriber, peer, &presented.token, answer, error);
	if (rc == 0) {
		rc = subscribe_by_answer(subscriber, peer, answer, deadline, error);
		if (rc < 0)
			rc = fail_if_over(subscriber, rc, error);
	}
	if (rc < 0)
		pl_subscriber_detach(subscriber);
	pl_free(&subscriber->context->allocator, answer);
	return rc;
}

/* Returns false if another thread attaches the subscriber: each call has its own peer and its own answer. */
static bool begin_attach(struct pl_subscriber *subscriber)
{
	bool attaching;

	pl_lock_take(&subscriber->lock);
	attaching = subscriber->attaching;
	subscriber->attaching = true;
	pl_lock_release(&subscriber->lock);
	return !attaching;
}

static void end_attach(struct pl_subscriber *subscriber)
{
	pl_lock_take(&subscriber->lock);
	subscriber->attaching = false;
	pl_lock_release(&subscriber->lock);
}

int pl_subscriber_attach(struct pl_subscriber *subscriber, struct pl_peer *peer, uint64_t timeout,
			 struct pl_error *error)
{
	uint64_t deadline = pl_deadline(pl_now(), timeout);
	int rc;

	if (peer->context != subscriber->context)
		return pl_fail(error, -EINVAL, "PEER-FOREIGN", "pl_subscriber_attach", subscriber->name,
			       "connect with the subscriber's context", "the peer belongs to another context");
	if (!begin_attach(subscriber))
		return pl_fail(error, -EBUSY, "STREAM-ATTACHING", "pl_subscriber_attach", subscriber->name,
			       "let one thread attach, and wait for its result",
			       "another thread attaches the subscriber");
	pl_subscriber_detach(subscriber);
	rc = pl_subscriber_connect(subscriber, peer, deadline, error);
	end_attach(subscriber);
	return rc;
}
