/* SPDX-License-Identifier: BSD-2-Clause */
/* Host memory: any mapping of the process. Allocations are anonymous files, which peers on the same host can map. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/memcheck.h"
#include "memory/mappings.h"
#include "memory/memory.h"
#include "memory/memory_room.h"

static uintptr_t page_mask(void)
{
	return (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
}

static size_t round_to_pages(size_t length)
{
	return (length + page_mask()) & ~page_mask();
}

/* msync(2) with MS_ASYNC only tells whether the pages are mapped. */
static int host_recognise(const void *address, size_t length, struct pl_error *error)
{
	uintptr_t begin = (uintptr_t)address & ~page_mask();
	uintptr_t end = (uintptr_t)address + length;

	(void)error;
	return msync((void *)begin, end - begin, MS_ASYNC) == 0;
}

/* Marks memory as fragile if access may raise a signal. */
static int host_attach(struct pl_memory *memory, struct pl_error *error)
{
	uintptr_t first = (uintptr_t)memory->address;

	(void)error;
	memory->fragile = pl_mappings_fragile(first, first + memory->length - 1);
	return 0;
}

/* Beyond RLIMIT_FSIZE the kernel would send SIGXFSZ, as for a file on a disk. */
static int check_limit(size_t size, struct pl_error *error)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur)
		return 0;
	return pl_fail(error, -ENOMEM, "NO-MEMORY", "pl_region_allocate", NULL, "raise it: ulimit -f unlimited",
		       "%zu bytes are more than the limit of file sizes allows, %llu", size,
		       (unsigned long long)limit.rlim_cur);
}

static int host_allocate(struct pl_memory *memory, unsigned device, size_t length, struct pl_error *error)
{
	size_t size = round_to_pages(length);
	void *address;
	int fd, rc;

	(void)device;
	if (size < length)
		return pl_fail_memory(error, "pl_region_allocate");
	if (pl_memory_room_check("", size, 0, error) < 0 || check_limit(size, error) < 0)
		return -ENOMEM;
	fd = memfd_create("peerlane", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return pl_fail_errno(error, -errno, "SYSTEM", "memfd_create", NULL);
	if (ftruncate(fd, (off_t)size) < 0) {
		rc = pl_fail_errno(error, -errno, "SYSTEM", "ftruncate", NULL);
		close(fd);
		return rc;
	}
	/* Takes the memory now: a lack of memory is an error here and not a SIGBUS later. */
	rc = pl_memory_room_take("", fd, size, error);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	/* Holders of a descriptor can neither truncate the file, nor reopen it with more access. */
	if (fchmod(fd, S_IRUSR) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		rc = pl_fail_errno(error, -errno, "SYSTEM", "memfd_create", NULL);
		close(fd);
		return rc;
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

/* The mapping keeps the pages. */
static void host_keep_private(struct pl_memory *memory)
{
	if (!memory->owned || (intptr_t)memory->handle < 0)
		return;
	close((int)(intptr_t)memory->handle);
	memory->handle = (void *)(intptr_t)-1;
}

static void host_release(struct pl_memory *memory)
{
	if (!memory->owned)
		return;
	munmap(memory->address, round_to_pages(memory->length));
	host_keep_private(memory);
}

/* Opened again, because a descriptor keeps the access mode of its open(2). */
static int host_export_shared(const struct pl_memory *memory, bool writable)
{
	char path[32];
	int fd;

	if (!memory->owned || (intptr_t)memory->handle < 0)
		return -ENOTSUP;
	if (writable) {
		fd = fcntl((int)(intptr_t)memory->handle, F_DUPFD_CLOEXEC, 0);
	} else {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", (int)(intptr_t)memory->handle);
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	return fd < 0 ? -errno : fd;
}

static void *host_pointer(const struct pl_memory *memory, size_t offset)
{
	return (char *)memory->address + offset;
}

/*
 * For memory with a file behind it: the kernel copies, and reports a fault that would be a signal here. Where that call
 * is forbidden (some containers), this process copies.
 */
static int copy_by_kernel(void *memory, void *buffer, size_t length, bool into_memory)
{
	struct iovec there = { .iov_base = memory, .iov_len = length };
	struct iovec here = { .iov_base = buffer, .iov_len = length };
	ssize_t copied = into_memory ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
				     : process_vm_readv(getpid(), &here, 1, &there, 1, 0);

	if (copied == (ssize_t)length) {
		if (into_memory)
			pl_mark_written(memory, length);
		return 0;
	}
	if (copied >= 0 || errno == EFAULT)
		return -EFAULT;
	memcpy(into_memory ? memory : buffer, into_memory ? buffer : memory, length);
	return 0;
}

/* Most bytes whose aligned words are copied as words: one cache line. */
#define WORDS_MAX 64

/*
 * Loads each word once, in ascending order, and after all loads that the caller did before. Another thread or process may
 * store the words meanwhile: the copy has no parts of two stores.
 */
static void copy_words(void *to, const uint64_t *from, size_t length)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	for (size_t i = 0; i < length / sizeof(uint64_t); i++) {
		uint64_t word = __atomic_load_n(from + i, __ATOMIC_ACQUIRE);

		memcpy((char *)to + i * sizeof(word), &word, sizeof(word));
	}
}

/*
 * Stores a word once. memcpy(3) may store it twice, and so overwrite the reply of another process that saw the first
 * store.
 */
static void copy_host_bytes(void *to, const void *from, size_t length)
{
	if (length <= WORDS_MAX && (((uintptr_t)from | length) % sizeof(uint64_t)) == 0) {
		copy_words(to, from, length);
		return;
	}
	switch (length) {
	case sizeof(uint64_t):
		memcpy(to, from, sizeof(uint64_t));
		break;
	case sizeof(uint32_t):
		memcpy(to, from, sizeof(uint32_t));
		break;
	case sizeof(uint16_t):
		memcpy(to, from, sizeof(uint16_t));
		break;
	default:
		memcpy(to, from, length);
	}
}

static int host_copy_in(struct pl_memory *memory, size_t offset, const void *from, size_t length)
{
	char *at = (char *)memory->address + offset;

	if (memory->fragile)
		return copy_by_kernel(at, (void *)from, length, true);
	copy_host_bytes(at, from, length);
	return 0;
}

static int host_copy_out(struct pl_memory *memory, size_t offset, void *to, size_t length)
{
	char *at = (char *)memory->address + offset;

	if (memory->fragile)
		return copy_by_kernel(at, to, length, false);
	copy_host_bytes(to, at, length);
	return 0;
}

const struct pl_memory_ops pl_host_memory = {
	.name = "host",
	.recognise = host_recognise,
	.attach = host_attach,
	.allocate = host_allocate,
	.release = host_release,
	.export_shared = host_export_shared,
	.keep_private = host_keep_private,
	.host_pointer = host_pointer,
	.copy_in = host_copy_in,
	.copy_out = host_copy_out,
};
