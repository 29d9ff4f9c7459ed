/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/reconnect.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cmd/common/units.h"
#include "cmd/stream/token_file.h"

/* Time between two attempts to connect again. */
#define RECONNECT_INTERVAL (250 * CLI_NS_PER_MS)
/* Limit of one attempt. */
#define RECONNECT_ATTEMPT (2 * CLI_NS_PER_S)

struct stream_reconnect stream_attempts(const struct stream_source *source, struct stream_client *client,
					struct pl_subscriber *subscriber, struct status_line *line)
{
	return (struct stream_reconnect){
		.client = client,
		.subscriber = subscriber,
		.stream = &source->stream,
		.common = &source->common,
		.name = source->name,
		.token_file = source->token_file,
		.limit = source->reconnect,
		.line = line,
	};
}

/* Returns the time until `end`, of 1 ms to `most`. */
static uint64_t time_left(uint64_t end, uint64_t most)
{
	uint64_t now = cli_now();

	return CLI_MAX(CLI_MIN(end > now ? end - now : 0, most), CLI_NS_PER_MS);
}

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

/* Connects, then attaches: each step takes at most `timeout`, and the second one ends at `end`. */
static int attempt_again(const struct stream_reconnect *reconnect, uint64_t timeout, uint64_t end,
			 struct pl_error *error)
{
	int rc = stream_client_connect(reconnect->client, timeout, error);

	return rc < 0 ? rc : reconnect_attach(reconnect, time_left(end, timeout), error);
}

/* Connects within `timeout`, and ends at `end`. A publisher that starts makes the file of the token, too. */
static int attempt_first(struct stream_reconnect *reconnect, uint64_t timeout, uint64_t end, struct pl_error *error)
{
	struct pl_subscriber_options stream = *reconnect->stream;
	struct stream_client *client = reconnect->client;
	struct stream_token_bytes token;
	int rc = stream_token_option(reconnect->token_file, &token, &stream, error);

	if (rc == 0)
		rc = stream_client_reach(client, timeout, error);
	if (rc == 0)
		rc = pl_subscriber_open(client->peer, reconnect->name, &stream, time_left(end, client->timeout),
					&reconnect->subscriber, error);
	stream_token_wipe(&token);
	return rc;
}

/* True if a later attempt may find the publisher and its stream. Other failures have reasons that stay. */
static bool publisher_may_appear(int rc)
{
	static const int reasons[] = { ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENETUNREACH,
				       ENOENT,       ENOTCONN,   EPIPE,        ETIMEDOUT };

	for (size_t i = 0; i < CLI_ARRAY_SIZE(reasons); i++)
		if (rc == -reasons[i])
			return true;
	return false;
}

static void show_attempts(const struct stream_reconnect *reconnect, uint64_t passed, uint64_t left)
{
	char text[96];

	snprintf(text, sizeof(text), "%s %llu s%s, trying for %llu s more",
		 reconnect->subscriber ? "connection lost" : "no publisher for",
		 (unsigned long long)(passed / CLI_NS_PER_S), reconnect->subscriber ? " ago" : "",
		 (unsigned long long)(left / CLI_NS_PER_S));
	status_line_tell(reconnect->line, text);
}

/*
 * Attempts until the subscription stands, or the time is over.  *error has the reason of the attempts, also after a signal.
 * `reason`: result of an attempt before these, which *error tells; 0: there was none.
 */
static int attempt_connections(struct stream_reconnect *reconnect, uint64_t begin, int reason, struct pl_error *error)
{
	uint64_t now = cli_now(), end = begin + CLI_MIN(reconnect->limit, UINT64_MAX - begin);
	const bool first = !reconnect->subscriber;

	for (;;) {
		uint64_t left = end > now ? end - now : 0;
		uint64_t attempt = CLI_MAX(CLI_MIN(left, RECONNECT_ATTEMPT), CLI_NS_PER_MS);
		struct pl_error failure = *error;
		int rc;

		show_attempts(reconnect, now - begin, left);
		rc = first ? attempt_first(reconnect, attempt, end, &failure)
			   : attempt_again(reconnect, attempt, end, &failure);
		now = cli_now();
		/* -ENODATA: the stream has ended, and all its frames were taken. */
		if (rc == 0 || rc == -EINTR || (rc == -ENODATA && !first))
			return rc;
		/* An attempt that the limit cut short tells less than the one before. */
		if (!reason || rc != -ETIMEDOUT || attempt == RECONNECT_ATTEMPT) {
			*error = failure;
			reason = rc;
		}
		if (now >= end || (first && !publisher_may_appear(rc)))
			return reason;
		if (stream_client_wait(reconnect->client, -1, CLI_MIN(RECONNECT_INTERVAL, end - now)))
			return -EINTR;
		now = cli_now();
		if (now >= end)
			return reason;
	}
}

/* Warns, attempts, and warns of the success. */
static int tell_attempts(struct stream_reconnect *reconnect, uint64_t begin, int reason, struct pl_error *error)
{
	const char *name = reconnect->name, *address = reconnect->client->address;
	const bool first = !reconnect->subscriber, quiet = reconnect->common->quiet;
	char time[CLI_UNIT_MAX];
	int rc;

	if (!quiet)
		cli_warn(first ? "%s: no publisher at %s yet; trying for %s"
			       : "%s: the connection to %s is lost; trying for %s",
			 name, address, cli_format_time(time, reconnect->limit));
	rc = attempt_connections(reconnect, begin, reason, error);
	status_line_end(reconnect->line);
	if (rc == 0 && !quiet)
		cli_warn("%s: connected to %s%s, after %s", name, address, first ? "" : " again",
			 cli_format_time(time, cli_now() - begin));
	return rc;
}

/* Warns of a wait for the frame of --start that can be long. */
static void tell_wait_for_start(const struct stream_reconnect *reconnect)
{
	const struct pl_subscriber_options *stream = reconnect->stream;
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;

	if (reconnect->common->quiet || stream->start != PL_START_SEQUENCE ||
	    pl_subscriber_query(reconnect->subscriber, &info) < 0 || stream->from <= info.stream.published)
		return;
	cli_warn("%s: the next frame has sequence %llu; waiting for sequence %llu", reconnect->name,
		 (unsigned long long)info.stream.published, (unsigned long long)stream->from);
}

int stream_subscribe(struct stream_reconnect *reconnect, struct pl_error *error)
{
	const uint64_t limit = reconnect->limit, timeout = reconnect->client->timeout, begin = cli_now();
	const uint64_t end = limit && limit < UINT64_MAX - begin ? begin + limit : UINT64_MAX;
	int rc = attempt_first(reconnect, limit ? CLI_MIN(limit, timeout) : timeout, end, error);

	if (rc < 0 && publisher_may_appear(rc) && cli_now() - begin < limit) {
		status_line_begin(reconnect->line, !reconnect->common->quiet && !reconnect->common->json);
		rc = tell_attempts(reconnect, begin, rc, error);
	}
	if (rc == -EINTR)
		return stream_fail_interrupted(error);
	if (rc < 0)
		stream_subscribe_hint(reconnect, error);
	else
		tell_wait_for_start(reconnect);
	return rc;
}

int stream_reconnect(struct stream_reconnect *reconnect, struct pl_error *error)
{
	status_line_end(reconnect->line);
	return tell_attempts(reconnect, cli_now(), 0, error);
}

void stream_subscribe_hint(const struct stream_reconnect *reconnect, struct pl_error *error)
{
	static const struct {
		const char *id, *hint;
	} hints[] = {
		{ "STREAM-NO-BLOCK", "start the publisher with --allow-block, or use another --overflow" },
		{ "STREAM-MEMORY", "use a smaller --queue, or raise --memory-limit" },
	};
	struct cli_hint_command list;

	stream_token_hint(reconnect->token_file, error);
	for (size_t i = 0; i < CLI_ARRAY_SIZE(hints); i++)
		if (!strcmp(error->id, hints[i].id))
			snprintf(error->hint, sizeof(error->hint), "%s", hints[i].hint);
	if (!strcmp(error->id, "STREAM-UNKNOWN"))
		snprintf(error->hint, sizeof(error->hint), "`%s` lists the streams",
			 cli_hint_command(&list, "streams", reconnect->common, reconnect->client->address));
	if (error->code == -ENOTSUP && (reconnect->stream->in_place || reconnect->stream->push))
		snprintf(error->hint, sizeof(error->hint), "leave --%s out",
			 reconnect->stream->in_place ? "in-place" : "push");
}
