/* SPDX-License-Identifier: BSD-2-Clause */
/* Rings of frames in the kinds of memory that the methods use. */
#include "bench/workflow/workflow.h"

#include <stdlib.h>
#include <string.h>

#define POISON 0xa5

static int open_ring(struct workflow_ring *ring, struct pl_context *context, const char *kind, uint32_t slots,
		     uint64_t stride, unsigned access, struct pl_error *error)
{
	int rc = pl_region_allocate_in(context, kind, slots * stride, access, &ring->region, error);

	if (rc < 0)
		return rc;
	ring->bytes = pl_region_address(ring->region);
	ring->stride = stride;
	return 0;
}

static int pin_ring(struct workflow_ring *ring, struct pl_compute *compute, struct pl_error *error)
{
	int rc;

	if (!ring->region || !compute->ops->pin)
		return 0;
	rc = compute->ops->pin(compute, ring->bytes, pl_region_length(ring->region), error);
	ring->pinned = rc == 0;
	return rc;
}

static void close_ring(struct workflow_ring *ring, struct pl_compute *compute)
{
	if (ring->pinned)
		compute->ops->unpin(compute, ring->bytes);
	pl_region_deregister(ring->region);
	*ring = (struct workflow_ring){ 0 };
}

/* Computes which rings the selected methods use, and the slots of each. */
static void count_ring_slots(const struct workflow_options *options, uint32_t depth, bool pins, uint32_t slots[6])
{
	unsigned count;
	const struct workflow_method *methods = workflow_methods(options->proxy, &count);

	for (unsigned i = 0; i < count; i++) {
		const struct workflow_method *method = &methods[i];
		bool locked = method->pinned && pins;
		uint32_t wanted = method->overlapped ? depth : 1;

		if (!options->methods[i])
			continue;
		slots[4] = CLI_MAX(slots[4], wanted);
		slots[5] = CLI_MAX(slots[5], wanted);
		if (!method->direct)
			slots[locked ? 2 : 0] = CLI_MAX(slots[locked ? 2 : 0], wanted);
		if (!method->direct || !method->proxy)
			slots[locked ? 3 : 1] = CLI_MAX(slots[locked ? 3 : 1], wanted);
	}
}

int workflow_memory_open(struct workflow_memory *memory, const struct workflow_options *options,
			 struct pl_context *source, struct pl_context *sink, struct pl_compute *compute, uint64_t size,
			 struct pl_error *error)
{
	struct pl_context *results = sink ? sink : source;
	const struct {
		struct workflow_ring *ring;
		struct pl_context *context;
		const char *kind;
		unsigned access;
	} rings[6] = {
		{ &memory->host_in, source, "host", PL_ACCESS_WRITE },
		{ &memory->host_out, results, "host", PL_ACCESS_READ },
		{ &memory->pinned_in, source, "host", PL_ACCESS_WRITE },
		{ &memory->pinned_out, results, "host", PL_ACCESS_READ },
		{ &memory->device_in, source, compute->memory, PL_ACCESS_WRITE },
		{ &memory->device_out, results, compute->memory, PL_ACCESS_READ },
	};
	uint32_t slots[6] = { 0 };
	int rc = 0;

	count_ring_slots(options, memory->depth, compute->ops->pin != NULL, slots);
	memory->size = size;
	memory->stride = workflow_stride(size);
	memory->poison = malloc(memory->stride);
	if (!memory->poison)
		return cli_fail(error, -ENOMEM, "NO-MEMORY", NULL, "use smaller frames", "no memory for frames");
	memset(memory->poison, POISON, memory->stride);
	for (size_t i = 0; rc == 0 && i < CLI_ARRAY_SIZE(rings); i++)
		if (slots[i])
			rc = open_ring(rings[i].ring, rings[i].context, rings[i].kind, slots[i], memory->stride,
				       rings[i].access, error);
	if (rc == 0)
		rc = pin_ring(&memory->pinned_in, compute, error);
	if (rc == 0)
		rc = pin_ring(&memory->pinned_out, compute, error);
	return rc;
}

void workflow_memory_close(struct workflow_memory *memory, struct pl_compute *compute)
{
	close_ring(&memory->host_in, compute);
	close_ring(&memory->host_out, compute);
	close_ring(&memory->pinned_in, compute);
	close_ring(&memory->pinned_out, compute);
	close_ring(&memory->device_in, compute);
	close_ring(&memory->device_out, compute);
	free(memory->poison);
	memory->poison = NULL;
}

struct workflow_ring *workflow_memory_in(struct workflow_memory *memory, const struct workflow_method *method)
{
	if (method->direct)
		return &memory->device_in;
	return method->pinned && memory->pinned_in.region ? &memory->pinned_in : &memory->host_in;
}

struct workflow_ring *workflow_memory_out(struct workflow_memory *memory, const struct workflow_method *method)
{
	if (method->direct && method->proxy)
		return &memory->device_out;
	return method->pinned && memory->pinned_out.region ? &memory->pinned_out : &memory->host_out;
}

static int poison_ring(const struct workflow_memory *memory, struct workflow_ring *ring, uint32_t slots,
		       struct pl_error *error)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < slots; i++)
		rc = pl_region_copy_in(ring->region, i * ring->stride, memory->poison, memory->size, error);
	return rc;
}

int workflow_memory_poison(struct workflow_memory *memory, const struct workflow_method *method, struct pl_error *error)
{
	uint32_t slots = method->overlapped ? memory->depth : 1;
	int rc = poison_ring(memory, workflow_memory_in(memory, method), slots, error);

	if (rc == 0)
		rc = poison_ring(memory, workflow_memory_out(memory, method), slots, error);
	if (rc == 0)
		rc = poison_ring(memory, &memory->device_in, slots, error);
	return rc == 0 ? poison_ring(memory, &memory->device_out, slots, error) : rc;
}
