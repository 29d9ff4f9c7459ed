/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of either kind.  What the processor fills and looks at is the region itself in host memory, and a copy of
 * it in host memory for a GPU's, which is brought there or fetched from there.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/perf/endpoint.h"

#define LOOK_EVERY 5000ull /* nanoseconds */
#define HUGE_PAGE (2ul << 20)

/* Huge pages that are set aside, or else memory that the kernel is asked to make of such. */
static void *map_huge(struct bench_end *end, size_t length, bool *mapped)
{
	void *pages = mmap(NULL, length, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);

	*mapped = pages != MAP_FAILED;
	end->pages = "hugetlb";
	if (*mapped)
		return pages;
	end->pages = "transparent";
	pages = aligned_alloc(HUGE_PAGE, length);
	if (!pages)
		return NULL;
	/* Where it cannot be had the pages are small ones: AnonHugePages of smaps tells. */
	if (madvise(pages, length, MADV_HUGEPAGE) < 0)
		end->pages = NULL;
	memset(pages, 0, length);
	return pages;
}

static int open_huge(struct bench_end *end, struct bench_buffer *buffer, unsigned access)
{
	size_t length = (buffer->length + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	struct pl_error error;
	int rc;

	buffer->pages = map_huge(end, length, &buffer->mapped);
	buffer->pages_length = length;
	if (!buffer->pages)
		return bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, "measure smaller messages", "no %zu bytes of memory",
				  length);
	rc = pl_region_register(end->context, buffer->pages, buffer->length, access, &buffer->region, &error);
	buffer->bytes = buffer->pages;
	return rc < 0 ? bench_fail_as(end, &error) : 0;
}

static void unmap_huge(const struct bench_buffer *buffer)
{
	if (buffer->mapped)
		munmap(buffer->pages, buffer->pages_length);
	else
		free(buffer->pages);
}

int bench_buffer_open(struct bench_end *end, struct bench_buffer *buffer, size_t length, unsigned access)
{
	struct pl_error error;
	int rc;

	buffer->length = length;
	if (end->huge && !strcmp(end->memory, "host"))
		return open_huge(end, buffer, access);
	rc = pl_region_allocate_in(end->context, end->memory, length, access, &buffer->region, &error);
	if (rc < 0)
		return bench_fail_as(end, &error);
	buffer->bytes = pl_region_address(buffer->region);
	buffer->apart = strcmp(pl_region_memory(buffer->region), "host") != 0;
	if (buffer->apart)
		buffer->bytes = calloc(1, length);
	if (!buffer->bytes)
		return bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, "measure smaller messages", "no %zu bytes of memory",
				  length);
	return 0;
}

void bench_buffer_close(struct bench_buffer *buffer)
{
	if (buffer->apart)
		free(buffer->bytes);
	pl_region_deregister(buffer->region);
	unmap_huge(buffer);
	*buffer = (struct bench_buffer){ 0 };
}

int bench_buffer_copy_in(struct bench_end *end, struct bench_buffer *buffer, size_t offset, size_t length)
{
	struct pl_error error;

	if (pl_region_copy_in(buffer->region, offset, buffer->bytes + offset, length, &error) == 0)
		return 0;
	return bench_fail_as(end, &error);
}

int bench_buffer_fetch(struct bench_end *end, struct bench_buffer *buffer, size_t offset, size_t length)
{
	struct pl_error error;

	if (!buffer->apart || pl_region_copy_out(buffer->region, offset, buffer->bytes + offset, length, &error) == 0)
		return 0;
	return bench_fail_as(end, &error);
}

int bench_buffer_touch(struct bench_end *end, struct bench_buffer *buffer, size_t offset, size_t length)
{
	int rc = bench_buffer_fetch(end, buffer, offset, length);
	const uint8_t *bytes = buffer->bytes + offset;
	uint64_t sum = 0, word;
	size_t at = 0;

	for (; at + sizeof(word) <= length; at += sizeof(word)) {
		memcpy(&word, bytes + at, sizeof(word));
		sum += word;
	}
	for (; at < length; at++)
		sum += bytes[at];
	end->touched += sum;
	return rc;
}

int bench_buffer_look(struct bench_end *end, struct bench_buffer *buffer, size_t length)
{
	uint64_t until = cli_now() + LOOK_EVERY;

	while (cli_now() < until)
		pl_poll(end->context, NULL, 0);
	return bench_buffer_fetch(end, buffer, 0, length);
}
