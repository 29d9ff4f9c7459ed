/* SPDX-License-Identifier: BSD-2-Clause */
/* Grants, which are tokens given out, and keys, which bind a grant to one peer. */
#ifndef PL_CORE_GRANT_H
#define PL_CORE_GRANT_H

#include "core/region.h"
#include "wire/wire.h"

struct pl_operation;
struct pl_peer;

/* A token that was given out. Freed when revoked and no key refers to it. */
struct pl_grant {
	uint64_t id;
	struct pl_region *region; /* NULL once revoked */
	uint8_t secret[16];
	size_t offset, length;
	unsigned rights;
	uint64_t expires; /* CLOCK_REALTIME, 0 never */
	struct pl_list keys;
	struct pl_list registrations;
};

/* What one peer may reach: made when it imports a grant, or for the time of one large send. */
struct pl_key {
	uint64_t id; /* index in the peer's table, and a random part */
	struct pl_list grant_link;
	struct pl_memory *memory;
	size_t offset, length;
	unsigned rights;
	uint64_t expires;
	atomic_bool revoked;
	unsigned references;            /* grant_lock */
	struct pl_operation *operation; /* large send: one of its parts ends when nobody refers to the key */
	struct pl_list registrations;   /* of a large send; of this peer alone */
};

struct pl_key_table {
	struct pl_key **keys;
	size_t count, used;
};

/*
 * Looks up what a peer asks for and checks rights, range and expiry.  Takes a reference.
 * `*status` tells why when NULL is returned.  Before each use of the memory, under an engine's
 * lock, check `revoked`: revoking waits for a barrier, so that is enough.
 */
struct pl_key *pl_key_acquire(struct pl_peer *peer, uint64_t id, uint64_t offset, uint64_t length, unsigned right,
			      enum pl_wire_status *status);
void pl_key_release(struct pl_peer *peer, struct pl_key *key);
/* One that is neither revoked nor expired, or NULL.  grant_lock */
struct pl_key *pl_key_alive(struct pl_peer *peer, uint64_t id);
/* Releases what is timeless in a list, or tells whether there is such.  grant_lock */
void pl_registrations_expire(struct pl_list *registrations);
bool pl_registrations_timeless(const struct pl_list *registrations);
/*
 * A key by which the peer reads the bytes of a large send: operation->source_key; and, into blob, what
 * the peer needs to use it.  Adds a part to the operation, which is done when the key was destroyed and
 * the memory is used no more.  Length of the blob, or -ENOMEM, or why the fabric cannot.
 */
int pl_key_create(struct pl_peer *peer, struct pl_operation *operation, uint8_t blob[PL_KEY_BLOB_MAX]);
void pl_key_destroy(struct pl_peer *peer, uint64_t id);
void pl_key_table_clear(struct pl_peer *peer);
void pl_grants_clear(struct pl_context *context);
/* Whether there is something to take away when it expires; grant_lock. */
bool pl_grant_timeless(const struct pl_grant *grant);
/* expiry.c: takes registrations away when their grants expire.  Watch: a grant that expires has one now. */
void pl_expiry_init(struct pl_context *context);
void pl_expiry_watch(struct pl_context *context);

/* pl_token_decode() with the public errors. */
int pl_token_read(const void *data, size_t length, struct pl_token *token, struct pl_error *error);
/* A peer presented a token. */
void pl_grant_answer(struct pl_peer *peer, const struct pl_import *import, struct pl_imported *answer);

#endif
