/* SPDX-License-Identifier: BSD-2-Clause */
/* Files for the demonstration: compilers, libraries and programs of this machine. */
#include <fcntl.h>
#include <fts.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/demo/demo.h"

/* Larger files are skipped, because all files together must fit into the page cache. */
#define FILE_MAX (48ull << 20)
#define FILES_MAX 256
#define READ_PIECE (1u << 20)

static const char *const folders[] = {
	"/usr/lib/gcc", "/usr/libexec/gcc", "/usr/lib/*-linux-gnu*", "/usr/lib64", "/usr/bin",
};

static int append_demo_file(struct demo_files *files, size_t *room, const char *path, const struct stat *status)
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

static int collect_files_in(struct demo_files *files, size_t *room, char **roots)
{
	/* The targets of symbolic links are in these folders, too. */
	FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *entry;
	int rc = 0;

	if (!walk)
		return 0;
	while (rc == 0 && (entry = fts_read(walk)))
		if (entry->fts_info == FTS_F && entry->fts_statp->st_size > 0 &&
		    (uint64_t)entry->fts_statp->st_size <= FILE_MAX)
			rc = append_demo_file(files, room, entry->fts_path, entry->fts_statp);
	fts_close(walk);
	return rc;
}

static int collect_demo_files(struct demo_files *files)
{
	size_t room = 0;
	int rc = 0;

	for (size_t i = 0; i < CLI_ARRAY_SIZE(folders) && rc == 0; i++) {
		glob_t found;

		if (glob(folders[i], 0, NULL, &found) == 0)
			rc = collect_files_in(files, &room, found.gl_pathv);
		globfree(&found);
	}
	if (rc == 0 && files->count == 0) {
		struct stat status;
		char *self = realpath("/proc/self/exe", NULL);

		if (self && stat(self, &status) == 0)
			rc = append_demo_file(files, &room, self, &status);
		free(self);
	}
	return rc;
}

static int compare_demo_files(const void *left, const void *right)
{
	const struct demo_file *a = left, *b = right;

	return a->size != b->size ? (a->size < b->size) - (a->size > b->size) : strcmp(a->path, b->path);
}

/* True if the file is readable, and its name and inode differ from all files so far: the server publishes by name. */
static bool demo_file_usable(const struct demo_files *files, size_t kept, const struct demo_file *file)
{
	for (size_t i = 0; i < kept; i++)
		if (!strcmp(files->all[i].name, file->name) ||
		    (files->all[i].device == file->device && files->all[i].inode == file->inode))
			return false;
	return access(file->path, R_OK) == 0;
}

/* Reads a file into the page cache, so that the pull does not measure the disk. */
static void read_into_cache(const struct demo_file *file, void *piece)
{
	int fd = open(file->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	while (read(fd, piece, READ_PIECE) > 0)
		continue;
	close(fd);
}

static int read_all_into_cache(const struct demo_files *files)
{
	void *piece = malloc(READ_PIECE);

	if (!piece)
		return -ENOMEM;
	for (size_t i = 0; i < files->count; i++)
		read_into_cache(&files->all[i], piece);
	free(piece);
	return 0;
}

int demo_files_gather(struct demo_files *files, uint64_t bytes, struct pl_error *error)
{
	size_t kept = 0;
	int rc = collect_demo_files(files);

	if (rc == 0 && files->count)
		qsort(files->all, files->count, sizeof(*files->all), compare_demo_files);
	for (size_t i = 0; i < files->count; i++) {
		struct demo_file file = files->all[i];

		if (files->bytes >= bytes || kept == FILES_MAX || !demo_file_usable(files, kept, &file)) {
			free(file.path);
			continue;
		}
		files->bytes += file.size;
		files->all[kept++] = file;
	}
	files->count = kept;
	if (rc == 0)
		rc = read_all_into_cache(files);
	if (rc < 0)
		return cli_fail_errno(error, rc, "malloc", NULL);
	if (!kept)
		return cli_fail(error, -ENOENT, "NO-FILES", "/usr", NULL, "no readable files found");
	return 0;
}

void demo_files_free(struct demo_files *files)
{
	for (size_t i = 0; i < files->count; i++)
		free(files->all[i].path);
	free(files->all);
	*files = (struct demo_files){ 0 };
}
