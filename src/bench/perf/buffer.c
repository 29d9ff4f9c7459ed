/* SPDX-License-Identifier: BSD-2-Clause */
/* Buffers of messages in host memory or GPU memory. */
#include "bench/perf/buffer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/perf/endpoint.h"

#define POLL_INTERVAL 5000ull /* nanoseconds */
#define HUGE_PAGE (2ul << 20)

/* Allocates huge pages that the administrator reserved, or else memory for which the kernel is asked to use them. */
static void *map_huge_pages(struct bench_endpoint *ep, size_t length, bool *mapped)
{
	void *pages = mmap(NULL, length, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);

	*mapped = pages != MAP_FAILED;
	ep->pages = "hugetlb";
	if (*mapped)
		return pages;
	ep->pages = "transparent";
	pages = aligned_alloc(HUGE_PAGE, length);
	if (!pages)
		return NULL;
	/* If madvise(2) fails the pages are small; AnonHugePages in smaps shows their kind. */
	if (madvise(pages, length, MADV_HUGEPAGE) < 0)
		ep->pages = NULL;
	memset(pages, 0, length);
	return pages;
}

static int open_huge_buffer(struct bench_endpoint *ep, struct bench_buffer *buffer, unsigned access)
{
	size_t length = (buffer->length + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	struct pl_error error;
	int rc;

	buffer->pages = map_huge_pages(ep, length, &buffer->mapped);
	buffer->pages_length = length;
	if (!buffer->pages)
		return bench_fail(ep, -ENOMEM, "NO-MEMORY", NULL, "use smaller messages", "out of memory: %zu bytes",
				  length);
	rc = pl_region_register(ep->context, buffer->pages, buffer->length, access, &buffer->region, &error);
	buffer->bytes = buffer->pages;
	return rc < 0 ? bench_fail_with(ep, &error) : 0;
}

static void unmap_huge_pages(const struct bench_buffer *buffer)
{
	if (buffer->mapped)
		munmap(buffer->pages, buffer->pages_length);
	else
		free(buffer->pages);
}

int bench_buffer_open(struct bench_endpoint *ep, struct bench_buffer *buffer, size_t length, unsigned access)
{
	struct pl_error error;
	int rc;

	buffer->length = length;
	if (ep->huge && !strcmp(ep->memory, "host"))
		return open_huge_buffer(ep, buffer, access);
	rc = pl_region_allocate_in(ep->context, ep->memory, length, access, &buffer->region, &error);
	if (rc < 0)
		return bench_fail_with(ep, &error);
	buffer->bytes = pl_region_address(buffer->region);
	buffer->host_copy = strcmp(pl_region_memory(buffer->region), "host") != 0;
	if (buffer->host_copy)
		buffer->bytes = calloc(1, length);
	if (!buffer->bytes)
		return bench_fail(ep, -ENOMEM, "NO-MEMORY", NULL, "use smaller messages", "out of memory: %zu bytes",
				  length);
	return 0;
}

void bench_buffer_close(struct bench_buffer *buffer)
{
	if (buffer->host_copy)
		free(buffer->bytes);
	pl_region_deregister(buffer->region);
	unmap_huge_pages(buffer);
	*buffer = (struct bench_buffer){ 0 };
}

int bench_buffer_copy_in(struct bench_endpoint *ep, struct bench_buffer *buffer, size_t offset, size_t length)
{
	struct pl_error error;

	if (pl_region_copy_in(buffer->region, offset, buffer->bytes + offset, length, &error) == 0)
		return 0;
	return bench_fail_with(ep, &error);
}

int bench_buffer_sync_out(struct bench_endpoint *ep, struct bench_buffer *buffer, size_t offset, size_t length)
{
	struct pl_error error;

	if (!buffer->host_copy ||
	    pl_region_copy_out(buffer->region, offset, buffer->bytes + offset, length, &error) == 0)
		return 0;
	return bench_fail_with(ep, &error);
}

int bench_buffer_read(struct bench_endpoint *ep, struct bench_buffer *buffer, size_t offset, size_t length)
{
	int rc = bench_buffer_sync_out(ep, buffer, offset, length);
	const uint8_t *bytes = buffer->bytes + offset;
	uint64_t sum = 0, word;
	size_t at = 0;

	for (; at + sizeof(word) <= length; at += sizeof(word)) {
		memcpy(&word, bytes + at, sizeof(word));
		sum += word;
	}
	for (; at < length; at++)
		sum += bytes[at];
	ep->checksum += sum;
	return rc;
}

int bench_buffer_poll(struct bench_endpoint *ep, struct bench_buffer *buffer, size_t length)
{
	uint64_t until = cli_now() + POLL_INTERVAL;

	while (cli_now() < until)
		pl_poll(ep->context, NULL, 0);
	return bench_buffer_sync_out(ep, buffer, 0, length);
}
