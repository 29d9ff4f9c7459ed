/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kept lists of prepared vectors: the ranges of all segments, in the memory of the GPU that copies them. A later operation of the
 * vector checks each region and remote region once, in place of each segment, and writes no list. A vector gets its list when it is
 * first posted, because the peer's memory is opened then.
 */
#include <stdlib.h>

#include "fabric/local/gpu_gather.h"

/* Most ranges of a kept list. */
#define KEPT_RANGES_MAX 32768u
/* Most bytes of a kept list with host memory: one kernel copies all of them, and holds the gates meanwhile. */
#define KEPT_HOST_BYTES (256u << 20)

/* Region and remote region that segments of the vector have in common, with the addresses in the list. */
struct kept_pair {
	struct pl_region *region;
	struct pl_remote *remote;
	uint64_t here, there;
};

struct local_kept {
	struct pl_vector_kept base;
	const struct pl_allocator *allocator;
	const struct pl_memory_ops *ops;
	struct pl_gather_list *list;
	uint64_t bytes;
	bool host; /* host memory takes part */
	size_t pair_count;
	struct kept_pair pairs[]; /* in the order of their remote regions */
};

static struct local_kept *kept_of(const struct pl_vector *vector)
{
	return (struct local_kept *)vector->kept;
}

/* -- making a list ------------------------------------------------------------------------------------- */

static int compare_pairs(const void *a, const void *b)
{
	const struct kept_pair *one = a, *other = b;
	int order = ((uintptr_t)one->remote > (uintptr_t)other->remote) -
		    ((uintptr_t)one->remote < (uintptr_t)other->remote);

	return order ? order
		     : ((uintptr_t)one->region > (uintptr_t)other->region) -
			       ((uintptr_t)one->region < (uintptr_t)other->region);
}

static void free_kept(struct pl_vector_kept *base)
{
	struct local_kept *kept = (struct local_kept *)base;

	if (kept->list)
		kept->ops->gather_forget(kept->list);
	pl_free(kept->allocator, kept);
}

/* Lists the pairs of a vector, each once. */
static void list_pairs(struct local_kept *kept, const struct pl_operation *operation)
{
	size_t count = 0;

	for (unsigned i = 0; i < operation->segment_count; i = local_next_memory(operation, i))
		kept->pairs[count++] =
			(struct kept_pair){ operation->segments[i].region, operation->segments[i].remote, 0, 0 };
	qsort(kept->pairs, count, sizeof(kept->pairs[0]), compare_pairs);
	for (size_t i = 0; i < count; i++) {
		struct kept_pair *pair = &kept->pairs[i];
		struct local_ends ends;

		if (i && compare_pairs(pair, &kept->pairs[kept->pair_count - 1]) == 0)
			continue;
		ends = local_ends_of(pair->region, pair->remote);
		pair->here = ends.here;
		pair->there = ends.there;
		kept->pairs[kept->pair_count++] = *pair;
	}
}

static struct local_kept *kept_new(const struct pl_operation *operation)
{
	const struct pl_allocator *allocator = &operation->context->allocator;
	struct local_kept *kept;
	size_t changes = 0;

	for (unsigned i = 0; i < operation->segment_count; i = local_next_memory(operation, i))
		changes++;
	kept = pl_zalloc(allocator, sizeof(*kept) + changes * sizeof(kept->pairs[0]));
	if (!kept)
		return NULL;
	kept->base.free = free_kept;
	kept->allocator = allocator;
	kept->ops = local_gather_gpu(operation)->ops;
	kept->host = local_gathering_of(operation)->host;
	list_pairs(kept, operation);
	return kept;
}

/* Shifts that were added to the vector's offsets for this operation, as the kernel adds them. */
static void shifts_of(const struct pl_operation *operation, uint64_t *to, uint64_t *from)
{
	const struct pl_segment *shifted = operation->segments, *plain = operation->vector->segments;
	uint64_t there = shifted->remote_offset - plain->remote_offset, here = shifted->offset - plain->offset;
	bool write = operation->completion.kind == PL_KIND_WRITE;

	*to = write ? there : here;
	*from = write ? here : there;
}

/* Returns the most ranges that pieces of `size` bytes make of the operation. */
static uint64_t most_ranges(const struct pl_operation *operation, uint64_t size)
{
	return operation->segment_count + operation->total / size;
}

/* Fills the list, without the shifts of this operation, and copies it to the GPU. */
static bool kept_fill(struct local_kept *kept, struct pl_operation *operation)
{
	uint64_t size = local_gather_piece_size(operation), most = most_ranges(operation, size), to, from;
	struct pl_gather_range *ranges;
	unsigned count;

	ranges = pl_alloc(kept->allocator, most * sizeof(*ranges));
	if (!ranges)
		return false;
	*(struct pl_work_item *)operation->fabric = (struct pl_work_item){ .segment = 0 };
	shifts_of(operation, &to, &from);
	count = local_gather_fill(operation, ranges, (unsigned)most, size, UINT64_MAX, &kept->bytes);
	for (unsigned i = 0; i < count; i++) {
		ranges[i].to -= to;
		ranges[i].from -= from;
	}
	if (count)
		kept->list = kept->ops->gather_keep(local_gather_gpu(operation), ranges, count);
	pl_free(kept->allocator, ranges);
	return kept->list;
}

/* Returns the list of the operation's vector, or NULL: it is too long, or there is no room. */
static struct local_kept *kept_make(struct pl_operation *operation)
{
	struct local_kept *kept;

	if (most_ranges(operation, local_gather_piece_size(operation)) > KEPT_RANGES_MAX ||
	    (local_gathering_of(operation)->host && operation->total > KEPT_HOST_BYTES))
		return NULL;
	kept = kept_new(operation);
	if (!kept || kept_fill(kept, operation))
		return kept;
	free_kept(&kept->base);
	return NULL;
}

bool local_kept_make(struct pl_operation *operation)
{
	struct pl_vector *vector = operation->vector;
	struct local_kept *kept = vector->kept || vector->not_kept ? NULL : kept_make(operation);

	if (kept)
		vector->kept = &kept->base;
	vector->not_kept = !vector->kept;
	return kept;
}

/* -- using a list -------------------------------------------------------------------------------------- */

static bool pair_is_valid(const struct kept_pair *pair, enum pl_kind kind, const char **reason)
{
	const struct local_access *access = pair->remote->fabric_data;
	struct pl_memory *memory = &pair->region->memory;
	struct local_ends ends;

	if (!access || !local_device_reaches(access, memory, reason) ||
	    !local_kernel_reaches(pair->region, pair->remote, kind))
		return false;
	ends = local_ends_of(pair->region, pair->remote);
	return ends.here == pair->here && ends.there == pair->there;
}

bool local_kept_is_valid(const struct pl_vector *vector, const char **reason)
{
	const struct local_kept *kept = kept_of(vector);

	for (size_t i = 0; kept && i < kept->pair_count; i++)
		if (!pair_is_valid(&kept->pairs[i], vector->kind, reason))
			return false;
	return kept;
}

bool local_kept_has_host(const struct pl_vector *vector)
{
	return kept_of(vector)->host;
}

struct pl_gather *local_kept_take(const struct pl_operation *operation)
{
	const struct local_kept *kept = kept_of(operation->vector);
	struct pl_gather *gather = kept->ops->gather_take(local_gather_gpu(operation), 0);

	if (!gather)
		return NULL;
	gather->list = kept->list;
	gather->bytes = kept->bytes;
	shifts_of(operation, &gather->to_shift, &gather->from_shift);
	return gather;
}

/* Releases the gates of the first pairs. */
static void release_gates(const struct local_kept *kept, size_t end)
{
	for (size_t i = 0; i < end; i++)
		if (i == 0 || kept->pairs[i].remote != kept->pairs[i - 1].remote)
			local_copy_gate_release(kept->pairs[i].remote->fabric_data);
}

int local_kept_hold_gates(const struct pl_operation *operation, struct pl_error *error)
{
	const struct local_kept *kept = kept_of(operation->vector);

	for (size_t i = 0; i < kept->pair_count; i++) {
		int rc = 0;

		if (i == 0 || kept->pairs[i].remote != kept->pairs[i - 1].remote)
			rc = local_kernel_gate_hold(kept->pairs[i].remote->fabric_data, operation, error);
		if (rc < 0) {
			release_gates(kept, i);
			return rc;
		}
	}
	return 0;
}

void local_kept_release_gates(const struct pl_operation *operation)
{
	const struct local_kept *kept = kept_of(operation->vector);

	release_gates(kept, kept->pair_count);
}
