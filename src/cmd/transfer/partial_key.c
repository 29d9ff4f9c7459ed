/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/partial_key.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/cli.h"

#define KEY_NAME "part-key"

/* Fills the path of the folder for state.  STATE_DIRECTORY, of systemd, can have several paths. */
static int find_state_folder(char path[PATH_MAX], struct pl_error *error)
{
	const char *service = getenv("STATE_DIRECTORY"), *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int length;

	if (service && service[0] == '/')
		length = snprintf(path, PATH_MAX, "%.*s", (int)strcspn(service, ":"), service);
	else if (state && state[0] == '/')
		length = snprintf(path, PATH_MAX, "%s/peerlane", state);
	else if (home && home[0] == '/')
		length = snprintf(path, PATH_MAX, "%s/.local/state/peerlane", home);
	else
		return cli_fail(error, -ENOENT, "PART-KEY", NULL, "set HOME or XDG_STATE_HOME",
				"no variable names a folder for the key of partial files");
	return length < PATH_MAX ? 0 : cli_fail_errno(error, -ENAMETOOLONG, "open", KEY_NAME);
}

static int fail_unsafe_key(const char *path, const char *fact, struct pl_error *error)
{
	return cli_fail(error, -EACCES, "PART-KEY", path, "remove it; the next transfer makes a new one", "%s", fact);
}

static int open_state_folder(char path[PATH_MAX], struct pl_error *error)
{
	char below[PATH_MAX + 2];
	struct stat status;
	int fd, rc = find_state_folder(path, error);

	snprintf(below, sizeof(below), "%s/", path);
	if (rc == 0)
		rc = cli_make_folders(below, error);
	if (rc < 0)
		return rc;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status) < 0) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return cli_fail_errno(error, rc, "open", path);
	}
	if (status.st_uid == geteuid() && !(status.st_mode & (S_IWGRP | S_IWOTH)))
		return fd;
	close(fd);
	return fail_unsafe_key(path, "other users own the folder or can write to it", error);
}

/* Writes a new key.  Links it to its name when it is complete; another process may have done that before. */
static int make_key_file(int folder, struct pl_error *error)
{
	uint8_t bytes[PARTIAL_KEY_SIZE];
	char name[64];
	int fd, rc = 0;

	snprintf(name, sizeof(name), "." KEY_NAME ".%d", (int)getpid());
	unlinkat(folder, name, 0);
	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return cli_fail_errno(error, -EIO, "getrandom", NULL);
	fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", KEY_NAME);
	errno = ENOSPC; /* of a short write */
	if (write(fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes) || fsync(fd) < 0 ||
	    (linkat(folder, name, folder, KEY_NAME, 0) < 0 && errno != EEXIST) || fsync(folder) < 0)
		rc = cli_fail_errno(error, -errno, "write", KEY_NAME);
	close(fd);
	unlinkat(folder, name, 0);
	explicit_bzero(bytes, sizeof(bytes));
	return rc;
}

static int read_key_file(int fd, const char *path, struct partial_key *key, struct pl_error *error)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return cli_fail_errno(error, -errno, "fstat", path);
	if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || status.st_mode & (S_IRWXG | S_IRWXO))
		return fail_unsafe_key(path, "not a file that only this user owns and can read", error);
	if (status.st_size != PARTIAL_KEY_SIZE || read(fd, key->bytes, PARTIAL_KEY_SIZE) != PARTIAL_KEY_SIZE)
		return fail_unsafe_key(path, "not a key of this program", error);
	return 0;
}

static int load_partial_key(struct partial_key *key, struct pl_error *error)
{
	char path[PATH_MAX], file[PATH_MAX + sizeof(KEY_NAME)];
	int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	int folder = open_state_folder(path, error), fd, rc;

	if (folder < 0)
		return folder;
	snprintf(file, sizeof(file), "%s/" KEY_NAME, path);
	fd = openat(folder, KEY_NAME, flags);
	if (fd < 0 && errno == ENOENT) {
		rc = make_key_file(folder, error);
		if (rc < 0) {
			close(folder);
			return rc;
		}
		fd = openat(folder, KEY_NAME, flags);
	}
	if (fd < 0)
		rc = errno == ELOOP ? fail_unsafe_key(file, "a symbolic link", error)
				    : cli_fail_errno(error, -errno, "open", file);
	else
		rc = read_key_file(fd, file, key, error);
	if (fd >= 0)
		close(fd);
	close(folder);
	return rc;
}

const struct partial_key *partial_key_get(struct partial_key *key)
{
	struct pl_error error;

	if (key->state == PARTIAL_KEY_UNREAD) {
		key->state = load_partial_key(key, &error) < 0 ? PARTIAL_KEY_MISSING : PARTIAL_KEY_VALID;
		if (key->state == PARTIAL_KEY_MISSING)
			cli_warn("interrupted transfers will begin again: %s%s%s%s%s", error.object,
				 error.object[0] ? ": " : "", error.message, error.hint[0] ? "\n  hint: " : "",
				 error.hint);
	}
	return key->state == PARTIAL_KEY_VALID ? key : NULL;
}

void partial_key_wipe(struct partial_key *key)
{
	explicit_bzero(key, sizeof(*key));
}
