/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/folder_set.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/cli.h"
#include "cmd/transfer/catalogue.h"

/* Makes the folders of a path that are missing.  Errors show when the path is opened. */
static void make_folders(int base, char *path)
{
	for (char *slash = path; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		catalogue_make_folder(base, path);
		*slash = '/';
	}
	catalogue_make_folder(base, path);
}

int folder_open(int base, const char *name, bool make, const char **last, struct pl_error *error)
{
	const char *slash = strrchr(name, '/');
	char parent[SERVICE_NAME_MAX + 1];
	int fd;

	*last = slash ? slash + 1 : name;
	if (!slash) {
		fd = fcntl(base, F_DUPFD_CLOEXEC, 0);
		return fd < 0 ? cli_fail_errno(error, -errno, "open", name) : fd;
	}
	snprintf(parent, sizeof(parent), "%.*s", (int)(slash - name), name);
	fd = catalogue_open_below(base, parent, O_RDONLY | O_DIRECTORY, false);
	if (fd == -ENOENT && make) {
		make_folders(base, parent);
		fd = catalogue_open_below(base, parent, O_RDONLY | O_DIRECTORY, false);
	}
	if (fd == -ENOENT)
		return cli_fail(error, fd, "NO-FOLDER", parent, "create it there, or use put --recursive, which does",
				"no such directory");
	return fd < 0 ? cli_fail_errno(error, fd, "open", parent) : fd;
}

int folder_check_target(int folder, const char *name, const char *last, struct pl_error *error)
{
	char hint[sizeof(error->hint)];
	struct stat status;

	if (fstatat(folder, last, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(status.st_mode))
		return 0;
	snprintf(hint, sizeof(hint), "name a file in it: --as %s/NAME", name);
	return cli_fail(error, -EISDIR, "NOT-A-FILE", name, hint, "the server has a directory of this name");
}

int folder_set_find(struct folder_set *set, const char *name, const char **last, struct pl_error *error)
{
	const char *slash = strrchr(name, '/');
	size_t length = slash ? (size_t)(slash - name) + 1 : 0;
	int *folders, fd;

	*last = name + length;
	if (set->name && set->length == length && !strncmp(set->name, name, length))
		return set->folders[set->count - 1];
	folders = realloc(set->folders, (set->count + 1) * sizeof(*folders));
	if (!folders)
		return cli_fail_errno(error, -ENOMEM, "malloc", name);
	set->folders = folders;
	fd = folder_open(set->base, name, set->make, last, error);
	if (fd < 0)
		return fd;
	set->folders[set->count++] = fd;
	set->name = name;
	set->length = length;
	return fd;
}

void folder_set_close(struct folder_set *set)
{
	for (size_t i = 0; i < set->count; i++)
		close(set->folders[i]);
	free(set->folders);
	set->folders = NULL;
	set->count = 0;
}
