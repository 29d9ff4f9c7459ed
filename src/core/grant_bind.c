/* SPDX-License-Identifier: BSD-2-Clause */
/* Grants that only one peer can import, and regions that the library lends to a peer. */
#include <endian.h>

#include "core/grant.h"
#include "core/peer.h"
#include "core/stream_ops.h"

int pl_grant_bind(struct pl_region *region, unsigned rights, const struct pl_peer *peer, const uint64_t *trailing_word,
		  uint8_t data[PL_TOKEN_SIZE])
{
	const struct pl_grant_options options = { .length = region->memory.length, .rights = rights };
	const struct pl_grant_binding binding = { .only = peer, .trailing_word = trailing_word };
	struct pl_token token;

	if (rights & ~region->access)
		return -EACCES;
	if (!pl_grant_new(region, &options, &binding, &token))
		return -ENOMEM;
	pl_token_encode(&token, data);
	return 0;
}

int pl_grant_lend(struct pl_region *region, unsigned rights, struct pl_peer *peer, struct pl_lent *lent)
{
	const struct pl_grant_options options = { .length = region->memory.length, .rights = rights };
	const struct pl_grant_binding binding = { .only = peer, .lent = true };
	struct pl_import import = { 0 };
	struct pl_imported answer;
	struct pl_token token;

	if (!pl_grant_new(region, &options, &binding, &token))
		return -ENOMEM;
	import.grant = token.grant;
	memcpy(import.secret, token.secret, sizeof(import.secret));
	pl_token_encode(&token, lent->token);
	if (pl_grant_answer(peer, &import, &answer) < 0 || answer.status != PL_WIRE_OK) {
		pl_grant_revoke(region->context, NULL, lent->token);
		return answer.status == PL_WIRE_TOKEN_RIGHTS ? -EACCES : -EBUSY;
	}
	lent->key_length = answer.key_length;
	memcpy(lent->key, answer.key, answer.key_length);
	memcpy(&lent->id, answer.key, sizeof(lent->id));
	lent->id = le64toh(lent->id);
	return 0;
}

bool pl_grant_is_lent(struct pl_peer *peer, const struct pl_lent *lent, const struct pl_region *region)
{
	const struct pl_key *key;
	bool is_lent;

	pthread_mutex_lock(&peer->context->grant_lock);
	key = pl_key_alive(peer, lent->id);
	is_lent = key && key->memory == &region->memory;
	pthread_mutex_unlock(&peer->context->grant_lock);
	return is_lent;
}

struct pl_key *pl_grant_take_back(struct pl_peer *peer, const struct pl_lent *lent)
{
	pl_grant_end(peer->context, lent->token);
	return pl_key_destroy_watched(peer, lent->id);
}
