/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/memory.h"

/* Asked in this order: a device's memory is also mapped, so host comes last. */
static const struct pl_memory_ops *const backends[] = {
	&pl_host_memory,
};

int pl_memory_attach(struct pl_memory *memory, void *address, size_t length, struct pl_error *error)
{
	for (size_t i = 0; i < PL_ARRAY_SIZE(backends); i++) {
		int rc = backends[i]->recognise(address, length, error);

		if (rc < 0)
			return rc;
		if (rc == 0)
			continue;
		*memory = (struct pl_memory){ .ops = backends[i], .address = address, .length = length };
		return memory->ops->attach ? memory->ops->attach(memory, error) : 0;
	}
	return pl_fail(error, -EFAULT, "MEMORY-UNMAPPED", "pl_region_register", NULL,
		       "register memory that is mapped for its whole length",
		       "%zu bytes at %p are not mapped in this process", length, address);
}

int pl_memory_allocate(struct pl_memory *memory, size_t length, struct pl_error *error)
{
	return pl_host_memory.allocate(memory, length, error);
}

void pl_memory_release(struct pl_memory *memory)
{
	if (memory->ops && memory->ops->release)
		memory->ops->release(memory);
	memory->ops = NULL;
}

int pl_memory_copy_in(struct pl_memory *memory, size_t offset, const void *from, size_t length)
{
	return memory->ops->copy_in ? memory->ops->copy_in(memory, offset, from, length) : -ENOTSUP;
}

int pl_memory_copy_out(struct pl_memory *memory, size_t offset, void *to, size_t length)
{
	return memory->ops->copy_out ? memory->ops->copy_out(memory, offset, to, length) : -ENOTSUP;
}

int pl_memory_export_shared(const struct pl_memory *memory, bool writable)
{
	return memory->ops->export_shared ? memory->ops->export_shared(memory, writable) : -ENOTSUP;
}

int pl_memory_flush(struct pl_memory *memory)
{
	return memory->ops->flush ? memory->ops->flush(memory) : 0;
}
