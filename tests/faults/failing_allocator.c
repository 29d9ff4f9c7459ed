/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded library whose allocations fail: `run` of them, from number `from` on.  The file FAULT_MEMORY has the count so
 * far and both numbers; a test may change them while the program runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct plan {
	atomic_uint_least64_t count, from, run;
};

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *pointer, size_t size);

static struct plan *plan;

__attribute__((constructor)) static void map_plan(void)
{
	const char *path = getenv("FAULT_MEMORY");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	long mapped = fd < 0 ? -1 : syscall(SYS_mmap, NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (fd >= 0)
		close(fd);
	if (mapped != -1)
		plan = (struct plan *)(uintptr_t)mapped;
}

static bool allocation_fails(void)
{
	uint64_t number, from;

	if (!plan)
		return false;
	number = atomic_fetch_add(&plan->count, 1) + 1;
	from = atomic_load(&plan->from);
	if (!from || number < from || number - from >= atomic_load(&plan->run))
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t size)
{
	return allocation_fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return allocation_fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *pointer, size_t size)
{
	return allocation_fails() ? NULL : __libc_realloc(pointer, size);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (allocation_fails())
		return MAP_FAILED;
	return (void *)(uintptr_t)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}
