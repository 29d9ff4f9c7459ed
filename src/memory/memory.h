/* SPDX-License-Identifier: BSD-2-Clause */
/* Dispatch to the memory kind of a range, with defaults for optional operations. */
#ifndef PL_MEMORY_H
#define PL_MEMORY_H

#include "memory/ops.h"

#include "base/base.h"

extern const struct pl_memory_ops pl_host_memory;
extern const struct pl_memory_ops pl_cuda_memory;

/* Recognises the kind of memory, and attaches it. */
int pl_memory_attach(struct pl_memory *memory, void *address, size_t length, struct pl_error *error);
/* Allocates memory of a kind: "host", "cuda:1". */
int pl_memory_allocate(struct pl_memory *memory, const char *kind, size_t length, struct pl_error *error);
void pl_memory_release(struct pl_memory *memory);
static inline void *pl_memory_host_pointer(const struct pl_memory *memory, size_t offset)
{
	/* The usual case, without a call. */
	if (memory->ops == &pl_host_memory)
		return (char *)memory->address + offset;
	return memory->ops->host_pointer ? memory->ops->host_pointer(memory, offset) : NULL;
}
/* True if bytes must go through host memory that the kind's copies reach. */
static inline bool pl_memory_staged(const struct pl_memory *memory)
{
	return !memory->ops->host_pointer;
}
int pl_memory_copy_in(struct pl_memory *memory, size_t offset, const void *from, size_t length);
int pl_memory_copy_out(struct pl_memory *memory, size_t offset, void *to, size_t length);
/* Closes the descriptors that only pl_memory_export_shared() needs. */
void pl_memory_keep_private(struct pl_memory *memory);
int pl_memory_export_shared(const struct pl_memory *memory, bool writable);
int pl_memory_export_ipc(struct pl_memory *memory, size_t offset, size_t length, uint8_t handle[PL_IPC_HANDLE_MAX],
			 struct pl_ipc_fds *fds);
/* Imports an IPC handle with its kind of memory: that of `beside`, or a device's if `beside` is host memory. */
int pl_memory_import_ipc(const uint8_t *handle, size_t handle_length, size_t length, bool own,
			 const struct pl_memory *beside, struct pl_ipc_fds *fds, struct pl_memory *memory,
			 const char **why);
/* Creates a set with room for `count` descriptors; NULL: no memory. */
struct pl_ipc_fds *pl_ipc_fds_new(const struct pl_allocator *allocator, unsigned room);
/* Adds a descriptor, which the set then owns. Returns false if the set is full. */
static inline bool pl_ipc_fds_add(struct pl_ipc_fds *fds, int fd, uint64_t size)
{
	if (fds->count == fds->room)
		return false;
	fds->list[fds->count++] = (struct pl_ipc_fd){ .fd = fd, .size = size };
	return true;
}
/* Closes all descriptors. */
void pl_ipc_fds_close(struct pl_ipc_fds *fds);
void pl_ipc_fds_free(const struct pl_allocator *allocator, struct pl_ipc_fds *fds);
int pl_memory_copy_across(struct pl_memory *to, size_t to_offset, struct pl_memory *from, size_t from_offset,
			  size_t length);
int pl_memory_atomic(struct pl_memory *memory, size_t offset, bool add, uint64_t operand, uint64_t compare,
		     uint64_t *old);
enum pl_memory_order pl_memory_order(const struct pl_memory *memory);
int pl_memory_flush(struct pl_memory *memory);
/* True for CUDA's legacy default stream (NULL, CU_STREAM_LEGACY), which waits for all other streams of the program. */
static inline bool pl_stream_is_default(const void *stream)
{
	return (uintptr_t)stream <= 1;
}
/* Makes a stream wait for a word; see ops.h. */
int pl_memory_stream_wait(const struct pl_memory *memory, void *stream, const uint64_t *word, uint64_t value,
			  struct pl_error *error);
/* Marks the end of the work so far of a stream, of the first kind of memory that has streams. */
int pl_stream_mark_new(void *stream, struct pl_stream_mark **mark, struct pl_error *error);
/* Returns 1 if the work before the mark is done, 0 if not, -EFAULT if it failed. */
int pl_stream_mark_done(struct pl_stream_mark *mark);
void pl_stream_mark_free(struct pl_stream_mark *mark);

#endif
