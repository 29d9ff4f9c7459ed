/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream/frame_memory.h"

#include <sys/mman.h>

#include "core/context.h"

static uint64_t control_size(const struct pl_ring_geometry *geometry, unsigned count)
{
	return PL_CHECKS_SIZE + (uint64_t)count * geometry->descriptor_stride;
}

uint64_t pl_frame_memory_size(const struct pl_ring_geometry *geometry, unsigned count)
{
	uint64_t pages = (control_size(geometry, count) + PL_RING_PAGE - 1) / PL_RING_PAGE;

	return pages * PL_RING_PAGE + count * geometry->slot_stride;
}

static size_t statuses_size(unsigned count)
{
	size_t bytes = count * sizeof(struct pl_frame_status);

	return (bytes + PL_RING_PAGE - 1) / PL_RING_PAGE * PL_RING_PAGE;
}

/* Allocates statuses, which streams of the payloads' GPU can read. Without them only pl_subscriber_take_on() fails. */
static void open_statuses(struct pl_frame_memory *memory)
{
	const struct pl_memory *payloads = &memory->payloads->memory;
	size_t size = statuses_size(memory->count);
	void *address;

	if (!payloads->ops->pin)
		return;
	/* Whole pages: the driver locks pages, and a fork must not copy them. */
	address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (address == MAP_FAILED)
		return;
	if (payloads->ops->pin(payloads, address, size, false, &memory->holder) == 0)
		memory->statuses = address;
	else
		munmap(address, size);
}

int pl_frame_memory_open(struct pl_frame_memory *memory, struct pl_context *context, const char *kind,
			 const struct pl_ring_geometry *geometry, unsigned count, unsigned access,
			 struct pl_error *error)
{
	int rc;

	memset(memory, 0, sizeof(*memory));
	memory->count = count;
	memory->slot_stride = geometry->slot_stride;
	memory->descriptor_stride = geometry->descriptor_stride;
	rc = pl_region_allocate(context, control_size(geometry, count), PL_ACCESS_LOCAL, &memory->control, error);
	if (rc == 0)
		rc = pl_region_allocate_in(context, kind, count * geometry->slot_stride, access, &memory->payloads,
					   error);
	if (rc < 0) {
		pl_frame_memory_close(memory, context);
		return rc;
	}
	memory->frames = pl_zalloc(&context->allocator, count * sizeof(*memory->frames));
	if (!memory->frames) {
		pl_frame_memory_close(memory, context);
		return pl_fail_memory(error, "pl_subscriber_open");
	}
	open_statuses(memory);
	for (unsigned i = 0; i < count; i++) {
		struct pl_stream_frame *frame = &memory->frames[i];

		frame->descriptor_offset = PL_CHECKS_SIZE + (uint64_t)i * geometry->descriptor_stride;
		frame->offset = i * geometry->slot_stride;
		frame->data = (char *)pl_region_address(memory->payloads) + frame->offset;
		frame->status = memory->statuses ? &memory->statuses[i] : NULL;
	}
	return 0;
}

void pl_frame_memory_close(struct pl_frame_memory *memory, struct pl_context *context)
{
	/* The driver ends the GPU's work before it frees payloads, so that no kernel reads statuses afterwards. */
	const struct pl_memory_ops *ops = memory->payloads ? memory->payloads->memory.ops : NULL;

	if (memory->control)
		pl_region_deregister(memory->control);
	if (memory->payloads)
		pl_region_deregister(memory->payloads);
	if (memory->statuses) {
		ops->unpin(memory->holder, memory->statuses);
		munmap(memory->statuses, statuses_size(memory->count));
	}
	pl_free(&context->allocator, memory->frames);
	memset(memory, 0, sizeof(*memory));
}
