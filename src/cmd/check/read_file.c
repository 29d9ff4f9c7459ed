/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmd/check/policy_file.h"

int check_read_file(const char *path, size_t limit, char **text, size_t *length, struct pl_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	*length = 0;
	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", path);
	*text = malloc(limit + 1);
	if (!*text) {
		close(fd);
		return cli_fail_errno(error, -ENOMEM, "malloc", path);
	}
	do {
		got = read(fd, *text + *length, limit + 1 - *length);
		if (got > 0)
			*length += (size_t)got;
	} while (*length <= limit && (got > 0 || (got < 0 && errno == EINTR)));
	if (got < 0)
		cli_fail_errno(error, -errno, "read", path);
	else if (*length > limit)
		cli_fail(error, -EFBIG, "CHECK-FILE-SIZE", path, NULL, "the file has more than %zu bytes", limit);
	close(fd);
	if (got < 0 || *length > limit) {
		free(*text);
		return error->code;
	}
	(*text)[*length] = '\0';
	return 0;
}
