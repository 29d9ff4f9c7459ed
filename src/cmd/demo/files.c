/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <fts.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/demo/demo.h"

/* No larger ones, as all of them are to be in memory at once. */
#define FILE_MAX (48ull << 20)
#define FILES_MAX 256
#define READ_PIECE (1u << 20)

static const char *const places[] = {
	"/usr/lib/gcc", "/usr/libexec/gcc", "/usr/lib/*-linux-gnu*", "/usr/lib64", "/usr/bin",
};

static int append(struct demo_files *files, size_t *room, const char *path, const struct stat *status)
{
	struct demo_file file = { .size = (uint64_t)status->st_size,
				  .device = status->st_dev,
				  .inode = status->st_ino };

	if (files->count == *room) {
		size_t larger = *room ? *room * 2 : 256;
		struct demo_file *all = realloc(files->all, larger * sizeof(*all));

		if (!all)
			return -ENOMEM;
		files->all = all;
		*room = larger;
	}
	file.path = strdup(path);
	if (!file.path)
		return -ENOMEM;
	file.name = strrchr(file.path, '/') + 1;
	files->all[files->count++] = file;
	return 0;
}

static int look_through(struct demo_files *files, size_t *room, char **folders)
{
	/* What links lead to is somewhere in these places itself. */
	FTS *walk = fts_open(folders, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *entry;
	int rc = 0;

	if (!walk)
		return 0;
	while (rc == 0 && (entry = fts_read(walk)))
		if (entry->fts_info == FTS_F && entry->fts_statp->st_size > 0 &&
		    (uint64_t)entry->fts_statp->st_size <= FILE_MAX)
			rc = append(files, room, entry->fts_path, entry->fts_statp);
	fts_close(walk);
	return rc;
}

static int collect(struct demo_files *files)
{
	size_t room = 0;
	int rc = 0;

	for (size_t i = 0; i < CLI_ARRAY_SIZE(places) && rc == 0; i++) {
		glob_t found;

		if (glob(places[i], 0, NULL, &found) == 0)
			rc = look_through(files, &room, found.gl_pathv);
		globfree(&found);
	}
	if (rc == 0 && files->count == 0) {
		struct stat status;
		char *self = realpath("/proc/self/exe", NULL);

		if (self && stat(self, &status) == 0)
			rc = append(files, &room, self, &status);
		free(self);
	}
	return rc;
}

static int by_size(const void *left, const void *right)
{
	const struct demo_file *a = left, *b = right;

	return a->size != b->size ? (a->size < b->size) - (a->size > b->size) : strcmp(a->path, b->path);
}

/* Names must differ, as the server publishes files under these; a file with several names counts once. */
static bool usable(const struct demo_files *files, size_t kept, const struct demo_file *file)
{
	for (size_t i = 0; i < kept; i++)
		if (!strcmp(files->all[i].name, file->name) ||
		    (files->all[i].device == file->device && files->all[i].inode == file->inode))
			return false;
	return access(file->path, R_OK) == 0;
}

/* So that the disk is not what the pull measures. */
static void read_once(const struct demo_file *file, void *piece)
{
	int fd = open(file->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	while (read(fd, piece, READ_PIECE) > 0)
		continue;
	close(fd);
}

static int read_all(const struct demo_files *files)
{
	void *piece = malloc(READ_PIECE);

	if (!piece)
		return -ENOMEM;
	for (size_t i = 0; i < files->count; i++)
		read_once(&files->all[i], piece);
	free(piece);
	return 0;
}

int demo_files_gather(struct demo_files *files, uint64_t wanted, struct pl_error *error)
{
	size_t kept = 0;
	int rc = collect(files);

	if (rc == 0 && files->count)
		qsort(files->all, files->count, sizeof(*files->all), by_size);
	for (size_t i = 0; i < files->count; i++) {
		struct demo_file file = files->all[i];

		if (files->bytes >= wanted || kept == FILES_MAX || !usable(files, kept, &file)) {
			free(file.path);
			continue;
		}
		files->bytes += file.size;
		files->all[kept++] = file;
	}
	files->count = kept;
	if (rc == 0)
		rc = read_all(files);
	if (rc < 0)
		return cli_fail_errno(error, rc, "malloc", NULL);
	if (!kept)
		return cli_fail(error, -ENOENT, "NO-FILES", "/usr", NULL, "there are no files to demonstrate with");
	return 0;
}

void demo_files_free(struct demo_files *files)
{
	for (size_t i = 0; i < files->count; i++)
		free(files->all[i].path);
	free(files->all);
	*files = (struct demo_files){ 0 };
}
