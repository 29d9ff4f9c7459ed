/* SPDX-License-Identifier: BSD-2-Clause */
/* Directory of the file system as root. */
#include "topology/sysroot.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SAFE (O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
/* A concurrent rename makes the kernel return EAGAIN. */
#define ATTEMPTS 16

struct folder {
	struct pl_sysroot base;
	int fd;
};

static int folder_fd(struct pl_sysroot *root)
{
	return pl_container_of(root, struct folder, base)->fd;
}

static const char *or_dot(const char *path)
{
	return *path ? path : ".";
}

static int open_in_kernel(int root, const char *path, int flags)
{
	struct open_how how = { .flags = (uint64_t)(unsigned)flags,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	long fd = -1;

	for (unsigned i = 0; i < ATTEMPTS; i++) {
		fd = syscall(SYS_openat2, root, or_dot(path), &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return fd < 0 ? -errno : (int)fd;
}

static int open_at(struct pl_sysroot *root, const char *path, int flags)
{
	int fd;

	if (root->ops->resolves)
		return open_in_kernel(folder_fd(root), path, flags | O_CLOEXEC);
	fd = openat(folder_fd(root), or_dot(path), flags | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static int kind_of(int fd)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return -errno;
	if (S_ISREG(status.st_mode))
		return PL_SYSROOT_FILE;
	if (S_ISDIR(status.st_mode))
		return PL_SYSROOT_FOLDER;
	return S_ISLNK(status.st_mode) ? PL_SYSROOT_LINK : PL_SYSROOT_OTHER;
}

static int folder_kind(struct pl_sysroot *root, const char *path)
{
	int fd = open_at(root, path, O_PATH | O_NOFOLLOW), kind;

	if (fd < 0)
		return fd;
	kind = kind_of(fd);
	close(fd);
	return kind;
}

static int folder_link(struct pl_sysroot *root, const char *path, char *buffer, size_t size)
{
	int fd = open_at(root, path, O_PATH | O_NOFOLLOW), rc = -EINVAL;

	if (fd < 0)
		return fd;
	if (kind_of(fd) == PL_SYSROOT_LINK) {
		rc = (int)readlinkat(fd, "", buffer, size);
		rc = rc < 0 ? -errno : rc;
	}
	close(fd);
	return rc;
}

/* Checks first: opening a device may have effects. */
static int folder_open(struct pl_sysroot *root, const char *path, struct pl_sysroot_file *file)
{
	int fd = open_at(root, path, O_PATH), kind;

	if (fd < 0)
		return fd;
	kind = kind_of(fd);
	close(fd);
	if (kind != PL_SYSROOT_FILE)
		return kind == PL_SYSROOT_FOLDER ? -EISDIR : -EINVAL;
	file->fd = open_at(root, path, O_RDONLY | SAFE);
	return file->fd < 0 ? file->fd : 0;
}

static int folder_read(struct pl_sysroot_file *file, void *buffer, size_t size)
{
	ssize_t length;

	do
		length = read(file->fd, buffer, size);
	while (length < 0 && errno == EINTR);
	return length < 0 ? -errno : (int)length;
}

static void folder_shut(struct pl_sysroot_file *file)
{
	close(file->fd);
}

static int folder_list(struct pl_sysroot *root, const char *path, struct pl_sysroot_list *list)
{
	int fd = open_at(root, path, O_RDONLY | O_DIRECTORY | SAFE), rc = 0;
	struct dirent *entry;
	DIR *stream;

	if (fd < 0)
		return fd;
	stream = fdopendir(fd);
	if (!stream) {
		rc = -errno;
		close(fd);
		return rc;
	}
	while (rc == 0 && (errno = 0, entry = readdir(stream)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			rc = pl_sysroot_list_add(list, entry->d_name);
	if (rc == 0 && errno)
		rc = -errno;
	closedir(stream);
	return rc;
}

static void folder_close(struct pl_sysroot *root)
{
	struct folder *folder = pl_container_of(root, struct folder, base);

	close(folder->fd);
	free(folder);
}

#define FOLDER_OPS \
	.kind = folder_kind, .link = folder_link, .open = folder_open, .read = folder_read, .shut = folder_shut, \
	.list = folder_list, .close = folder_close

static const struct pl_sysroot_ops kernel_ops = { .resolves = true, FOLDER_OPS };
static const struct pl_sysroot_ops walk_ops = { .resolves = false, FOLDER_OPS };

static bool kernel_resolves(int root)
{
	int fd = open_in_kernel(root, "", O_PATH | O_CLOEXEC);

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

int pl_sysroot_open_folder(struct pl_sysroot **ret, const char *path, bool kernel, struct pl_error *error)
{
	struct folder *folder = calloc(1, sizeof(*folder));
	int rc;

	if (!folder)
		return pl_fail_memory(error, "pl_sysroot_open");
	folder->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder->fd < 0) {
		rc = -errno;
		free(folder);
		return pl_fail_errno(error, rc, "SYSROOT-OPEN", "open", path);
	}
	folder->base.ops = kernel && kernel_resolves(folder->fd) ? &kernel_ops : &walk_ops;
	folder->base.live = !strcmp(path, "/");
	*ret = &folder->base;
	return 0;
}
