/* SPDX-License-Identifier: BSD-2-Clause */
/* Vectors that a kernel of the GPU copies, and the kept lists of prepared vectors. */
#ifndef PL_LOCAL_GPU_GATHER_H
#define PL_LOCAL_GPU_GATHER_H

#include "core/vector.h"
#include "fabric/local/local.h"

/* Returns the next segment that changes memory; the number of segments: there is none. */
static inline unsigned local_next_memory(const struct pl_operation *operation, unsigned number)
{
	if (operation->one_memory)
		return operation->segment_count;
	do
		number++;
	while (number < operation->segment_count && !local_segment_changes_memory(operation, number));
	return number;
}

/* gpu_gather.c: does a vector between GPUs by a kernel, and returns true; false: a kernel is not suited. Home. */
bool local_gather_post(struct pl_operation *operation);
/* The same for a prepared vector with a kept list, whose segments are not looked at. */
bool local_gather_post_kept(struct pl_operation *operation);
/* Bytes of a piece: small enough for all blocks to have work. */
uint64_t local_gather_piece_size(const struct pl_operation *operation);
/*
 * Fills `ranges` with the pieces of the segments from the position of the operation's work item on, and moves the position on.
 * Returns the number of ranges, at most `room`, and adds their bytes to *bytes.
 */
unsigned local_gather_fill(struct pl_operation *operation, struct pl_gather_range *ranges, unsigned room, uint64_t size,
			   uint64_t *bytes);

/* gpu_kept.c: lists of ranges of prepared vectors, in the memory of the GPU. Home. */
/*
 * Keeps the list of an operation's vector, which kernels reach, and returns true. False: there is no room, now or at an earlier post,
 * or the vector has a list.
 */
bool local_kept_make(struct pl_operation *operation);
/*
 * True if the vector has a list, and all its addresses are those of now: no memory was freed or opened again. Sets the reason of
 * the route of copies.
 */
bool local_kept_is_valid(const struct pl_vector *vector, const char **reason);
/* Takes a gather for the list. NULL: copies must be used. */
struct pl_gather *local_kept_take(const struct pl_operation *operation);
/* Holds the gates of all remote regions of the list. Returns 0, or a negative errno and holds none. */
int local_kept_hold_gates(const struct pl_operation *operation, struct pl_error *error);
void local_kept_release_gates(const struct pl_operation *operation);

#endif
