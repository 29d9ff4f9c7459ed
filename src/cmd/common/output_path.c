/* SPDX-License-Identifier: BSD-2-Clause */
/* Paths of outputs that no file may replace: open descriptors, devices and symbolic links. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/output.h"

bool cli_path_is_special(const char *path)
{
	const char *name = path + 5;

	if (!strncmp(path, "/proc/", 6))
		return true;
	return !strncmp(path, "/dev/", 5) && (!strchr(name, '/') || !strncmp(name, "fd/", 3));
}

/* Returns the descriptor of this process that a path names, or -1. */
static int parse_descriptor_path(const char *path)
{
	static const char *const folders[] = { "/dev/fd/", "/proc/self/fd/" };

	if (!strcmp(path, "/dev/stdout"))
		return STDOUT_FILENO;
	if (!strcmp(path, "/dev/stderr"))
		return STDERR_FILENO;
	for (size_t i = 0; i < CLI_ARRAY_SIZE(folders); i++) {
		size_t length = strlen(folders[i]);
		const char *digits = path + length;
		size_t count;

		if (strncmp(path, folders[i], length))
			continue;
		count = strspn(digits, "0123456789");
		if (count && count < 10 && !digits[count])
			return atoi(digits);
	}
	return -1;
}

int cli_open_stream(const char *path)
{
	int given = parse_descriptor_path(path), fd;

	/* open() of such a path would begin at the first byte of a file, also of one that the shell appends to. */
	fd = given >= 0 ? fcntl(given, F_DUPFD_CLOEXEC, 0) : open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

char *cli_link_target(const char *path)
{
	/* open() and not realpath(), so that the kernel refuses links of other users in /tmp (protected_symlinks). */
	int fd = open(path, O_PATH | O_CLOEXEC);
	char name[32], target[PATH_MAX];
	ssize_t length;

	if (fd < 0)
		return NULL;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	length = readlink(name, target, sizeof(target) - 1);
	close(fd);
	if (length < 0)
		return NULL;
	target[length] = '\0';
	return strdup(target);
}
