/* SPDX-License-Identifier: BSD-2-Clause */
/* Token of a stream at the end that presents it: in a SUBSCRIBE or a LIST. */
#ifndef PL_STREAM_PRESENTED_TOKEN_H
#define PL_STREAM_PRESENTED_TOKEN_H

#include "wire/stream_message.h"

struct pl_peer;
struct pl_subscriber;

struct pl_presented_token {
	struct pl_stream_token token;
	uint8_t context_id[16]; /* of the publisher's context */
};

/* Reads a token of the program; data NULL: none. Returns 0, or -EINVAL if it is no token of a stream. */
int pl_presented_token_read(struct pl_presented_token *presented, const void *data, size_t length,
			    struct pl_error *error);
/* Returns 0 if the token, if there is one, can be presented to the peer; -ENOTSUP or -EACCES. */
int pl_presented_token_check(const struct pl_presented_token *presented, const struct pl_peer *peer, const char *call,
			     const char *name, struct pl_error *error);
/* Fills the error of a refusal that is about a token. */
int pl_fail_token_status(enum pl_subscribe_status status, const char *call, const char *name, struct pl_error *error);
/* Notes that the publisher has ended the subscription because of its token. subscriber->lock is held. */
void pl_subscriber_note_closed(struct pl_subscriber *subscriber, enum pl_closed_reason reason);

#endif
