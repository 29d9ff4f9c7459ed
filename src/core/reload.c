/* SPDX-License-Identifier: BSD-2-Clause */
/* Identities of peers, and the new judgement of all peers after a reload. */
#include <stdio.h>

#include "core/fabric.h"
#include "core/trust.h"

/* Replaces what is known of a peer, or disconnects it. Home. */
static void judge_peer_again(struct pl_peer *peer)
{
	struct pl_candidate candidate = { .stream = &peer->channel.stream,
					  .address = (struct sockaddr *)&peer->address };
	struct pl_admission *admission = NULL, *old;
	const char *fact = "the other end has fewer rights now%.0s";
	struct pl_error error, lost;
	int rc;

	/* Other threads set the name and the admission of a peer that has no channel yet. */
	if (peer->dead || !peer->channel.open || atomic_load(&peer->state) == PL_PEER_LOST)
		return;
	old = peer->admission;
	if (!old)
		return;
	candidate.server = peer->initiator ? peer->server_name : NULL;
	rc = pl_trust_judge(peer->context, &candidate, &admission, &error);
	if (rc == 0 && !(old->rights.access & ~admission->rights.access) && !pl_peer_change_rate(peer, admission)) {
		fact = "the other end has a rate now, for which it must connect again%.0s";
	} else if (rc == 0 && !(old->rights.access & ~admission->rights.access)) {
		memcpy(admission->identity.key_id, old->identity.key_id, sizeof(old->identity.key_id));
		peer->admission = admission;
		pl_free(&peer->context->allocator, old);
		return;
	}
	pl_free(&peer->context->allocator, admission);
	pl_fail(&lost, -EACCES, "PEER-REVOKED", NULL, old->identity.address, NULL,
		rc < 0 ? "the other end is not admitted any longer: %s" : fact, error.message);
	if (atomic_load(&peer->state) == PL_PEER_OPENING)
		pl_peer_open_failed(peer, &lost);
	else
		pl_peer_lose(peer, &lost);
}

bool pl_peer_judgement_outdated(const struct pl_peer *peer)
{
	return peer->admission && peer->admission->generation != atomic_load(&peer->context->trust_generation);
}

int pl_peer_judge_again(struct pl_peer *peer, struct pl_error *error)
{
	const struct pl_candidate candidate = { .stream = &peer->incoming,
						.address = (struct sockaddr *)&peer->address,
						.server = peer->server_name };
	struct pl_admission *admission, *old = peer->admission;
	int rc;

	rc = pl_trust_judge(peer->context, &candidate, &admission, error);
	if (rc < 0)
		return rc;
	memcpy(admission->identity.key_id, old->identity.key_id, sizeof(old->identity.key_id));
	peer->admission = admission;
	pl_free(&peer->context->allocator, old);
	return 0;
}

/* Pins all peers of a context. Returns their number, or -ENOMEM; the caller frees *peers. */
static ssize_t pin_all_peers(struct pl_context *context, struct pl_peer ***peers)
{
	size_t count = 0, at = 0;

	pthread_mutex_lock(&context->lock);
	pl_list_for_each(link, &context->peers)
		count++;
	*peers = pl_alloc(&context->allocator, (count + 1) * sizeof(**peers));
	pl_list_for_each(link, &context->peers) {
		struct pl_peer *peer = pl_list_entry(link, struct pl_peer, link);

		if (!*peers || peer->claimed)
			continue;
		atomic_fetch_add(&peer->pins, 1);
		(*peers)[at++] = peer;
	}
	pthread_mutex_unlock(&context->lock);
	return *peers ? (ssize_t)at : -ENOMEM;
}

static int judge_all_peers(struct pl_context *context, struct pl_error *error)
{
	struct pl_peer **peers;
	ssize_t count = pin_all_peers(context, &peers);
	const bool asks = pl_trust_asks_program(context);

	if (count < 0)
		return pl_fail_memory(error, "pl_context_reload");
	for (ssize_t i = 0; i < count; i++) {
		/* First the turn, then the lock: no engine waits for the turn under its lock. */
		if (asks)
			pl_callback_turn_take(&context->callback_turns);
		pl_engine_lock(peers[i]->home);
		judge_peer_again(peers[i]);
		pl_engine_unlock(peers[i]->home);
		if (asks)
			pl_callback_turn_end(&context->callback_turns);
		pl_peer_unpin(peers[i]);
	}
	pl_free(&context->allocator, peers);
	return 0;
}

static int check_reload(const struct pl_context *context, const struct pl_credentials *credentials,
			struct pl_error *error)
{
	bool keyed = pl_tls_has_key(context->tls);

	if (!context->trust && !keyed)
		return pl_fail(error, -ENOTSUP, "RELOAD-NOTHING", "pl_context_reload", NULL,
			       "open the context with a key, or with an identity",
			       "the context has neither files nor a key");
	if (credentials->key && !keyed)
		return pl_fail(error, -EINVAL, "OPTION", "pl_context_reload", "key", "open a new context with the key",
			       "the context was opened without a key");
	return 0;
}

int pl_context_reload(struct pl_context *context, const struct pl_credentials *given, struct pl_error *error)
{
	struct pl_credentials credentials;
	int rc = 0;

	if (pl_copy_versioned(&credentials, sizeof(credentials), given) < 0)
		return pl_fail(error, -EINVAL, "OPTION", "pl_context_reload", "size",
			       "initialise the structure with PL_CREDENTIALS_INIT", "unknown size of the credentials");
	rc = check_reload(context, &credentials, error);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&context->reload_lock);
	rc = pl_trust_reload(context, &credentials, error);
	if (rc == 0) {
		atomic_fetch_add(&context->trust_generation, 1);
		rc = judge_all_peers(context, error);
	}
	pthread_mutex_unlock(&context->reload_lock);
	return rc;
}

/* -- questions ---------------------------------------------------------------------------------------------------- */

int pl_peer_identity(struct pl_peer *peer, struct pl_identity *identity)
{
	struct pl_identity full = PL_IDENTITY_INIT;
	size_t size = identity->size;

	if (size < sizeof(size) || size > sizeof(full))
		return -EINVAL;
	pl_engine_lock(peer->home);
	if (peer->admission)
		full = peer->admission->identity;
	pl_engine_unlock(peer->home);
	if (!full.address[0])
		pl_address_format((struct sockaddr *)&peer->address, full.address, sizeof(full.address));
	full.connected_to_us = !peer->initiator;
	memcpy(identity, &full, size);
	identity->size = size;
	return 0;
}

int pl_peer_rights(struct pl_peer *peer, struct pl_rights *rights)
{
	struct pl_rights full = PL_RIGHTS_INIT;
	size_t size = rights->size;

	if (size < sizeof(size) || size > sizeof(full))
		return -EINVAL;
	pl_engine_lock(peer->home);
	if (peer->admission)
		full = peer->admission->rights;
	pl_engine_unlock(peer->home);
	memcpy(rights, &full, size);
	rights->size = size;
	return 0;
}
