/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream/presented_token.h"

#include "core/grant.h"
#include "stream/subscriber.h"

int pl_presented_token_read(struct pl_presented_token *presented, const void *data, size_t length,
			    struct pl_error *error)
{
	struct pl_token token;
	int rc;

	*presented = (struct pl_presented_token){ 0 };
	if (!data)
		return 0;
	rc = pl_token_read_kind(data, length, PL_TOKEN_STREAM, &token, error);
	if (rc < 0)
		return rc;
	presented->token.given = true;
	presented->token.id = token.grant;
	memcpy(presented->token.secret, token.secret, sizeof(token.secret));
	memcpy(presented->context_id, token.context_id, sizeof(token.context_id));
	return 0;
}

int pl_presented_token_check(const struct pl_presented_token *presented, const struct pl_peer *peer, const char *call,
			     const char *name, struct pl_error *error)
{
	if (!presented->token.given)
		return 0;
	if (!peer->stream_tokens)
		return pl_fail(error, -ENOTSUP, "STREAM-OLD", call, name,
			       "update Peerlane at the other end, or leave the token out",
			       "the other end (%s) has no tokens of streams", peer->software);
	/* The secret is not shown to another process than the one that made it. */
	if (memcmp(presented->context_id, peer->context_id, sizeof(peer->context_id)))
		return pl_fail(error, -EACCES, "TOKEN-FOREIGN", call, name,
			       "present it to the peer that made it, and ask for a new one after a restart",
			       "the token was made by another process than this peer");
	return 0;
}

int pl_fail_token_status(enum pl_subscribe_status status, const char *call, const char *name, struct pl_error *error)
{
	switch (status) {
	case PL_SUBSCRIBE_NEEDS_TOKEN:
		return pl_fail(error, -EACCES, "STREAM-TOKEN-NEEDED", call, name,
			       "ask the publisher for a token, and set pl_subscriber_options.token",
			       "the stream is for subscribers that have a token");
	case PL_SUBSCRIBE_EXPIRED_TOKEN:
		return pl_fail(error, -EACCES, "STREAM-TOKEN-EXPIRED", call, name, "ask the publisher for a new token",
			       "the token has expired");
	case PL_SUBSCRIBE_TOKEN_RATE:
		return pl_fail(error, -EBUSY, "STREAM-TOKEN-RATE", call, name,
			       "wait a second before each further attempt, and present the right token",
			       "this connection has presented too many wrong tokens");
	default:
		return pl_fail(error, -EACCES, "STREAM-TOKEN-REFUSED", call, name,
			       "ask the publisher of this stream for a token",
			       "the token is unknown, was revoked, or is that of another stream");
	}
}

void pl_subscriber_note_closed(struct pl_subscriber *subscriber, enum pl_closed_reason reason)
{
	const char *call = "pl_subscriber_take", *name = subscriber->name;

	if (reason == PL_CLOSED_REVOKED)
		pl_fail(&subscriber->failure, -EACCES, "STREAM-TOKEN-REVOKED", call, name,
			"ask the publisher for a new token, set it by pl_subscriber_set_token(), and attach again",
			"the publisher has revoked the token of the subscription");
	else if (reason == PL_CLOSED_EXPIRED)
		pl_fail(&subscriber->failure, -EACCES, "STREAM-TOKEN-EXPIRED", call, name,
			"ask the publisher for a new token, set it by pl_subscriber_set_token(), and attach again",
			"the token of the subscription has expired");
}

int pl_subscriber_set_token(struct pl_subscriber *subscriber, const void *data, size_t length, struct pl_error *error)
{
	struct pl_presented_token presented;
	int rc = pl_presented_token_read(&presented, data, length, error);

	if (rc < 0)
		return rc;
	pl_lock_take(&subscriber->lock);
	subscriber->presented = presented;
	pl_lock_release(&subscriber->lock);
	return 0;
}
