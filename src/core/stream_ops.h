/* SPDX-License-Identifier: BSD-2-Clause */
/* Interface between the core and streams of frames (src/stream/). */
#ifndef PL_CORE_STREAM_OPS_H
#define PL_CORE_STREAM_OPS_H

#include "core/context.h"

struct pl_operation;
struct pl_peer;
struct pl_region;

struct pl_stream_ops {
	/* Handles a PL_CONTROL_STREAM of a running peer. Returns 0, or -EPROTO. Home. */
	int (*message)(struct pl_peer *peer, const uint8_t *body, size_t length);
	/* The peer is lost or closed: ends its subscriptions, and leaves its subscribers without a connection. Home. */
	void (*peer_ended)(struct pl_peer *peer);
	/* Closes all publishers and subscribers. No engine's lock is held. */
	void (*close)(struct pl_context *context);
};

extern const struct pl_stream_ops pl_stream_ops;

/*
 * grant_bind.c: makes a token with rights (enum pl_access) to the whole region, which only this peer can import. Revoke it
 * with pl_grant_revoke(). `trailing_word`: little-endian word that the owner loads once it has copied the bytes of an answer, and
 * sends behind them; NULL: none. The word must exist until a barrier of the context after the token was shut.
 */
int pl_grant_bind(struct pl_region *region, unsigned rights, const struct pl_peer *peer, const uint64_t *trailing_word,
		  uint8_t token[PL_TOKEN_SIZE]);
/*
 * import.c: imports a token. The internal operation ends by `finished`, with the remote region in its completion. Returns NULL
 * with the reason in `*status` if it did not begin. Home.
 */
struct pl_operation *pl_import_begin(struct pl_peer *peer, const uint8_t token[PL_TOKEN_SIZE], uint64_t user_data,
				     void (*finished)(struct pl_operation *operation), int *status);

#endif
