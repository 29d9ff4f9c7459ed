/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/fabric.h"
#include "memory/dmabuf.h"

static int check_arguments(size_t length, unsigned access, struct pl_error *error)
{
	if (length == 0)
		return pl_fail(error, -EINVAL, "REGION-LENGTH", "pl_region_register", NULL,
			       "register at least one byte", "the region has no bytes");
	if (access & ~(unsigned)(PL_ACCESS_ALL | PL_ACCESS_STRICT))
		return pl_fail(error, -EINVAL, "REGION-ACCESS", "pl_region_register", NULL,
			       "combine PL_ACCESS_READ, PL_ACCESS_WRITE, PL_ACCESS_ATOMIC and PL_ACCESS_STRICT only",
			       "unknown access flags 0x%x", access);
	return 0;
}

static struct pl_region *region_new(struct pl_context *context, unsigned access)
{
	struct pl_region *region = pl_zalloc(&context->allocator, sizeof(*region));

	if (region) {
		region->context = context;
		region->access = access & PL_ACCESS_ALL;
		region->strict = access & PL_ACCESS_STRICT;
		pl_list_init(&region->registrations);
		pl_list_init(&region->grants);
	}
	return region;
}

/* Here a wait for running kernels of the program delays only this thread. */
static void prepare_gathers(const struct pl_region *region)
{
	const struct pl_context *context = region->context;

	if (!region->memory.ops->gather_prepare || context->options.gpu_multiprocessors == PL_NO_GPU_KERNEL)
		return;
	for (unsigned i = 0; i < context->fabric_count; i++)
		if (context->fabrics[i]->gathers_on_device) {
			region->memory.ops->gather_prepare(&region->memory);
			return;
		}
}

static int region_publish(struct pl_region *region, int rc, struct pl_region **result)
{
	struct pl_context *context = region->context;

	if (rc < 0) {
		pl_free(&context->allocator, region);
		return rc;
	}
	prepare_gathers(region);
	pthread_mutex_lock(&context->lock);
	pl_list_append(&context->regions, &region->link);
	pthread_mutex_unlock(&context->lock);
	*result = region;
	return 0;
}

int pl_region_register(struct pl_context *context, void *pointer, size_t length, unsigned access,
		       struct pl_region **result, struct pl_error *error)
{
	struct pl_region *region;
	int rc = check_arguments(length, access, error);

	*result = NULL;
	if (rc < 0)
		return rc;
	if (!pointer || (uintptr_t)pointer + length < (uintptr_t)pointer)
		return pl_fail(error, -EINVAL, "REGION-ADDRESS", "pl_region_register", NULL,
			       "pass the buffer's first byte", "%zu bytes at %p are no range of memory", length,
			       pointer);
	region = region_new(context, access);
	if (!region)
		return pl_fail_memory(error, "pl_region_register");
	return region_publish(region, pl_memory_attach(&region->memory, pointer, length, error), result);
}

/* Returns 0 if a fabric, a copy or a mapping can reach the memory. */
static int check_reached(struct pl_context *context, const struct pl_memory *memory, struct pl_error *error)
{
	int why;

	if (pl_dmabuf_reached(memory, &why))
		return 0;
	for (unsigned i = 0; i < context->fabric_count; i++)
		if (context->fabrics[i]->devices && context->fabrics[i]->devices(context))
			return 0;
	return pl_fail(error, -ENOTSUP, "DMABUF-UNREACHABLE", "mmap", NULL,
		       "use an RDMA device, or tell the address at which the program has the memory",
		       "the dma-buf's exporter does not map it for the processor (%s), and there is no RDMA device",
		       strerrordesc_np(why) ? strerrordesc_np(why) : "unknown error");
}

int pl_region_register_dmabuf(struct pl_context *context, const struct pl_dmabuf *dmabuf, unsigned access,
			      struct pl_region **result, struct pl_error *error)
{
	uint64_t offset = dmabuf->offset;
	size_t length = dmabuf->length;
	void *address = dmabuf->address;
	struct pl_region *region;
	int rc = check_arguments(length, access, error);

	*result = NULL;
	if (rc < 0)
		return rc;
	if (offset + length < offset || (uintptr_t)address + length < (uintptr_t)address)
		return pl_fail(error, -EINVAL, "REGION-ADDRESS", "pl_region_register_dmabuf", NULL,
			       "pass the range's first byte", "%zu bytes at %llu, or at %p, are no range of memory",
			       length, (unsigned long long)offset, address);
	region = region_new(context, access);
	if (!region)
		return pl_fail_memory(error, "pl_region_register_dmabuf");
	rc = pl_memory_attach_dmabuf(&region->memory, dmabuf->fd, offset, length, address, error);
	if (rc == 0) {
		rc = check_reached(context, &region->memory, error);
		if (rc < 0)
			pl_memory_release(&region->memory);
	}
	return region_publish(region, rc, result);
}

/* True if peers of this host may map regions of the context. */
static bool has_mapping_fabric(const struct pl_context *context)
{
	for (unsigned i = 0; i < context->fabric_count; i++)
		if (context->fabrics[i]->map)
			return true;
	return false;
}

int pl_region_allocate(struct pl_context *context, size_t length, unsigned access, struct pl_region **result,
		       struct pl_error *error)
{
	return pl_region_allocate_in(context, "host", length, access, result, error);
}

int pl_region_allocate_in(struct pl_context *context, const char *kind, size_t length, unsigned access,
			  struct pl_region **result, struct pl_error *error)
{
	struct pl_region *region;
	int rc = check_arguments(length, access, error);

	*result = NULL;
	if (rc < 0)
		return rc;
	region = region_new(context, access);
	if (!region)
		return pl_fail_memory(error, "pl_region_allocate");
	rc = pl_memory_allocate(&region->memory, kind, length, error);
	if (rc == 0 && !has_mapping_fabric(context))
		pl_memory_keep_private(&region->memory);
	return region_publish(region, rc, result);
}

void *pl_region_address(const struct pl_region *region)
{
	return pl_dmabuf_nowhere(&region->memory) ? NULL : region->memory.address;
}

size_t pl_region_length(const struct pl_region *region)
{
	return region->memory.length;
}

const char *pl_region_memory(const struct pl_region *region)
{
	return region->memory.ops->name;
}

int pl_region_gpu(const struct pl_region *region)
{
	return region->memory.ops->number ? region->memory.ops->number(&region->memory) : -1;
}

static int copy_region(struct pl_region *region, size_t offset, void *bytes, size_t length, bool into, const char *call,
		       struct pl_error *error)
{
	int rc;

	if (pl_outside(offset, length, region->memory.length))
		return pl_fail(error, -ERANGE, "REGION-RANGE", call, NULL, "stay within the region",
			       "%zu bytes at %zu of a region of %zu", length, offset, region->memory.length);
	if (length == 0)
		return 0;
	rc = into ? pl_memory_copy_in(&region->memory, offset, bytes, length)
		  : pl_memory_copy_out(&region->memory, offset, bytes, length);
	if (rc < 0)
		return pl_fail(error, rc, into ? "MEMORY-UNWRITABLE" : "MEMORY-UNREADABLE", call, NULL,
			       "keep the memory allocated while it is registered", "the region's memory cannot be %s",
			       into ? "written" : "read");
	return 0;
}

int pl_region_copy_in(struct pl_region *region, size_t offset, const void *from, size_t length, struct pl_error *error)
{
	return copy_region(region, offset, (void *)from, length, true, "pl_region_copy_in", error);
}

int pl_region_copy_out(struct pl_region *region, size_t offset, void *to, size_t length, struct pl_error *error)
{
	return copy_region(region, offset, to, length, false, "pl_region_copy_out", error);
}

void pl_region_destroy(struct pl_region *region)
{
	struct pl_region_kept *kept = atomic_load(&region->kept);
	struct pl_context *context = region->context;
	struct pl_list ended;

	pl_list_init(&ended);
	pthread_mutex_lock(&context->lock);
	pl_list_remove(&region->link);
	pthread_mutex_unlock(&context->lock);
	pthread_mutex_lock(&context->grant_lock);
	pl_registrations_release(&region->registrations, &ended);
	pthread_mutex_unlock(&context->grant_lock);
	pl_registrations_finish(&ended);
	pl_region_await_registrations(region);
	if (kept)
		kept->free(kept);
	pl_memory_release(&region->memory);
	pl_free(&context->allocator, region);
}
