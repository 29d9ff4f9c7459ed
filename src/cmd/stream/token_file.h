/* SPDX-License-Identifier: BSD-2-Clause */
/* Files with the token of a stream: hexadecimal digits, which only their owner can read. */
#ifndef PL_CMD_STREAM_TOKEN_FILE_H
#define PL_CMD_STREAM_TOKEN_FILE_H

#include <argp.h>
#include <peerlane/stream.h>

/* Options of a command that publishes: --share and --lifetime. */
struct stream_share {
	const char *file;  /* NULL: the stream needs no token */
	uint64_t lifetime; /* nanoseconds; 0: as long as the stream */
};

/* Parser of these options. Its input is a struct stream_share. */
extern const struct argp stream_share_argp;
#define STREAM_SHARE_CHILDREN \
	{ \
		{ &stream_share_argp, 0, NULL, 0 }, \
		{ \
			0 \
		} \
	}

/* Makes a token, and writes it into the file of the options. Replaces an earlier file. */
int stream_share_write(const struct stream_share *share, struct pl_publisher *publisher, struct pl_error *error);

/* Token from a file. */
struct stream_token_bytes {
	uint8_t bytes[PL_TOKEN_MAX];
	size_t length;
};

/* Help of the option --token. */
#define STREAM_TOKEN_HELP "Present the token in FILE, which the publisher wrote with --share"

/* Reads the token of a file. Refuses a file that other users can read or replace. The caller wipes *token. */
int stream_token_read(const char *path, struct stream_token_bytes *token, struct pl_error *error);
/* Reads the token of --token into the options; `path` NULL: none. The options point to *token, which the caller wipes. */
int stream_token_option(const char *path, struct stream_token_bytes *token, struct pl_subscriber_options *options,
			struct pl_error *error);
/* Overwrites a token, so that it does not stay in memory. */
void stream_token_wipe(struct stream_token_bytes *token);
/*
 * Replaces a hint about functions of the library, if the error is about a token, and names the file of a wrong one.  `path`
 * NULL: no file.
 */
void stream_token_hint(const char *path, struct pl_error *error);

#endif
