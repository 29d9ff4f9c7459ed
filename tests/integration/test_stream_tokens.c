/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams that need a token: who sees them and subscribes, wrong tokens, expiry, and revocation. */
#include <stdio.h>
#include <string.h>

#include "stream/publisher.h"
#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define SLOT 10000
#define SLOTS 8u
#define NAME "cam0"
/* Attempts with wrong tokens, and those that are checked at once. */
#define GUESSES 10000u
#define CHECKED 16u

static const struct setting tcp_push = {
	.name = "push", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting local_push_tokens = {
	.name = "push", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

struct token {
	uint8_t bytes[PL_TOKEN_MAX];
	size_t length;
};

/* A publisher in `far` that needs tokens. With manual progress a thread drives `far`. */
struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pump pump;
};

static struct pl_publisher *open_publisher(const struct rig *rig, const char *name, bool needs_token)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher *publisher;
	struct pl_error error;

	options.slot_bytes = SLOT;
	options.slots = SLOTS;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	options.needs_token = needs_token;
	check_ok(pl_publisher_open(rig->environment.far, name, &options, &publisher, &error), &error);
	return publisher;
}

static void rig_open(struct rig *rig, const struct setting *setting)
{
	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	pump_start(&rig->environment, &rig->pump, rig->environment.far);
	rig->publisher = open_publisher(rig, NAME, true);
}

static void rig_close(struct rig *rig)
{
	pump_stop(&rig->pump);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static struct token share_stream(struct pl_publisher *publisher, uint64_t lifetime)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct token token = { .length = sizeof(token.bytes) };
	struct pl_error error;

	options.lifetime = lifetime;
	check_ok(pl_publisher_share(publisher, &options, token.bytes, &token.length, &error), &error);
	check(token.length == PL_TOKEN_SIZE);
	return token;
}

static int try_subscribe(const struct rig *rig, struct pl_peer *peer, const struct token *token,
			 const struct pl_subscriber_options *given, struct pl_subscriber **subscriber,
			 struct pl_error *error)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;

	if (given)
		options = *given;
	options.push = !strcmp(rig->environment.setting->name, "push");
	if (token) {
		options.token = token->bytes;
		options.token_length = token->length;
	}
	return pl_subscriber_open(peer, NAME, &options, AMPLE_TIME, subscriber, error);
}

static struct pl_subscriber *subscribe(const struct rig *rig, const struct token *token,
				       const struct pl_subscriber_options *options)
{
	struct pl_subscriber *subscriber;
	struct pl_error error;

	check_ok(try_subscribe(rig, rig->environment.near_peer, token, options, &subscriber, &error), &error);
	return subscriber;
}

/* Subscribes, which must fail with this id. */
static int refused_open(const struct rig *rig, const struct token *token, const char *id)
{
	struct pl_subscriber *subscriber;
	struct pl_error error;
	int rc = try_subscribe(rig, rig->environment.near_peer, token, NULL, &subscriber, &error);

	check(rc < 0 && !subscriber && !strcmp(error.id, id) && error.hint[0]);
	return rc;
}

static int list_with(const struct rig *rig, const struct token *token, struct pl_publisher_info *infos, unsigned n,
		     struct pl_error *error)
{
	infos[0] = (struct pl_publisher_info)PL_PUBLISHER_INFO_INIT;
	return pl_peer_publishers_with_token(rig->environment.near_peer, token->bytes, token->length, infos, n,
					     AMPLE_TIME, error);
}

static void take_one(struct pl_subscriber *subscriber, uint64_t sequence)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc = pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error);

	check_ok(rc < 0 ? rc : 0, &error);
	check(rc == 1 && pl_frame_query(frame, &info) == 0 && info.sequence == sequence && info.length == SLOT);
	pattern_check(info.data, info.length, sequence, 0);
	pl_frame_release(frame);
}

/* Takes what is there, until the subscription has ended with this id. Returns the number of frames. */
static uint64_t take_until(struct pl_subscriber *subscriber, const char *id)
{
	struct pl_stream_frame *frame;
	struct pl_error error;
	uint64_t count = 0;
	int rc;

	while ((rc = pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error)) == 1) {
		pl_frame_release(frame);
		count++;
	}
	check(rc == -EACCES && !strcmp(error.id, id) && error.hint[0]);
	return count;
}

static unsigned subscribers_of(struct pl_publisher *publisher)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;

	check(pl_publisher_query(publisher, &info) == 0);
	return info.subscribers;
}

/* Returns how often the log of a peer has an event with a text that begins so. */
static unsigned count_noted(struct pl_peer *peer, const char *event, const char *text)
{
	struct pl_event_record records[PL_EVENTS_MAX];
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	int count = pl_peer_events(peer, &query, records, PL_EVENTS_MAX);
	unsigned noted = 0;

	check(count >= 0);
	for (int i = 0; i < count; i++)
		if (!strcmp(pl_event_name(records[i].event), event) && !strncmp(records[i].text, text, strlen(text)))
			noted += records[i].count;
	return noted;
}

/* -- cases --------------------------------------------------------------------------------------------------------- */

/* Only a peer with a token sees the stream and takes its frames. */
static void test_token(void *argument)
{
	struct pl_publisher_info infos[4] = { PL_PUBLISHER_INFO_INIT };
	struct pl_subscriber *subscriber;
	struct pl_publisher *open, *hidden;
	struct pl_token_info content;
	struct pl_error error;
	struct token token;
	struct rig rig;

	rig_open(&rig, argument);
	open = open_publisher(&rig, "open", false);
	hidden = open_publisher(&rig, "hidden", true);
	check(pl_peer_publishers(rig.environment.near_peer, infos, 4, AMPLE_TIME, &error) == 1);
	check(!strcmp(infos[0].name, "open") && !infos[0].needs_token);
	check(refused_open(&rig, NULL, "STREAM-TOKEN-NEEDED") == -EACCES);
	token = share_stream(rig.publisher, 0);
	check_ok(pl_token_inspect(token.bytes, token.length, &content, &error), &error);
	check(content.rights == 0 && content.region_length == 0 && content.expires == 0);
	check(list_with(&rig, &token, infos, 4, &error) == 2);
	check(!strcmp(infos[0].name, NAME) && infos[0].needs_token && infos[0].allow_block && !infos[1].needs_token);
	check(pl_peer_publishers(rig.environment.near_peer, infos, 4, AMPLE_TIME, &error) == 1);
	subscriber = subscribe(&rig, &token, NULL);
	publish_filled(rig.publisher, SLOT);
	take_one(subscriber, 0);
	check(refused_open(&rig, NULL, "STREAM-TOKEN-NEEDED") == -EACCES);
	check(count_noted(rig.environment.far_peer, "refused-here", "subscribe: the stream needs a token") == 2);
	pl_subscriber_close(subscriber);
	pl_publisher_close(open);
	pl_publisher_close(hidden);
	rig_close(&rig);
}

/* An open stream asks for no token, and has none to give. */
static void test_open_stream(void *argument)
{
	struct token token = { .length = sizeof(token.bytes) };
	struct pl_subscriber *subscriber;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument);
	token = share_stream(rig.publisher, 0);
	pl_publisher_close(rig.publisher);
	rig.publisher = open_publisher(&rig, NAME, false);
	subscriber = subscribe(&rig, &token, NULL);
	pl_subscriber_close(subscriber);
	check(pl_publisher_share(rig.publisher, NULL, token.bytes, &token.length, &error) == -EINVAL);
	check(!strcmp(error.id, "STREAM-TOKEN-UNUSED"));
	rig_close(&rig);
}

static int refused_share(struct pl_publisher *publisher, const struct pl_grant_options *options, size_t space,
			 const char *id)
{
	struct token token = { .length = space };
	struct pl_error error;
	int rc = pl_publisher_share(publisher, options, token.bytes, &token.length, &error);

	check(rc < 0 && !strcmp(error.id, id) && token.length == space);
	return rc;
}

static void test_options(void *argument)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct token token = { .length = PL_TOKEN_SIZE };
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument);
	options.rights = PL_ACCESS_READ;
	check(refused_share(rig.publisher, &options, PL_TOKEN_MAX, "OPTION") == -EINVAL);
	options.rights = 0;
	options.length = 1;
	check(refused_share(rig.publisher, &options, PL_TOKEN_MAX, "OPTION") == -EINVAL);
	options.length = 0;
	options.offset = 1;
	check(refused_share(rig.publisher, &options, PL_TOKEN_MAX, "OPTION") == -EINVAL);
	check(refused_share(rig.publisher, NULL, PL_TOKEN_SIZE - 1, "TOKEN-SPACE") == -ENOBUFS);
	check(pl_publisher_share(rig.publisher, NULL, token.bytes, &token.length, &error) == 0);
	rig_close(&rig);
}

/* Tokens that are cut, damaged, of a region, of another stream or of another process. */
static void test_wrong(void *argument)
{
	struct pl_publisher_info infos[4];
	struct token token, wrong, region = { .length = sizeof(region.bytes) };
	struct pl_publisher *other;
	struct buffer buffer;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument);
	token = share_stream(rig.publisher, 0);
	wrong = token;
	wrong.length--;
	check(refused_open(&rig, &wrong, "TOKEN-MALFORMED") == -EINVAL);
	check(pl_publisher_revoke(rig.publisher, wrong.bytes, wrong.length) == -EINVAL);
	wrong = token;
	wrong.bytes[40] ^= 1;
	check(refused_open(&rig, &wrong, "TOKEN-DAMAGED") == -EINVAL);
	buffer_open(&buffer, rig.environment.far, 4096, PL_ACCESS_READ);
	check_ok(pl_region_share(buffer.region, NULL, region.bytes, &region.length, &error), &error);
	check(refused_open(&rig, &region, "TOKEN-KIND") == -EINVAL);
	check(pl_publisher_revoke(rig.publisher, region.bytes, region.length) == -EINVAL);
	check(pl_region_revoke(buffer.region, token.bytes, token.length) == -ENOENT);
	check(pl_remote_import(rig.environment.near_peer, token.bytes, token.length, AMPLE_TIME,
			       &(struct pl_remote *){ NULL }, &error) == -EINVAL);
	check(!strcmp(error.id, "TOKEN-KIND"));
	other = open_publisher(&rig, "other", true);
	wrong = share_stream(other, 0);
	check(refused_open(&rig, &wrong, "STREAM-TOKEN-REFUSED") == -EACCES);
	check(pl_publisher_revoke(rig.publisher, wrong.bytes, wrong.length) == -ENOENT);
	pl_publisher_close(other);
	check(refused_open(&rig, &wrong, "STREAM-TOKEN-REFUSED") == -EACCES);
	check(list_with(&rig, &wrong, infos, 4, &error) == -EACCES && !strcmp(error.id, "STREAM-TOKEN-REFUSED"));
	check(count_noted(rig.environment.far_peer, "refused-here", "subscribe: the token is unknown") == 2);
	check(count_noted(rig.environment.far_peer, "refused-here", "list: the token is unknown") == 1);
	/* The other process is this one: its publisher is in `near`. */
	rig.publisher->context->id[0] ^= 1;
	wrong = share_stream(rig.publisher, 0);
	rig.publisher->context->id[0] ^= 1;
	check(refused_open(&rig, &wrong, "TOKEN-FOREIGN") == -EACCES);
	buffer_close(&buffer);
	rig_close(&rig);
}

/* Revoking ends the subscriptions of one token, and no others. A new token lets the subscriber go on. */
static void test_revoke(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscriber *first, *second;
	struct token one, two, three;
	struct pl_accounts accounts;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument);
	one = share_stream(rig.publisher, 0);
	two = share_stream(rig.publisher, 0);
	options.queue = 16;
	first = subscribe(&rig, &one, &options);
	second = subscribe(&rig, &two, &options);
	publish_filled(rig.publisher, SLOT);
	take_one(first, 0);
	take_one(second, 0);
	check(pl_publisher_revoke(rig.publisher, one.bytes, one.length) == 0);
	check(subscribers_of(rig.publisher) == 1);
	check(pl_publisher_revoke(rig.publisher, one.bytes, one.length) == -ENOENT);
	check(take_until(first, "STREAM-TOKEN-REVOKED") == 0);
	check(refused_open(&rig, &one, "STREAM-TOKEN-REFUSED") == -EACCES);
	check(count_noted(rig.environment.far_peer, "revoked-here", "subscription: its token was revoked") == 1);
	publish_filled(rig.publisher, SLOT);
	take_one(second, 1);
	/* With the old token the subscriber cannot go on, with a new one it can. */
	check(pl_subscriber_attach(first, rig.environment.near_peer, AMPLE_TIME, &error) == -EACCES);
	check(!strcmp(error.id, "STREAM-TOKEN-REFUSED"));
	three = share_stream(rig.publisher, 0);
	check(pl_subscriber_set_token(first, three.bytes, three.length - 1, &error) == -EINVAL);
	check_ok(pl_subscriber_set_token(first, three.bytes, three.length, &error), &error);
	check_ok(pl_subscriber_attach(first, rig.environment.near_peer, AMPLE_TIME, &error), &error);
	take_one(first, 1);
	accounts = exact_accounts(first);
	check(accounts.delivered == 2 && accounts.next == 2);
	pl_subscriber_close(first);
	pl_subscriber_close(second);
	rig_close(&rig);
}

struct writer {
	struct pl_publisher *publisher;
	pthread_t thread;
	atomic_bool stop;
	atomic_uint frames;
};

static void *write_frames(void *argument)
{
	struct writer *writer = argument;

	while (!atomic_load(&writer->stop)) {
		struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
		struct pl_stream_frame *frame;

		/* A subscriber may hold all slots back. */
		if (pl_publisher_loan(writer->publisher, PL_NS_PER_MS, &frame, NULL) < 0)
			continue;
		options.length = SLOT;
		check(pl_frame_publish(frame, &options, NULL) == 0);
		atomic_fetch_add(&writer->frames, 1);
	}
	return NULL;
}

static void writer_start(struct writer *writer, struct pl_publisher *publisher)
{
	writer->publisher = publisher;
	atomic_init(&writer->stop, false);
	atomic_init(&writer->frames, 0);
	check(pthread_create(&writer->thread, NULL, write_frames, writer) == 0);
}

static void writer_stop(struct writer *writer)
{
	atomic_store(&writer->stop, true);
	check(pthread_join(writer->thread, NULL) == 0);
}

/* Revokes while frames are under way to a subscriber that blocks: the publisher goes on without it. */
static void revoke_under_way(const struct setting *setting, bool in_place)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscription_info info = PL_SUBSCRIPTION_INFO_INIT;
	struct pl_subscriber *subscriber;
	struct pl_accounts accounts;
	struct writer writer;
	struct token token;
	struct rig rig;
	unsigned before;

	rig_open(&rig, setting);
	token = share_stream(rig.publisher, 0);
	options.overflow = PL_OVERFLOW_BLOCK;
	options.in_place = in_place;
	subscriber = subscribe(&rig, &token, &options);
	writer_start(&writer, rig.publisher);
	for (unsigned i = 0; i < 20; i++) {
		struct pl_stream_frame *frame;

		check(pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, NULL) == 1);
		pl_frame_release(frame);
	}
	check(pl_publisher_revoke(rig.publisher, token.bytes, token.length) == 0);
	check(subscribers_of(rig.publisher) == 0);
	take_until(subscriber, "STREAM-TOKEN-REVOKED");
	before = atomic_load(&writer.frames);
	progress_until(&rig.environment, atomic_load(&writer.frames) > before + 2 * SLOTS);
	writer_stop(&writer);
	accounts = exact_accounts(subscriber);
	check(accounts.pending == 0 && accounts.delivered >= 20);
	check(pl_publisher_subscribers(rig.publisher, &info, 1) == 1 && info.ended);
	check(pl_accounts_exact(&info.accounts));
	pl_subscriber_close(subscriber);
	rig_close(&rig);
}

static void test_revoke_under_way(void *argument)
{
	revoke_under_way(argument, false);
}

static void test_revoke_in_place(void *argument)
{
	revoke_under_way(argument, true);
}

/* A token that has expired admits nobody, and ends the subscription that it has admitted. */
static void test_expiry(void *argument)
{
	struct pl_publisher_info infos[4];
	struct pl_subscriber *subscriber, *lasting;
	struct token expired, token, forever;
	struct pl_token_info content;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument);
	expired = share_stream(rig.publisher, 1);
	check(refused_open(&rig, &expired, "STREAM-TOKEN-EXPIRED") == -EACCES);
	check(list_with(&rig, &expired, infos, 4, &error) == -EACCES && !strcmp(error.id, "STREAM-TOKEN-EXPIRED"));
	/* An hour, which ends when the test sets the time of its end. */
	token = share_stream(rig.publisher, 3600 * PL_NS_PER_S);
	check_ok(pl_token_inspect(token.bytes, token.length, &content, &error), &error);
	check(content.expires > pl_wall_clock());
	forever = share_stream(rig.publisher, 0);
	subscriber = subscribe(&rig, &token, NULL);
	lasting = subscribe(&rig, &forever, NULL);
	publish_filled(rig.publisher, SLOT);
	take_one(subscriber, 0);
	take_one(lasting, 0);
	pl_engine_lock(rig.environment.far_peer->home);
	pl_list_for_each(at, &rig.environment.far_peer->subscriptions) {
		struct pl_subscription *subscription = pl_list_entry(at, struct pl_subscription, peer_link);

		if (subscription->pass.expires)
			subscription->pass.expires = 1;
	}
	pl_engine_unlock(rig.environment.far_peer->home);
	check(take_until(subscriber, "STREAM-TOKEN-EXPIRED") == 0);
	check(count_noted(rig.environment.far_peer, "revoked-here", "subscription: its token has expired") == 1);
	publish_filled(rig.publisher, SLOT);
	take_one(lasting, 1);
	pl_subscriber_close(subscriber);
	pl_subscriber_close(lasting);
	rig_close(&rig);
}

/* A subscriber whose connection was cut continues with its token; after a revocation it does not. */
static void test_resume(void *argument)
{
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame;
	struct pl_peer *near_peer, *far_peer;
	struct token token;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument);
	token = share_stream(rig.publisher, 0);
	subscriber = subscribe(&rig, &token, NULL);
	publish_filled(rig.publisher, SLOT);
	take_one(subscriber, 0);
	pl_peer_close(rig.environment.far_peer);
	check(pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error) == -ENOTCONN);
	publish_filled(rig.publisher, SLOT);
	connect_pair(&rig.environment, rig.environment.near, rig.environment.listener, &near_peer, &far_peer);
	pl_peer_close(rig.environment.near_peer);
	rig.environment.near_peer = near_peer;
	rig.environment.far_peer = far_peer;
	check_ok(pl_subscriber_attach(subscriber, near_peer, AMPLE_TIME, &error), &error);
	take_one(subscriber, 1);
	check(exact_accounts(subscriber).delivered == 2 && exact_accounts(subscriber).missed == 0);
	check(pl_publisher_revoke(rig.publisher, token.bytes, token.length) == 0);
	take_until(subscriber, "STREAM-TOKEN-REVOKED");
	check(pl_subscriber_attach(subscriber, near_peer, AMPLE_TIME, &error) == -EACCES);
	check(!strcmp(error.id, "STREAM-TOKEN-REFUSED"));
	pl_subscriber_close(subscriber);
	rig_close(&rig);
}

static void set_capability(struct pl_peer *peer, bool stream_tokens)
{
	pl_engine_lock(peer->home);
	peer->stream_tokens = stream_tokens;
	pl_engine_unlock(peer->home);
}

static void send_as(struct pl_peer *peer, const struct pl_stream_message *message)
{
	pl_engine_lock(peer->home);
	check(pl_stream_send(peer, message) == 0);
	pl_engine_unlock(peer->home);
}

/* Ends of releases without tokens: the publisher's end is told to update, the subscriber's sees no such stream. */
static void test_old_ends(void *argument)
{
	struct pl_stream_message message = { .type = PL_STREAM_LIST, .number = 1000, .token.given = true };
	struct pl_peer_info peer = PL_PEER_INFO_INIT;
	struct pl_publisher_info infos[4];
	struct token token;
	struct pl_error error;
	struct rig rig;
	uint64_t limit;

	rig_open(&rig, argument);
	token = share_stream(rig.publisher, 0);
	set_capability(rig.environment.near_peer, false);
	check(refused_open(&rig, &token, "STREAM-OLD") == -ENOTSUP);
	check(list_with(&rig, &token, infos, 4, &error) == -ENOTSUP && !strcmp(error.id, "STREAM-OLD"));
	check(strstr(error.hint, "update Peerlane"));
	set_capability(rig.environment.near_peer, true);
	set_capability(rig.environment.far_peer, false);
	check(refused_open(&rig, NULL, "STREAM-UNKNOWN") == -ENOENT);
	check(count_noted(rig.environment.far_peer, "refused-here", "subscribe: the stream needs a token") == 1);
	/* An end that names no capability must not send one. */
	send_as(rig.environment.near_peer, &message);
	limit = clock_now() + AMPLE_TIME;
	do {
		settle(&rig.environment, 1);
		check(pl_peer_query(rig.environment.near_peer, &peer) == 0 && clock_now() < limit);
	} while (peer.connected);
	rig_close(&rig);
}

/* Makes the publisher's end forget how often the other end has subscribed: that rate has a limit of its own. */
static void forget_subscribes(struct pl_peer *peer)
{
	pl_engine_lock(peer->home);
	peer->subscribes_until = 0;
	pl_engine_unlock(peer->home);
}

/* Waits until the publisher's end has noted so many guesses. Returns those that it has checked. */
static uint64_t await_guesses(struct rig *rig, uint64_t count)
{
	uint64_t limit = clock_now() + 3 * AMPLE_TIME, checked, limited;

	do {
		settle(&rig->environment, 1);
		checked = count_noted(rig->environment.far_peer, "refused-here", "subscribe: the token is unknown");
		limited = count_noted(rig->environment.far_peer, "limit-reached", "subscribe: too many wrong tokens");
		check(checked + limited <= count && subscribers_of(rig->publisher) == 0 && clock_now() < limit);
	} while (checked + limited < count);
	return checked;
}

/* The publisher checks few of 10,000 guesses, and notes all. It does not check a right token that comes after them. */
static void test_guesses(void *argument)
{
	struct pl_stream_message message = { .type = PL_STREAM_SUBSCRIBE, .number = 1000000, .token.given = true };
	uint64_t begin = pl_now(), checked = 0;
	struct pl_peer *near_peer, *far_peer;
	struct pl_subscriber *subscriber;
	struct pl_token content;
	struct token token;
	struct pl_error error;
	struct rig rig;
	int rc;

	rig_open(&rig, argument);
	token = share_stream(rig.publisher, 0);
	check(pl_token_decode(token.bytes, token.length, &content) == 0);
	strcpy(message.subscribe.name, NAME);
	message.subscribe.every = 1;
	message.token.id = content.grant;
	memcpy(message.token.secret, content.secret, sizeof(content.secret));
	for (unsigned i = 0; i < GUESSES; i++) {
		memcpy(message.token.secret, &i, sizeof(i));
		message.number++;
		send_as(rig.environment.near_peer, &message);
		if (message.number % 500)
			continue;
		checked = await_guesses(&rig, i + 1);
		forget_subscribes(rig.environment.far_peer);
	}
	check(checked >= CHECKED);
	check(checked <= CHECKED + 1 + (pl_now() - begin) / PL_NS_PER_S);
	/* The right one is not checked either, until enough time has passed. Other connections are not concerned. */
	connect_pair(&rig.environment, rig.environment.near, rig.environment.listener, &near_peer, &far_peer);
	check_ok(try_subscribe(&rig, near_peer, &token, NULL, &subscriber, &error), &error);
	pl_subscriber_close(subscriber);
	while ((rc = try_subscribe(&rig, rig.environment.near_peer, &token, NULL, &subscriber, &error)) < 0) {
		check(rc == -EBUSY && !strcmp(error.id, "STREAM-TOKEN-RATE") && error.hint[0]);
		settle(&rig.environment, 10);
	}
	pl_subscriber_close(subscriber);
	pl_peer_close(near_peer);
	pl_peer_close(far_peer);
	rig_close(&rig);
}

static unsigned tokens_of(struct pl_publisher *publisher)
{
	unsigned count;

	pl_lock_take(&publisher->lock);
	count = (unsigned)pl_index_table_used(&publisher->tokens);
	pl_lock_release(&publisher->lock);
	return count;
}

/* A publisher has at most 1,024 tokens. Those that have expired give their room up. */
/* Sets the time until which the wrong tokens of a connection count. */
static void set_wrong_tokens(struct pl_peer *peer, uint64_t until)
{
	pl_engine_lock(peer->home);
	peer->wrong_tokens = until;
	pl_engine_unlock(peer->home);
}

/* Lists check no more tokens than subscriptions do. */
static void test_list_guesses(void *argument)
{
	struct pl_publisher_info infos[2];
	struct token token;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument);
	token = share_stream(rig.publisher, 0);
	set_wrong_tokens(rig.environment.far_peer, pl_now() + 2 * AMPLE_TIME);
	check(list_with(&rig, &token, infos, 2, &error) == -EBUSY && !strcmp(error.id, "STREAM-TOKEN-RATE"));
	check(pl_peer_publishers(rig.environment.near_peer, infos, 2, AMPLE_TIME, &error) == 0);
	check(refused_open(&rig, &token, "STREAM-TOKEN-RATE") == -EBUSY);
	/* A question without a token is none. */
	check(refused_open(&rig, NULL, "STREAM-TOKEN-NEEDED") == -EACCES);
	set_wrong_tokens(rig.environment.far_peer, 0);
	check(list_with(&rig, &token, infos, 2, &error) == 1);
	rig_close(&rig);
}

/* A subscription ends with its token, also if another one has the place of that in the table by then. */
static void test_place_of_token(void *argument)
{
	struct pl_subscriber *subscriber;
	struct token token, other;
	struct rig rig;

	rig_open(&rig, argument);
	token = share_stream(rig.publisher, 0);
	other = share_stream(rig.publisher, 0);
	subscriber = subscribe(&rig, &token, NULL);
	pl_lock_take(&rig.publisher->lock);
	pl_list_first(&rig.publisher->subscriptions, struct pl_subscription, link)->pass.id ^= 1ull << 32;
	pl_lock_release(&rig.publisher->lock);
	/* Looks at all subscriptions. */
	check(pl_publisher_revoke(rig.publisher, other.bytes, other.length) == 0);
	check(take_until(subscriber, "STREAM-TOKEN-REVOKED") == 0);
	pl_subscriber_close(subscriber);
	rig_close(&rig);
}

static void test_limit(void *argument)
{
	struct token token;
	struct rig rig;

	rig_open(&rig, argument);
	for (unsigned i = 0; i < PL_STREAM_TOKENS_MAX; i++)
		token = share_stream(rig.publisher, 0);
	check(tokens_of(rig.publisher) == PL_STREAM_TOKENS_MAX);
	check(refused_share(rig.publisher, NULL, PL_TOKEN_MAX, "STREAM-TOKEN-LIMIT") == -ENOSPC);
	check(pl_publisher_revoke(rig.publisher, token.bytes, token.length) == 0);
	token = share_stream(rig.publisher, 1);
	check(tokens_of(rig.publisher) == PL_STREAM_TOKENS_MAX);
	token = share_stream(rig.publisher, 0);
	check(tokens_of(rig.publisher) == PL_STREAM_TOKENS_MAX);
	check(refused_share(rig.publisher, NULL, PL_TOKEN_MAX, "STREAM-TOKEN-LIMIT") == -ENOSPC);
	pl_subscriber_close(subscribe(&rig, &token, NULL));
	rig_close(&rig);
}

struct sharer {
	struct rig *rig;
	pthread_t thread;
};

static void *share_and_revoke(void *argument)
{
	struct sharer *sharer = argument;
	struct pl_publisher *publisher = sharer->rig->publisher;

	for (unsigned i = 0; i < 20; i++) {
		struct token token = share_stream(publisher, i % 2 ? 0 : 3600 * PL_NS_PER_S);
		struct pl_subscriber *subscriber = subscribe(sharer->rig, &token, NULL);

		check(pl_publisher_revoke(publisher, token.bytes, token.length) == 0);
		take_until(subscriber, "STREAM-TOKEN-REVOKED");
		pl_subscriber_close(subscriber);
	}
	return NULL;
}

/* Threads make and revoke tokens at a time, while frames are published. */
static void test_threads(void *argument)
{
	struct sharer sharers[4];
	struct writer writer;
	struct rig rig;

	rig_open(&rig, argument);
	writer_start(&writer, rig.publisher);
	for (unsigned i = 0; i < 4; i++) {
		sharers[i].rig = &rig;
		check(pthread_create(&sharers[i].thread, NULL, share_and_revoke, &sharers[i]) == 0);
	}
	for (unsigned i = 0; i < 4; i++)
		check(pthread_join(sharers[i].thread, NULL) == 0);
	writer_stop(&writer);
	check(tokens_of(rig.publisher) == 0 && subscribers_of(rig.publisher) == 0);
	rig_close(&rig);
}

#define THREADED(name, function, seconds) \
	{ name " tcp", function, &frames_tcp_threads, seconds }, \
	{ \
		name " local", function, &frames_local_threads, seconds \
	}
#define ALL(name, function, seconds) \
	{ name " tcp manual", function, &frames_tcp_manual, seconds }, \
		{ name " local manual", function, &frames_local_manual, seconds }, \
		{ name " tcp push", function, &tcp_push, seconds }, \
		{ name " local push", function, &local_push_tokens, seconds }, THREADED(name, function, seconds)

int main(void)
{
	static const struct test_case cases[] = {
		ALL("token", test_token, 60),
		THREADED("open stream", test_open_stream, 60),
		{ "options", test_options, &frames_tcp_threads, 60 },
		THREADED("wrong", test_wrong, 60),
		ALL("revoke", test_revoke, 60),
		ALL("revoke under way", test_revoke_under_way, 60),
		{ "revoke in place", test_revoke_in_place, &frames_local_threads, 60 },
		{ "revoke in place manual", test_revoke_in_place, &frames_local_manual, 60 },
		ALL("expiry", test_expiry, 60),
		ALL("resume", test_resume, 60),
		THREADED("old ends", test_old_ends, 60),
		THREADED("guesses", test_guesses, 120),
		{ "limit", test_limit, &frames_tcp_threads, 60 },
		{ "list guesses", test_list_guesses, (void *)&frames_tcp_threads, 30 },
		{ "place of a token", test_place_of_token, (void *)&frames_tcp_threads, 30 },
		THREADED("threads", test_threads, 120),
	};

	return cases_run("stream tokens", cases, sizeof(cases) / sizeof(cases[0]));
}
