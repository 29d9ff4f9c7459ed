/* SPDX-License-Identifier: BSD-2-Clause */
/* Subscription of a command that takes frames: the first one, and its connection after a loss. */
#ifndef PL_CMD_STREAM_RECONNECT_H
#define PL_CMD_STREAM_RECONNECT_H

#include "cmd/stream/client.h"
#include "cmd/stream/status_line.h"

/* Stream of a publisher, and the way to subscribe to it: the options that commands with a subscriber share. */
struct stream_source {
	struct cli_options common;
	const char *address, *name;
	const char *token_file; /* NULL: no token */
	struct pl_subscriber_options stream;
	uint64_t reconnect; /* nanoseconds of attempts to connect after a loss; 0: none */
};

struct stream_reconnect {
	struct stream_client *client;
	struct pl_subscriber *subscriber; /* NULL: not yet */
	const struct pl_subscriber_options *stream;
	const struct cli_options *common;
	const char *name;       /* of the stream */
	const char *token_file; /* read before each attempt; NULL: no token */
	uint64_t limit;         /* nanoseconds of attempts; 0: the first subscription has one */
	struct status_line *line;
};

/* Returns the attempts to subscribe, or to connect after a loss, as the options say. */
struct stream_reconnect stream_attempts(const struct stream_source *source, struct stream_client *client,
					struct pl_subscriber *subscriber, struct status_line *line);

/*
 * Connects and subscribes.  While no publisher of the stream is there, it tries for the limit, of which a warning and the line
 * tell.  Returns 0, -EINTR once a signal is pending, or the reason.
 */
int stream_subscribe(struct stream_reconnect *reconnect, struct pl_error *error);
/* Replaces hints of the library about its functions by options and commands. */
void stream_subscribe_hint(const struct stream_reconnect *reconnect, struct pl_error *error);
/*
 * Continues over another connection.  Warns of the loss and of the new connection, and shows the time of both in the line.
 * Returns 0; -EINTR once a signal is pending; -ENODATA if the stream has ended, and all its frames were taken; or the reason.
 * *error, which has the loss before, gets the reason of an attempt, and keeps it after a signal.
 */
int stream_reconnect(struct stream_reconnect *reconnect, struct pl_error *error);

#endif
