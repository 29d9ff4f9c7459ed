/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Access control. A grant is a token given out. A key binds a grant (or one large send) to the peer that presented it.
 * Every frame looks up a key, so grant_lock is held for a few instructions only. The engine's lock and `revoked` guard
 * use of the memory.
 */
#include <openssl/crypto.h>

#include "core/fabric.h"
#include "core/trust.h"

static bool is_expired(uint64_t expires)
{
	return expires && pl_wall_clock() >= expires;
}

/* -- keys: grant_lock is held ------------------------------------------------------------------- */

/* Left to do after unlocking: the registrations may wait, the operation may complete. */
struct leftover {
	struct pl_list ended;
	struct pl_operation *operation; /* has a pending count that ends with the key; or NULL */
};

static void leftover_init(struct leftover *leftover)
{
	pl_list_init(&leftover->ended);
	leftover->operation = NULL;
}

static void leftover_finish(struct leftover *leftover)
{
	pl_registrations_finish(&leftover->ended);
	if (leftover->operation)
		pl_operation_pending_done(leftover->operation);
}

/* Ends a reference. Returns true if it was the last one: no thread finds the key any more. Needs no lock. */
static bool key_unreference(struct pl_key *key)
{
	return atomic_fetch_sub(&key->references, 1) == 1;
}

static void key_end(struct pl_context *context, struct pl_key *key, struct leftover *leftover)
{
	pl_registrations_release(&key->registrations, &leftover->ended);
	leftover->operation = key->operation;
	pl_free(&context->allocator, key);
}

static struct pl_key *key_find(struct pl_peer *peer, uint64_t id)
{
	struct pl_key *key = pl_index_table_get(&peer->keys, (uint32_t)id);

	return key && key->id == id ? key : NULL;
}

struct pl_key *pl_key_alive(struct pl_peer *peer, uint64_t id)
{
	struct pl_key *key = key_find(peer, id);

	return key && !atomic_load(&key->revoked) && !is_expired(key->expires) ? key : NULL;
}

static struct pl_key *key_insert(struct pl_peer *peer, struct pl_memory *memory, size_t offset, size_t length,
				 unsigned rights, uint64_t expires)
{
	struct pl_context *context = peer->context;
	struct pl_key *key;
	uint32_t random;
	ssize_t index;

	if (pl_index_table_used(&peer->keys) >= PL_KEYS_MAX || pl_random_word(&context->random, &random) < 0)
		return NULL;
	key = pl_zalloc(&context->allocator, sizeof(*key));
	if (!key)
		return NULL;
	index = pl_index_table_add(&context->allocator, &peer->keys, key);
	if (index < 0) {
		pl_free(&context->allocator, key);
		return NULL;
	}
	pl_list_init(&key->grant_link);
	pl_list_init(&key->registrations);
	key->id = (uint64_t)random << 32 | (uint32_t)index;
	key->peer = peer;
	key->memory = memory;
	key->offset = offset;
	key->length = length;
	key->rights = rights;
	key->expires = expires;
	atomic_init(&key->references, 1);
	return key;
}

static void key_remove(struct pl_peer *peer, struct pl_key *key, struct leftover *leftover)
{
	/* A device does not check whether a key was revoked. */
	pl_registrations_release(&key->registrations, &leftover->ended);
	pl_index_table_remove(&peer->keys, (uint32_t)key->id);
	pl_list_remove(&key->grant_link);
	peer->imported -= key->imported;
	atomic_store(&key->revoked, true);
	if (key_unreference(key))
		key_end(peer->context, key, leftover);
}

struct pl_key *pl_key_acquire(struct pl_peer *peer, uint64_t id, uint64_t offset, uint64_t length, unsigned right,
			      enum pl_wire_status *status)
{
	struct pl_context *context = peer->context;
	struct pl_key *key;

	pthread_mutex_lock(&context->grant_lock);
	key = key_find(peer, id);
	if (!key || atomic_load(&key->revoked))
		*status = PL_WIRE_UNKNOWN_KEY;
	else if (is_expired(key->expires))
		*status = PL_WIRE_EXPIRED;
	else if (!(key->rights & right))
		*status = PL_WIRE_RIGHTS;
	else if (pl_outside(offset, length, key->length))
		*status = PL_WIRE_RANGE;
	else
		*status = PL_WIRE_OK;
	if (*status == PL_WIRE_OK)
		atomic_fetch_add(&key->references, 1);
	else
		key = NULL;
	pthread_mutex_unlock(&context->grant_lock);
	if (!key)
		pl_peer_note_refusal(peer, id, right, *status);
	return key;
}

void pl_key_release(struct pl_peer *peer, struct pl_key *key)
{
	struct leftover leftover;

	if (!key || !key_unreference(key))
		return;
	leftover_init(&leftover);
	pthread_mutex_lock(&peer->context->grant_lock);
	key_end(peer->context, key, &leftover);
	pthread_mutex_unlock(&peer->context->grant_lock);
	leftover_finish(&leftover);
}

/* Adds the key of a large message, whose operation ends after the key. NULL: no memory, or too many keys. */
static struct pl_key *source_key_insert(struct pl_peer *peer, struct pl_operation *operation)
{
	const struct pl_segment *segment = operation->segments;
	struct pl_key *key =
		key_insert(peer, &segment->region->memory, segment->offset, segment->length, PL_ACCESS_READ, 0);

	if (!key)
		return NULL;
	key->operation = operation;
	atomic_fetch_add(&operation->pending, 1);
	operation->source_key = key->id;
	return key;
}

int pl_key_create(struct pl_peer *peer, struct pl_operation *operation, uint8_t blob[PL_KEY_BLOB_MAX])
{
	struct leftover leftover;
	struct pl_key *key;
	int rc = -ENOMEM;

	leftover_init(&leftover);
	pthread_mutex_lock(&peer->context->grant_lock);
	/* An earlier call may have begun to register the memory. */
	if (operation->source_key)
		key = key_find(peer, operation->source_key);
	else
		key = source_key_insert(peer, operation);
	if (key)
		rc = peer->ops->export_key(peer->endpoint, NULL, key, blob);
	if (key && rc < 0 && rc != -EINPROGRESS) {
		operation->source_key = 0;
		key_remove(peer, key, &leftover);
	}
	pthread_mutex_unlock(&peer->context->grant_lock);
	leftover_finish(&leftover);
	return rc;
}

void pl_key_destroy(struct pl_peer *peer, uint64_t id)
{
	struct leftover leftover;
	struct pl_key *key;

	leftover_init(&leftover);
	pthread_mutex_lock(&peer->context->grant_lock);
	key = key_find(peer, id);
	if (key)
		key_remove(peer, key, &leftover);
	pthread_mutex_unlock(&peer->context->grant_lock);
	leftover_finish(&leftover);
}

void pl_key_table_clear(struct pl_peer *peer)
{
	struct pl_context *context = peer->context;

	for (size_t i = 0; i < peer->keys.count; i++) {
		const struct pl_key *key = pl_index_table_get(&peer->keys, i);

		if (key)
			pl_key_destroy(peer, key->id);
	}
	pl_index_table_free(&context->allocator, &peer->keys);
}

/* -- grants ------------------------------------------------------------------------------------- */

static struct pl_grant *grant_find(struct pl_context *context, uint64_t id, const uint8_t secret[16])
{
	struct pl_grant *grant = pl_index_table_get(&context->grants, (uint32_t)id);

	if (!grant || grant->id != id || CRYPTO_memcmp(grant->secret, secret, 16))
		return NULL;
	return grant;
}

static void grant_shut(struct pl_grant *grant)
{
	pl_list_for_each(at, &grant->keys) {
		struct pl_key *key = pl_list_entry(at, struct pl_key, grant_link);

		atomic_store(&key->revoked, true);
		pl_registrations_shut(&key->registrations);
	}
}

/*
 * Dead keys stay in the tables of peers until those release them, so that no id is used again too early. `why` goes to
 * the logs of the peers.
 */
static void grant_remove(struct pl_context *context, struct pl_grant *grant, const char *why, struct pl_list *ended)
{
	grant_shut(grant);
	pl_list_for_each_safe(at, next, &grant->keys) {
		struct pl_key *key = pl_list_entry(at, struct pl_key, grant_link);

		pl_registrations_release(&key->registrations, ended);
		pl_list_remove(&key->grant_link);
		pl_peer_note_key(key->peer, PL_EVENT_REVOKED_HERE, key->id, 0, why);
	}
	pl_list_remove(&grant->region_link);
	pl_index_table_remove(&context->grants, (uint32_t)grant->id);
	pl_registrations_release(&grant->registrations, ended);
	pl_free(&context->allocator, grant);
}

void pl_grants_clear(struct pl_context *context)
{
	struct pl_list ended;

	pl_list_init(&ended);
	for (size_t i = 0; i < context->grants.count; i++) {
		struct pl_grant *grant = pl_index_table_get(&context->grants, i);

		if (grant)
			grant_remove(context, grant, "the context was closed", &ended);
	}
	pl_registrations_finish(&ended);
	pl_index_table_free(&context->allocator, &context->grants);
}

static int check_grant(struct pl_region *region, struct pl_grant_options *options, struct pl_error *error)
{
	size_t size = region->memory.length;

	if (options->length == 0 && options->offset < size)
		options->length = size - options->offset;
	if (pl_outside(options->offset, options->length, size) || options->length == 0)
		return pl_fail(error, -ERANGE, "REGION-RANGE", "pl_region_share", NULL,
			       "share a range that lies in the region", "bytes %zu to %zu of a region of %zu",
			       options->offset, options->offset + options->length, size);
	if (options->rights == 0)
		options->rights = region->access;
	if (options->rights & ~region->access || options->rights == 0)
		return pl_fail(error, -EACCES, "REGION-RIGHTS", "pl_region_share", NULL,
			       "register the region with the access that its peers need",
			       "rights 0x%x of a region with access 0x%x", options->rights, region->access);
	return 0;
}

struct pl_grant *pl_grant_new(struct pl_region *region, const struct pl_grant_options *options)
{
	struct pl_context *context = region->context;
	struct pl_grant *grant = pl_zalloc(&context->allocator, sizeof(*grant));
	uint32_t random;
	ssize_t index;

	if (!grant)
		return NULL;
	pl_list_init(&grant->keys);
	pl_list_init(&grant->registrations);
	grant->region = region;
	grant->offset = options->offset;
	grant->length = options->length;
	grant->rights = options->rights;
	grant->expires = options->lifetime ? pl_deadline(pl_wall_clock(), options->lifetime) : 0;
	pthread_mutex_lock(&context->grant_lock);
	index = -ENOMEM;
	if (pl_random(&random, sizeof(random)) == 0 && pl_random(grant->secret, sizeof(grant->secret)) == 0)
		index = pl_index_table_add(&context->allocator, &context->grants, grant);
	if (index >= 0) {
		grant->id = (uint64_t)random << 32 | (uint32_t)index;
		pl_list_append(&region->grants, &grant->region_link);
	}
	pthread_mutex_unlock(&context->grant_lock);
	if (index < 0) {
		pl_free(&context->allocator, grant);
		return NULL;
	}
	return grant;
}

int pl_region_share(struct pl_region *region, const struct pl_grant_options *given, void *buffer, size_t *length,
		    struct pl_error *error)
{
	struct pl_grant_options options;
	struct pl_token token;
	struct pl_grant *grant;
	int rc;

	if (pl_copy_versioned(&options, sizeof(options), given) < 0)
		return pl_fail(error, -EINVAL, "OPTION", "pl_region_share", "size", "use PL_GRANT_OPTIONS_INIT",
			       "options of a newer library, or not initialised");
	if (*length < PL_TOKEN_SIZE)
		return pl_fail(error, -ENOBUFS, "TOKEN-SPACE", "pl_region_share", NULL, "give PL_TOKEN_MAX bytes",
			       "a token has %d bytes, there is room for %zu", PL_TOKEN_SIZE, *length);
	rc = check_grant(region, &options, error);
	if (rc < 0)
		return rc;
	grant = pl_grant_new(region, &options);
	if (!grant)
		return pl_fail_memory(error, "pl_region_share");
	token.rights = (uint8_t)grant->rights;
	token.kind = PL_TOKEN_REGION;
	memcpy(token.context_id, region->context->id, sizeof(token.context_id));
	token.grant = grant->id;
	memcpy(token.secret, grant->secret, sizeof(token.secret));
	token.length = grant->length;
	token.expires = grant->expires;
	pl_token_encode(&token, buffer);
	*length = PL_TOKEN_SIZE;
	return 0;
}

void pl_grant_shut(struct pl_context *context, const uint8_t *data)
{
	struct pl_token token;
	struct pl_grant *grant;

	if (pl_token_decode(data, PL_TOKEN_SIZE, &token) < 0)
		return;
	pthread_mutex_lock(&context->grant_lock);
	grant = grant_find(context, token.grant, token.secret);
	if (grant)
		grant_shut(grant);
	pthread_mutex_unlock(&context->grant_lock);
}

bool pl_grant_revoke(struct pl_context *context, const struct pl_region *region, const uint8_t *data)
{
	struct pl_token token;
	struct pl_grant *grant;
	struct pl_list ended;

	if (pl_token_decode(data, PL_TOKEN_SIZE, &token) < 0)
		return false;
	pl_list_init(&ended);
	pthread_mutex_lock(&context->grant_lock);
	grant = grant_find(context, token.grant, token.secret);
	if (grant && region && grant->region != region)
		grant = NULL;
	if (grant)
		grant_remove(context, grant, "the token was revoked", &ended);
	pthread_mutex_unlock(&context->grant_lock);
	pl_registrations_finish(&ended);
	return grant;
}

int pl_region_revoke(struct pl_region *region, const void *data, size_t length)
{
	struct pl_token token;

	if (pl_token_decode(data, length, &token) < 0)
		return -EINVAL;
	if (!pl_grant_revoke(region->context, region, data))
		return -ENOENT;
	pl_context_await_outdated(region->context);
	pl_context_barrier(region->context);
	return 0;
}

/* Maps the fabric's error, which kept a device from reaching the memory, to a wire status. */
static enum pl_wire_status import_refusal_of(int code)
{
	if (code == -EFAULT)
		return PL_WIRE_MEMORY;
	return code == -ENOMEM ? PL_WIRE_BUSY : PL_WIRE_UNSUPPORTED;
}

static bool may_import(const struct pl_peer *peer, const struct pl_grant *grant)
{
	return grant->lent || !peer->admission || !peer->admission->rights.imports ||
	       peer->imported < peer->admission->rights.imports;
}

int pl_grant_answer(struct pl_peer *peer, const struct pl_import *import, struct pl_imported *answer)
{
	struct pl_context *context = peer->context;
	struct pl_grant *grant;
	struct pl_key *key = NULL;
	struct leftover leftover;
	bool watch = false, lent;
	int length = 0;

	leftover_init(&leftover);
	*answer = (struct pl_imported){ .request = import->request, .status = PL_WIRE_UNKNOWN_KEY };
	pthread_mutex_lock(&context->grant_lock);
	grant = grant_find(context, import->grant, import->secret);
	if (grant && grant->only && grant->only != peer)
		grant = NULL;
	lent = grant && grant->lent;
	if (grant && is_expired(grant->expires)) {
		answer->status = PL_WIRE_EXPIRED;
	} else if (grant && peer->admission && (grant->rights & ~peer->admission->rights.access)) {
		answer->status = PL_WIRE_TOKEN_RIGHTS;
	} else if (grant && may_import(peer, grant)) {
		key = key_insert(peer, &grant->region->memory, grant->offset, grant->length, grant->rights,
				 grant->expires);
		answer->status = key ? PL_WIRE_OK : PL_WIRE_BUSY;
	} else if (grant) {
		answer->status = PL_WIRE_IMPORTS;
	}
	if (key) {
		pl_list_append(&grant->keys, &key->grant_link);
		key->grant = grant;
		key->imported = !grant->lent;
		key->trailing_word = grant->trailing_word;
		peer->imported += key->imported;
		length = peer->ops->export_key(peer->endpoint, grant, key, answer->key);
		answer->length = key->length;
		answer->rights = key->rights;
		answer->key_length = (uint16_t)length;
		if (length < 0) {
			key_remove(peer, key, &leftover);
			*answer =
				(struct pl_imported){ .request = import->request, .status = import_refusal_of(length) };
		}
		watch = grant->expires && pl_grant_timeless(grant);
	}
	pthread_mutex_unlock(&context->grant_lock);
	leftover_finish(&leftover);
	if (watch)
		pl_expiry_watch(context);
	if (length == -EINPROGRESS)
		return length;
	if (answer->status != PL_WIRE_OK && !lent)
		pl_peer_note_refusal(peer, 0, 0, (enum pl_wire_status)answer->status);
	return 0;
}

/* -- the end of a region ------------------------------------------------------------------------ */

int pl_region_deregister(struct pl_region *region)
{
	struct pl_context *context;
	struct pl_list ended;

	if (!region)
		return 0;
	context = region->context;
	if (atomic_load(&region->busy))
		return -EBUSY;
	pl_list_init(&ended);
	pthread_mutex_lock(&context->grant_lock);
	/* All are shut first, so that one wait serves for the uses under way. */
	pl_list_for_each(at, &region->grants)
		grant_shut(pl_list_entry(at, struct pl_grant, region_link));
	while (!pl_list_empty(&region->grants))
		grant_remove(context, pl_list_first(&region->grants, struct pl_grant, region_link),
			     "the region was deregistered", &ended);
	pthread_mutex_unlock(&context->grant_lock);
	pl_registrations_finish(&ended);
	pl_context_barrier(context);
	pl_region_destroy(region);
	return 0;
}
