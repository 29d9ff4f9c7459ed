/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buffer of messages: a region, and its bytes as the processor accesses them.  For host memory they are the region
 * itself; for GPU memory they are a host copy, and the functions below copy between the two.
 */
#ifndef PL_BENCH_PERF_BUFFER_H
#define PL_BENCH_PERF_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

struct bench_endpoint;

struct bench_buffer {
	struct pl_region *region;
	uint8_t *bytes;
	size_t length;
	bool host_copy; /* the bytes are a host copy of the region */
	void *pages;    /* huge pages that this program allocated; NULL: the library allocated the region */
	size_t pages_length;
	bool mapped; /* the pages are from mmap(2) */
};

/* All functions return 0, or a negative errno with the error in ep->error. */
int bench_buffer_open(struct bench_endpoint *ep, struct bench_buffer *buffer, size_t length, unsigned access);
void bench_buffer_close(struct bench_buffer *buffer);
/* Reads all bytes, as a consumer of them would; copies from the GPU first. */
int bench_buffer_read(struct bench_endpoint *ep, struct bench_buffer *buffer, size_t offset, size_t length);
/* Copies from the bytes into the region. */
int bench_buffer_copy_in(struct bench_endpoint *ep, struct bench_buffer *buffer, size_t offset, size_t length);
/* Copies from the bytes into the region, unless they are the region. */
static inline int bench_buffer_sync_in(struct bench_endpoint *ep, struct bench_buffer *buffer, size_t offset,
				       size_t length)
{
	return buffer->host_copy ? bench_buffer_copy_in(ep, buffer, offset, length) : 0;
}
/* Copies from the region into the bytes, unless they are the region. */
int bench_buffer_sync_out(struct bench_endpoint *ep, struct bench_buffer *buffer, size_t offset, size_t length);
/* Copies the first bytes of a region with a host copy, at most every 5 us: the GPU serves other copies between. */
int bench_buffer_poll(struct bench_endpoint *ep, struct bench_buffer *buffer, size_t length);

#endif
