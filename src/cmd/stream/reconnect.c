/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/reconnect.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cmd/common/units.h"
#include "cmd/stream/token_file.h"

/* Time between two attempts to connect again. */
#define RECONNECT_INTERVAL (250 * CLI_NS_PER_MS)
/* Limit of one attempt. */
#define RECONNECT_ATTEMPT (2 * CLI_NS_PER_S)

/* Call of pl_subscriber_attach() in a thread of its own. */
struct attachment {
	struct pl_subscriber *subscriber;
	struct pl_peer *peer;
	uint64_t timeout;
	struct pl_error *error;
	int done; /* eventfd, readable after the call */
	int rc;   /* its result */
};

static void *run_attachment(void *argument)
{
	struct attachment *attachment = argument;

	attachment->rc =
		pl_subscriber_attach(attachment->subscriber, attachment->peer, attachment->timeout, attachment->error);
	eventfd_write(attachment->done, 1);
	return NULL;
}

/* Attaches the subscriber while the work of the client goes on.  A signal is left to the caller: the call ends in time. */
static int attach_beside_work(const struct stream_reconnect *reconnect, uint64_t timeout, struct pl_error *error)
{
	struct stream_client waiting = *reconnect->client;
	struct attachment attachment = {
		.subscriber = reconnect->subscriber,
		.peer = reconnect->client->peer,
		.timeout = timeout,
		.error = error,
		.done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
	};
	eventfd_t ended;
	pthread_t thread;
	int rc;

	if (attachment.done < 0)
		return cli_fail_errno(error, -errno, "eventfd", NULL);
	rc = -pthread_create(&thread, NULL, run_attachment, &attachment);
	if (rc < 0) {
		close(attachment.done);
		return cli_fail_errno(error, rc, "pthread_create", NULL);
	}
	waiting.signals = -1;
	do {
		stream_client_wait(&waiting, attachment.done, UINT64_MAX);
	} while (eventfd_read(attachment.done, &ended) < 0);
	pthread_join(thread, NULL);
	close(attachment.done);
	return attachment.rc;
}

/* Continues with the present token of --token: a publisher that was started again has made a new one. */
static int reconnect_attach(const struct stream_reconnect *reconnect, uint64_t timeout, struct pl_error *error)
{
	const char *path = reconnect->token_file;
	struct stream_token_bytes token;
	int rc = path ? stream_token_read(path, &token, error) : 0;

	if (rc == 0 && path)
		rc = pl_subscriber_set_token(reconnect->subscriber, token.bytes, token.length, error);
	stream_token_wipe(&token);
	if (rc < 0)
		return rc;
	if (reconnect->client->work)
		return attach_beside_work(reconnect, timeout, error);
	return pl_subscriber_attach(reconnect->subscriber, reconnect->client->peer, timeout, error);
}

static void show_loss(const struct stream_reconnect *reconnect, uint64_t lost, uint64_t left)
{
	char text[96];

	snprintf(text, sizeof(text), "connection lost %llu s ago, trying for %llu s more",
		 (unsigned long long)(lost / CLI_NS_PER_S), (unsigned long long)(left / CLI_NS_PER_S));
	status_line_tell(reconnect->line, text);
}

/* Attempts until the connection stands, or the time is over.  *error has the reason of the attempts, also after a signal. */
static int attempt_connections(const struct stream_reconnect *reconnect, uint64_t begin, struct pl_error *error)
{
	uint64_t now = begin, end = begin + CLI_MIN(reconnect->limit, UINT64_MAX - begin);
	struct stream_client *client = reconnect->client;
	int reason = 0;

	for (;;) {
		uint64_t attempt = CLI_MAX(CLI_MIN(end - now, RECONNECT_ATTEMPT), CLI_NS_PER_MS);
		struct pl_error failure = *error;
		int rc;

		show_loss(reconnect, now - begin, end - now);
		rc = stream_client_connect(client, attempt, &failure);
		if (rc == 0)
			rc = reconnect_attach(reconnect, attempt, &failure);
		now = cli_now();
		/* -ENODATA: the stream has ended, and all its frames were taken. */
		if (rc == 0 || rc == -EINTR || rc == -ENODATA)
			return rc;
		/* An attempt that the limit cut short tells less than the one before. */
		if (!reason || rc != -ETIMEDOUT || attempt == RECONNECT_ATTEMPT) {
			*error = failure;
			reason = rc;
		}
		if (now >= end)
			return reason;
		if (stream_client_wait(client, -1, CLI_MIN(RECONNECT_INTERVAL, end - now)))
			return -EINTR;
		now = cli_now();
		if (now >= end)
			return reason;
	}
}

int stream_reconnect(const struct stream_reconnect *reconnect, struct pl_error *error)
{
	const char *name = reconnect->name, *address = reconnect->client->address;
	char time[CLI_UNIT_MAX];
	uint64_t begin = cli_now();
	int rc;

	status_line_end(reconnect->line);
	if (!reconnect->quiet)
		cli_warn("%s: the connection to %s is lost; trying for %s", name, address,
			 cli_format_time(time, reconnect->limit));
	rc = attempt_connections(reconnect, begin, error);
	status_line_end(reconnect->line);
	if (rc == 0 && !reconnect->quiet)
		cli_warn("%s: connected to %s again, after %s", name, address,
			 cli_format_time(time, cli_now() - begin));
	return rc;
}
