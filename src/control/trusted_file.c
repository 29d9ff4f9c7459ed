/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/trusted_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail_unsafe(struct pl_error *error, const char *path, const char *hint, const char *fact)
{
	return pl_fail(error, -EACCES, "FILE-UNSAFE", "open", path, hint, "%s", fact);
}

static bool is_foreign(const struct stat *status)
{
	return status->st_uid != 0 && status->st_uid != geteuid();
}

/* A folder with the sticky bit, such as /tmp, protects the files in it. */
static int check_folder(const char *path, struct pl_error *error)
{
	const char *slash = strrchr(path, '/');
	char folder[4096] = ".";
	struct stat status;

	if (slash && (size_t)(slash - path) >= sizeof(folder))
		return pl_fail_errno(error, -ENAMETOOLONG, "SYSTEM", "open", path);
	if (slash)
		snprintf(folder, sizeof(folder), "%.*s", slash == path ? 1 : (int)(slash - path), path);
	if (stat(folder, &status) < 0)
		return pl_fail_errno(error, -errno, "SYSTEM", "stat", path);
	if (is_foreign(&status))
		return fail_unsafe(error, path, "move the file to a folder of your own",
				   "the folder of the file belongs to another user");
	if ((status.st_mode & S_IWOTH) && !(status.st_mode & S_ISVTX))
		return fail_unsafe(error, path, "run `chmod o-w` on the folder",
				   "every user can write to the folder of the file");
	return 0;
}

static int check_file(int fd, const char *path, bool secret, struct pl_error *error)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return pl_fail_errno(error, -errno, "SYSTEM", "fstat", path);
	if (!S_ISREG(status.st_mode))
		return fail_unsafe(error, path, NULL, "not a regular file");
	if (status.st_size > (off_t)PL_TRUSTED_FILE_MAX)
		return pl_fail_errno(error, -EFBIG, "SYSTEM", "open", path);
	if (is_foreign(&status))
		return fail_unsafe(error, path, "copy it to a file of your own", "the file belongs to another user");
	if (status.st_mode & (S_IWGRP | S_IWOTH))
		return fail_unsafe(error, path, "run `chmod go-w` on the file", "other users can write the file");
	if (secret && ((status.st_mode & S_IROTH) || ((status.st_mode & S_IRGRP) && status.st_uid != 0)))
		return fail_unsafe(error, path, "run `chmod 600` on the file; make a new one if others may have read it",
				   "other users can read the file, which contains a private key");
	return check_folder(path, error);
}

static int read_file(int fd, const char *path, char *text, size_t size, size_t *length, struct pl_error *error)
{
	ssize_t got;

	*length = 0;
	while ((got = read(fd, text + *length, size - 1 - *length)) > 0)
		*length += (size_t)got;
	if (got < 0)
		return pl_fail_errno(error, -errno, "SYSTEM", "read", path);
	if (*length == size - 1)
		return pl_fail(error, -EAGAIN, "FILE-UNSAFE", "read", path, "try again", "the file grew while it was read");
	text[*length] = '\0';
	/* A parser would end at the byte, and ignore the lines behind it. */
	if (memchr(text, 0, *length))
		return pl_fail(error, -EINVAL, "FILE-TEXT", "read", path,
			       "write the file again, or restore a copy; convert a certificate or key in DER to PEM",
			       "the file has a byte 0 after %zu bytes, so it is damaged, or no text", strlen(text));
	return 0;
}

int pl_trusted_file_read(const struct pl_allocator *allocator, const char *path, bool secret, char **text,
			 size_t *length, struct pl_error *error)
{
	/* Without O_NONBLOCK, opening a FIFO would wait for its other end. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status = { 0 };
	int rc;

	*text = NULL;
	if (fd < 0)
		return pl_fail_errno(error, -errno, "SYSTEM", "open", path);
	rc = check_file(fd, path, secret, error);
	if (rc == 0 && fstat(fd, &status) == 0) {
		*text = pl_alloc(allocator, (size_t)status.st_size + 2);
		rc = *text ? read_file(fd, path, *text, (size_t)status.st_size + 2, length, error)
			   : pl_fail_memory(error, "malloc");
	}
	close(fd);
	if (rc < 0) {
		if (*text)
			explicit_bzero(*text, (size_t)status.st_size + 2);
		pl_free(allocator, *text);
		*text = NULL;
	}
	return rc;
}

const char *pl_file_line(char text[PL_FILE_LINE_MAX], const char *path, unsigned line)
{
	snprintf(text, PL_FILE_LINE_MAX, "%s:%u", path, line);
	return text;
}
