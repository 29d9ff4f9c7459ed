/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <unistd.h>

#include "cmd/check/policy_file.h"

int check_read_descriptor(int fd, const char *path, size_t limit, char **text, size_t *length, struct pl_error *error)
{
	int rc = cli_read_all(fd, limit, text, length);

	if (rc == -EFBIG)
		return cli_fail(error, rc, "CHECK-FILE-SIZE", path, NULL, "the file has more than %zu bytes", limit);
	return rc < 0 ? cli_fail_errno(error, rc, rc == -ENOMEM ? "malloc" : "read", path) : 0;
}

int check_read_file(const char *path, size_t limit, char **text, size_t *length, struct pl_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

	*length = 0;
	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", path);
	rc = check_read_descriptor(fd, path, limit, text, length, error);
	close(fd);
	return rc;
}
