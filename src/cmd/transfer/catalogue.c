/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/catalogue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/cli.h"
#include "cmd/transfer/partial_file.h"

/* Opening a device must neither block nor give the process a controlling terminal. */
#define OPEN_FLAGS (O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

/* -- roots -------------------------------------------------------------------------------------- */

static int add_catalogue_root(struct catalogue *catalogue, const struct catalogue_root *root, struct pl_error *error)
{
	struct catalogue_root *roots =
		realloc(catalogue->roots, (catalogue->root_count + 1) * sizeof(*catalogue->roots));

	if (!roots)
		return cli_fail_errno(error, -ENOMEM, "malloc", root->path);
	catalogue->roots = roots;
	roots[catalogue->root_count++] = *root;
	return 0;
}

int catalogue_add_path(struct catalogue *catalogue, const char *path, struct pl_error *error)
{
	struct catalogue_root root = { .folder = -1 };
	const char *slash = strrchr(path, '/');
	struct stat status;

	if (stat(path, &status) < 0 && errno == ENOENT)
		return cli_fail(error, -ENOENT, "NO-PATH", path,
				"an ADDRESS has a colon and comes first: HOST:PORT or :PORT",
				"no such file or directory");
	if (stat(path, &status) < 0)
		return cli_fail_errno(error, -errno, "stat", path);
	if (S_ISDIR(status.st_mode)) {
		root.kind = ROOT_FOLDER;
		root.folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (root.folder < 0)
			return cli_fail_errno(error, -errno, "open", path);
	} else if (S_ISREG(status.st_mode)) {
		root.kind = ROOT_FILE;
		root.name = strdup(slash ? slash + 1 : path);
		if (access(path, R_OK) < 0) {
			free(root.name);
			return cli_fail_errno(error, -errno, "open", path);
		}
	} else {
		return cli_fail(error, -EINVAL, "NOT-A-FILE", path, "publish files and directories",
				"neither a regular file nor a directory");
	}
	root.path = strdup(path);
	return add_catalogue_root(catalogue, &root, error);
}

int catalogue_add_memory(struct catalogue *catalogue, const char *name, uint64_t size, struct item *memory,
			 struct pl_error *error)
{
	struct catalogue_root root = {
		.kind = ROOT_MEMORY, .name = strdup(name), .folder = -1, .memory = memory, .size = size
	};

	return add_catalogue_root(catalogue, &root, error);
}

static void clear_catalogue_entries(struct catalogue *catalogue)
{
	for (size_t i = 0; i < catalogue->count; i++)
		free(catalogue->entries[i].name);
	catalogue->count = 0;
	catalogue->bytes = 0;
	catalogue->blocks = 0;
	catalogue->skipped = (struct catalogue_skipped){ 0 };
}

void catalogue_clear(struct catalogue *catalogue)
{
	clear_catalogue_entries(catalogue);
	free(catalogue->entries);
	for (size_t i = 0; i < catalogue->root_count; i++) {
		free(catalogue->roots[i].name);
		free(catalogue->roots[i].path);
		if (catalogue->roots[i].folder >= 0)
			close(catalogue->roots[i].folder);
	}
	free(catalogue->roots);
	*catalogue = (struct catalogue){ 0 };
}

/* -- opening ------------------------------------------------------------------------------------ */

int catalogue_open_below(int folder, const char *name, int flags, bool follow)
{
	char component[SERVICE_NAME_MAX + 1];
	int at = folder, next, rc;

	if (!service_name_valid(name))
		return -EINVAL;
	if (follow) {
		next = openat(folder, name, flags | O_CLOEXEC, 0666);
		return next < 0 ? -errno : next;
	}
	for (;;) {
		size_t length = strcspn(name, "/");
		bool last = !name[length];

		memcpy(component, name, length);
		component[length] = '\0';
		next = openat(at, component, (last ? flags : O_PATH | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC, 0666);
		rc = -errno;
		if (at != folder)
			close(at);
		if (next < 0)
			return rc;
		if (last)
			return next;
		at = next;
		name += length + 1;
	}
}

int catalogue_make_folder(int folder, const char *name)
{
	const char *slash = strrchr(name, '/');
	char parent[SERVICE_NAME_MAX + 1];
	int at = folder, rc;

	if (slash) {
		snprintf(parent, sizeof(parent), "%.*s", (int)(slash - name), name);
		at = catalogue_open_below(folder, parent, O_PATH | O_DIRECTORY, false);
	}
	if (at < 0)
		return at;
	rc = mkdirat(at, slash ? slash + 1 : name, 0777) < 0 ? -errno : 0;
	if (slash)
		close(at);
	return rc;
}

struct item *catalogue_memory(const struct catalogue *catalogue, const char *name)
{
	for (size_t i = 0; i < catalogue->root_count; i++)
		if (catalogue->roots[i].kind == ROOT_MEMORY && !strcmp(catalogue->roots[i].name, name))
			return catalogue->roots[i].memory;
	return NULL;
}

/* Returns fd if it is a regular file; else closes it and returns a negative errno. */
static int check_regular_file(int fd, struct stat *status)
{
	int rc = 0;

	if (fd < 0)
		return fd;
	if (fstat(fd, status) < 0)
		rc = -errno;
	else if (S_ISLNK(status->st_mode))
		rc = -ELOOP;
	else if (S_ISDIR(status->st_mode))
		rc = -EISDIR;
	else if (!S_ISREG(status->st_mode))
		rc = -ENXIO;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

static int open_in_catalogue_root(const struct catalogue *catalogue, const struct catalogue_root *root,
				  const char *name, struct stat *status)
{
	int fd = -ENOENT, path;

	if (root->kind == ROOT_FILE && !strcmp(root->name, name)) {
		fd = open(root->path, OPEN_FLAGS);
		return check_regular_file(fd < 0 ? -errno : fd, status);
	}
	if (root->kind != ROOT_FOLDER || is_partial_file_name(name))
		return -ENOENT;
	/* First with O_PATH, because opening a device can have effects. */
	path = catalogue_open_below(root->folder, name, O_PATH, catalogue->follow);
	path = check_regular_file(path, status);
	if (path < 0)
		return path;
	close(path);
	fd = catalogue_open_below(root->folder, name, OPEN_FLAGS, catalogue->follow);
	return check_regular_file(fd, status);
}

int catalogue_open(const struct catalogue *catalogue, const char *name, struct stat *status, struct pl_error *error)
{
	int fd = -ENOENT;

	for (size_t i = 0; i < catalogue->root_count && fd == -ENOENT; i++)
		fd = open_in_catalogue_root(catalogue, &catalogue->roots[i], name, status);
	if (fd >= 0)
		return fd;
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -EINVAL)
		return cli_fail(error, -ENOENT, "NOT-PUBLISHED", name, service_unknown_name_hint(name),
				"no file or memory of this name is published");
	if (fd == -ELOOP)
		return cli_fail(error, -EACCES, "NOT-FOLLOWED", name, "start the server with --follow",
				"the server does not follow symbolic links");
	if (fd == -EISDIR || fd == -ENXIO)
		return cli_fail(error, fd == -ENXIO ? -EINVAL : fd, "NOT-A-FILE", name,
				fd == -EISDIR
					? "`peerlane get --recursive` gets the files in it; `peerlane list` lists them"
					: "only regular files are sent",
				fd == -EISDIR ? "a directory" : "neither a regular file nor a directory");
	return cli_fail_errno(error, fd, "open", name);
}

/* -- scanning ----------------------------------------------------------------------------------- */

size_t catalogue_after(const struct catalogue *catalogue, const char *name)
{
	size_t low = 0, high = catalogue->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(catalogue->entries[middle].name, name) > 0)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static int compare_entry_names(const void *left, const void *right)
{
	const struct catalogue_entry *a = left, *b = right;
	int order = strcmp(a->name, b->name);

	return order ? order : (a->root > b->root) - (a->root < b->root);
}

/* Keeps the first root's entry of equal names, as catalogue_open() does. */
static void drop_duplicate_names(struct catalogue *catalogue)
{
	size_t kept = 0;

	for (size_t i = 0; i < catalogue->count; i++) {
		struct catalogue_entry *entry = &catalogue->entries[i];

		if (kept && !strcmp(catalogue->entries[kept - 1].name, entry->name)) {
			free(entry->name);
			catalogue->skipped.duplicates++;
			continue;
		}
		catalogue->bytes += entry->size;
		catalogue->blocks += entry->kind == SERVICE_MEMORY;
		catalogue->entries[kept++] = *entry;
	}
	catalogue->count = kept;
}

static int scan_catalogue_roots(struct catalogue *catalogue)
{
	struct stat status;
	int rc = 0;

	for (size_t i = 0; i < catalogue->root_count && rc == 0; i++) {
		const struct catalogue_root *root = &catalogue->roots[i];

		if (root->kind == ROOT_FOLDER)
			rc = catalogue_scan(catalogue, (uint32_t)i);
		else if (root->kind == ROOT_MEMORY)
			rc = catalogue_add_entry(catalogue, root->name, SERVICE_MEMORY, root->size, 0, (uint32_t)i);
		else if (stat(root->path, &status) == 0 && S_ISREG(status.st_mode))
			rc = catalogue_add_entry(catalogue, root->name, SERVICE_FILE, (uint64_t)status.st_size,
						 file_modified(&status), (uint32_t)i);
		else
			catalogue->skipped.unreadable++;
	}
	return rc;
}

int catalogue_refresh(struct catalogue *catalogue, uint64_t age, struct pl_error *error)
{
	int rc;

	if (catalogue->scanned && cli_now() - catalogue->scanned < age)
		return 0;
	clear_catalogue_entries(catalogue);
	rc = scan_catalogue_roots(catalogue);
	if (catalogue->count)
		qsort(catalogue->entries, catalogue->count, sizeof(*catalogue->entries), compare_entry_names);
	drop_duplicate_names(catalogue);
	catalogue->scanned = rc < 0 ? 0 : cli_now();
	return rc < 0 ? cli_fail_errno(error, rc, "scan", NULL) : 0;
}
