/* SPDX-License-Identifier: BSD-2-Clause */
#include <poll.h>
#include <unistd.h>

#include "cmd/common/cli.h"

/* A pipe takes this many bytes without blocking once it is writable. */
#define PIPE_BYTES 4096
/* Interval of looking for signals while a pipe is full. */
#define LOOK_MS 200

int cli_write_stream(int fd, const void *bytes, uint64_t length, uint64_t *count)
{
	const uint8_t *from = bytes;

	*count = 0;
	while (*count < length) {
		uint64_t rest = length - *count;
		struct pollfd writable = { .fd = fd, .events = POLLOUT };
		ssize_t written;

		if (cli_signal_pending())
			return -EINTR;
		if (poll(&writable, 1, LOOK_MS) <= 0)
			continue;
		written = write(fd, from + *count, rest < PIPE_BYTES ? rest : PIPE_BYTES);
		if (written < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (written > 0)
			*count += (uint64_t)written;
	}
	return 0;
}
