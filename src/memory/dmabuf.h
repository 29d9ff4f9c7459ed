/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory behind a dma-buf that the program has: of any device, and reached by its address here or not at all. */
#ifndef PL_MEMORY_DMABUF_H
#define PL_MEMORY_DMABUF_H

#include <pthread.h>

#include "memory/memory.h"

struct pl_dmabuf {
	int fd;          /* a descriptor of our own */
	uint64_t offset; /* of the range's first byte */
	uint8_t *map;    /* where the range is mapped here; NULL: it is not */
	void *mapping;
	size_t mapping_length;
	int refusal;   /* why it is not */
	bool writable; /* what is mapped */
	bool nowhere;  /* it has no address in this process: memory.address is a number for cards only */
	pthread_mutex_t atomic;
};

/*
 * `address`: where the program has the memory; NULL: nowhere.  If it is memory of a kind that is known, it stays that,
 * and cards reach it by the dma-buf.
 */
int pl_memory_attach_dmabuf(struct pl_memory *memory, int fd, uint64_t offset, size_t length, void *address,
			    struct pl_error *error);
/* A new descriptor, and the place in it of the byte at offset; or a negative errno. */
int pl_dmabuf_export(const struct pl_memory *memory, size_t offset, uint64_t *skew);
void pl_dmabuf_free(struct pl_dmabuf *buffer);
/* Whether the processor reaches the memory in any way; if not, *why is the errno of mmap(2). */
bool pl_dmabuf_reached(const struct pl_memory *memory, int *why);

static inline bool pl_dmabuf_nowhere(const struct pl_memory *memory)
{
	return memory->dmabuf && memory->dmabuf->nowhere;
}

#endif
