/* SPDX-License-Identifier: BSD-2-Clause */
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/cli.h"

#define FIRST_ROOM 65536u /* of a pipe, which has no size */

ssize_t cli_read(int fd, void *bytes, size_t size)
{
	ssize_t got;

	do {
		got = read(fd, bytes, size);
	} while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

ssize_t cli_read_within(int fd, void *bytes, size_t size, uint64_t nanoseconds)
{
	uint64_t deadline = cli_now() + nanoseconds, now;
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	while ((now = cli_now()) < deadline) {
		int count = poll(&ready, 1, (int)((deadline - now + CLI_NS_PER_MS - 1) / CLI_NS_PER_MS));

		if (count > 0)
			return cli_read(fd, bytes, size);
		if (count < 0 && errno != EINTR)
			return -errno;
	}
	return -ETIMEDOUT;
}

static int read_into_room(int fd, size_t limit, size_t room, char **text, size_t *length)
{
	while (true) {
		char *grown = *text;
		ssize_t got;

		/* The NUL needs a byte. */
		if (!grown || *length + 1 >= room) {
			room = grown ? CLI_MIN(2 * room, limit + 2) : room;
			grown = realloc(grown, room);
			if (!grown)
				return -ENOMEM;
			*text = grown;
		}
		got = cli_read(fd, *text + *length, room - 1 - *length);
		if (got <= 0)
			return (int)got;
		*length += (size_t)got;
		if (*length > limit)
			return -EFBIG;
	}
}

int cli_read_all(int fd, size_t limit, char **text, size_t *length)
{
	struct stat status;
	bool sized = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
	/* One more byte shows the end of the file, or that it has grown. */
	size_t room = (sized ? (size_t)status.st_size : CLI_MIN((size_t)FIRST_ROOM, limit)) + 2;
	int rc;

	*text = NULL;
	*length = 0;
	if (sized && (uint64_t)status.st_size > limit)
		return -EFBIG;
	rc = read_into_room(fd, limit, room, text, length);
	if (rc < 0) {
		free(*text);
		*text = NULL;
		return rc;
	}
	(*text)[*length] = '\0';
	return 0;
}
