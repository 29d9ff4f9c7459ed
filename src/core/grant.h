/* SPDX-License-Identifier: BSD-2-Clause */
/* Grants (tokens given out) and keys (a grant bound to one peer). */
#ifndef PL_CORE_GRANT_H
#define PL_CORE_GRANT_H

#include "core/region.h"
#include "wire/wire.h"

struct pl_operation;
struct pl_peer;

/* Most keys of a peer. */
#define PL_KEYS_MAX 65536u
/* Bit of the ids of source keys, which are in a table of their own. */
#define PL_SOURCE_KEY (1ull << 31)

/* Part of a grant that only grants of the library itself have; all zero in those that the program shares. */
struct pl_grant_binding {
	const struct pl_peer *only;    /* peer that can import the grant; compared only. NULL: all peers */
	bool lent;                     /* pl_grant_lend(): the peer imports nothing, so its limit does not count */
	const uint64_t *trailing_word; /* pl_grant_bind(); NULL: none */
};

/* Token given out. Freed once it is revoked and no key refers to it. */
struct pl_grant {
	uint64_t id;
	struct pl_region *region; /* NULL once revoked */
	uint8_t secret[16];
	size_t offset, length;
	unsigned rights;
	uint64_t expires;           /* CLOCK_REALTIME, 0 never */
	bool ended;                 /* pl_grant_end(): no peer can import it, and its last key frees it */
	struct pl_grant_binding binding;
	struct pl_list region_link; /* region->grants */
	struct pl_list keys;
	struct pl_list registrations;
	uint64_t far_address; /* that devices register it at for peers without windows; 0: none yet. grant_lock */
};

/* Access of one peer: created when the peer imports a grant, or for the duration of one large send. */
struct pl_key {
	/* Members that frames use, in the 64 bytes of a cache line: each large message moves them to a lane and back. */
	uint64_t id; /* index in the peer's table, and random bits */
	/*
	 * References. The table has one. Others begin under grant_lock, while the caller has one, or, of a source key, while the count is
	 * not 0. They end without the lock.
	 */
	atomic_uint references;
	unsigned rights;
	atomic_bool revoked;
	bool removed;       /* nobody finds it any more; it leaves the table when it has ended */
	bool source;        /* in peer->source_keys, which keep its memory */
	bool imported;      /* counted in peer->imported */
	atomic_bool ending; /* in peer->ending_keys; written under grant_lock */
	struct pl_memory *memory;
	size_t offset, length;
	uint64_t expires;
	/* large send: one of its pending counts ends with the last reference to the key */
	struct pl_operation *operation;
	struct pl_peer *peer;
	struct pl_list grant_link;     /* grant->keys: the grant exists while this has a list */
	struct pl_list end_link;       /* peer->ending_keys: it has ended, and its memory was in use */
	struct pl_grant *grant;        /* NULL: a large send */
	const uint64_t *trailing_word; /* of the grant; NULL: none. Loaded under the same rule as the memory */
	struct pl_key *spare;         /* source key without references: the next one */
	struct pl_list registrations; /* of a large send; for this peer only */
	uint64_t far_address; /* verbs: address of the first byte as the peer knows it; 0: not exported. grant_lock */
};

/*
 * Looks up a key that a peer uses, and checks rights, range and expiry. Takes a reference. Returns NULL and sets
 * `*status` on refusal. Before each use of the memory, under an engine's lock, check `revoked`: revoking waits for a
 * barrier, so that check is enough.
 */
struct pl_key *pl_key_acquire(struct pl_peer *peer, uint64_t id, uint64_t offset, uint64_t length, unsigned right,
			      enum pl_wire_status *status);
void pl_key_release(struct pl_key *key);
/* Returns a key that is neither revoked nor expired, or NULL. grant_lock is held. */
struct pl_key *pl_key_alive(struct pl_peer *peer, uint64_t id);
/* Releases the timeless registrations of a list, or returns true if the list has any. grant_lock is held. */
void pl_registrations_expire(struct pl_list *registrations, struct pl_list *ended);
bool pl_registrations_timeless(const struct pl_list *registrations);
/*
 * Creates a key for the bytes of a large send: sets operation->source_key, and writes the peer's blob. Adds a pending
 * count to the operation, which ends when the key is destroyed and its memory unused. Returns the blob's length,
 * -ENOMEM, or the fabric's error. -EINPROGRESS: the memory is being registered, and the key waits for another call.
 */
int pl_key_create(struct pl_peer *peer, struct pl_operation *operation, uint8_t blob[PL_KEY_BLOB_MAX]);
/*
 * Destroys a key. Never waits: while a peer holds its gate, the key's end comes later, at most LOCAL_HOLDER_WAIT_NS. Then the
 * pending count of its large send ends. Home.
 */
void pl_key_destroy(struct pl_peer *peer, uint64_t id);
/* The same. Returns the key with a reference for the caller while `ending` is set; NULL: the memory is not in use. */
struct pl_key *pl_key_destroy_watched(struct pl_peer *peer, uint64_t id);
/*
 * source_key.c: keys of large sends over fabrics whose export_key() needs no lock. Adds one, or returns NULL: no memory, or too many.
 * Destroys one, unless it is destroyed. Both at home.
 */
struct pl_key *pl_source_key_add(struct pl_peer *peer, struct pl_operation *operation);
void pl_source_key_destroy(struct pl_peer *peer, uint64_t id);
static inline bool pl_key_is_source(uint64_t id)
{
	return id & PL_SOURCE_KEY;
}
/* Takes a reference to such a key, which may be revoked. Returns NULL if there is none. Any thread, no lock. */
struct pl_key *pl_source_key_hold(struct pl_peer *peer, uint64_t id);
/* Lists a key whose last reference has ended. The peer's next large sends use its memory. Any thread, no lock. */
void pl_source_key_unused(struct pl_key *key);
/* Destroys all, and frees their memory. No other thread uses the peer. */
void pl_source_keys_free(struct pl_peer *peer);
/* Destroys all keys, and waits until they have ended. */
void pl_key_table_clear(struct pl_peer *peer);
/* Ending keys: initialises the list, looks again soon (home), and waits until all have ended (without an engine's lock). */
void pl_keys_init(struct pl_peer *peer);
void pl_keys_look_later(struct pl_peer *peer);
void pl_keys_await(struct pl_peer *peer);

/* Left to do once grant_lock is free: registrations to finish, the last reference to end, another look at ending keys. */
struct pl_key_leftover {
	struct pl_list ended;
	struct pl_key *key; /* or NULL */
	bool later;
};

void pl_key_leftover_init(struct pl_key_leftover *leftover);
void pl_key_leftover_finish(struct pl_peer *peer, struct pl_key_leftover *leftover);
/* grant_lock is held: adds a key to the peer's table (NULL: no memory, or too many), ends one, or lists one that ends later. */
struct pl_key *pl_key_insert(struct pl_peer *peer, struct pl_memory *memory, size_t offset, size_t length,
			     unsigned rights, uint64_t expires);
void pl_key_remove(struct pl_key *key, struct pl_key_leftover *leftover);
void pl_key_end_later(struct pl_key *key);
void pl_grants_clear(struct pl_context *context);
/* True if the grant has registrations to remove when it expires. grant_lock is held. */
bool pl_grant_timeless(const struct pl_grant *grant);
/* grant_expiry.c: removes registrations when their grants expire. pl_expiry_watch() reports a new expiry time. */
void pl_expiry_init(struct pl_context *context);
void pl_expiry_watch(struct pl_context *context);

/* True if the time of an expiry has come. 0: never. */
bool pl_expired(uint64_t expires);

/*
 * Creates a grant, with checked options, and fills its token, which is not given out yet. False: no memory. Another call may free a
 * grant that expires, and pl_region_revoke() one that is bound to no peer.
 */
bool pl_grant_new(struct pl_region *region, const struct pl_grant_options *options,
		  const struct pl_grant_binding *binding, struct pl_token *token);
/* Revokes a token; of this region only, unless it is NULL. The caller then runs pl_context_barrier(). */
bool pl_grant_revoke(struct pl_context *context, const struct pl_region *region, const uint8_t *token);

/*
 * Ends a token without a wait: its keys are shut, and those that are in use end later. Home of the only peer that can have
 * imported it. The end of its region waits for the uses.
 */
void pl_grant_end(struct pl_context *context, const uint8_t *token);
/* Waits until no key of such tokens of the region is in use. Without an engine's lock. */
void pl_region_await_ended(struct pl_region *region);
/* A key has left the grant: frees an ended grant without keys. grant_lock is held. */
void pl_grant_unused(struct pl_grant *grant, struct pl_list *ended);

/* Region of this end that the library, not the program, lets a peer access. */
struct pl_lent {
	uint64_t id; /* of the key */
	uint16_t key_length;
	uint8_t key[PL_KEY_BLOB_MAX]; /* remote key for the peer */
	uint8_t token[PL_TOKEN_SIZE];
};

/*
 * grant_bind.c: lends a whole region to a peer, without an import by the peer. `rights` (enum pl_access) may exceed the
 * region's access. The end of the region ends that, too. Returns 0 or a negative errno. -EACCES: the peer must not have
 * these rights; -EBUSY: another call may succeed.
 */
int pl_grant_lend(struct pl_region *region, unsigned rights, struct pl_peer *peer, struct pl_lent *lent);
/* True if that region is still lent: another region may have its address by now. */
bool pl_grant_is_lent(struct pl_peer *peer, const struct pl_lent *lent, const struct pl_region *region);
/* Revokes the peer's access without a wait. Returns as pl_key_destroy_watched() does. Home. */
struct pl_key *pl_grant_take_back(struct pl_peer *peer, const struct pl_lent *lent);

/* pl_token_decode() with public errors. */
int pl_token_read(const void *data, size_t length, struct pl_token *token, struct pl_error *error);
/* The same for tokens of one kind. */
int pl_token_read_kind(const void *data, size_t length, enum pl_token_kind kind, struct pl_token *token,
		       struct pl_error *error);
/* Makes the answer to a peer that presented a token. Returns 0, or -EINPROGRESS while the memory is being registered. */
int pl_grant_answer(struct pl_peer *peer, const struct pl_import *import, struct pl_imported *answer);
/* registering.c: answers an import, now or once the memory is registered. Home. */
void pl_import_serve(struct pl_peer *peer, const struct pl_import *import);
void pl_held_imports_drop(struct pl_peer *peer);
/* Sends that answer, when the control channel has room. Without memory the peer is lost. Home. */
void pl_import_answer(struct pl_peer *peer, const struct pl_imported *imported);
/* Sends answers that wait for that room. Home. */
void pl_answers_resume(struct pl_peer *peer);
void pl_answers_drop(struct pl_peer *peer);

#endif
