/* SPDX-License-Identifier: BSD-2-Clause */
/* Access control: grants are the tokens given out. key.c has the keys of peers. */
#include <openssl/crypto.h>
#include <time.h>

#include "core/fabric.h"
#include "core/trust.h"

/* Pause between two looks at keys that are in use. */
#define AWAIT_PAUSE_NS (50 * 1000)
/* Number of grants from which expired ones are freed: a smaller context tells for ever that they have expired. */
#define FORGET_FROM 1024u

/* -- grants ------------------------------------------------------------------------------------- */

static struct pl_grant *grant_find(struct pl_context *context, uint64_t id, const uint8_t secret[16])
{
	struct pl_grant *grant = pl_index_table_get(&context->grants, (uint32_t)id);

	if (!grant || grant->ended || grant->id != id || CRYPTO_memcmp(grant->secret, secret, 16))
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

/* Once for each key: those that end later have been noted. */
static void note_end(struct pl_key *key, const char *why)
{
	if (!key->removed && !atomic_load(&key->ending))
		pl_peer_note_key(key->peer, PL_EVENT_REVOKED_HERE, key->id, 0, why);
}

static void end_key(struct pl_key *key, const char *why, struct pl_list *ended)
{
	pl_registrations_release(&key->registrations, ended);
	pl_list_remove(&key->grant_link);
	note_end(key, why);
}

/*
 * Dead keys stay in the tables of peers until those release them, so that no id is used again too early. `why` goes to
 * the logs of the peers.
 */
static void grant_remove(struct pl_context *context, struct pl_grant *grant, const char *why, struct pl_list *ended)
{
	grant_shut(grant);
	pl_list_for_each_safe(at, next, &grant->keys)
		end_key(pl_list_entry(at, struct pl_key, grant_link), why, ended);
	pl_list_remove(&grant->region_link);
	pl_index_table_remove(&context->grants, (uint32_t)grant->id);
	pl_registrations_release(&grant->registrations, ended);
	pl_free(&context->allocator, grant);
}

void pl_grant_unused(struct pl_grant *grant, struct pl_list *ended)
{
	if (grant->ended && pl_list_empty(&grant->keys))
		grant_remove(grant->region->context, grant, NULL, ended);
}

/* Ends the keys, and lists those whose memory is in use. Returns false if there is none. */
static bool grant_end_keys(struct pl_grant *grant, const char *why, struct pl_list *ended)
{
	bool later = false;

	pl_list_for_each_safe(at, next, &grant->keys) {
		struct pl_key *key = pl_list_entry(at, struct pl_key, grant_link);

		if (!pl_registrations_in_use(&key->registrations)) {
			end_key(key, why, ended);
			continue;
		}
		note_end(key, why);
		pl_key_end_later(key);
		pl_keys_look_later(key->peer);
		later = true;
	}
	return later;
}

void pl_grant_end(struct pl_context *context, const uint8_t *data)
{
	static const char why[] = "the token was revoked";
	struct pl_token token;
	struct pl_grant *grant;
	struct pl_list ended;

	if (pl_token_decode(data, PL_TOKEN_SIZE, &token) < 0)
		return;
	pl_list_init(&ended);
	pthread_mutex_lock(&context->grant_lock);
	grant = grant_find(context, token.grant, token.secret);
	if (grant) {
		grant_shut(grant);
		grant->ended = grant_end_keys(grant, why, &ended);
		if (!grant->ended)
			grant_remove(context, grant, why, &ended);
	}
	pthread_mutex_unlock(&context->grant_lock);
	pl_registrations_finish(&ended);
}

/* True if a key of an ended grant of the region is in use. */
static bool region_has_ending_keys(const struct pl_region *region)
{
	pl_list_for_each(at, &region->grants) {
		const struct pl_grant *grant = pl_list_entry(at, struct pl_grant, region_link);

		if (!grant->ended)
			continue;
		pl_list_for_each(key, &grant->keys)
			if (pl_registrations_in_use(&pl_list_entry(key, struct pl_key, grant_link)->registrations))
				return true;
	}
	return false;
}

void pl_region_await_ended(struct pl_region *region)
{
	struct timespec pause = { .tv_nsec = AWAIT_PAUSE_NS };

	pthread_mutex_lock(&region->context->grant_lock);
	while (region_has_ending_keys(region)) {
		pthread_mutex_unlock(&region->context->grant_lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&region->context->grant_lock);
	}
	pthread_mutex_unlock(&region->context->grant_lock);
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

/*
 * Frees expired grants that no peer has imported: programs share memory for a short time again and again, and revoke nothing. Looks
 * at all grants each time that their number has doubled.
 */
static void forget_expired_grants(struct pl_context *context, struct pl_list *ended)
{
	uint64_t now;

	if (pl_index_table_used(&context->grants) < PL_MAX(context->grants_looked_at, FORGET_FROM / 2) * 2)
		return;
	now = pl_wall_clock();
	for (size_t i = 0; i < context->grants.count; i++) {
		struct pl_grant *grant = pl_index_table_get(&context->grants, i);

		if (grant && grant->expires && grant->expires <= now && pl_list_empty(&grant->keys))
			grant_remove(context, grant, NULL, ended);
	}
	context->grants_looked_at = pl_index_table_used(&context->grants);
}

/* Fills the token of a grant. grant_lock is held: a later call may free a grant that expires. */
static void describe_grant(const struct pl_grant *grant, struct pl_token *token)
{
	*token = (struct pl_token){ .rights = (uint8_t)grant->rights,
				    .kind = PL_TOKEN_REGION,
				    .grant = grant->id,
				    .length = grant->length,
				    .expires = grant->expires };
	memcpy(token->context_id, grant->region->context->id, sizeof(token->context_id));
	memcpy(token->secret, grant->secret, sizeof(token->secret));
}

bool pl_grant_new(struct pl_region *region, const struct pl_grant_options *options,
		  const struct pl_grant_binding *binding, struct pl_token *token)
{
	struct pl_context *context = region->context;
	struct pl_grant *grant = pl_zalloc(&context->allocator, sizeof(*grant));
	struct pl_list ended;
	uint32_t random;
	ssize_t index;

	if (!grant)
		return false;
	pl_list_init(&ended);
	pl_list_init(&grant->keys);
	pl_list_init(&grant->registrations);
	grant->region = region;
	grant->offset = options->offset;
	grant->length = options->length;
	grant->rights = options->rights;
	grant->binding = *binding;
	grant->expires = options->lifetime ? pl_deadline(pl_wall_clock(), options->lifetime) : 0;
	pthread_mutex_lock(&context->grant_lock);
	forget_expired_grants(context, &ended);
	index = -ENOMEM;
	if (pl_random(&random, sizeof(random)) == 0 && pl_random(grant->secret, sizeof(grant->secret)) == 0)
		index = pl_index_table_add(&context->allocator, &context->grants, grant);
	if (index >= 0) {
		grant->id = (uint64_t)random << 32 | (uint32_t)index;
		pl_list_append(&region->grants, &grant->region_link);
		describe_grant(grant, token);
	}
	pthread_mutex_unlock(&context->grant_lock);
	pl_registrations_finish(&ended);
	if (index < 0)
		pl_free(&context->allocator, grant);
	return index >= 0;
}

int pl_region_share(struct pl_region *region, const struct pl_grant_options *given, void *buffer, size_t *length,
		    struct pl_error *error)
{
	const struct pl_grant_binding unbound = { 0 };
	struct pl_grant_options options;
	struct pl_token token;
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
	if (!pl_grant_new(region, &options, &unbound, &token))
		return pl_fail_memory(error, "pl_region_share");
	pl_token_encode(&token, buffer);
	*length = PL_TOKEN_SIZE;
	return 0;
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

/* Revokes all tokens that the program has shared. The library lends others for the time of an operation. */
static void grants_revoke_shared(struct pl_region *region)
{
	struct pl_context *context = region->context;
	struct pl_list ended;

	pl_list_init(&ended);
	pthread_mutex_lock(&context->grant_lock);
	/* All are shut first, so that one wait serves for the uses under way. */
	pl_list_for_each(at, &region->grants) {
		struct pl_grant *grant = pl_list_entry(at, struct pl_grant, region_link);

		if (!grant->binding.only)
			grant_shut(grant);
	}
	pl_list_for_each_safe(at, next, &region->grants) {
		struct pl_grant *grant = pl_list_entry(at, struct pl_grant, region_link);

		if (!grant->binding.only)
			grant_remove(context, grant, "the token was revoked", &ended);
	}
	pthread_mutex_unlock(&context->grant_lock);
	pl_registrations_finish(&ended);
}

int pl_region_revoke(struct pl_region *region, const void *data, size_t length)
{
	struct pl_token token;

	if (!data && !length)
		grants_revoke_shared(region);
	else if (pl_token_decode(data, length, &token) < 0)
		return -EINVAL;
	else if (!pl_grant_revoke(region->context, region, data))
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
	return grant->binding.lent || !peer->admission || !peer->admission->rights.imports ||
	       peer->imported < peer->admission->rights.imports;
}

int pl_grant_answer(struct pl_peer *peer, const struct pl_import *import, struct pl_imported *answer)
{
	struct pl_context *context = peer->context;
	struct pl_grant *grant;
	struct pl_key *key = NULL;
	struct pl_key_leftover leftover;
	bool watch = false, lent;
	int length = 0;

	pl_key_leftover_init(&leftover);
	*answer = (struct pl_imported){ .request = import->request, .status = PL_WIRE_UNKNOWN_KEY };
	pthread_mutex_lock(&context->grant_lock);
	grant = grant_find(context, import->grant, import->secret);
	if (grant && grant->binding.only && grant->binding.only != peer)
		grant = NULL;
	lent = grant && grant->binding.lent;
	if (grant && pl_expired(grant->expires)) {
		answer->status = PL_WIRE_EXPIRED;
	} else if (grant && peer->admission && (grant->rights & ~peer->admission->rights.access)) {
		answer->status = PL_WIRE_TOKEN_RIGHTS;
	} else if (grant && may_import(peer, grant)) {
		key = pl_key_insert(peer, &grant->region->memory, grant->offset, grant->length, grant->rights,
				    grant->expires);
		answer->status = key ? PL_WIRE_OK : PL_WIRE_BUSY;
	} else if (grant) {
		answer->status = PL_WIRE_IMPORTS;
	}
	if (key) {
		pl_list_append(&grant->keys, &key->grant_link);
		key->grant = grant;
		key->imported = !grant->binding.lent;
		key->trailing_word = grant->binding.trailing_word;
		peer->imported += key->imported;
		length = peer->ops->export_key(peer->endpoint, grant, key, answer->key);
		answer->length = key->length;
		answer->rights = key->rights;
		answer->key_length = (uint16_t)length;
		if (length < 0) {
			pl_key_remove(key, &leftover);
			*answer =
				(struct pl_imported){ .request = import->request, .status = import_refusal_of(length) };
		}
		watch = grant->expires && pl_grant_timeless(grant);
	}
	pthread_mutex_unlock(&context->grant_lock);
	pl_key_leftover_finish(peer, &leftover);
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

	if (!region || pl_context_forked(region->context))
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
