/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sets of regions: one blob with the tokens and addresses of many regions, one import of all of them, and look-up by the
 * address that the memory has at its owner.
 */
#include <stdlib.h>

#include "core/fabric.h"

/* Remote region of a set, in the order of addresses. */
struct range {
	uint64_t address, length;
	uint64_t reach; /* highest end of this and all earlier ranges */
	size_t index;   /* in the order of the blob */
};

struct pl_remote_set {
	struct pl_context *context;
	size_t count;
	struct pl_remote **remotes; /* in the order of the blob */
	struct range *ranges;
};

/* -- the owner ------------------------------------------------------------------------------------ */

static int check_regions(struct pl_region *const *regions, size_t count, size_t room, struct pl_error *error)
{
	if (count == 0 || count > PL_REGIONS_MAX)
		return pl_fail(error, -EINVAL, "REGION-COUNT", "pl_regions_share", NULL, "pass 1 to 16384 regions",
			       "%zu regions", count);
	if (room < PL_REGIONS_BLOB_SIZE(count))
		return pl_fail(error, -ENOBUFS, "TOKEN-SPACE", "pl_regions_share", NULL,
			       "give PL_REGIONS_BLOB_SIZE(count) bytes",
			       "the blob has %zu bytes, there is room for %zu", PL_REGIONS_BLOB_SIZE(count), room);
	for (size_t i = 0; i < count; i++)
		if (regions[i]->context != regions[0]->context)
			return pl_fail(error, -EINVAL, "REGION-FOREIGN", "pl_regions_share", NULL,
				       "share the regions of each context apart", "region %zu is of another context",
				       i);
	return 0;
}

int pl_regions_share(struct pl_region *const *regions, size_t count, const struct pl_grant_options *options, void *blob,
		     size_t *length, struct pl_error *error)
{
	struct pl_blob_writer writer;
	int rc = check_regions(regions, count, *length, error);

	if (rc < 0)
		return rc;
	pl_blob_begin(&writer, blob, count);
	for (size_t i = 0; i < count; i++) {
		size_t offset = options ? options->offset : 0, size = PL_TOKEN_SIZE;
		uint8_t token[PL_TOKEN_SIZE];

		rc = pl_region_share(regions[i], options, token, &size, error);
		if (rc < 0) {
			while (i-- > 0)
				pl_region_revoke(regions[i], pl_blob_token(blob, i), PL_TOKEN_SIZE);
			return rc;
		}
		pl_blob_add(&writer, (uintptr_t)pl_region_address(regions[i]) + offset, token);
	}
	*length = pl_blob_end(&writer);
	return 0;
}

int pl_regions_revoke(struct pl_context *context, const void *blob, size_t length)
{
	int count = pl_blob_decode(blob, length);
	bool any = false;

	if (count < 0)
		return -EINVAL;
	for (size_t i = 0; i < (size_t)count; i++)
		any |= pl_grant_revoke(context, NULL, pl_blob_token(blob, i));
	if (!any)
		return -ENOENT;
	pl_context_await_outdated(context);
	pl_context_barrier(context);
	return 0;
}

/* -- the importer --------------------------------------------------------------------------------- */

static int compare_ranges(const void *a, const void *b)
{
	const struct range *one = a, *other = b;

	return (one->address > other->address) - (one->address < other->address);
}

static void sort_ranges(struct pl_remote_set *set, const void *blob)
{
	uint64_t reach = 0;

	for (size_t i = 0; i < set->count; i++)
		set->ranges[i] = (struct range){ .address = pl_blob_address(blob, i),
						 .length = set->remotes[i]->length,
						 .index = i };
	qsort(set->ranges, set->count, sizeof(*set->ranges), compare_ranges);
	for (size_t i = 0; i < set->count; i++) {
		struct range *range = &set->ranges[i];

		/* Addresses are untrusted: a range that would wrap reaches the end of the address space. */
		reach = PL_MAX(reach, range->address + PL_MIN(range->length, UINT64_MAX - range->address));
		range->reach = reach;
	}
}

static struct pl_remote_set *set_new(struct pl_context *context, size_t count)
{
	const struct pl_allocator *allocator = &context->allocator;
	struct pl_remote_set *set = pl_zalloc(allocator, sizeof(*set));

	if (!set)
		return NULL;
	set->context = context;
	set->count = count;
	set->remotes = pl_zalloc(allocator, count * sizeof(struct pl_remote *));
	set->ranges = pl_zalloc(allocator, count * sizeof(*set->ranges));
	if (set->remotes && set->ranges)
		return set;
	pl_remote_set_release(set);
	return NULL;
}

int pl_remote_set_import(struct pl_peer *peer, const void *blob, size_t length, uint64_t timeout,
			 struct pl_remote_set **result, struct pl_error *error)
{
	struct pl_context *context = peer->context;
	int count = pl_blob_decode(blob, length);
	struct pl_remote_set *set;
	const uint8_t **tokens;
	int rc;

	*result = NULL;
	if (count < 0)
		return pl_fail(
			error, -EINVAL, count == -EBADMSG ? "TOKEN-DAMAGED" : "TOKEN-MALFORMED", "pl_remote_set_import",
			NULL, "pass the blob as pl_regions_share() wrote it, with its length",
			count == -EBADMSG ? "the blob's checksum is wrong" : "these %zu bytes are no blob of regions",
			length);
	set = set_new(context, (size_t)count);
	tokens = pl_alloc(&context->allocator, (size_t)count * sizeof(*tokens));
	if (!set || !tokens) {
		pl_free(&context->allocator, tokens);
		pl_remote_set_release(set);
		return pl_fail_memory(error, "pl_remote_set_import");
	}
	for (size_t i = 0; i < set->count; i++)
		tokens[i] = pl_blob_token(blob, i);
	timeout = timeout ? timeout : context->options.operation_timeout;
	rc = pl_import_many(peer, tokens, set->remotes, set->count, pl_deadline(pl_now(), timeout), error);
	pl_free(&context->allocator, tokens);
	if (rc < 0) {
		pl_remote_set_release(set);
		return rc;
	}
	sort_ranges(set, blob);
	*result = set;
	return 0;
}

size_t pl_remote_set_count(const struct pl_remote_set *set)
{
	return set->count;
}

struct pl_remote *pl_remote_set_get(const struct pl_remote_set *set, size_t index)
{
	return index < set->count ? set->remotes[index] : NULL;
}

/* Returns the number of ranges that begin at or below the address. */
static size_t ranges_below(const struct pl_remote_set *set, uint64_t address)
{
	size_t low = 0, high = set->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (set->ranges[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int pl_remote_set_find(const struct pl_remote_set *set, uint64_t address, uint64_t length, struct pl_remote **remote,
		       uint64_t *offset)
{
	/* Ranges may overlap, so an earlier one may contain bytes that the nearest does not. */
	for (size_t i = ranges_below(set, address); i-- > 0 && set->ranges[i].reach >= address;) {
		const struct range *range = &set->ranges[i];

		if (pl_outside(address - range->address, length, range->length))
			continue;
		*remote = set->remotes[range->index];
		*offset = address - range->address;
		return 0;
	}
	return -ENOENT;
}

void pl_remote_set_release(struct pl_remote_set *set)
{
	const struct pl_allocator *allocator;

	if (!set || pl_context_forked(set->context))
		return;
	allocator = &set->context->allocator;
	for (size_t i = 0; set->remotes && i < set->count; i++)
		pl_remote_release(set->remotes[i]);
	pl_free(allocator, set->remotes);
	pl_free(allocator, set->ranges);
	pl_free(allocator, set);
}
