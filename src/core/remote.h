/* SPDX-License-Identifier: BSD-2-Clause */
/* Remote regions: what peers granted to this end. */
#ifndef PL_CORE_REMOTE_H
#define PL_CORE_REMOTE_H

#include "core/context.h"
#include "wire/wire.h"

struct pl_operation;
struct pl_peer;

struct pl_remote {
	/* First, side by side, what each operation looks at. */
	void *fabric_data;     /* the fabric's own: how it is reached; home, or before the program has the handle */
	struct pl_peer *peer; /* NULL once the peer was closed; context->lock */
	uint64_t length;
	unsigned rights;
	atomic_uint references;
	void (*forget)(struct pl_remote *remote); /* releases `way`; NULL: there is nothing to release */
	struct pl_list link;                      /* empty for the source of a large send */
	struct pl_task task;
	struct pl_context *context;
	uint16_t key_length;
	uint8_t key[PL_KEY_BLOB_MAX];
};

/* Nobody uses it any more. */
void pl_remote_unused(struct pl_remote *remote);
static inline void pl_remote_put(struct pl_remote *remote)
{
	if (atomic_fetch_sub(&remote->references, 1) == 1)
		pl_remote_unused(remote);
}
void pl_remote_free(struct pl_remote *remote);
int pl_import_post(struct pl_peer *peer, const void *data, size_t length, const struct pl_attributes *attributes,
		   struct pl_operation **handle, struct pl_error *error);
void pl_imported_arrived(struct pl_peer *peer, const struct pl_imported *answer);

#endif
