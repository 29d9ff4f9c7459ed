/* SPDX-License-Identifier: BSD-2-Clause */
/* Sets of regions: one blob, one import, look-up by address. */
#include <stdlib.h>

#include "scenarios/scenario.h"
#include "support/gpu.h"

#define COUNT 40
#define SIZE 5000

struct sets {
	struct buffer near, far[COUNT];
	struct pl_region *regions[COUNT];
	uint8_t blob[PL_REGIONS_BLOB_SIZE(COUNT)];
	size_t length;
};

static void sets_open(struct scenario_environment *environment, struct sets *sets)
{
	struct pl_error error;

	buffer_open(&sets->near, environment->near, SIZE, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < COUNT; i++) {
		buffer_open(&sets->far[i], environment->far, SIZE + i, PL_ACCESS_ALL);
		sets->regions[i] = sets->far[i].region;
	}
	sets->length = sizeof(sets->blob);
	check_ok(pl_regions_share(sets->regions, COUNT, NULL, sets->blob, &sets->length, &error), &error);
	check_number(sets->length, sizeof(sets->blob));
}

static void sets_close(struct sets *sets)
{
	buffer_close(&sets->near);
	for (unsigned i = 0; i < COUNT; i++)
		buffer_close(&sets->far[i]);
}

/* Imports a blob at the near end, and returns the status. */
static int import_set(struct scenario_environment *environment, const void *blob, size_t length,
		      struct pl_remote_set **set, struct pl_error *error)
{
	struct pump pump;
	int rc;

	pump_start(environment, &pump, environment->far);
	rc = pl_remote_set_import(environment->near_peer, blob, length, AMPLE_TIME, set, error);
	pump_stop(&pump);
	return rc;
}

static void write_by_address(struct scenario_environment *environment, const struct sets *sets,
			     const struct pl_remote_set *set, unsigned i)
{
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_error error;
	uint64_t offset;

	check_number(pl_remote_set_find(set, (uintptr_t)pl_region_address(sets->far[i].region) + 100, SIZE - 100,
					&remote, &offset),
		     0);
	check(remote == pl_remote_set_get(set, i));
	check_number(offset, 100);
	check_number(pl_remote_length(remote), SIZE + i);
	pattern_fill(sets->near.bytes, SIZE, i, 0);
	check_ok(pl_write(environment->near_peer,
			  &(struct pl_transfer){ remote, offset, sets->near.region, 0, SIZE - 100 }, NULL, &operation,
			  &error),
		 &error);
	complete(environment, operation, NULL);
	pattern_check(sets->far[i].bytes + 100, SIZE - 100, i, 0);
}

static void set_of_regions(struct scenario_environment *environment)
{
	struct pl_remote_set *set;
	struct pl_remote *remote;
	struct pl_error error;
	uint64_t offset, address;
	struct sets sets;

	sets_open(environment, &sets);
	check_ok(import_set(environment, sets.blob, sets.length, &set, &error), &error);
	check_number(pl_remote_set_count(set), COUNT);
	check(!pl_remote_set_get(set, COUNT));
	for (unsigned i = 0; i < COUNT; i++)
		write_by_address(environment, &sets, set, i);
	/* A range may end with its region, but not reach beyond it. */
	address = (uintptr_t)pl_region_address(sets.far[7].region);
	check_number(pl_remote_set_find(set, address, SIZE + 7, &remote, &offset), 0);
	check_number(pl_remote_set_find(set, address + SIZE + 6, 1, &remote, &offset), 0);
	check_number(offset, SIZE + 6);
	check_number(pl_remote_set_find(set, address, SIZE + 8, &remote, &offset), -ENOENT);
	check_number(pl_remote_set_find(set, address + 1, UINT64_MAX, &remote, &offset), -ENOENT);
	check_number(pl_remote_set_find(set, 0, 1, &remote, &offset), -ENOENT);
	check_number(pl_remote_set_find(set, UINT64_MAX, 0, &remote, &offset), -ENOENT);
	pl_remote_set_release(set);
	pl_remote_set_release(NULL);
	sets_close(&sets);
}

/* Overlapping regions: each range is found in a region that contains all of it. */
static void set_of_overlapping_regions(struct scenario_environment *environment)
{
	enum { WHOLE = 64 << 10, PART = 4096 };
	struct pl_region *regions[3];
	uint8_t blob[PL_REGIONS_BLOB_SIZE(3)];
	size_t length = sizeof(blob);
	struct pl_remote_set *set;
	struct pl_remote *remote;
	struct buffer buffer;
	struct pl_error error;
	uint64_t offset, at;

	buffer_open(&buffer, environment->far, WHOLE, PL_ACCESS_ALL);
	at = (uintptr_t)pl_region_address(buffer.region);
	regions[0] = buffer.region;
	for (unsigned i = 1; i < 3; i++)
		check_ok(pl_region_register(environment->far, (uint8_t *)pl_region_address(buffer.region) + i * 8192,
					    PART, PL_ACCESS_READ, &regions[i], &error),
			 &error);
	check_ok(pl_regions_share(regions, 3, NULL, blob, &length, &error), &error);
	check_ok(import_set(environment, blob, length, &set, &error), &error);
	check_number(pl_remote_set_find(set, at + 8192 + 1, PART - 1, &remote, &offset), 0);
	check_number(pl_remote_set_find(set, at + 8192 + 1, PART, &remote, &offset), 0);
	check(remote == pl_remote_set_get(set, 0));
	check_number(offset, 8193);
	check_number(pl_remote_set_find(set, at + WHOLE - 1, 1, &remote, &offset), 0);
	check_number(pl_remote_set_find(set, at + WHOLE - 1, 2, &remote, &offset), -ENOENT);
	pl_remote_set_release(set);
	for (unsigned i = 1; i < 3; i++)
		check_number(pl_region_deregister(regions[i]), 0);
	buffer_close(&buffer);
}

static void set_refused(struct scenario_environment *environment)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct pl_remote_set *set = NULL;
	struct pl_error error;
	size_t length;
	struct sets sets;

	sets_open(environment, &sets);
	length = sizeof(sets.blob) - 1;
	check_status(pl_regions_share(sets.regions, COUNT, NULL, sets.blob, &length, &error), -ENOBUFS, &error);
	length = sizeof(sets.blob);
	check_status(pl_regions_share(sets.regions, 0, NULL, sets.blob, &length, &error), -EINVAL, &error);
	check_status(pl_regions_share(sets.regions, PL_REGIONS_MAX + 1, NULL, sets.blob, &length, &error), -EINVAL,
		     &error);
	/* Only the first region is too short for this. */
	options.offset = SIZE;
	check_status(pl_regions_share(sets.regions, COUNT, &options, sets.blob, &length, &error), -ERANGE, &error);
	check_ok(pl_regions_share(sets.regions, COUNT, NULL, sets.blob, &length, &error), &error);
	check_status(import_set(environment, sets.blob, length - 1, &set, &error), -EINVAL, &error);
	check_text(error.id, "TOKEN-MALFORMED");
	sets.blob[100]++;
	check_status(import_set(environment, sets.blob, length, &set, &error), -EINVAL, &error);
	check_text(error.id, "TOKEN-DAMAGED");
	sets.blob[100]--;
	check_number(pl_regions_revoke(environment->near, sets.blob, length), -ENOENT);
	check_number(pl_regions_revoke(environment->far, sets.blob, length - 1), -EINVAL);
	check(!set);
	sets_close(&sets);
}

/* Revokes one region of a blob, whose import then fails as a whole; and later all. */
static void set_revoked(struct scenario_environment *environment)
{
	struct pl_operation *operation;
	struct pl_remote_set *set;
	struct pl_error error;
	struct sets sets;

	sets_open(environment, &sets);
	check_ok(import_set(environment, sets.blob, sets.length, &set, &error), &error);
	check_number(pl_region_revoke(sets.regions[COUNT - 2], sets.blob + 16 + (COUNT - 2) * 76 + 8, 68), 0);
	write_by_address(environment, &sets, set, 3);
	check_number(pl_regions_revoke(environment->far, sets.blob, sets.length), 0);
	check_number(pl_regions_revoke(environment->far, sets.blob, sets.length), -ENOENT);
	check_ok(pl_write(environment->near_peer,
			  &(struct pl_transfer){ pl_remote_set_get(set, 3), 0, sets.near.region, 0, SIZE }, NULL,
			  &operation, &error),
		 &error);
	fail_with(environment, operation, -EACCES);
	pl_remote_set_release(set);
	check_status(import_set(environment, sets.blob, sets.length, &set, &error), -EACCES, &error);
	check_text(error.object, "region 0");
	check(!set);
	sets_close(&sets);
}

static void set_of_many(struct scenario_environment *environment)
{
	enum { MANY = 3000, PIECE = 64 };
	size_t length = PL_REGIONS_BLOB_SIZE(MANY);
	struct pl_region **regions = calloc(MANY, sizeof(*regions));
	uint8_t *blob = malloc(length);
	struct pl_remote_set *set;
	struct pl_remote *remote;
	struct buffer buffer;
	struct pl_error error;
	uint64_t offset;

	check(regions && blob);
	buffer_open(&buffer, environment->far, MANY * PIECE, PL_ACCESS_ALL);
	for (unsigned i = 0; i < MANY; i++)
		check_ok(pl_region_register(environment->far,
					    (uint8_t *)pl_region_address(buffer.region) + (MANY - 1 - i) * PIECE, PIECE,
					    PL_ACCESS_ALL, &regions[i], &error),
			 &error);
	check_ok(pl_regions_share(regions, MANY, NULL, blob, &length, &error), &error);
	check_ok(import_set(environment, blob, length, &set, &error), &error);
	for (unsigned i = 0; i < MANY; i++) {
		check_number(pl_remote_set_find(set, (uintptr_t)pl_region_address(buffer.region) + i * PIECE, PIECE,
						&remote, &offset),
			     0);
		check(remote == pl_remote_set_get(set, MANY - 1 - i));
	}
	pl_remote_set_release(set);
	for (unsigned i = 0; i < MANY; i++)
		check_number(pl_region_deregister(regions[i]), 0);
	buffer_close(&buffer);
	free(regions);
	free(blob);
}

const struct scenario set_scenarios[] = {
	{ "set-of-regions", set_of_regions, 0 },
	{ "set-of-overlapping-regions", set_of_overlapping_regions, SCENARIO_SETTING },
	{ "set-of-many", set_of_many, SCENARIO_HEAVY | SCENARIO_SETTING },
	{ "set-refused", set_refused, SCENARIO_SETTING },
	{ "set-revoked", set_revoked, SCENARIO_SETTING },
	{ NULL, NULL, 0 },
};
