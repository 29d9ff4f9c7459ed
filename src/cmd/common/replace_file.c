/* SPDX-License-Identifier: BSD-2-Clause */
/* Files whose readers see either the old content or the whole new content, where a file can be replaced. */
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
static int write_stream(const char *path, const struct content *content, struct pl_error *error)
{
	int fd = cli_path_is_special(path) ? cli_open_stream(path) : open(path, O_WRONLY | O_CLOEXEC);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	int rc = file ? write_content(file, content) : -errno;

	if (!file && fd >= 0)
		close(fd);
	if (file && fclose(file) && rc == 0)
		rc = -errno;
	return rc < 0 ? cli_fail_errno(error, rc, file ? "write" : "open", path) : 0;
}

/* -- regular files ------------------------------------------------------------------------------------- */

/* True if a file may be writable although its folder takes no new file. */
static bool folder_is_closed(int rc)
{
	return rc == -EACCES || rc == -EPERM || rc == -EROFS;
}

/*
 * True if a file may be writable although rename(2) cannot replace it: it is a mount point.  After EPERM and EACCES the
 * file is another user's, in a folder with the sticky bit such as /tmp, or of a kind that nobody may replace.
 */
static bool is_mount_point(int rc)
{
	return rc == -EBUSY || rc == -EXDEV || rc == -EROFS;
}

/*
 * Returns 0 if the open file may be written in place.  Anybody can make files in a folder with the sticky bit, and keeps
 * the right to read them: there the file belongs to this user or to the folder's owner, as the kernel demands with
 * fs.protected_regular for files that it may create.
 */
static int check_in_place(int folder, int fd, const char *path, struct pl_error *error)
{
	struct stat parent, file;

	if (fstat(folder, &parent) < 0 || fstat(fd, &file) < 0)
		return cli_fail_errno(error, -errno, "fstat", path);
	if (!S_ISREG(file.st_mode)) {
		cli_fail_errno(error, -ENXIO, "open", path);
		snprintf(error->message, sizeof(error->message), "it is no regular file");
	} else if ((parent.st_mode & S_ISVTX) && file.st_uid != geteuid() && file.st_uid != parent.st_uid) {
		cli_fail_errno(error, -EACCES, "open", path);
		snprintf(error->message, sizeof(error->message), "the file belongs to another user, %u",
			 (unsigned)file.st_uid);
	} else {
		return 0;
	}
	return error->code;
}

char *cli_folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? strndup(path, (size_t)(slash - path + 1)) : strdup(".");
}

/* Returns a descriptor of an existing file that may be written in place. */
static int open_in_place(const char *path, struct pl_error *error)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char *parent = cli_folder_of(path);
	int folder = parent ? open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1, fd = -1, rc = 0;

	/* Without O_NONBLOCK, a pipe that took the file's place waits for its reader. */
	if (folder >= 0)
		fd = openat(folder, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	rc = fd < 0 ? cli_fail_errno(error, -errno, "open", path) : check_in_place(folder, fd, path, error);
	if (fd >= 0 && rc < 0)
		close(fd);
	if (folder >= 0)
		close(folder);
	free(parent);
	return rc < 0 ? rc : fd;
}

/* Content that only the user may read needs a file that only the user may read. */
static int restrict_readers(int fd, unsigned mode)
{
	struct stat status;

	if (mode & 077)
		return 0;
	return fstat(fd, &status) < 0 || ((status.st_mode & 0777) != mode && fchmod(fd, (mode_t)mode) < 0) ? -errno : 0;
}

/*
 * Writes over the content of an existing file, and cuts off the rest.  After a failure a part of the file is new.  Returns
 * -ENOENT if there is no file.
 */
static int write_in_place(const char *path, const struct content *content, unsigned mode, struct pl_error *error)
{
	int fd = open_in_place(path, error), rc;
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	if (fd < 0)
		return fd;
	if (!file) {
		rc = cli_fail_errno(error, -errno, "open", path);
		close(fd);
		return rc;
	}
	rc = restrict_readers(fd, mode);
	if (rc == 0)
		rc = write_content(file, content);
	if (rc == 0 && (ftruncate(fd, lseek(fd, 0, SEEK_CUR)) < 0 || fsync(fd) < 0))
		rc = -errno;
	if (fclose(file) && rc == 0)
		rc = -errno;
	return rc < 0 ? cli_fail_errno(error, rc, "write", path) : 0;
}

/* Tells that no temporary file could be made. */
static int fail_to_make_file(const char *path, int rc, struct pl_error *error)
{
	cli_fail_new_path(error, rc, "open", path);
	if (folder_is_closed(rc))
		snprintf(error->message, sizeof(error->message), "no file can be made in the folder: %s",
			 strerror(-rc));
	return rc;
}

/*
 * Writes the content into a new file.  Returns its name, which the caller frees; NULL with *error if there is none.  *refused
 * becomes true if the folder takes no new file.
 */
static char *write_beside(const char *path, const struct content *content, unsigned mode, struct pl_error *error,
			  bool *refused)
{
	char *name = NULL;
	FILE *file;
	int fd, rc;

	if (asprintf(&name, "%s.XXXXXX", path) < 0) {
		cli_fail_errno(error, -ENOMEM, "malloc", path);
		return NULL;
	}
	fd = mkostemp(name, O_CLOEXEC);
	file = fd < 0 ? NULL : fdopen(fd, "w");
	if (file) {
		rc = write_content(file, content);
		if (rc == 0 && (fchmod(fd, (mode_t)mode) < 0 || fsync(fd) < 0))
			rc = -errno;
		if (fclose(file) && rc == 0)
			rc = -errno;
		if (rc < 0)
			cli_fail_errno(error, rc, "write", path);
	} else {
		rc = fail_to_make_file(path, -errno, error);
		*refused = fd < 0 && folder_is_closed(rc);
		if (fd >= 0)
			close(fd);
	}
	if (rc == 0)
		return name;
	if (fd >= 0)
		unlink(name);
	free(name);
	return NULL;
}

/* Replaces the file at a path that is no symbolic link, or writes into it. */
static int replace_regular_file(const char *path, const struct content *content, unsigned mode, struct pl_error *error)
{
	struct pl_error in_place;
	bool refused = false;
	char *name = write_beside(path, content, mode, error, &refused);
	int rc = name ? 0 : error->code;

	if (name && rename(name, path) < 0) {
		rc = cli_fail_errno(error, -errno, "rename", path);
		refused = is_mount_point(rc);
		unlink(name);
	}
	free(name);
	if (!refused)
		return rc;
	rc = write_in_place(path, content, mode, &in_place);
	/* Without a file, the folder is the reason. */
	if (rc < 0 && rc != -ENOENT)
		*error = in_place;
	return rc < 0 ? error->code : 0;
}

/* Removes a file that was made for a text which could not be written, unless another process has written into it. */
static void remove_empty_file(const char *path)
{
	struct stat status;

	if (stat(path, &status) == 0 && status.st_size == 0)
		unlink(path);
}

/* Replaces the file that a symbolic link leads to.  A link that leads nowhere gets a new file, as a shell makes it. */
static int replace_link_target(const char *path, const struct content *content, unsigned mode, struct pl_error *error)
{
	char *target = cli_link_target(path);
	bool made = false;
	int fd, rc;

	if (!target && errno == ENOENT) {
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
		if (fd < 0)
			return fail_to_make_file(path, -errno, error);
		close(fd);
		made = true;
		target = cli_link_target(path);
	}
	if (!target)
		return cli_fail_errno(error, -errno, "open", path);
	rc = replace_regular_file(target, content, mode, error);
	if (rc < 0 && made)
		remove_empty_file(target);
	free(target);
	return rc;
}

int cli_replace_file_by(const char *path, int (*write)(FILE *file, const void *argument), const void *argument,
			unsigned mode, struct pl_error *error)
{
	const struct content content = { write, argument };
	struct stat status;

	if (cli_path_is_special(path) || (stat(path, &status) == 0 && !S_ISREG(status.st_mode)))
		return write_stream(path, &content, error);
	if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode))
		return replace_link_target(path, &content, mode, error);
	return replace_regular_file(path, &content, mode, error);
}

int cli_replace_file(const char *path, const char *text, unsigned mode, struct pl_error *error)
{
	return cli_replace_file_by(path, write_lines, text, mode, error);
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
	int rc;

	if (strcmp(path, "-"))
		return cli_replace_file_by(path, write, argument, mode_for(path), error);
	rc = write_content(stdout, &content);
	return rc < 0 ? cli_fail_errno(error, rc, "write", path) : 0;
}
