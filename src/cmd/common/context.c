/* SPDX-License-Identifier: BSD-2-Clause */
/* Contexts of subcommands: key files, options of the library, addresses. */
#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/cli.h"

#define KEY_MIN 16
#define KEY_MAX 1024

static int check_key_file(int fd, const char *path, struct pl_error *error)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return cli_fail_errno(error, -errno, "fstat", path);
	if (status.st_mode & (S_IROTH | S_IWOTH))
		return cli_fail(error, -EACCES, "KEY-FILE-OPEN", path,
				"run `chmod o= FILE`; make a new key if another user may have read it",
				"every user of this host can %s the key",
				status.st_mode & S_IROTH ? "read" : "replace");
	if (status.st_uid != geteuid() && status.st_uid != 0)
		return cli_fail(error, -EACCES, "KEY-FILE-OPEN", path, "copy the key to a file of your own",
				"the file belongs to another user, %u", (unsigned)status.st_uid);
	/* A group may read a file of root: that is how services get their keys. */
	if ((status.st_mode & S_IWGRP) || ((status.st_mode & S_IRGRP) && status.st_uid == geteuid() && geteuid()))
		return cli_fail(error, -EACCES, "KEY-FILE-OPEN", path,
				"run `chmod g= FILE`; make a new key if another user may have read it",
				"the users of group %u can %s the key", (unsigned)status.st_gid,
				status.st_mode & S_IWGRP ? "replace" : "read");
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

/* Returns the length of the key, or a negative errno.  Ignores one newline at the end, which editors append. */
static int read_key_file(const char *path, uint8_t *key, struct pl_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int length = 0, rc;
	ssize_t got;

	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", path);
	rc = check_key_file(fd, path, error);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	while ((got = read(fd, key + length, (size_t)(KEY_MAX + 1 - length))) > 0)
		length += (int)got;
	rc = errno;
	close(fd);
	if (got < 0)
		return cli_fail_errno(error, -rc, "read", path);
	if (length > 0 && key[length - 1] == '\n')
		length--;
	if (length < KEY_MIN || length > KEY_MAX)
		return cli_fail(error, -EINVAL, "KEY-FILE-LENGTH", path,
				"make a key with: (umask 077; openssl rand -hex 32 > FILE)",
				"a key has %d to %d bytes, but this file has %s%d", KEY_MIN, KEY_MAX,
				length > KEY_MAX ? "over " : "", CLI_MIN(length, KEY_MAX));
	if (is_guessable(key, length))
		return cli_fail(error, -EINVAL, "KEY-FILE-WEAK", path,
				"make a key with: (umask 077; openssl rand -hex 32 > FILE)",
				"the key looks like a text that can be guessed, with less than 128 random bits");
	return length;
}

int cli_open(struct pl_context **context, const struct cli_options *options, enum pl_progress progress,
	     struct pl_error *error)
{
	struct pl_options library = PL_OPTIONS_INIT;
	uint8_t key[KEY_MAX + 1];
	int rc = 0;

	if (options->key_file) {
		rc = read_key_file(options->key_file, key, error);
		if (rc < 0)
			goto out;
		library.key = key;
		library.key_length = (size_t)rc;
	} else if (options->encrypt == PL_ON) {
		rc = cli_fail(error, -EINVAL, "ENCRYPT-NO-KEY", "--encrypt",
			      "add --key FILE, with the same key at both ends", "encryption needs a key");
		goto out;
	}
	library.progress = progress;
	library.lanes = options->lanes;
	library.fabric = options->fabric;
	library.rails = options->rails;
	library.narrow_grants = options->narrow ? PL_ON : PL_DEFAULT;
	library.traffic_class = options->traffic_class;
	library.peers_max = options->peers_max;
	library.program = options->program;
	library.devices = options->devices;
	library.encrypt_data = options->encrypt;
	library.insecure = options->insecure ? PL_ON : PL_DEFAULT;
	library.keep_bytes = options->keep;
	library.keep_host = options->keep > 0 ? PL_ON : PL_DEFAULT;
	library.operation_timeout = library.connect_timeout = options->timeout;
	rc = pl_open(context, &library, error);
out:
	explicit_bzero(key, sizeof(key));
	return rc;
}

/* True if the text ends in a port.  A colon inside brackets, or one of several colons, belongs to an IPv6 address. */
static bool address_has_port(const char *text)
{
	const char *colon = strrchr(text, ':'), *bracket = strrchr(text, ']');

	if (bracket)
		return colon && colon > bracket;
	return colon && colon == strchr(text, ':');
}

int cli_address(const char *text, char *buffer, size_t size, struct pl_error *error)
{
	bool ipv6_without_port = text[0] != '[' && strchr(text, ':') != strrchr(text, ':');
	int length;

	if (ipv6_without_port)
		length = snprintf(buffer, size, "[%s]:" CLI_DEFAULT_PORT, text);
	else
		length = snprintf(buffer, size, address_has_port(text) ? "%s" : "%s:" CLI_DEFAULT_PORT, text);
	if ((size_t)length >= size)
		return cli_fail(error, -EINVAL, "ADDRESS-SYNTAX", text, "write HOST:PORT", "the address is too long");
	return 0;
}

int cli_expect_program(struct pl_peer *peer, const char *program, const char *address, struct pl_error *error)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	int rc = pl_peer_query(peer, &info);

	if (rc < 0 || !strcmp(info.program, program))
		return rc < 0 ? cli_fail_errno(error, rc, "pl_peer_query", address) : 0;
	rc = cli_fail(error, -EPROTO, "OTHER-PROGRAM", address, NULL, "%s%s%s listens there, not `%s`",
		      info.program[0] ? "`" : "another program", info.program, info.program[0] ? "`" : "", program);
	snprintf(error->hint, sizeof(error->hint), "start `%s` at another port, and give its address", program);
	return rc;
}
