/* SPDX-License-Identifier: BSD-2-Clause */
/* Paths of outputs that no file may replace: open descriptors, devices and symbolic links. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/output.h"

/* Returns the last part of a path below a folder of open descriptors, such as /proc/self/fd; NULL for other paths. */
static const char *descriptor_name(const char *path)
{
	const char *folder;

	if (!strncmp(path, "/dev/fd/", 8))
		return path + 8;
	if (strncmp(path, "/proc/", 6))
		return NULL;
	folder = strchr(path + 6, '/');
	if (folder && !strncmp(folder, "/task/", 6))
		folder = strchr(folder + 6, '/');
	return folder && !strncmp(folder, "/fd/", 4) ? folder + 4 : NULL;
}

static bool is_descriptor_number(const char *name)
{
	size_t count = strspn(name, "0123456789");

	return count && count < 10 && !name[count];
}

bool cli_path_is_special(const char *path)
{
	const char *name = descriptor_name(path);

	if (name)
		return is_descriptor_number(name);
	return !strncmp(path, "/dev/", 5) && !strchr(path + 5, '/');
}

/* Returns the descriptor of this process that a path names, or -1. */
static int parse_descriptor_path(const char *path)
{
	static const char *const folders[] = { "/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/" };

	if (!strcmp(path, "/dev/stdout"))
		return STDOUT_FILENO;
	if (!strcmp(path, "/dev/stderr"))
		return STDERR_FILENO;
	for (size_t i = 0; i < CLI_ARRAY_SIZE(folders); i++) {
		size_t length = strlen(folders[i]);

		if (!strncmp(path, folders[i], length) && is_descriptor_number(path + length))
			return atoi(path + length);
	}
	return -1;
}

/* Copies a descriptor that this process inherited. */
static int copy_inherited_descriptor(int fd)
{
	int flags = fcntl(fd, F_GETFD);

	/* The command opens its own sockets and files with FD_CLOEXEC; an inherited descriptor cannot have it. */
	if (flags >= 0 && !(flags & FD_CLOEXEC))
		return fcntl(fd, F_DUPFD_CLOEXEC, 0);
	errno = EBADF;
	return -1;
}

int cli_open_stream(const char *path)
{
	int given = parse_descriptor_path(path), fd;

	/* open() of such a path would begin at the first byte of a file, also of one that the shell appends to. */
	fd = given >= 0 ? copy_inherited_descriptor(given) : open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
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
