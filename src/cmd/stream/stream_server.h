/* SPDX-License-Identifier: BSD-2-Clause */
/* Publisher of a command: its context, its listener and its connections. */
#ifndef PL_CMD_STREAM_STREAM_SERVER_H
#define PL_CMD_STREAM_STREAM_SERVER_H

#include <peerlane/stream.h>

#include "cmd/common/cli.h"
#include "cmd/stream/token_file.h"

#define STREAM_SERVER_ADDRESS "127.0.0.1:" CLI_DEFAULT_PORT
/* Longest wait for subscribers, between which connections and signals are handled. */
#define STREAM_SERVER_SLICE (50 * CLI_NS_PER_MS)

struct json_object;

struct stream_server {
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_publisher *publisher;
	int signals;         /* signalfd that stream_server_wait() reads, or -1 */
	bool stopping;       /* a signal was read */
	bool quiet;
	uint64_t looked;     /* cli_now() of the last stream_server_wait() */
	uint64_t end;        /* cli_now() at which subscribers have had their time to take the last frames */
	unsigned unreported; /* subscribers that had not taken all frames when the stream was closed */
};

/*
 * Opens a context, the stream, and a listener, in this order.  `program` is the name of the command for subscribers.
 * A listener that has its port writes the token of --share before it accepts connections.
 */
int stream_server_open(struct stream_server *server, const struct cli_options *options, const char *program,
		       struct pl_error *error);
int stream_server_publish(struct stream_server *server, const char *name, const struct pl_publisher_options *stream,
			  const struct stream_share *share, struct pl_error *error);
int stream_server_listen(struct stream_server *server, const char *address, const struct stream_share *share,
			 struct pl_error *error);
/* Prints the address, and "WHAT NAME: ..." unless --quiet; with --json an object.  Warns if there is no key. */
int stream_server_announce(const struct stream_server *server, const struct cli_options *options, const char *what,
			   struct pl_error *error);
/*
 * Accepts and closes connections, and reads a signal, after waiting for an event, or until a descriptor (-1: none) is
 * readable, for up to `nanoseconds`; UINT64_MAX: without limit.
 */
void stream_server_wait(struct stream_server *server, int fd, uint64_t nanoseconds);
/*
 * Skips to a sequence.  The first `lost` of those before it were lost, and the others aborted.  Calls `serve` while subscribers hold
 * slots back, which returns false to give up.  Returns 0; -EINTR then; or the reason.
 */
int stream_server_skip(const struct stream_server *server, uint64_t sequence, uint64_t lost, bool (*serve)(void *user),
		       void *user, struct pl_error *error);
/* Returns the number of subscribers now. */
unsigned stream_server_subscribers(const struct stream_server *server);
/* Begins the wait for subscribers to take the last frames: --timeout or 30 s.  A signal from now on ends it. */
void stream_server_begin_end(struct stream_server *server, const struct cli_options *options);
/* Handles connections and signals.  Returns false if that wait is over. */
bool stream_server_awaits_subscribers(struct stream_server *server);
/* Ends the stream, and waits until the subscribers have taken its frames, or the wait that has begun is over. */
int stream_server_end(struct stream_server *server, struct pl_error *error);
/*
 * Leaves a stream that failed without its end: subscribers must not take it for complete. Gives them a second, or the rest of the wait
 * that has begun, to take the last frames.
 */
void stream_server_fail(struct stream_server *server);
/* Returns a list of the subscribers, with up to 64 that have ended. */
struct json_object *stream_server_subscribers_json(const struct stream_server *server);
/* Returns their number; *demoted receives the number of those that have lost their right to hold frames back. */
unsigned stream_server_count_subscribers(const struct stream_server *server, unsigned *demoted);
/* Warns if subscribers have not taken all frames. */
void stream_server_warn(const struct stream_server *server);
void stream_server_close(struct stream_server *server);

#endif
