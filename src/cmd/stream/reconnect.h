/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection of a command that takes frames, after a loss. */
#ifndef PL_CMD_STREAM_RECONNECT_H
#define PL_CMD_STREAM_RECONNECT_H

#include "cmd/stream/client.h"
#include "cmd/stream/status_line.h"

struct stream_reconnect {
	struct stream_client *client;
	struct pl_subscriber *subscriber;
	const char *name;       /* of the stream */
	const char *token_file; /* read before each attempt; NULL: no token */
	uint64_t limit;         /* nanoseconds of attempts */
	struct status_line *line;
	bool quiet; /* without the warnings */
};

/*
 * Continues over another connection.  Warns of the loss and of the new connection, and shows the time of both in the line.
 * Returns 0; -EINTR once a signal is pending; -ENODATA if the stream has ended, and all its frames were taken; or the reason.
 * *error, which has the loss before, gets the reason of an attempt, and keeps it after a signal.
 */
int stream_reconnect(const struct stream_reconnect *reconnect, struct pl_error *error);

#endif
