/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection of a command to a publisher of streams: one context, one peer, and signals that end each wait. */
#ifndef PL_CMD_STREAM_CLIENT_H
#define PL_CMD_STREAM_CLIENT_H

#include <peerlane/stream.h>

#include "cmd/common/cli.h"

/* Time limit of a request, unless --timeout gives one. */
#define STREAM_TIMEOUT (10 * CLI_NS_PER_S)

/* Work beside the connection, which goes on while the client waits. */
struct stream_client_work {
	int fd; /* readable when serve() has work */
	/* Handles that work; returns without waiting. */
	void (*serve)(void *user);
	void *user;
};

struct stream_client {
	const struct stream_client_work *work; /* NULL: none */
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_peer_info info; /* of the last connection */
	uint64_t connected;       /* cli_now() of it */
	char address[300];
	int signals;      /* signalfd, or -1 */
	uint64_t timeout; /* of a request, in nanoseconds */
};

/* Opens a context.  After a failure, the client needs no stream_client_close(). */
int stream_client_begin(struct stream_client *client, const struct cli_options *options, const char *address,
			struct pl_error *error);
/* Connects as stream_client_connect() does.  Fails if another command listens at the address. */
int stream_client_reach(struct stream_client *client, uint64_t timeout, struct pl_error *error);
/* Opens a context and connects.  After a failure, the client needs no stream_client_close(). */
int stream_client_open(struct stream_client *client, const struct cli_options *options, const char *address,
		       struct pl_error *error);
/*
 * Connects again, within `timeout` nanoseconds; 0: the default.  The peer before is closed.  Returns -EINTR once a signal
 * is pending.
 */
int stream_client_connect(struct stream_client *client, uint64_t timeout, struct pl_error *error);
void stream_client_close(struct stream_client *client);

/*
 * Waits until a descriptor (-1: none) is readable, a signal is pending, or `nanoseconds` have passed (UINT64_MAX: without
 * limit).  Returns true if a signal is pending.
 */
bool stream_client_wait(const struct stream_client *client, int fd, uint64_t nanoseconds);
/* Fills *error for a command that a signal has ended before its results; returns -EINTR. */
int stream_fail_interrupted(struct pl_error *error);

#endif
