/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/token_file.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/cli.h"
#include "cmd/common/output.h"
#include "cmd/common/units.h"

/* Bytes of the longest file: two digits for each byte of a token, and a newline. */
#define TEXT_MAX (2 * PL_TOKEN_MAX + 2)

/* -- publisher ---------------------------------------------------------------------------------------------- */

enum {
	OPTION_SHARE = 0x280,
	OPTION_LIFETIME,
};

static error_t parse_share_option(int key, char *argument, struct argp_state *state)
{
	struct stream_share *share = state->input;

	switch (key) {
	case OPTION_SHARE:
		share->file = argument;
		return 0;
	case OPTION_LIFETIME:
		if (cli_parse_seconds(argument, &share->lifetime) < 0 || !share->lifetime)
			argp_error(state, "--lifetime takes seconds above 0, such as 3600, not '%s'", argument);
		return 0;
	case ARGP_KEY_END:
		if (share->lifetime && !share->file)
			argp_error(state, "--lifetime needs --share");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option share_options[] = {
	{ "share", OPTION_SHARE, "FILE", 0,
	  "Write a token into FILE: only subscribers that present it (--token FILE) see the stream and take its frames",
	  1 },
	{ "lifetime", OPTION_LIFETIME, "SECONDS", 0,
	  "End the token, and its subscriptions, after this time (default: with the stream)", 1 },
	{ 0 },
};

const struct argp stream_share_argp = { share_options, parse_share_option, NULL, NULL, NULL, NULL, NULL };

int stream_share_write(const struct stream_share *share, struct pl_publisher *publisher, struct pl_error *error)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct stream_token_bytes token = { .length = sizeof(token.bytes) };
	char text[TEXT_MAX];
	int rc;

	if (!share->file)
		return 0;
	options.lifetime = share->lifetime;
	rc = pl_publisher_share(publisher, &options, token.bytes, &token.length, error);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < token.length; i++)
		snprintf(text + 2 * i, 3, "%02x", token.bytes[i]);
	stream_token_wipe(&token);
	rc = cli_replace_file(share->file, text, 0600, error);
	explicit_bzero(text, sizeof(text));
	return rc < 0 ? cli_fail_as(error, "TOKEN-FILE") : 0;
}

/* -- subscriber --------------------------------------------------------------------------------------------- */

static int check_token_file(int fd, const char *path, struct pl_error *error)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return cli_fail_errno(error, -errno, "fstat", path);
	if (S_ISREG(status.st_mode) && (status.st_mode & (S_IRWXG | S_IRWXO)))
		return cli_fail(error, -EACCES, "TOKEN-FILE-OPEN", path,
				"run `chmod go= FILE`; make a new token if another user may have read it",
				"other users of this host can read or replace the token");
	return 0;
}

static int digit_value(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Converts the digits of a file. Returns -EINVAL for anything else. */
static int parse_token_text(const char *text, size_t length, struct stream_token_bytes *token)
{
	while (length && isspace((unsigned char)text[length - 1]))
		length--;
	if (length == 0 || length % 2 || length / 2 > sizeof(token->bytes))
		return -EINVAL;
	token->length = length / 2;
	for (size_t i = 0; i < length; i++) {
		int value = digit_value(text[i]);

		if (value < 0)
			return -EINVAL;
		token->bytes[i / 2] = (uint8_t)(i % 2 ? token->bytes[i / 2] | value : value << 4);
	}
	return 0;
}

/* Reads and converts the digits of an open file. */
static int read_token_text(int fd, const char *path, struct stream_token_bytes *token, struct pl_error *error)
{
	char text[TEXT_MAX + 1];
	size_t length = 0;
	ssize_t got;
	int rc = 0;

	while ((got = cli_read(fd, text + length, sizeof(text) - length)) > 0)
		length += (size_t)got;
	if (got < 0)
		rc = cli_fail_errno(error, (int)got, "read", path);
	else if (length == sizeof(text) || parse_token_text(text, length, token) < 0)
		rc = cli_fail(error, -EINVAL, "TOKEN-FILE", path,
			      "copy the file that `peerlane publish --share FILE` wrote",
			      "the file has no token of a stream");
	explicit_bzero(text, sizeof(text));
	return rc;
}

int stream_token_read(const char *path, struct stream_token_bytes *token, struct pl_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), rc;

	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", path);
	rc = check_token_file(fd, path, error);
	if (rc == 0)
		rc = read_token_text(fd, path, token, error);
	close(fd);
	return rc;
}

int stream_token_option(const char *path, struct stream_token_bytes *token, struct pl_subscriber_options *options,
			struct pl_error *error)
{
	int rc;

	if (!path)
		return 0;
	rc = stream_token_read(path, token, error);
	options->token = token->bytes;
	options->token_length = token->length;
	return rc;
}

void stream_token_wipe(struct stream_token_bytes *token)
{
	explicit_bzero(token, sizeof(*token));
}

void stream_token_hint(const char *path, struct pl_error *error)
{
	/* The library knows the bytes, and no file. */
	if (path && (!strcmp(error->id, "TOKEN-FOREIGN") || !strcmp(error->id, "TOKEN-MALFORMED")))
		snprintf(error->object, sizeof(error->object), "%s", path);
	if (!strcmp(error->id, "STREAM-TOKEN-NEEDED"))
		snprintf(error->hint, sizeof(error->hint),
			 "ask for the file of `peerlane publish --share FILE`, and add --token FILE");
	else if (!strncmp(error->id, "STREAM-TOKEN-", 13) || !strcmp(error->id, "TOKEN-FOREIGN") ||
		 !strcmp(error->id, "TOKEN-MALFORMED"))
		snprintf(error->hint, sizeof(error->hint),
			 "ask for the present file of `peerlane publish --share FILE`: each start of it makes a new "
			 "token");
}
