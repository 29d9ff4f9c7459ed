/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tokens of streams, at the publisher's end: the publisher gives them out, and subscribers present them.
 *
 * publisher->lock protects the tokens. A subscription keeps the id of its token, and ends at home once the publisher has no
 * such token any more, or its lifetime is over.
 */
#ifndef PL_STREAM_STREAM_TOKEN_H
#define PL_STREAM_STREAM_TOKEN_H

#include "wire/stream_message.h"

struct pl_announcer;
struct pl_peer;
struct pl_publisher;
struct pl_subscription;

/* Token that the publisher has given out. */
struct pl_issued_token {
	uint64_t id; /* index in publisher->tokens, and random bits */
	uint8_t secret[16];
	uint64_t expires; /* CLOCK_REALTIME, 0 never */
};

/* Token that admitted a subscription. */
struct pl_stream_pass {
	bool used; /* false: the stream needs no token */
	uint64_t id, expires;
};

/* Judges the token of a SUBSCRIBE, and notes a refusal in the log of the peer. Home. */
enum pl_subscribe_status pl_stream_token_admit(struct pl_peer *peer, struct pl_publisher *publisher,
					       const struct pl_stream_token *token, struct pl_stream_pass *pass);
/* Ends the subscription when its token expires. Home. */
void pl_stream_token_watch(struct pl_subscription *subscription);
void pl_stream_token_watch_init(struct pl_announcer *announcer);

/* Search for the streams that a LIST with a token may show. */
struct pl_token_search {
	const struct pl_stream_token *token;
	enum pl_subscribe_status status;
};

void pl_token_search_begin(struct pl_token_search *search, struct pl_peer *peer, const struct pl_stream_token *token);
/* True if the list shows the publisher. publisher->lock is held. */
bool pl_token_search_shows(struct pl_token_search *search, const struct pl_publisher *publisher);
/* Returns the status of the token, and notes a refusal in the log of the peer. Home. */
enum pl_subscribe_status pl_token_search_end(const struct pl_token_search *search, struct pl_peer *peer);

/* Frees all tokens. No peer can subscribe any more. */
void pl_stream_tokens_free(struct pl_publisher *publisher);

#endif
