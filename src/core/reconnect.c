/* SPDX-License-Identifier: BSD-2-Clause */
/* Connecting a lost peer anew, with its imports: each token is presented again over the new connection. */
#include "core/fabric.h"

/* Remote region of the old connection, and its new import. */
struct reimport {
	struct pl_remote *remote, *fresh;
};

struct reconnect {
	struct pl_context *context;
	struct reimport *imports;
	size_t count;
	uint64_t deadline;
};

/* Adds a reference. Returns false if the last one has gone: its thread waits for the context's lock to free the region. */
static bool hold_remote(struct pl_remote *remote)
{
	unsigned references = atomic_load(&remote->references);

	while (references && !atomic_compare_exchange_weak(&remote->references, &references, references + 1))
		;
	return references;
}

/* Collects the remote regions of a peer, with a reference each.  Returns 0 or -ENOMEM. */
static int collect_remotes(struct reconnect *reconnect, const struct pl_peer *peer)
{
	struct pl_context *context = reconnect->context;
	size_t count = 0;
	int rc = 0;

	pthread_mutex_lock(&context->lock);
	pl_list_for_each(at, &peer->remotes)
		count++;
	if (count)
		reconnect->imports = pl_zalloc(&context->allocator, count * sizeof(*reconnect->imports));
	if (count && !reconnect->imports)
		rc = -ENOMEM;
	pl_list_for_each(at, &peer->remotes) {
		struct pl_remote *remote = pl_list_entry(at, struct pl_remote, peer_link);

		if (rc == 0 && !remote->internal && hold_remote(remote))
			reconnect->imports[reconnect->count++].remote = remote;
	}
	pthread_mutex_unlock(&context->lock);
	return rc;
}

static int import_again(struct reconnect *reconnect, struct pl_peer *peer, struct pl_error *error)
{
	const struct pl_allocator *allocator = &reconnect->context->allocator;
	const uint8_t **tokens = pl_alloc(allocator, (reconnect->count + 1) * sizeof(*tokens));
	struct pl_remote **fresh = pl_alloc(allocator, (reconnect->count + 1) * sizeof(*fresh));
	int rc = tokens && fresh ? 0 : pl_fail_memory(error, "pl_peer_reconnect");

	for (size_t i = 0; rc == 0 && i < reconnect->count; i++)
		tokens[i] = reconnect->imports[i].remote->token;
	if (rc == 0)
		rc = pl_import_many(peer, tokens, fresh, reconnect->count, reconnect->deadline, error);
	for (size_t i = 0; rc == 0 && i < reconnect->count; i++)
		reconnect->imports[i].fresh = fresh[i];
	pl_free(allocator, tokens);
	pl_free(allocator, fresh);
	return rc;
}

/* Exchanges the access paths of two remote regions.  Neither has operations. */
static void exchange_paths(struct pl_remote *a, struct pl_remote *b)
{
	struct pl_remote old = { .fabric_data = a->fabric_data, .forget = a->forget, .key_length = a->key_length };

	memcpy(old.key, a->key, a->key_length);
	a->fabric_data = b->fabric_data;
	a->forget = b->forget;
	a->key_length = b->key_length;
	memcpy(a->key, b->key, b->key_length);
	a->length = b->length;
	a->rights = b->rights;
	a->trailing = b->trailing;
	a->path_reason = b->path_reason;
	b->fabric_data = old.fabric_data;
	b->forget = old.forget;
	b->key_length = old.key_length;
	memcpy(b->key, old.key, old.key_length);
}

/* Moves the program's remote regions to the new peer; the old peer is closed. */
static void move_remotes(struct reconnect *reconnect, struct pl_peer *peer)
{
	struct pl_context *context = reconnect->context;

	for (size_t i = 0; i < reconnect->count; i++) {
		struct reimport *import = &reconnect->imports[i];

		exchange_paths(import->remote, import->fresh);
		pthread_mutex_lock(&context->lock);
		import->remote->peer = peer;
		pl_list_remove(&import->remote->peer_link);
		pl_list_append(&peer->remotes, &import->remote->peer_link);
		/* The old key needs no release: the old connection is closed. */
		import->fresh->peer = NULL;
		pl_list_remove(&import->fresh->peer_link);
		pthread_mutex_unlock(&context->lock);
	}
}

static void end_reconnect(struct reconnect *reconnect)
{
	for (size_t i = 0; i < reconnect->count; i++) {
		pl_remote_release(reconnect->imports[i].fresh);
		pl_remote_put(reconnect->imports[i].remote);
	}
	pl_free(&reconnect->context->allocator, reconnect->imports);
}

static int check_reconnect(const struct pl_peer *peer, struct pl_error *error)
{
	if (peer->initiator)
		return 0;
	return pl_fail(error, -EINVAL, "RECONNECT-ACCEPTED", "pl_peer_reconnect", NULL,
		       "let the connecting end call pl_peer_reconnect(), and accept its new connection",
		       "this end accepted the connection");
}

/* Closes the old peer. Its user data and its events belong to the new one. */
static void replace_peer(struct pl_peer *old, struct pl_peer *fresh)
{
	pl_peer_set_user_data(fresh, pl_peer_user_data(old));
	pl_event_log_continue(&fresh->events, &old->events);
	if (atomic_load(&old->state) == PL_PEER_UP)
		pl_peer_note(fresh, PL_EVENT_CLOSED_HERE, "the old connection, which was still up");
	pl_peer_note(fresh, PL_EVENT_RECONNECT_DONE, "");
	pl_peer_close(old);
}

int pl_peer_reconnect(struct pl_peer **peer, const char *address, uint64_t timeout, struct pl_error *error)
{
	struct pl_peer *old = *peer, *fresh = NULL;
	struct pl_context *context = old->context;
	struct reconnect reconnect = { .context = context };
	struct pl_error own, *detail = error ? error : &own;
	char same[PL_ADDRESS_FORMAT_MAX];
	/* Other threads of the parent may have held locks when it forked. */
	int rc = pl_context_check_process(context, "pl_peer_reconnect", error);

	if (rc == 0)
		rc = check_reconnect(old, error);
	if (rc < 0)
		return rc;
	if (!address)
		rc = pl_address_format((const struct sockaddr *)&old->address, same, sizeof(same));
	if (rc < 0)
		return pl_fail_errno(error, rc, "RECONNECT-ADDRESS", "pl_peer_reconnect", NULL);
	timeout = timeout ? timeout : context->options.connect_timeout;
	reconnect.deadline = pl_deadline(pl_now(), timeout);
	if (collect_remotes(&reconnect, old) < 0)
		return pl_fail_memory(error, "pl_peer_reconnect");
	pl_peer_note(old, PL_EVENT_RECONNECT_BEGUN, "");
	rc = pl_connect_named(context, address ? address : same, address ? NULL : old->server_name, timeout,
			      &fresh, detail);
	if (rc == 0)
		rc = import_again(&reconnect, fresh, detail);
	if (rc == 0) {
		replace_peer(old, fresh);
		move_remotes(&reconnect, fresh);
		*peer = fresh;
	} else {
		pl_peer_note_error(old, PL_EVENT_RECONNECT_FAILED, 0, detail);
	}
	end_reconnect(&reconnect);
	if (rc < 0)
		pl_peer_close(fresh);
	return rc;
}
