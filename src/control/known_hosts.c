/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/known_hosts.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "control/trusted_file.h"

#define LINE_MAX_BYTES 4096
/* Time that other processes may hold the lock of the file, and of one wait. */
#define LOCK_TIME (5 * PL_NS_PER_S)
#define LOCK_WAIT (10 * PL_NS_PER_MS)

static int fail_known_hosts(struct pl_error *error, const char *path, unsigned line, const char *fact)
{
	char object[PL_FILE_LINE_MAX];

	return pl_fail(error, -EINVAL, "KNOWN-HOSTS-SYNTAX", "pl_connect", pl_file_line(object, path, line),
		       "write: [HOST]:PORT[,...] SHA256:FINGERPRINT, or: @revoked * SHA256:FINGERPRINT", "%s", fact);
}

/* True if one of the patterns, separated by commas, fits the address. Changes the patterns. */
static bool host_is_listed(char *patterns, const char *address)
{
	char *rest = NULL;

	for (char *at = strtok_r(patterns, ",", &rest); at; at = strtok_r(NULL, ",", &rest)) {
		/* '[' begins an address, not a set of characters. */
		char escaped[2 * PL_HOST_MAX];
		size_t used = 0;

		for (const char *c = at; *c && used < sizeof(escaped) - 2; c++) {
			if (*c == '[' || *c == ']' || *c == '\\')
				escaped[used++] = '\\';
			escaped[used++] = *c;
		}
		escaped[used] = '\0';
		if (fnmatch(escaped, address, FNM_CASEFOLD) == 0)
			return true;
	}
	return false;
}

/* Judges one line. Returns enum pl_known; -EINVAL for a line that is neither empty nor well-formed. */
static int judge_host_line(char *text, const char *address, const uint8_t fingerprint[PL_FINGERPRINT])
{
	char *rest = NULL, *word = strtok_r(text, " \t\r", &rest);
	bool revoked = word && !strcmp(word, "@revoked"), same;
	uint8_t listed[PL_FINGERPRINT];
	char *hosts;

	if (!word || word[0] == '#')
		return PL_HOST_UNKNOWN;
	hosts = revoked ? strtok_r(NULL, " \t\r", &rest) : word;
	word = strtok_r(NULL, " \t\r", &rest);
	if (!hosts || hosts[0] == '@' || !word || !pl_fingerprint_parse(word, strlen(word), listed))
		return -EINVAL;
	if (!host_is_listed(hosts, address))
		return PL_HOST_UNKNOWN;
	same = !memcmp(listed, fingerprint, PL_FINGERPRINT);
	if (revoked)
		return same ? PL_HOST_REVOKED : PL_HOST_UNKNOWN;
	return same ? PL_HOST_KNOWN : PL_HOST_CHANGED;
}

/* A revocation wins, then a line with the fingerprint. */
static int rank_of(int known)
{
	static const int ranks[] = { [PL_HOST_UNKNOWN] = 0, [PL_HOST_CHANGED] = 1, [PL_HOST_KNOWN] = 2,
				     [PL_HOST_REVOKED] = 3 };

	return ranks[known];
}

int pl_known_hosts_find(const char *path, const char *text, const char *address,
			const uint8_t fingerprint[PL_FINGERPRINT], unsigned *line, struct pl_error *error)
{
	char buffer[LINE_MAX_BYTES];
	int best = PL_HOST_UNKNOWN, known;
	unsigned number = 0;

	*line = 0;
	for (const char *at = text; *at;) {
		size_t length = strcspn(at, "\n");

		number++;
		if (length >= sizeof(buffer))
			return fail_known_hosts(error, path, number, "the line is too long");
		snprintf(buffer, sizeof(buffer), "%.*s", (int)length, at);
		known = judge_host_line(buffer, address, fingerprint);
		if (known < 0)
			return fail_known_hosts(error, path, number, "not a line of known hosts");
		if (rank_of(known) > rank_of(best)) {
			best = known;
			*line = number;
		}
		at += length + (at[length] == '\n');
	}
	return best;
}

/* -- adding ----------------------------------------------------------------------------------------------------------- */

static int write_all(int fd, const char *text, size_t length)
{
	while (length) {
		ssize_t put = write(fd, text, length);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		text += put;
		length -= (size_t)put;
	}
	return 0;
}

/* Gives the new file the owner, group and mode of the old one, as far as this process may. Other users may read it. */
static int keep_attributes(int fd, const char *path)
{
	struct stat old;

	if (stat(path, &old) < 0)
		return errno == ENOENT ? 0 : -errno;
	/* A process that may not give files away can set the group. The rights of the old group are not for another one. */
	if (fchown(fd, old.st_uid, old.st_gid) < 0 && fchown(fd, (uid_t)-1, old.st_gid) < 0)
		old.st_mode &= ~(mode_t)S_IRWXG;
	return fchmod(fd, old.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO)) < 0 ? -errno : 0;
}

/* Opens the file that is written beside the old one. */
static int open_beside(const char *path, struct pl_error *error)
{
	/* Without O_NONBLOCK, opening a FIFO would wait for its other end. */
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
	struct stat status;

	if (fd < 0 && errno != ENXIO)
		return pl_fail_errno(error, -errno, "SYSTEM", "open", path);
	if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		return fd;
	if (fd >= 0)
		close(fd);
	return pl_fail(error, -EACCES, "FILE-UNSAFE", "open", path, "remove it", "not a regular file");
}

/* Writes the file anew beside itself, and renames it. */
static int replace_known_hosts(const char *path, const char *old, size_t old_length, const char *line,
			       struct pl_error *error)
{
	char beside[4096];
	int fd, rc;

	if ((size_t)snprintf(beside, sizeof(beside), "%s.new", path) >= sizeof(beside))
		return pl_fail_errno(error, -ENAMETOOLONG, "SYSTEM", "open", path);
	fd = open_beside(beside, error);
	if (fd < 0)
		return fd;
	rc = keep_attributes(fd, path);
	if (rc == 0)
		rc = write_all(fd, old, old_length);
	if (rc == 0 && old_length && old[old_length - 1] != '\n')
		rc = write_all(fd, "\n", 1);
	if (rc == 0)
		rc = write_all(fd, line, strlen(line));
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	if (close(fd) < 0 && rc == 0)
		rc = -errno;
	if (rc == 0 && rename(beside, path) < 0)
		rc = -errno;
	if (rc == 0)
		return 0;
	unlink(beside);
	return pl_fail_errno(error, rc, "SYSTEM", "write", path);
}

static int lock_known_hosts(int fd)
{
	uint64_t end = pl_now() + LOCK_TIME;

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (pl_now() > end)
			return -ETIMEDOUT;
		nanosleep(&(struct timespec){ .tv_nsec = (long)LOCK_WAIT }, NULL);
	}
	return 0;
}

int pl_known_hosts_add(const struct pl_allocator *allocator, const char *path, const char *address,
		       const uint8_t fingerprint[PL_FINGERPRINT], int *known, unsigned *number, struct pl_error *error)
{
	char lock_path[4096], target[PATH_MAX], text[PL_FINGERPRINT_MAX], line[PL_HOST_MAX + PL_FINGERPRINT_MAX + 2];
	char *old = NULL;
	size_t length = 0;
	int lock, rc;

	*known = PL_HOST_UNKNOWN;
	/* rename(2) would replace a symbolic link. A file that does not exist has no target. */
	if (realpath(path, target))
		path = target;
	pl_fingerprint_format(fingerprint, text);
	snprintf(line, sizeof(line), "%s %s\n", address, text);
	if ((size_t)snprintf(lock_path, sizeof(lock_path), "%s.lock", path) >= sizeof(lock_path))
		return pl_fail_errno(error, -ENAMETOOLONG, "SYSTEM", "open", path);
	lock = open(lock_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lock < 0)
		return pl_fail_errno(error, -errno, "SYSTEM", "open", lock_path);
	rc = lock_known_hosts(lock);
	if (rc < 0)
		pl_fail_errno(error, rc, "SYSTEM", "flock", lock_path);
	if (rc == 0 && access(path, F_OK) == 0)
		rc = pl_trusted_file_read(allocator, path, false, &old, &length, error);
	if (rc == 0 && old)
		*known = pl_known_hosts_find(path, old, address, fingerprint, number, error);
	if (*known < 0)
		rc = *known;
	if (rc == 0 && *known == PL_HOST_UNKNOWN)
		rc = replace_known_hosts(path, old ? old : "", length, line, error);
	pl_free(allocator, old);
	close(lock);
	return rc;
}
