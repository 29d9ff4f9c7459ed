/* SPDX-License-Identifier: BSD-2-Clause */
/* Files whose readers see either the old content or the whole new content. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/output.h"

/* Content of a file to come. */
struct content {
	int (*write)(FILE *file, const void *argument);
	const void *argument;
};

static int write_lines(FILE *file, const void *argument)
{
	const char *text = argument;
	size_t length = strlen(text);
	bool ends = length && text[length - 1] == '\n';

	/* The text can be a secret, which must not stay in a buffer. */
	setvbuf(file, NULL, _IONBF, 0);
	return fputs(text, file) == EOF || (!ends && fputc('\n', file) == EOF) || fflush(file) ? -errno : 0;
}

/* Returns 0 if all of the content is in the file or stream. */
static int write_content(FILE *file, const struct content *content)
{
	int rc = content->write(file, content->argument);

	if (rc == 0 && fflush(file))
		rc = -errno;
	/* An earlier part is missing. */
	return rc == 0 && ferror(file) ? -EIO : rc;
}

/* Writes into an open descriptor, a pipe or a device, which no file can replace. */
static int write_stream(const char *path, const struct content *content)
{
	int fd = cli_path_is_special(path) ? cli_open_stream(path) : open(path, O_WRONLY | O_CLOEXEC);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	int rc = file ? write_content(file, content) : -errno;

	if (!file && fd >= 0)
		close(fd);
	if (file && fclose(file) && rc == 0)
		rc = -errno;
	return rc;
}

/* Replaces the file at a path that is no symbolic link. */
static int replace_regular_file(const char *path, const struct content *content, unsigned mode)
{
	char *name = NULL;
	FILE *file;
	int fd, rc;

	if (asprintf(&name, "%s.XXXXXX", path) < 0)
		return -ENOMEM;
	fd = mkostemp(name, O_CLOEXEC);
	file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!file) {
		rc = -errno;
		if (fd >= 0) {
			close(fd);
			unlink(name);
		}
		free(name);
		return rc;
	}
	rc = write_content(file, content);
	if (rc == 0 && (fchmod(fd, (mode_t)mode) < 0 || fsync(fd) < 0))
		rc = -errno;
	if (fclose(file) && rc == 0)
		rc = -errno;
	if (rc == 0 && rename(name, path) < 0)
		rc = -errno;
	if (rc < 0)
		unlink(name);
	free(name);
	return rc;
}

/* Removes a file that was made for a text which could not be written, unless another process has written into it. */
static void remove_empty_file(const char *path)
{
	struct stat status;

	if (stat(path, &status) == 0 && status.st_size == 0)
		unlink(path);
}

/* Replaces the file that a symbolic link leads to.  A link that leads nowhere gets a new file, as a shell makes it. */
static int replace_link_target(const char *path, const struct content *content, unsigned mode)
{
	char *target = cli_link_target(path);
	bool made = false;
	int fd, rc;

	if (!target && errno == ENOENT) {
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
		if (fd < 0)
			return -errno;
		close(fd);
		made = true;
		target = cli_link_target(path);
	}
	if (!target)
		return -errno;
	rc = replace_regular_file(target, content, mode);
	if (rc < 0 && made)
		remove_empty_file(target);
	free(target);
	return rc;
}

int cli_replace_file_by(const char *path, int (*write)(FILE *file, const void *argument), const void *argument,
			unsigned mode)
{
	const struct content content = { write, argument };
	struct stat status;

	if (cli_path_is_special(path) || (stat(path, &status) == 0 && !S_ISREG(status.st_mode)))
		return write_stream(path, &content);
	if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode))
		return replace_link_target(path, &content, mode);
	return replace_regular_file(path, &content, mode);
}

int cli_replace_file(const char *path, const char *text, unsigned mode)
{
	return cli_replace_file_by(path, write_lines, text, mode);
}

unsigned cli_new_file_mode(void)
{
	mode_t mask = umask(0);

	umask(mask);
	return 0666 & ~mask;
}

/* A file that only its owner may read stays such a file. */
static unsigned mode_for(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode) ? status.st_mode & 0777 : cli_new_file_mode();
}

int cli_write_file(const char *path, int (*write)(FILE *file, const void *argument), const void *argument,
		   struct pl_error *error)
{
	const struct content content = { write, argument };
	int rc = strcmp(path, "-") ? cli_replace_file_by(path, write, argument, mode_for(path))
				   : write_content(stdout, &content);

	return rc < 0 ? cli_fail_errno(error, rc, "write", path) : 0;
}
