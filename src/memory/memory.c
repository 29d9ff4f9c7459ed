/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <unistd.h>

#include "memory/dmabuf.h"

/* Order of recognition: device memory may be mapped too, so host comes last. */
static const struct pl_memory_ops *const backends[] = {
	&pl_cuda_memory,
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

/* Finds the kind of "host", "cuda" or "cuda:1". */
static const struct pl_memory_ops *named(const char *name, unsigned *device)
{
	*device = 0;
	for (size_t i = 0; i < PL_ARRAY_SIZE(backends); i++) {
		size_t length = strlen(backends[i]->name);
		unsigned long number;
		char *end;

		if (strncmp(name, backends[i]->name, length))
			continue;
		if (name[length] == 0)
			return backends[i];
		if (name[length] != ':' || name[length + 1] < '0' || name[length + 1] > '9')
			continue;
		errno = 0;
		number = strtoul(name + length + 1, &end, 10);
		if (*end || errno || number > UINT32_MAX)
			continue;
		*device = (unsigned)number;
		return backends[i];
	}
	return NULL;
}

int pl_memory_allocate(struct pl_memory *memory, const char *kind, size_t length, struct pl_error *error)
{
	unsigned device;
	const struct pl_memory_ops *ops = named(kind, &device);

	if (!ops || (ops == &pl_host_memory && strcmp(kind, ops->name)))
		return pl_fail(error, -EINVAL, "MEMORY-KIND", "pl_region_allocate_in", NULL,
			       "say host, cuda or cuda:NUMBER", "there is no kind of memory \"%.40s\"", kind);
	return ops->allocate(memory, device, length, error);
}

void pl_memory_release(struct pl_memory *memory)
{
	if (memory->ops && memory->ops->release)
		memory->ops->release(memory);
	memory->ops = NULL;
	pl_dmabuf_free(memory->dmabuf);
	memory->dmabuf = NULL;
}

int pl_memory_copy_in(struct pl_memory *memory, size_t offset, const void *from, size_t length)
{
	if (length == 0)
		return 0;
	return memory->ops->copy_in ? memory->ops->copy_in(memory, offset, from, length) : -ENOTSUP;
}

int pl_memory_copy_out(struct pl_memory *memory, size_t offset, void *to, size_t length)
{
	if (length == 0)
		return 0;
	return memory->ops->copy_out ? memory->ops->copy_out(memory, offset, to, length) : -ENOTSUP;
}

void pl_memory_keep_private(struct pl_memory *memory)
{
	if (memory->ops->keep_private)
		memory->ops->keep_private(memory);
}

int pl_memory_export_shared(const struct pl_memory *memory, bool writable)
{
	return memory->ops->export_shared ? memory->ops->export_shared(memory, writable) : -ENOTSUP;
}

int pl_memory_export_ipc(struct pl_memory *memory, size_t offset, size_t length, uint8_t handle[PL_IPC_HANDLE_MAX],
			 struct pl_ipc_fds *fds)
{
	return memory->ops->export_ipc ? memory->ops->export_ipc(memory, offset, length, handle, fds) : -ENOTSUP;
}

int pl_memory_import_ipc(const uint8_t *handle, size_t handle_length, size_t length, bool own,
			 const struct pl_memory *beside, struct pl_ipc_fds *fds, struct pl_memory *memory,
			 const char **why)
{
	const struct pl_memory_ops *ops = pl_memory_staged(beside) ? beside->ops : NULL;

	for (size_t i = 0; !ops && i < PL_ARRAY_SIZE(backends); i++)
		if (backends[i]->import_ipc)
			ops = backends[i];
	*why = "local: through host memory and a socket, as the two kinds of memory have no other way to each other";
	if (!ops || !ops->import_ipc)
		return -ENOTSUP;
	/* Descriptors opened by one kind mean nothing to another. */
	if (fds && fds->ops && fds->ops != ops)
		return -ENOTSUP;
	if (fds)
		fds->ops = ops;
	return ops->import_ipc(handle, handle_length, length, own, beside, fds, memory, why);
}

struct pl_ipc_fds *pl_ipc_fds_new(const struct pl_allocator *allocator, unsigned room)
{
	struct pl_ipc_fds *fds = pl_zalloc(allocator, sizeof(*fds) + room * sizeof(struct pl_ipc_fd));

	if (fds)
		*fds = (struct pl_ipc_fds){ .room = room, .list = (struct pl_ipc_fd *)(fds + 1) };
	return fds;
}

void pl_ipc_fds_close(struct pl_ipc_fds *fds)
{
	for (unsigned i = 0; i < fds->count; i++) {
		if (fds->list[i].fd >= 0)
			close(fds->list[i].fd);
		if (fds->list[i].handle && fds->ops->close_ipc_fd)
			fds->ops->close_ipc_fd(&fds->list[i]);
	}
	fds->count = 0;
}

void pl_ipc_fds_free(const struct pl_allocator *allocator, struct pl_ipc_fds *fds)
{
	if (!fds)
		return;
	pl_ipc_fds_close(fds);
	pl_free(allocator, fds);
}

int pl_memory_copy_across(struct pl_memory *to, size_t to_offset, struct pl_memory *from, size_t from_offset,
			  size_t length)
{
	return from->ops->copy_across ? from->ops->copy_across(to, to_offset, from, from_offset, length) : -ENOTSUP;
}

int pl_memory_atomic(struct pl_memory *memory, size_t offset, bool add, uint64_t operand, uint64_t compare,
		     uint64_t *old)
{
	return memory->ops->atomic ? memory->ops->atomic(memory, offset, add, operand, compare, old) : -ENOTSUP;
}

enum pl_memory_order pl_memory_order(const struct pl_memory *memory)
{
	if (__atomic_load_n(&memory->data_direct, __ATOMIC_RELAXED))
		return PL_ORDER_READ;
	return memory->ops->order ? memory->ops->order(memory) : PL_ORDER_HOST;
}

int pl_memory_flush(struct pl_memory *memory)
{
	return memory->ops->flush ? memory->ops->flush(memory) : 0;
}

int pl_memory_stream_wait(const struct pl_memory *memory, void *stream, const uint64_t *word, uint64_t value,
			  struct pl_error *error)
{
	if (memory->ops->stream_wait)
		return memory->ops->stream_wait(memory, stream, word, value, error);
	return pl_fail(error, -ENOTSUP, "STREAM-NO-WAIT", "stream", memory->ops->name, "use GPU memory",
		       "streams wait for GPU memory only");
}

int pl_stream_mark_new(void *stream, struct pl_stream_mark **mark, struct pl_error *error)
{
	for (size_t i = 0; i < PL_ARRAY_SIZE(backends); i++)
		if (backends[i]->mark_new)
			return backends[i]->mark_new(stream, mark, error);
	return pl_fail(error, -ENOTSUP, "STREAM-NONE", "stream", NULL, NULL, "this build knows no kind of stream");
}

int pl_stream_mark_done(struct pl_stream_mark *mark)
{
	return mark->ops->mark_done(mark);
}

void pl_stream_mark_free(struct pl_stream_mark *mark)
{
	if (mark)
		mark->ops->mark_free(mark);
}
