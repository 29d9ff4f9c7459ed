/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/base.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static void *system_allocate(size_t size, void *user)
{
	(void)user;
	return malloc(size);
}

static void *system_reallocate(void *pointer, size_t size, void *user)
{
	(void)user;
	return realloc(pointer, size);
}

static void system_release(void *pointer, void *user)
{
	(void)user;
	free(pointer);
}

const struct pl_allocator pl_system_allocator = {
	.allocate = system_allocate,
	.reallocate = system_reallocate,
	.release = system_release,
};

void *pl_alloc(const struct pl_allocator *allocator, size_t size)
{
	return allocator->allocate(size, allocator->user);
}

void *pl_zalloc(const struct pl_allocator *allocator, size_t size)
{
	void *pointer = pl_alloc(allocator, size);

	if (pointer)
		memset(pointer, 0, size);
	return pointer;
}

void *pl_realloc(const struct pl_allocator *allocator, void *pointer, size_t size)
{
	return allocator->reallocate(pointer, size, allocator->user);
}

static uint64_t read_clock(clockid_t id)
{
	struct timespec time;

	clock_gettime(id, &time);
	return (uint64_t)time.tv_sec * PL_NS_PER_S + (uint64_t)time.tv_nsec;
}

uint64_t pl_now(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t pl_wall_clock(void)
{
	return read_clock(CLOCK_REALTIME);
}

int pl_random(void *buffer, size_t length)
{
	unsigned char *bytes = buffer;

	while (length) {
		ssize_t got = getrandom(bytes, length, 0);

		if (got < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		bytes += got;
		length -= (size_t)got;
	}
	return 0;
}

int pl_copy_versioned(void *to, size_t known, const void *from)
{
	size_t given;

	memset(to, 0, known);
	if (!from)
		return 0;
	memcpy(&given, from, sizeof(given));
	if (given < sizeof(given))
		return -EINVAL;
	for (size_t i = known; i < given; i++)
		if (((const char *)from)[i])
			return -EINVAL;
	memcpy(to, from, PL_MIN(given, known));
	return 0;
}

size_t pl_read_head(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? 0 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	if (length < 0)
		length = 0;
	text[length] = '\0';
	return (size_t)length;
}
