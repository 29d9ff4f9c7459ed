/* SPDX-License-Identifier: BSD-2-Clause */
#include "emulated/gpu_ends.h"

#include <stdlib.h>

#include "support/gpu.h"

const struct setting gpu_setting = {
	.name = "emulated",
	.fabric = "verbs",
	.host = "10.0.0.2",
	.progress = PL_PROGRESS_THREAD,
	.lanes = 1,
	.one_sided = true,
	.slow = true,
};

void gpu_ends_open(struct gpu_ends *ends)
{
	environment_open(&ends->environment, &gpu_setting);
	gpu_kind = NULL;
	buffer_open(&ends->host, ends->environment.near, 2 * MIB, PL_ACCESS_ALL);
	gpu_kind = "alloc";
	pattern_fill(ends->host.bytes, MIB, 1, 0);
	emulated_copied();
}

void gpu_ends_close(struct gpu_ends *ends)
{
	buffer_close(&ends->host);
	environment_close(&ends->environment);
}

struct pl_region *gpu_ends_register(struct gpu_ends *ends, void *memory, size_t length)
{
	struct pl_region *region;
	struct pl_error error;

	check_ok(pl_region_register(ends->environment.far, memory, length, PL_ACCESS_ALL, &region, &error), &error);
	return region;
}

int gpu_ends_transfer(struct gpu_ends *ends, bool write, struct pl_remote *remote, size_t remote_offset, size_t offset,
		      size_t length)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;
	int rc;

	direct.flags = PL_REQUIRE_DIRECT;
	rc = (write ? pl_write
		    : pl_read)(ends->environment.near_peer,
			       &(struct pl_transfer){ remote, remote_offset, ends->host.region, offset, length },
			       &direct, &operation, &error);
	if (rc == 0)
		rc = await(&ends->environment, operation, &receipt, &error);
	if (rc == 0)
		check_number((receipt.bytes - receipt.bytes_staged), length);
	return rc;
}

/*
 * Writes the pattern and reads it back to the second half of the host memory.  Checks that the copy engine stays idle.
 */
void gpu_ends_round_trip(struct gpu_ends *ends, struct pl_remote *remote, size_t at, size_t length)
{
	memset(ends->host.bytes + MIB, 0, MIB);
	check_number(gpu_ends_transfer(ends, true, remote, at, 0, length), 0);
	check_number(gpu_ends_transfer(ends, false, remote, at, MIB, length), 0);
	check_number(emulated_copied(), 0);
	pattern_check(ends->host.bytes + MIB, length, 1, 0);
}

void gpu_check_pattern(const uint8_t *memory, size_t length, uint64_t position)
{
	uint8_t *copy = malloc(length);

	check(copy);
	gpu_copy_out(memory, copy, length);
	pattern_check(copy, length, 1, position);
	free(copy);
	emulated_copied();
}

/* Checks memory that was not written since its allocation. */
void gpu_check_untouched(const uint8_t *memory, size_t length)
{
	uint8_t *copy = malloc(length);

	check(copy);
	gpu_copy_out(memory, copy, length);
	value_check(copy, length, 0xa5);
	free(copy);
	emulated_copied();
}
