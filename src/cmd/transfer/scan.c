/* SPDX-License-Identifier: BSD-2-Clause */
/* Scan of a published folder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/cli.h"
#include "cmd/transfer/catalogue.h"
#include "cmd/transfer/partial_file.h"

/* Folder that is being scanned, in a chain of its parents.  Detects symbolic links to a parent. */
struct level {
	const struct level *parent;
	dev_t device;
	ino_t inode;
	size_t length; /* of the path to this folder */
};

struct scan {
	struct catalogue *catalogue;
	uint32_t root;
	char path[SERVICE_NAME_MAX + 1];
};

static int scan_folder(struct scan *scan, int folder, const struct level *parent, size_t length);

int catalogue_add_entry(struct catalogue *catalogue, const char *name, enum service_kind kind, uint64_t size,
			uint64_t modified, uint32_t root)
{
	struct catalogue_entry entry = { .size = size, .modified = modified, .root = root, .kind = (uint8_t)kind };

	if (catalogue->count == catalogue->room) {
		size_t room = catalogue->room ? catalogue->room * 2 : 64;
		struct catalogue_entry *entries = realloc(catalogue->entries, room * sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		catalogue->entries = entries;
		catalogue->room = room;
	}
	entry.name = strdup(name);
	if (!entry.name)
		return -ENOMEM;
	catalogue->entries[catalogue->count++] = entry;
	return 0;
}

static bool is_parent_folder(const struct level *level, const struct stat *status)
{
	for (; level; level = level->parent)
		if (level->device == status->st_dev && level->inode == status->st_ino)
			return true;
	return false;
}

static int scan_subfolder(struct scan *scan, int parent, const char *name, const struct level *level, size_t length)
{
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (scan->catalogue->follow ? 0 : O_NOFOLLOW);
	int folder = openat(parent, name, flags);

	if (folder < 0) {
		scan->catalogue->skipped.unreadable++;
		return 0;
	}
	return scan_folder(scan, folder, level, length);
}

static int scan_entry(struct scan *scan, int parent, const char *name, const struct level *level)
{
	struct catalogue *catalogue = scan->catalogue;
	size_t length = level->length + (level->length > 0) + strlen(name);
	struct stat status;

	if (length > SERVICE_NAME_MAX) {
		catalogue->skipped.long_names++;
		return 0;
	}
	scan->path[level->length] = '/';
	strcpy(scan->path + level->length + (level->length > 0), name);
	if (fstatat(parent, name, &status, catalogue->follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0) {
		catalogue->skipped.unreadable++;
		return 0;
	}
	if (S_ISLNK(status.st_mode))
		catalogue->skipped.links++;
	if (S_ISDIR(status.st_mode) && !is_parent_folder(level, &status))
		return scan_subfolder(scan, parent, name, level, length);
	if (!S_ISREG(status.st_mode) || is_partial_file_name(name))
		return 0;
	return catalogue_add_entry(catalogue, scan->path, SERVICE_FILE, (uint64_t)status.st_size,
				   file_modified(&status), scan->root);
}

/* Scans a folder and closes its descriptor. */
static int scan_folder(struct scan *scan, int folder, const struct level *parent, size_t length)
{
	struct level level = { .parent = parent, .length = length };
	struct stat status;
	struct dirent *entry;
	DIR *stream;
	int rc = 0;

	stream = fdopendir(folder);
	if (!stream || fstat(folder, &status) < 0) {
		rc = -errno;
		if (stream)
			closedir(stream);
		else
			close(folder);
		return rc;
	}
	level.device = status.st_dev;
	level.inode = status.st_ino;
	while (rc == 0 && (entry = readdir(stream)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			rc = scan_entry(scan, folder, entry->d_name, &level);
	closedir(stream);
	return rc;
}

int catalogue_scan(struct catalogue *catalogue, uint32_t root)
{
	struct scan scan = { .catalogue = catalogue, .root = root };
	int folder = openat(catalogue->roots[root].folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (folder < 0) {
		catalogue->skipped.unreadable++;
		return 0;
	}
	return scan_folder(&scan, folder, NULL, 0);
}
