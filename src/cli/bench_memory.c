/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of either kind.  What the processor fills and looks at is the region itself in host memory, and a copy of
 * it in host memory for a GPU's, which is brought there or fetched from there.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

#define LOOK_EVERY 5000ull /* nanoseconds */

static bool apart(const struct bench_buffer *buffer)
{
	return buffer->bytes != pl_region_address(buffer->region);
}

int bench_buffer_open(struct bench_end *end, struct bench_buffer *buffer, unsigned access)
{
	size_t length = end->layout.window;
	struct pl_error error;
	int rc = pl_region_allocate_in(end->context, end->memory, length, access, &buffer->region, &error);

	if (rc < 0)
		return bench_fail_as(end, &error);
	buffer->bytes = pl_region_address(buffer->region);
	if (strcmp(pl_region_memory(buffer->region), "host"))
		buffer->bytes = calloc(1, length);
	if (!buffer->bytes)
		return bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, "measure smaller messages", "no %zu bytes of memory",
				  length);
	return 0;
}

void bench_buffer_close(struct bench_buffer *buffer)
{
	if (buffer->region && apart(buffer))
		free(buffer->bytes);
	pl_region_deregister(buffer->region);
	*buffer = (struct bench_buffer){ 0 };
}

int bench_buffer_bring(struct bench_end *end, struct bench_buffer *buffer, size_t offset, size_t length)
{
	struct pl_error error;

	if (!apart(buffer) || pl_region_copy_in(buffer->region, offset, buffer->bytes + offset, length, &error) == 0)
		return 0;
	return bench_fail_as(end, &error);
}

int bench_buffer_fetch(struct bench_end *end, struct bench_buffer *buffer, size_t offset, size_t length)
{
	struct pl_error error;

	if (!apart(buffer) || pl_region_copy_out(buffer->region, offset, buffer->bytes + offset, length, &error) == 0)
		return 0;
	return bench_fail_as(end, &error);
}

int bench_buffer_look(struct bench_end *end, struct bench_buffer *buffer, size_t length)
{
	uint64_t until = cli_now() + LOOK_EVERY;

	while (apart(buffer) && cli_now() < until)
		pl_poll(end->context, NULL, 0);
	return bench_buffer_fetch(end, buffer, 0, length);
}
