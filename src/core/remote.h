/* SPDX-License-Identifier: BSD-2-Clause */
/* Remote regions: memory of peers that this end may access. */
#ifndef PL_CORE_REMOTE_H
#define PL_CORE_REMOTE_H

#include "core/context.h"
#include "wire/wire.h"

struct pl_operation;
struct pl_peer;

struct pl_remote {
	/* Members that each operation reads, side by side. */
	void *fabric_data;    /* access path of the fabric; set at home, or before the program has the handle */
	struct pl_peer *peer; /* NULL once the peer was closed; context->lock */
	uint64_t length;
	unsigned rights;
	unsigned used;          /* operations that the peer's home counts without an atomic instruction; home */
	atomic_uint references; /* of the program, of other operations, and one for all of `used` */
	void (*forget)(struct pl_remote *remote); /* releases `fabric_data`; may be NULL */
	/* True if reads of up to 64 aligned bytes must load whole words, which calls of the kernel do not promise. */
	bool whole_words;
	/*
	 * True if a read's completion has as its value the greatest trailing word that the peer loaded, see
	 * pl_grant_bind().
	 */
	bool trailing;
	bool internal;       /* the library's own, which its user imports anew: pl_peer_reconnect() does not */
	/* In no list, and without a peer: the source of a large message. Its only user is an operation of this engine; NULL: listed. */
	struct pl_engine *unlisted;
	struct pl_list link;
	struct pl_list peer_link; /* peer->remotes, later peer->unsent_releases */
	struct pl_task task;
	struct pl_context *context;
	const char *path_reason; /* reason of the access path; set by the fabric. NULL: that of the peer */
	uint16_t key_length;
	uint8_t key[PL_KEY_BLOB_MAX];
	uint8_t token[PL_TOKEN_SIZE]; /* for pl_peer_reconnect() */
};

/* The last reference is gone: releases the remote region. */
void pl_remote_unused(struct pl_remote *remote);
static inline void pl_remote_put(struct pl_remote *remote)
{
	if (atomic_fetch_sub(&remote->references, 1) == 1)
		pl_remote_unused(remote);
}
/* Adds an operation that uses the remote region. Home. */
PL_ALWAYS_INLINE void pl_remote_use(struct pl_remote *remote)
{
	if (remote->used++ == 0)
		atomic_fetch_add(&remote->references, 1);
}
/* Removes it. Home. */
PL_ALWAYS_INLINE void pl_remote_unuse(struct pl_remote *remote)
{
	if (--remote->used == 0)
		pl_remote_put(remote);
}
void pl_remote_free(struct pl_remote *remote);
/* Returns the number of the remote region's key; 0 if the key is malformed. */
uint64_t pl_remote_key_id(const struct pl_remote *remote);
int pl_import_post(struct pl_peer *peer, const void *data, size_t length, const struct pl_attributes *attributes,
		   struct pl_operation **handle, struct pl_error *error);
/*
 * Imports many tokens in one round trip, into `remotes`. On failure all that were imported are released, and the error's
 * object names the token.
 */
int pl_import_many(struct pl_peer *peer, const uint8_t *const *tokens, struct pl_remote **remotes, size_t count,
		   uint64_t deadline, struct pl_error *error);
/* Sends releases and imports that wait for room in the control channel. Home. */
void pl_imports_resume(struct pl_peer *peer);
/* Initialises the lists of imports in both directions; frees what waits there but operations. Home, or the freeing thread. */
void pl_imports_init(struct pl_peer *peer);
void pl_imports_drop(struct pl_peer *peer);
void pl_imported_arrived(struct pl_peer *peer, const struct pl_imported *answer);

#endif
