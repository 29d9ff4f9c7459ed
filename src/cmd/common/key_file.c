/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of group keys. */
#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/cli.h"

/* Fails because others can read or replace the key. The hint names the file, unless the path leaves it no room. */
static int fail_shared_key(struct pl_error *error, const char *path, char class, const char *others, bool read)
{
	char hint[sizeof(error->hint)];

	snprintf(hint, sizeof(hint), "run `chmod %c= %s`; make a new key if another user may have read it", class,
		 strlen(path) < sizeof(hint) / 2 ? path : "FILE");
	return cli_fail(error, -EACCES, "KEY-FILE-OPEN", path, hint, "%s can %s the key", others,
			read ? "read" : "replace");
}

static int check_key_file(int fd, const char *path, struct pl_error *error)
{
	struct stat status;
	char group[48];

	if (fstat(fd, &status) < 0)
		return cli_fail_errno(error, -errno, "fstat", path);
	if (status.st_mode & (S_IROTH | S_IWOTH))
		return fail_shared_key(error, path, 'o', "every user of this host", status.st_mode & S_IROTH);
	if (status.st_uid != geteuid() && status.st_uid != 0)
		return cli_fail(error, -EACCES, "KEY-FILE-OPEN", path, "copy the key to a file of your own",
				"the file belongs to another user, %u", (unsigned)status.st_uid);
	/* A group may read a file of root: that is how services get their keys. */
	if ((status.st_mode & S_IWGRP) || ((status.st_mode & S_IRGRP) && status.st_uid == geteuid() && geteuid())) {
		snprintf(group, sizeof(group), "the users of group %u", (unsigned)status.st_gid);
		return fail_shared_key(error, path, 'g', group, !(status.st_mode & S_IWGRP));
	}
	return 0;
}

/*
 * True for a text that people choose: too few digits, or no mixture of letters and digits as random text has.  Random
 * bytes are never taken for such a text, except with a probability below 1 in 1,000 million.
 */
static bool is_guessable(const uint8_t *key, int length)
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

int cli_read_key_file(const char *path, uint8_t *key, struct pl_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int length = 0, rc;
	ssize_t got;

	if (fd < 0 && errno == ENOENT)
		return cli_fail(error, -ENOENT, "KEY-FILE-MISSING", path,
				"copy the key of the other end, or make one with: peerlane key group FILE",
				"there is no such file");
	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", path);
	rc = check_key_file(fd, path, error);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	while ((got = cli_read(fd, key + length, (size_t)(CLI_KEY_MAX + 1 - length))) > 0)
		length += (int)got;
	close(fd);
	if (got < 0)
		return cli_fail_errno(error, (int)got, "read", path);
	if (length > 0 && key[length - 1] == '\n')
		length--;
	if (length < CLI_KEY_MIN || length > CLI_KEY_MAX)
		return cli_fail(error, -EINVAL, "KEY-FILE-LENGTH", path,
				"make a key with: peerlane key group FILE",
				"a key has %d to %d bytes, but this file has %s%d", CLI_KEY_MIN, CLI_KEY_MAX,
				length > CLI_KEY_MAX ? "over " : "", CLI_MIN(length, CLI_KEY_MAX));
	if (is_guessable(key, length))
		return cli_fail(error, -EINVAL, "KEY-FILE-WEAK", path,
				"make a key with: peerlane key group FILE",
				"the key looks like a text that can be guessed, with less than 128 random bits");
	return length;
}
