/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory behind a dma-buf of the program: of any device, reached by its address in this process or not at all. */
#ifndef PL_MEMORY_DMABUF_H
#define PL_MEMORY_DMABUF_H

#include <pthread.h>

#include "memory/memory.h"

struct pl_dmabuf_memory {
	int fd;          /* duplicate of the program's descriptor */
	uint64_t offset; /* of the range's first byte */
	uint8_t *map;    /* mapping of the range in this process; NULL: not mapped */
	void *mapping;
	size_t mapping_length;
	int refusal;   /* errno of the refused mapping */
	bool writable; /* the mapping is writable */
	bool nowhere;  /* no address in this process: memory.address is a number for cards only */
	pthread_mutex_t atomic;
};

/*
 * `address`: address of the memory in the program; NULL: none. Memory of a known kind keeps its kind, and cards reach
 * it by the dma-buf.
 */
int pl_memory_attach_dmabuf(struct pl_memory *memory, int fd, uint64_t offset, size_t length, void *address,
			    struct pl_error *error);
/* Returns a new descriptor, and the offset of the byte in it; or a negative errno. */
int pl_dmabuf_export(const struct pl_memory *memory, size_t offset, uint64_t *skew);
void pl_dmabuf_free(struct pl_dmabuf_memory *buffer);
/* True if the processor reaches the memory; otherwise *why is the errno of mmap(2). */
bool pl_dmabuf_reached(const struct pl_memory *memory, int *why);

static inline bool pl_dmabuf_nowhere(const struct pl_memory *memory)
{
	return memory->dmabuf && memory->dmabuf->nowhere;
}

#endif
