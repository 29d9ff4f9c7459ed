/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/write_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Most bytes of a write, between which a failure is noticed. */
#define WRITE_MAX (64u << 20)

int stream_write_counted(int fd, const void *bytes, uint64_t length, uint64_t *count)
{
	const uint8_t *from = bytes;

	*count = 0;
	while (*count < length) {
		uint64_t rest = length - *count;
		ssize_t written = write(fd, from + *count, rest < WRITE_MAX ? rest : WRITE_MAX);

		if (written < 0 && errno != EINTR)
			return -errno;
		if (written > 0)
			*count += (uint64_t)written;
	}
	return 0;
}

int stream_write_file(int fd, const void *bytes, uint64_t length)
{
	uint64_t count;

	return stream_write_counted(fd, bytes, length, &count);
}

bool stream_name_ends(const char *path, const char *end)
{
	size_t length = strlen(path), tail = strlen(end);

	return length > tail && !strcmp(path + length - tail, end);
}
