/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream/stream_token.h"

#include <openssl/crypto.h>

#include "stream/publisher.h"

/* Wrong tokens of a connection that are checked at once, and the time after which one more is checked. */
#define WRONG_TOKENS_MAX 16
#define WRONG_TOKEN_TIME PL_NS_PER_S
/* Longest time between two looks at the wall clock: an administrator may set it at any time. */
#define LOOK_AGAIN PL_NS_PER_S

static bool token_expired(uint64_t expires, uint64_t now)
{
	return expires && now >= expires;
}

/* -- tokens: publisher->lock is held ------------------------------------------------------------------------- */

static struct pl_issued_token *find_issued_token(const struct pl_publisher *publisher, uint64_t id)
{
	struct pl_issued_token *issued = pl_index_table_get(&publisher->tokens, (uint32_t)id);

	return issued && issued->id == id ? issued : NULL;
}

/* Compares the secret in constant time. */
static struct pl_issued_token *match_issued_token(const struct pl_publisher *publisher, uint64_t id,
						  const uint8_t secret[16])
{
	struct pl_issued_token *issued = find_issued_token(publisher, id);

	return issued && CRYPTO_memcmp(issued->secret, secret, sizeof(issued->secret)) == 0 ? issued : NULL;
}

static void remove_issued_token(struct pl_publisher *publisher, struct pl_issued_token *issued)
{
	pl_index_table_remove(&publisher->tokens, (uint32_t)issued->id);
	OPENSSL_cleanse(issued, sizeof(*issued));
	pl_free(&publisher->context->allocator, issued);
}

static void remove_expired_tokens(struct pl_publisher *publisher)
{
	uint64_t now = pl_wall_clock();

	for (size_t i = 0; i < publisher->tokens.count; i++) {
		struct pl_issued_token *issued = pl_index_table_get(&publisher->tokens, i);

		if (issued && token_expired(issued->expires, now))
			remove_issued_token(publisher, issued);
	}
}

void pl_stream_tokens_free(struct pl_publisher *publisher)
{
	for (size_t i = 0; i < publisher->tokens.count; i++) {
		struct pl_issued_token *issued = pl_index_table_get(&publisher->tokens, i);

		if (issued)
			remove_issued_token(publisher, issued);
	}
	pl_index_table_free(&publisher->context->allocator, &publisher->tokens);
}

static enum pl_subscribe_status judge_token(const struct pl_publisher *publisher, const struct pl_stream_token *token,
					    struct pl_stream_pass *pass)
{
	const struct pl_issued_token *issued = match_issued_token(publisher, token->id, token->secret);

	if (!issued)
		return PL_SUBSCRIBE_WRONG_TOKEN;
	*pass = (struct pl_stream_pass){ true, issued->id, issued->expires };
	return token_expired(issued->expires, pl_wall_clock()) ? PL_SUBSCRIBE_EXPIRED_TOKEN : PL_SUBSCRIBE_OK;
}

/* -- refusals: home ------------------------------------------------------------------------------------------- */

/* True if the peer has had so many wrong tokens that no further one is checked now. */
static bool token_rate_exceeded(const struct pl_peer *peer)
{
	return peer->wrong_tokens > pl_now() + (WRONG_TOKENS_MAX - 1) * WRONG_TOKEN_TIME;
}

static void count_wrong_token(struct pl_peer *peer)
{
	peer->wrong_tokens = PL_MAX(peer->wrong_tokens, pl_now()) + WRONG_TOKEN_TIME;
}

/* Texts without numbers, so that equal refusals merge in the log. */
#define TOKEN_REFUSALS_OF(request) \
	{ \
		[PL_SUBSCRIBE_NEEDS_TOKEN] = request ": the stream needs a token, and the other end presented none", \
		[PL_SUBSCRIBE_WRONG_TOKEN] = request ": the token is unknown, revoked, or of another stream", \
		[PL_SUBSCRIBE_EXPIRED_TOKEN] = request ": the token has expired", \
		[PL_SUBSCRIBE_TOKEN_RATE] = \
			request ": too many wrong tokens; further ones are not checked for a while", \
	}

static void note_refused_token(struct pl_peer *peer, bool listing, enum pl_subscribe_status status)
{
	static const char *const texts[2][PL_SUBSCRIBE_END] = { TOKEN_REFUSALS_OF("subscribe"),
								TOKEN_REFUSALS_OF("list") };

	if (status == PL_SUBSCRIBE_WRONG_TOKEN)
		count_wrong_token(peer);
	if (status == PL_SUBSCRIBE_TOKEN_RATE)
		pl_peer_note_key(peer, PL_EVENT_LIMIT_REACHED, 0, -EBUSY, texts[listing][status]);
	else
		pl_peer_note_key(peer, PL_EVENT_REFUSED_HERE, 0, -EACCES, texts[listing][status]);
}

enum pl_subscribe_status pl_stream_token_admit(struct pl_peer *peer, struct pl_publisher *publisher,
					       const struct pl_stream_token *token, struct pl_stream_pass *pass)
{
	enum pl_subscribe_status status = PL_SUBSCRIBE_NEEDS_TOKEN;

	if (!publisher->needs_token)
		return PL_SUBSCRIBE_OK;
	if (token->given && token_rate_exceeded(peer)) {
		status = PL_SUBSCRIBE_TOKEN_RATE;
	} else if (token->given) {
		pl_lock_take(&publisher->lock);
		status = judge_token(publisher, token, pass);
		pl_lock_release(&publisher->lock);
	}
	if (status != PL_SUBSCRIBE_OK)
		note_refused_token(peer, false, status);
	/* An end of a release without tokens knows no status about them. */
	return status == PL_SUBSCRIBE_NEEDS_TOKEN && !peer->stream_tokens ? PL_SUBSCRIBE_UNKNOWN : status;
}

/* -- lists -------------------------------------------------------------------------------------------------------- */

void pl_token_search_begin(struct pl_token_search *search, struct pl_peer *peer, const struct pl_stream_token *token)
{
	search->token = token;
	search->status = !token->given               ? PL_SUBSCRIBE_OK
			 : token_rate_exceeded(peer) ? PL_SUBSCRIBE_TOKEN_RATE
						     : PL_SUBSCRIBE_WRONG_TOKEN;
}

bool pl_token_search_shows(struct pl_token_search *search, const struct pl_publisher *publisher)
{
	enum pl_subscribe_status status;
	struct pl_stream_pass pass;

	if (!publisher->needs_token)
		return true;
	if (!search->token->given || search->status == PL_SUBSCRIBE_TOKEN_RATE)
		return false;
	status = judge_token(publisher, search->token, &pass);
	if (status != PL_SUBSCRIBE_WRONG_TOKEN)
		search->status = status;
	return status == PL_SUBSCRIBE_OK;
}

enum pl_subscribe_status pl_token_search_end(const struct pl_token_search *search, struct pl_peer *peer)
{
	if (search->status != PL_SUBSCRIBE_OK)
		note_refused_token(peer, true, search->status);
	return search->status;
}

/* -- ends of subscriptions: home ------------------------------------------------------------------------------------ */

/* Returns the reason for which a subscription must end; PL_CLOSED_PUBLISHER: none. publisher->lock is held. */
static enum pl_closed_reason pass_ended(const struct pl_publisher *publisher, const struct pl_stream_pass *pass,
					uint64_t now)
{
	if (!pass->used)
		return PL_CLOSED_PUBLISHER;
	if (token_expired(pass->expires, now))
		return PL_CLOSED_EXPIRED;
	return find_issued_token(publisher, pass->id) ? PL_CLOSED_PUBLISHER : PL_CLOSED_REVOKED;
}

/* Ends a subscription, and tells its subscriber the reason. */
static void close_subscription(struct pl_subscription *subscription, enum pl_closed_reason reason)
{
	pl_peer_note(subscription->peer, PL_EVENT_REVOKED_HERE,
		     reason == PL_CLOSED_EXPIRED ? "subscription: its token has expired"
						 : "subscription: its token was revoked");
	subscription->closed = reason;
	pl_subscription_dismiss(subscription);
}

/* Ends the subscriptions whose tokens have ended. Returns the time until the next token expires; UINT64_MAX: none does. */
static uint64_t end_unadmitted(struct pl_announcer *announcer)
{
	struct pl_publisher *publisher = announcer->publisher;
	uint64_t now = pl_wall_clock(), left = UINT64_MAX;
	/* Pushed writes that are stopped may lose their peer, and so end other subscriptions. */
	struct pl_list rest;

	pl_list_init(&rest);
	pl_list_splice(&rest, &announcer->subscriptions);
	while (!pl_list_empty(&rest)) {
		struct pl_subscription *subscription = pl_list_first(&rest, struct pl_subscription, home_link);
		const struct pl_stream_pass *pass = &subscription->pass;
		enum pl_closed_reason reason;

		pl_list_remove(&subscription->home_link);
		pl_list_append(&announcer->subscriptions, &subscription->home_link);
		pl_lock_take(&publisher->lock);
		reason = pass_ended(publisher, pass, now);
		pl_lock_release(&publisher->lock);
		if (reason != PL_CLOSED_PUBLISHER)
			close_subscription(subscription, reason);
		else if (pass->expires)
			left = PL_MIN(left, pass->expires - now);
	}
	return left;
}

static void token_timer_expired(struct pl_timer *timer)
{
	struct pl_announcer *announcer = pl_container_of(timer, struct pl_announcer, token_timer);
	uint64_t left = end_unadmitted(announcer);

	if (left != UINT64_MAX)
		pl_timer_set(announcer->engine, timer, pl_now() + PL_MIN(left, LOOK_AGAIN));
}

void pl_stream_token_watch_init(struct pl_announcer *announcer)
{
	pl_timer_init(&announcer->token_timer, token_timer_expired);
}

void pl_stream_token_watch(struct pl_subscription *subscription)
{
	struct pl_announcer *announcer = pl_announcer_of(subscription->publisher, subscription->peer->home);
	uint64_t expires = subscription->pass.expires, now = pl_wall_clock(), time;

	if (!expires)
		return;
	time = pl_now() + PL_MIN(expires - PL_MIN(expires, now), LOOK_AGAIN);
	if (pl_list_empty(&announcer->token_timer.link) || announcer->token_timer.deadline > time)
		pl_timer_set(announcer->engine, &announcer->token_timer, time);
}

/* -- calls of the program --------------------------------------------------------------------------------------------- */

static int check_share(const struct pl_publisher *publisher, const struct pl_grant_options *options, size_t space,
		       struct pl_error *error)
{
	const char *call = "pl_publisher_share", *name = publisher->header.name;

	if (options->offset || options->length || options->rights)
		return pl_fail(error, -EINVAL, "OPTION", call, "rights", "set pl_grant_options.lifetime alone",
			       "a token of a stream has neither a range nor rights");
	if (!publisher->needs_token)
		return pl_fail(error, -EINVAL, "STREAM-TOKEN-UNUSED", call, name,
			       "open the publisher with pl_publisher_options.needs_token",
			       "all peers can subscribe to the stream without a token");
	if (space < PL_TOKEN_SIZE)
		return pl_fail(error, -ENOBUFS, "TOKEN-SPACE", call, name, "give PL_TOKEN_MAX bytes",
			       "a token has %d bytes, there is room for %zu", PL_TOKEN_SIZE, space);
	return 0;
}

/* Adds a token to those of the publisher. Returns -ENOSPC if there are too many, or another errno. */
static int issue_token(struct pl_publisher *publisher, uint64_t lifetime, struct pl_token *token)
{
	const struct pl_allocator *allocator = &publisher->context->allocator;
	struct pl_issued_token *issued = pl_zalloc(allocator, sizeof(*issued));
	ssize_t index = -ENOSPC;
	uint32_t random;

	if (!issued)
		return -ENOMEM;
	issued->expires = lifetime ? pl_deadline(pl_wall_clock(), lifetime) : 0;
	if (pl_random(&random, sizeof(random)) < 0 || pl_random(issued->secret, sizeof(issued->secret)) < 0) {
		pl_free(allocator, issued);
		return -EIO;
	}
	pl_lock_take(&publisher->lock);
	if (pl_index_table_used(&publisher->tokens) >= PL_STREAM_TOKENS_MAX)
		remove_expired_tokens(publisher);
	if (pl_index_table_used(&publisher->tokens) < PL_STREAM_TOKENS_MAX)
		index = pl_index_table_add(allocator, &publisher->tokens, issued);
	if (index >= 0) {
		issued->id = (uint64_t)random << 32 | (uint32_t)index;
		token->grant = issued->id;
		token->expires = issued->expires;
		memcpy(token->secret, issued->secret, sizeof(token->secret));
	}
	pl_lock_release(&publisher->lock);
	if (index < 0)
		pl_free(allocator, issued);
	return (int)PL_MIN(index, (ssize_t)0);
}

int pl_publisher_share(struct pl_publisher *publisher, const struct pl_grant_options *given, void *buffer,
		       size_t *length, struct pl_error *error)
{
	const char *call = "pl_publisher_share", *name = publisher->header.name;
	struct pl_token token = { .kind = PL_TOKEN_STREAM };
	struct pl_grant_options options;
	int rc;

	if (pl_copy_versioned(&options, sizeof(options), given) < 0)
		return pl_fail(error, -EINVAL, "OPTION", call, "size", "use PL_GRANT_OPTIONS_INIT",
			       "options of a newer library, or not initialised");
	rc = check_share(publisher, &options, *length, error);
	if (rc < 0)
		return rc;
	rc = issue_token(publisher, options.lifetime, &token);
	if (rc == -ENOSPC)
		return pl_fail(error, rc, "STREAM-TOKEN-LIMIT", call, name,
			       "revoke tokens, or give one token to several subscribers", "the publisher has %d tokens",
			       PL_STREAM_TOKENS_MAX);
	if (rc < 0)
		return rc == -ENOMEM ? pl_fail_memory(error, call)
				     : pl_fail_errno(error, rc, "SYSTEM", "getrandom", NULL);
	memcpy(token.context_id, publisher->context->id, sizeof(token.context_id));
	pl_token_encode(&token, buffer);
	*length = PL_TOKEN_SIZE;
	return 0;
}

int pl_publisher_revoke(struct pl_publisher *publisher, const void *data, size_t length)
{
	struct pl_context *context = publisher->context;
	struct pl_issued_token *issued;
	struct pl_token token;

	if (pl_token_decode(data, length, &token) < 0 || token.kind != PL_TOKEN_STREAM)
		return -EINVAL;
	pl_lock_take(&publisher->lock);
	issued = match_issued_token(publisher, token.grant, token.secret);
	if (issued)
		remove_issued_token(publisher, issued);
	pl_lock_release(&publisher->lock);
	if (!issued)
		return -ENOENT;
	/* A SUBSCRIBE that has found the token holds its engine's lock until its subscription is in the list. */
	for (unsigned i = 0; i < context->engine_count; i++) {
		pl_engine_lock(context->engines[i]);
		end_unadmitted(&publisher->announcers[i]);
		pl_engine_unlock(context->engines[i]);
	}
	pl_context_await_outdated(context);
	pl_context_barrier(context);
	return 0;
}
