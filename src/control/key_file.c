/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of pre-shared keys. */
#include <ctype.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

/* Time in which a pipe must give its key: a program that asks another host may write it. */
#define KEY_FILE_TIME (60 * PL_NS_PER_S)
/* The longest key, a newline, and one byte that shows that the file has more. */
#define KEY_FILE_ROOM (PL_KEY_MAX + 2)

/*
 * Fails because others can read or replace the key. The hint names the file, unless the path leaves it no room or names a
 * device, whose mode must not change.
 */
static int fail_shared_key(struct pl_error *error, const char *path, mode_t mode, char class, const char *others,
			   bool read)
{
	char hint[sizeof(error->hint)] = "give a file that only its owner can read: peerlane key group FILE makes one";

	if (S_ISREG(mode) || S_ISFIFO(mode))
		snprintf(hint, sizeof(hint), "run `chmod %c= %s`; make a new key if another user may have read it",
			 class, strlen(path) < sizeof(hint) / 2 ? path : "FILE");
	return pl_fail(error, -EACCES, "KEY-FILE-OPEN", NULL, path, hint, "%s can %s the key", others,
		       read ? "read" : "replace");
}

static int check_key_file(int fd, const char *path, bool *regular, struct pl_error *error)
{
	struct stat status;
	char group[48];

	if (fstat(fd, &status) < 0)
		return pl_fail_errno(error, -errno, "SYSTEM", "fstat", path);
	if (S_ISDIR(status.st_mode))
		return pl_fail(error, -EISDIR, "SYSTEM", "open", path, "this is a folder: name a file", "%s",
			       strerror(EISDIR));
	*regular = S_ISREG(status.st_mode);
	if (status.st_mode & (S_IROTH | S_IWOTH))
		return fail_shared_key(error, path, status.st_mode, 'o', "every user of this host",
				       status.st_mode & S_IROTH);
	if (status.st_uid != geteuid() && status.st_uid != 0)
		return pl_fail(error, -EACCES, "KEY-FILE-OPEN", NULL, path, "copy the key to a file of your own",
			       "the file belongs to another user, %u", (unsigned)status.st_uid);
	/* A group may read a file of root: that is how services get their keys. */
	if ((status.st_mode & S_IWGRP) || ((status.st_mode & S_IRGRP) && status.st_uid == geteuid() && geteuid())) {
		snprintf(group, sizeof(group), "the users of group %u", (unsigned)status.st_gid);
		return fail_shared_key(error, path, status.st_mode, 'g', group, !(status.st_mode & S_IWGRP));
	}
	return 0;
}

/*
 * True for a text that people choose: too few digits, or no mixture of letters and digits as random text has.  Random
 * bytes are never taken for such a text, except with a probability below 1 in 1,000 million.
 */
static bool key_is_guessable(const uint8_t *key, int length)
{
	unsigned digits = 0, lower = 0, upper = 0, hexadecimal = 0, distinct = 0;
	bool seen[256] = { false };

	for (int i = 0; i < length; i++) {
		if (key[i] >= 0x7f || (key[i] < ' ' && key[i] != '\n' && key[i] != '\r' && key[i] != '\t'))
			return false;
		digits += isdigit(key[i]) != 0;
		lower += islower(key[i]) != 0;
		upper += isupper(key[i]) != 0;
		hexadecimal += isxdigit(key[i]) != 0;
		distinct += !seen[key[i]];
		seen[key[i]] = true;
	}
	if ((int)hexadecimal == length)
		return length < 32 || distinct < 8;
	return length < 22 || distinct < 12 || !digits || !lower || !upper || memchr(key, ' ', (size_t)length);
}

/* Waits until a pipe has bytes or has lost its writers. A pipe that has had no writer yet waits, too. */
static int wait_for_key(int fd, uint64_t deadline)
{
	struct pollfd waiter = { .fd = fd, .events = POLLIN };
	uint64_t now;
	int rc;

	do {
		now = pl_now();
		if (now >= deadline)
			return -ETIMEDOUT;
		rc = poll(&waiter, 1, (int)((deadline - now) / 1000000) + 1);
	} while (rc == 0 || (rc < 0 && errno == EINTR));
	return rc < 0 ? -errno : 0;
}

/* Reads up to KEY_FILE_ROOM bytes. A pipe may give them in parts. Returns their number. */
static int read_key_bytes(int fd, const char *path, bool regular, uint8_t *bytes, struct pl_error *error)
{
	const uint64_t deadline = pl_now() + KEY_FILE_TIME;
	int length = 0, rc = 0;
	ssize_t got = 1;

	while (got && rc == 0 && length < KEY_FILE_ROOM) {
		rc = regular ? 0 : wait_for_key(fd, deadline);
		got = rc == 0 ? read(fd, bytes + length, (size_t)(KEY_FILE_ROOM - length)) : 0;
		if (got > 0)
			length += (int)got;
		else if (got < 0 && errno != EINTR && errno != EAGAIN)
			rc = -errno;
	}
	if (rc == -ETIMEDOUT)
		return pl_fail(error, rc, "KEY-FILE-LATE", NULL, path, "check the program that writes the key",
			       "the pipe gave no whole key within %u s", (unsigned)(KEY_FILE_TIME / PL_NS_PER_S));
	return rc < 0 ? pl_fail_errno(error, rc, "SYSTEM", "read", path) : length;
}

static int open_key_file(const char *path, struct pl_error *error)
{
	/* Without O_NONBLOCK, the opening of a pipe waits for its writer. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 && errno == ENOENT)
		return pl_fail(error, -ENOENT, "KEY-FILE-MISSING", NULL, path,
			       "copy the key of the other end, or make one with: peerlane key group FILE",
			       "there is no such file");
	if (fd < 0 && errno == EACCES)
		return pl_fail(error, -EACCES, "SYSTEM", "open", path,
			       "check the permissions of the file and of its folders", "%s", strerror(EACCES));
	return fd < 0 ? pl_fail_errno(error, -errno, "SYSTEM", "open", path) : fd;
}

int pl_key_file_read(const char *path, uint8_t key[PL_KEY_MAX], struct pl_error *error)
{
	uint8_t bytes[KEY_FILE_ROOM];
	int fd = open_key_file(path, error), rc;
	bool regular = false;

	if (fd < 0)
		return fd;
	rc = check_key_file(fd, path, &regular, error);
	if (rc == 0)
		rc = read_key_bytes(fd, path, regular, bytes, error);
	close(fd);
	if (rc > 0 && bytes[rc - 1] == '\n')
		rc--;
	if (rc > PL_KEY_MAX || (rc >= 0 && rc < PL_KEY_MIN))
		rc = pl_fail(error, -EINVAL, "KEY-FILE-LENGTH", NULL, path, "make a key with: peerlane key group FILE",
			     "a key has %d to %d bytes, but this file has %s%d", PL_KEY_MIN, PL_KEY_MAX,
			     rc > PL_KEY_MAX ? "over " : "", PL_MIN(rc, PL_KEY_MAX));
	else if (rc > 0 && key_is_guessable(bytes, rc))
		rc = pl_fail(error, -EINVAL, "KEY-FILE-WEAK", NULL, path, "make a key with: peerlane key group FILE",
			     "the key looks like a text that can be guessed, with less than 128 random bits");
	if (rc > 0)
		memcpy(key, bytes, (size_t)rc);
	explicit_bzero(bytes, sizeof(bytes));
	return rc;
}
