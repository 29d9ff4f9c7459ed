/* SPDX-License-Identifier: BSD-2-Clause */
/* Host memory: any mapping of the process; allocations are anonymous files, so that a peer on the same host can map them too. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/memory.h"

static uintptr_t page_mask(void)
{
	return (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
}

static size_t round_to_pages(size_t length)
{
	return (length + page_mask()) & ~page_mask();
}

/* msync(2) with MS_ASYNC does nothing but say whether the pages are mapped. */
static int host_recognise(const void *address, size_t length, struct pl_error *error)
{
	uintptr_t begin = (uintptr_t)address & ~page_mask();
	uintptr_t end = (uintptr_t)address + length;

	(void)error;
	return msync((void *)begin, end - begin, MS_ASYNC) == 0;
}

static int host_allocate(struct pl_memory *memory, size_t length, struct pl_error *error)
{
	size_t size = round_to_pages(length);
	void *address;
	int fd;

	if (size < length)
		return pl_fail_memory(error, "pl_region_allocate");
	fd = memfd_create("peerlane", MFD_CLOEXEC);
	if (fd < 0)
		return pl_fail_errno(error, -errno, "SYSTEM", "memfd_create", NULL);
	/* Blocks now, so that running out is an error here and not a SIGBUS later. */
	if (ftruncate(fd, (off_t)size) < 0 || fallocate(fd, 0, 0, (off_t)size) < 0) {
		close(fd);
		return pl_fail(error, -ENOMEM, "NO-MEMORY", "pl_region_allocate", NULL, "ask for less, or free memory",
			       "there are no %zu bytes of memory", length);
	}
	address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (address == MAP_FAILED) {
		close(fd);
		return pl_fail_memory(error, "mmap");
	}
	*memory = (struct pl_memory){
		.ops = &pl_host_memory,
		.address = address,
		.length = length,
		.owned = true,
		.handle = (void *)(intptr_t)fd,
	};
	return 0;
}

static void host_release(struct pl_memory *memory)
{
	if (!memory->owned)
		return;
	munmap(memory->address, round_to_pages(memory->length));
	close((int)(intptr_t)memory->handle);
}

static void *host_pointer(const struct pl_memory *memory, size_t offset)
{
	return (char *)memory->address + offset;
}

static int host_copy_in(struct pl_memory *memory, size_t offset, const void *from, size_t length)
{
	memcpy((char *)memory->address + offset, from, length);
	return 0;
}

static int host_copy_out(struct pl_memory *memory, size_t offset, void *to, size_t length)
{
	memcpy(to, (const char *)memory->address + offset, length);
	return 0;
}

const struct pl_memory_ops pl_host_memory = {
	.name = "host",
	.recognise = host_recognise,
	.allocate = host_allocate,
	.release = host_release,
	.host_pointer = host_pointer,
	.copy_in = host_copy_in,
	.copy_out = host_copy_out,
};
