/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys. A key binds a grant (or one large send) to the peer that presented it. Every frame looks up a key, so grant_lock is
 * held for a few instructions only. The engine's lock and `revoked` guard use of the memory. source_key.c has the keys of large
 * sends that need no lock.
 *
 * A key ends when its peer releases it, or with its large send. A registration may still be in use then: a process that
 * stopped during a copy holds a gate. The key waits in peer->ending_keys then, and its home engine looks at it again. Until
 * then nobody finds it, but it stays in the table, so that no other key gets its index, which numbers the gate; and in the
 * list of its grant, so that a revocation waits for the same use.
 */
#include <time.h>

#include "core/fabric.h"
#include "core/kept_key.h"

/* Time between two looks at ending keys, and at those of a peer that is being freed. */
#define LOOK_AGAIN PL_NS_PER_MS
#define AWAIT_PAUSE_NS (50 * 1000)
/* Most keys of one look: a hostile peer can hold the gates of many. */
#define KEYS_PER_LOOK 64

bool pl_expired(uint64_t expires)
{
	return expires && pl_wall_clock() >= expires;
}

/* -- grant_lock is held --------------------------------------------------------------------------- */

void pl_key_leftover_init(struct pl_key_leftover *leftover)
{
	*leftover = (struct pl_key_leftover){ .key = NULL };
	pl_list_init(&leftover->ended);
}

/* Finds ending keys, too. */
static struct pl_key *key_of_table(struct pl_peer *peer, uint64_t id)
{
	struct pl_key *key = pl_index_table_get(&peer->keys, (uint32_t)id);

	return key && key->id == id ? key : NULL;
}

static struct pl_key *key_find(struct pl_peer *peer, uint64_t id)
{
	struct pl_key *key = key_of_table(peer, id);

	return key && !key->removed ? key : NULL;
}

struct pl_key *pl_key_alive(struct pl_peer *peer, uint64_t id)
{
	struct pl_key *key = key_find(peer, id);

	return key && !atomic_load(&key->revoked) && !pl_expired(key->expires) ? key : NULL;
}

struct pl_key *pl_key_insert(struct pl_peer *peer, struct pl_memory *memory, size_t offset, size_t length,
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
	pl_list_init(&key->end_link);
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

/* Ends the use of the memory, which no registration has any more. */
static void key_leave_grant(struct pl_key *key, struct pl_list *ended)
{
	bool listed = !pl_list_empty(&key->grant_link);

	pl_registrations_release(&key->registrations, ended);
	pl_list_remove(&key->grant_link);
	if (listed)
		pl_grant_unused(key->grant, ended);
}

/* Frees the index of a key. The table's reference stays. */
static void key_leave_table(struct pl_key *key)
{
	pl_index_table_remove(&key->peer->keys, (uint32_t)key->id);
	key->peer->imported -= key->imported;
}

void pl_key_remove(struct pl_key *key, struct pl_key_leftover *leftover)
{
	/* Before `revoked`: the peer is told of the end of revoked keys only. */
	pl_registrations_shut(&key->registrations);
	atomic_store(&key->revoked, true);
	key->removed = true;
	if (pl_registrations_in_use(&key->registrations)) {
		pl_key_end_later(key);
		leftover->later = true;
		return;
	}
	pl_list_remove(&key->end_link);
	atomic_store(&key->ending, false);
	key_leave_table(key);
	key_leave_grant(key, &leftover->ended);
	leftover->key = key;
}

void pl_key_end_later(struct pl_key *key)
{
	atomic_store(&key->ending, true);
	if (pl_list_empty(&key->end_link))
		pl_list_append(&key->peer->ending_keys, &key->end_link);
}

/* -- grant_lock is free --------------------------------------------------------------------------- */

/* Ends a reference. After the last one, no thread finds the key any more: frees the key. The operation may complete. */
static void key_put(struct pl_key *key)
{
	struct pl_operation *operation = key->operation;

	if (atomic_fetch_sub(&key->references, 1) != 1)
		return;
	if (key->source)
		pl_source_key_unused(key);
	else
		pl_free(&key->peer->context->allocator, key);
	if (operation)
		pl_operation_pending_done(operation);
}

void pl_key_leftover_finish(struct pl_peer *peer, struct pl_key_leftover *leftover)
{
	pl_registrations_finish(&leftover->ended);
	if (leftover->key)
		key_put(leftover->key);
	if (leftover->later)
		pl_keys_look_later(peer);
}

/*
 * Ends those of the first `limit` ending keys whose memory is not in use any more. The others go behind all others. Returns
 * true if any key is left. *watched: somebody else has a reference to one that ended.
 */
static bool end_unused_keys(struct pl_peer *peer, unsigned limit, bool *watched)
{
	struct pl_list ended, unused, busy;
	bool left;

	pl_list_init(&ended);
	pl_list_init(&unused);
	pl_list_init(&busy);
	pthread_mutex_lock(&peer->context->grant_lock);
	for (unsigned i = 0; i < limit && !pl_list_empty(&peer->ending_keys); i++) {
		struct pl_key *key = pl_list_first(&peer->ending_keys, struct pl_key, end_link);

		pl_list_remove(&key->end_link);
		if (pl_registrations_in_use(&key->registrations)) {
			pl_list_append(&busy, &key->end_link);
			continue;
		}
		key_leave_grant(key, &ended);
		atomic_store(&key->ending, false);
		if (!key->removed)
			continue;
		key_leave_table(key);
		*watched |= atomic_load(&key->references) > 1;
		pl_list_append(&unused, &key->end_link);
	}
	pl_list_splice(&peer->ending_keys, &busy);
	left = !pl_list_empty(&peer->ending_keys);
	pthread_mutex_unlock(&peer->context->grant_lock);
	pl_registrations_finish(&ended);
	while (!pl_list_empty(&unused)) {
		struct pl_key *key = pl_list_first(&unused, struct pl_key, end_link);

		pl_list_remove(&key->end_link);
		key_put(key);
	}
	return left;
}

static void look_at_ending_keys(struct pl_timer *timer)
{
	struct pl_peer *peer = pl_container_of(timer, struct pl_peer, key_timer);
	bool watched = false;

	if (end_unused_keys(peer, KEYS_PER_LOOK, &watched))
		pl_keys_look_later(peer);
	/* Requests to the owner of device memory wait for the ends of lent keys. A closed endpoint has none. */
	if (watched && peer->endpoint && !peer->dead)
		pl_peer_sweep(peer);
}

void pl_keys_init(struct pl_peer *peer)
{
	pl_list_init(&peer->ending_keys);
	pl_timer_init(&peer->key_timer, look_at_ending_keys);
}

void pl_keys_look_later(struct pl_peer *peer)
{
	if (pl_list_empty(&peer->key_timer.link))
		pl_timer_set(peer->home, &peer->key_timer, pl_now() + LOOK_AGAIN);
}

void pl_keys_await(struct pl_peer *peer)
{
	struct timespec pause = { .tv_nsec = AWAIT_PAUSE_NS };
	bool watched = false;

	while (end_unused_keys(peer, UINT32_MAX, &watched))
		nanosleep(&pause, NULL);
}

/* Checks a use of a key; NULL: there is none. */
static enum pl_wire_status check_use(const struct pl_key *key, uint64_t offset, uint64_t length, unsigned right)
{
	if (!key || atomic_load(&key->revoked))
		return PL_WIRE_UNKNOWN_KEY;
	if (pl_expired(key->expires))
		return PL_WIRE_EXPIRED;
	if (!(key->rights & right))
		return PL_WIRE_RIGHTS;
	return pl_outside(offset, length, key->length) ? PL_WIRE_RANGE : PL_WIRE_OK;
}

static struct pl_key *key_hold(struct pl_peer *peer, uint64_t id)
{
	struct pl_context *context = peer->context;
	struct pl_key *key;

	if (pl_key_is_source(id))
		return pl_source_key_hold(peer, id);
	pthread_mutex_lock(&context->grant_lock);
	key = key_find(peer, id);
	if (key)
		atomic_fetch_add(&key->references, 1);
	pthread_mutex_unlock(&context->grant_lock);
	return key;
}

struct pl_key *pl_key_acquire(struct pl_peer *peer, uint64_t id, uint64_t offset, uint64_t length, unsigned right,
			      enum pl_wire_status *status)
{
	struct pl_key *key = key_hold(peer, id);

	*status = check_use(key, offset, length, right);
	if (*status == PL_WIRE_OK)
		return key;
	pl_key_release(key);
	pl_peer_note_refusal(peer, id, right, *status);
	return NULL;
}

/* Keeps the key of a frame for the next ones. */
static void keep_key(struct pl_key **kept, struct pl_key *key)
{
	if (key->operation)
		return;
	atomic_fetch_add(&key->references, 1);
	pl_key_release(*kept);
	*kept = key;
}

struct pl_key *pl_key_acquire_kept(struct pl_key **kept, struct pl_peer *peer, uint64_t id, uint64_t offset,
				   uint64_t length, unsigned right, enum pl_wire_status *status)
{
	struct pl_key *key = *kept;

	if (!key || key->id != id) {
		key = pl_key_acquire(peer, id, offset, length, right, status);
		if (key)
			keep_key(kept, key);
		return key;
	}
	*status = check_use(key, offset, length, right);
	if (*status != PL_WIRE_OK) {
		pl_peer_note_refusal(peer, id, right, *status);
		return NULL;
	}
	atomic_fetch_add(&key->references, 1);
	return key;
}

void pl_key_release(struct pl_key *key)
{
	if (key)
		key_put(key);
}

/* Adds the key of a large message, whose operation ends after the key. NULL: no memory, or too many keys. */
static struct pl_key *source_key_insert(struct pl_peer *peer, struct pl_operation *operation)
{
	const struct pl_segment *segment = operation->segments;
	struct pl_key *key =
		pl_key_insert(peer, &segment->region->memory, segment->offset, segment->length, PL_ACCESS_READ, 0);

	if (!key)
		return NULL;
	key->operation = operation;
	atomic_fetch_add(&operation->pending, 1);
	operation->source_key = key->id;
	return key;
}

int pl_key_create(struct pl_peer *peer, struct pl_operation *operation, uint8_t blob[PL_KEY_BLOB_MAX])
{
	struct pl_key_leftover leftover;
	struct pl_key *key;
	int rc = -ENOMEM;

	if (peer->ops->exports_ids) {
		key = pl_source_key_add(peer, operation);
		return key ? peer->ops->export_key(peer->endpoint, NULL, key, blob) : -ENOMEM;
	}
	pl_key_leftover_init(&leftover);
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
		pl_key_remove(key, &leftover);
	}
	pthread_mutex_unlock(&peer->context->grant_lock);
	pl_key_leftover_finish(peer, &leftover);
	return rc;
}

struct pl_key *pl_key_destroy_watched(struct pl_peer *peer, uint64_t id)
{
	struct pl_key_leftover leftover;
	struct pl_key *key;
	bool ending;

	if (pl_key_is_source(id)) {
		pl_source_key_destroy(peer, id);
		return NULL;
	}
	pl_key_leftover_init(&leftover);
	pthread_mutex_lock(&peer->context->grant_lock);
	key = key_of_table(peer, id);
	/* The peer may have released it already. */
	ending = key && key->removed;
	if (key && !ending)
		pl_key_remove(key, &leftover);
	ending |= leftover.later;
	if (ending)
		atomic_fetch_add(&key->references, 1);
	pthread_mutex_unlock(&peer->context->grant_lock);
	pl_key_leftover_finish(peer, &leftover);
	return ending ? key : NULL;
}

void pl_key_destroy(struct pl_peer *peer, uint64_t id)
{
	pl_key_release(pl_key_destroy_watched(peer, id));
}

void pl_key_table_clear(struct pl_peer *peer)
{
	struct pl_context *context = peer->context;
	struct pl_key_leftover leftover;

	for (size_t i = 0; i < peer->keys.count; i++) {
		struct pl_key *key;

		pl_key_leftover_init(&leftover);
		pthread_mutex_lock(&context->grant_lock);
		key = pl_index_table_get(&peer->keys, i);
		if (key && !key->removed)
			pl_key_remove(key, &leftover);
		pthread_mutex_unlock(&context->grant_lock);
		leftover.later = false;
		pl_key_leftover_finish(peer, &leftover);
	}
	pl_keys_await(peer);
	pl_index_table_free(&context->allocator, &peer->keys);
	pl_source_keys_free(peer);
}
