/* SPDX-License-Identifier: BSD-2-Clause */
/* Prepared vectors. Preparing checks each element. Posting compares two shifts, and copies the segments only to add a shift. */
#include "core/vector.h"

#include <stdlib.h>

#include "core/peer.h"

static int compare_pointers(const void *a, const void *b)
{
	uintptr_t one = (uintptr_t) * (void *const *)a, other = (uintptr_t) * (void *const *)b;

	return (one > other) - (one < other);
}

/* Sorts pointers and removes repeated ones.  Returns the number left. */
static size_t make_pointers_unique(void **pointers, size_t count)
{
	size_t kept = 0;

	qsort(pointers, count, sizeof(*pointers), compare_pointers);
	for (size_t i = 0; i < count; i++) {
		if (i == 0 || pointers[i] != pointers[kept - 1])
			pointers[kept++] = pointers[i];
	}
	return kept;
}

static void fill_segments(struct pl_vector *vector, const struct pl_transfer *transfers)
{
	vector->remote_room = vector->offset_room = UINT64_MAX;
	vector->one_memory = true;
	for (size_t i = 0; i < vector->count; i++) {
		const struct pl_transfer *at = &transfers[i];
		uint64_t remote_end = at->remote_offset + at->length, end = at->offset + at->length;

		vector->segments[i] =
			(struct pl_segment){ at->remote, at->region, at->remote_offset, at->offset, at->length };
		vector->total += at->length;
		vector->one_memory &= at->remote == transfers->remote && at->region == transfers->region;
		vector->remote_room = PL_MIN(vector->remote_room, at->remote->length - remote_end);
		vector->offset_room = PL_MIN(vector->offset_room, at->region->memory.length - end);
	}
}

/* Lists the distinct regions and remote regions, and takes a reference to each.  Returns false without memory. */
static bool hold_memory(struct pl_vector *vector)
{
	const struct pl_allocator *allocator = &vector->context->allocator;

	vector->regions = pl_alloc(allocator, vector->count * sizeof(*vector->regions));
	vector->remotes = pl_alloc(allocator, vector->count * sizeof(*vector->remotes));
	if (!vector->regions || !vector->remotes)
		return false;
	for (size_t i = 0; i < vector->count; i++) {
		vector->regions[i] = vector->segments[i].region;
		vector->remotes[i] = vector->segments[i].remote;
	}
	vector->region_count = make_pointers_unique((void **)vector->regions, vector->count);
	vector->remote_count = make_pointers_unique((void **)vector->remotes, vector->count);
	for (size_t i = 0; i < vector->region_count; i++)
		atomic_fetch_add(&vector->regions[i]->busy, 1);
	for (size_t i = 0; i < vector->remote_count; i++)
		atomic_fetch_add(&vector->remotes[i]->references, 1);
	return true;
}

static void free_vector(struct pl_vector *vector)
{
	const struct pl_allocator *allocator = &vector->context->allocator;

	if (vector->kept)
		vector->kept->free(vector->kept);
	for (size_t i = 0; i < vector->region_count; i++)
		atomic_fetch_sub(&vector->regions[i]->busy, 1);
	for (size_t i = 0; i < vector->remote_count; i++)
		pl_remote_put(vector->remotes[i]);
	pl_free(allocator, vector->regions);
	pl_free(allocator, vector->remotes);
	pl_free(allocator, atomic_load(&vector->spare));
	pl_free(allocator, vector);
}

int pl_vector_prepare(struct pl_peer *peer, enum pl_kind kind, const struct pl_transfer *transfers, size_t count,
		      struct pl_vector **result, struct pl_error *error)
{
	struct pl_context *context = peer->context;
	struct pl_vector *vector;
	int rc;

	*result = NULL;
	if (kind != PL_KIND_WRITE && kind != PL_KIND_READ)
		return pl_fail(error, -EINVAL, "VECTOR-KIND", "pl_vector_prepare", NULL,
			       "pass PL_KIND_WRITE or PL_KIND_READ", "kind %d has no vectors", (int)kind);
	rc = pl_transfer_check(peer, kind, transfers, count, "pl_vector_prepare", error);
	if (rc < 0)
		return rc;
	vector = pl_zalloc(&context->allocator, sizeof(*vector) + count * sizeof(vector->segments[0]));
	if (!vector)
		return pl_fail_memory(error, "pl_vector_prepare");
	vector->context = context;
	vector->peer = peer;
	vector->kind = kind;
	vector->count = count;
	atomic_init(&vector->references, 1);
	fill_segments(vector, transfers);
	if (!hold_memory(vector)) {
		free_vector(vector);
		return pl_fail_memory(error, "pl_vector_prepare");
	}
	pthread_mutex_lock(&context->lock);
	pl_list_append(&context->vectors, &vector->link);
	pthread_mutex_unlock(&context->lock);
	*result = vector;
	return 0;
}

static int check_room(const struct pl_vector *vector, uint64_t remote_shift, uint64_t shift, struct pl_error *error)
{
	if (remote_shift > vector->remote_room)
		return pl_fail(error, -ERANGE, "REMOTE-RANGE", "pl_vector_post", NULL, "stay within the remote regions",
			       "%llu added to the remote offsets, at most %llu fit", (unsigned long long)remote_shift,
			       (unsigned long long)vector->remote_room);
	if (shift > vector->offset_room)
		return pl_fail(error, -ERANGE, "REGION-RANGE", "pl_vector_post", NULL, "stay within the regions",
			       "%llu added to the offsets, at most %llu fit", (unsigned long long)shift,
			       (unsigned long long)vector->offset_room);
	return 0;
}

/* Returns the segments with these shifts: the vector's own ones without shifts. NULL: no memory. */
static struct pl_segment *vector_shifted_segments(struct pl_vector *vector, uint64_t remote_shift, uint64_t shift)
{
	struct pl_segment *segments;

	if (!remote_shift && !shift)
		return vector->segments;
	segments = atomic_exchange(&vector->spare, NULL);
	if (!segments)
		segments = pl_alloc(&vector->context->allocator, vector->count * sizeof(*segments));
	for (size_t i = 0; segments && i < vector->count; i++) {
		segments[i] = vector->segments[i];
		segments[i].remote_offset += remote_shift;
		segments[i].offset += shift;
	}
	return segments;
}

int pl_vector_post(struct pl_vector *vector, uint64_t remote_shift, uint64_t shift,
		   const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error)
{
	struct pl_segment *segments;
	int rc = check_room(vector, remote_shift, shift, error);

	if (rc < 0)
		return rc;
	segments = vector_shifted_segments(vector, remote_shift, shift);
	if (!segments)
		return pl_fail_memory(error, "pl_vector_post");
	atomic_fetch_add(&vector->references, 1);
	rc = pl_transfer_post_vector(vector, segments, attributes, operation, error);
	if (rc < 0)
		pl_vector_return(vector, segments);
	return rc;
}

static void vector_put(struct pl_vector *vector)
{
	if (atomic_fetch_sub(&vector->references, 1) == 1)
		free_vector(vector);
}

void pl_vector_return(struct pl_vector *vector, struct pl_segment *segments)
{
	if (segments != vector->segments)
		pl_free(&vector->context->allocator, atomic_exchange(&vector->spare, segments));
	vector_put(vector);
}

void pl_vector_free(struct pl_vector *vector)
{
	struct pl_context *context;

	if (!vector || pl_context_forked(vector->context))
		return;
	context = vector->context;
	pthread_mutex_lock(&context->lock);
	pl_list_remove(&vector->link);
	pthread_mutex_unlock(&context->lock);
	vector_put(vector);
}

void pl_vectors_close(struct pl_context *context)
{
	while (!pl_list_empty(&context->vectors))
		pl_vector_free(pl_list_first(&context->vectors, struct pl_vector, link));
}
