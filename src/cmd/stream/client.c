/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/client.h"

#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH 16

bool stream_client_wait(const struct stream_client *client, int fd, uint64_t nanoseconds)
{
	const struct stream_client_work *work = client->work;
	uint64_t begin = cli_now(), passed = 0;

	for (;;) {
		uint64_t left = nanoseconds - passed;
		struct pollfd fds[] = { { .fd = client->signals, .events = POLLIN },
					{ .fd = fd, .events = POLLIN },
					{ .fd = work ? work->fd : -1, .events = POLLIN } };
		struct timespec time = { .tv_sec = (time_t)(left / CLI_NS_PER_S),
					 .tv_nsec = (long)(left % CLI_NS_PER_S) };
		int count = ppoll(fds, CLI_ARRAY_SIZE(fds), nanoseconds == UINT64_MAX ? NULL : &time, NULL);

		if (count > 0 && fds[2].revents)
			work->serve(work->user);
		/* A wait that the kernel has ended early is an event, too. */
		if (count <= 0 || fds[0].revents || fds[1].revents)
			return count > 0 && fds[0].revents;
		passed = CLI_MIN(cli_now() - begin, nanoseconds);
	}
}

int stream_fail_interrupted(struct pl_error *error)
{
	return cli_fail(error, -EINTR, "INTERRUPTED", NULL, NULL, "interrupted by a signal");
}

/* Handles events.  Returns true once the attempt to connect has ended, with its result in *completion. */
static bool collect_connection(struct stream_client *client, struct pl_completion *completion)
{
	struct pl_completion completions[BATCH];
	bool found = false;
	int count;

	do {
		count = pl_poll(client->context, completions, BATCH);
		for (int i = 0; i < count; i++) {
			if (completions[i].kind == PL_KIND_CONNECT) {
				*completion = completions[i];
				found = true;
			}
			/* No stream sends notifications, whose data takes memory until it is freed. */
			pl_notification_free(client->context, &completions[i]);
		}
	} while (count == BATCH);
	return found;
}

int stream_client_connect(struct stream_client *client, uint64_t timeout, struct pl_error *error)
{
	struct pl_completion completion;
	int rc;

	pl_peer_close(client->peer);
	client->peer = NULL;
	rc = pl_connect_start(client->context, client->address, timeout, 0, NULL, error);
	if (rc < 0)
		return rc;
	while (!collect_connection(client, &completion))
		if (stream_client_wait(client, pl_fd(client->context), UINT64_MAX))
			return stream_fail_interrupted(error);
	if (completion.status < 0) {
		pl_completion_error(client->context, &completion, error);
		return completion.status;
	}
	client->peer = completion.peer;
	client->connected = cli_now();
	client->info = (struct pl_peer_info)PL_PEER_INFO_INIT;
	return pl_peer_query(client->peer, &client->info);
}

/* Fails if another command listens there.  Any program can publish streams, also one with a name of its own. */
static int expect_publisher(const struct stream_client *client, struct pl_error *error)
{
	static const char *const others[] = { CLI_PROGRAM_SERVE, CLI_PROGRAM_BENCH, CLI_PROGRAM_MATRIX,
					      CLI_PROGRAM_WORKFLOW };

	for (size_t i = 0; i < CLI_ARRAY_SIZE(others); i++)
		if (!strcmp(client->info.program, others[i]))
			return cli_expect_program(client->peer, CLI_PROGRAM_PUBLISH, client->address, error);
	return 0;
}

int stream_client_reach(struct stream_client *client, uint64_t timeout, struct pl_error *error)
{
	int rc = stream_client_connect(client, timeout, error);

	return rc < 0 ? rc : expect_publisher(client, error);
}

int stream_client_begin(struct stream_client *client, const struct cli_options *options, const char *address,
			struct pl_error *error)
{
	int rc;

	*client = (struct stream_client){ .signals = -1,
					  .timeout = options->timeout ? options->timeout : STREAM_TIMEOUT,
					  .info = PL_PEER_INFO_INIT };
	rc = cli_address(address, client->address, sizeof(client->address), error);
	if (rc == 0)
		rc = client->signals = cli_signal_fd(cli_signal_hangup(), error);
	if (rc >= 0)
		rc = cli_open(&client->context, options, PL_PROGRESS_THREAD, error);
	if (rc < 0)
		stream_client_close(client);
	return rc;
}

int stream_client_open(struct stream_client *client, const struct cli_options *options, const char *address,
		       struct pl_error *error)
{
	int rc = stream_client_begin(client, options, address, error);

	if (rc < 0)
		return rc;
	rc = stream_client_reach(client, options->timeout, error);
	if (rc < 0)
		stream_client_close(client);
	return rc;
}

void stream_client_close(struct stream_client *client)
{
	pl_close(client->context);
	if (client->signals >= 0)
		close(client->signals);
	client->context = NULL;
	client->peer = NULL;
	client->signals = -1;
}
