/* SPDX-License-Identifier: BSD-2-Clause */
/* Prepared vectors: elements that are checked once and posted many times. */
#ifndef PL_CORE_VECTOR_H
#define PL_CORE_VECTOR_H

#include "core/operation.h"

/* What the fabric keeps for a vector; first member of its own structure. */
struct pl_vector_kept {
	/* Any thread. No operation of the vector is left. Its regions and remote regions still exist. */
	void (*free)(struct pl_vector_kept *kept);
};

/* Constant once prepared, except `references`, `spare`, `kept` and `not_kept`. */
struct pl_vector {
	struct pl_list link; /* context->vectors; context->lock */
	struct pl_context *context;
	struct pl_peer *peer;
	enum pl_kind kind;
	size_t count;
	uint64_t total;
	bool one_memory;                   /* all elements have one region and one remote region */
	uint64_t remote_room, offset_room; /* most that can be added to all remote offsets, and to all offsets */
	atomic_uint references;            /* of the program, and of operations */
	struct pl_segment *_Atomic spare;  /* array of an earlier operation; may be NULL */
	struct pl_vector_kept *kept;       /* home; NULL: nothing */
	bool not_kept;                     /* home: the fabric has no room for it, and does not try again */
	size_t region_count, remote_count; /* distinct ones, each with a reference */
	struct pl_region **regions;
	struct pl_remote **remotes;
	struct pl_segment segments[];
};

/* Takes back the segments of an operation, which may be those of the vector, and its reference. */
void pl_vector_return(struct pl_vector *vector, struct pl_segment *segments);
/* Frees all vectors of a context that closes. */
void pl_vectors_close(struct pl_context *context);

/* transfer.c: posts an operation on checked segments, which it owns from now on. */
int pl_transfer_post_vector(struct pl_vector *vector, struct pl_segment *segments, const struct pl_attributes *given,
			    struct pl_operation **handle, struct pl_error *error);
/* transfer.c: checks the elements of a vector. */
int pl_transfer_check(struct pl_peer *peer, enum pl_kind kind, const struct pl_transfer *transfers, size_t count,
		      const char *call, struct pl_error *error);

#endif
