/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of `peerlane subscribe`, and its outputs. */
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cmd/stream/pattern.h"
#include "cmd/stream/subscribe.h"

/* Time between two attempts to connect again. */
#define RECONNECT_INTERVAL (250 * CLI_NS_PER_MS)
/* Limit of one attempt. */
#define RECONNECT_ATTEMPT (2 * CLI_NS_PER_S)

/* Replaces hints of the library about its functions by options and commands. */
static int fail_to_subscribe(const struct subscribe *subscribe, int rc, struct pl_error *error)
{
	const char *address = subscribe->options->address;

	stream_token_hint(error);
	switch (rc) {
	case -ENOENT:
		snprintf(error->hint, sizeof(error->hint), "`peerlane streams %s` lists the streams", address);
		break;
	case -EPERM:
		snprintf(error->hint, sizeof(error->hint),
			 "start `peerlane publish` with --allow-block, or use another --overflow");
		break;
	case -EMSGSIZE:
		snprintf(error->hint, sizeof(error->hint), "use a smaller --queue, or raise --memory-limit");
		break;
	case -ENOTSUP:
		if (subscribe->options->stream.in_place)
			snprintf(error->hint, sizeof(error->hint), "leave --in-place out");
		else if (subscribe->options->stream.push)
			snprintf(error->hint, sizeof(error->hint), "leave --push out");
		break;
	default:
		break;
	}
	return rc;
}

static int open_outputs(struct subscribe *subscribe, struct pl_error *error)
{
	const struct subscribe_options *options = subscribe->options;
	const struct pl_publisher_info *stream = &subscribe->info.stream;
	int rc = 0;

	if (options->verify && strcmp(stream->content_type, PATTERN_CONTENT_TYPE))
		return cli_fail(error, -EINVAL, "NO-TEST-PATTERN", stream->name,
				"leave --verify out, or publish without --from",
				"the stream has no test pattern of `peerlane publish`");
	if (options->snapshot)
		rc = snapshot_open(&subscribe->snapshot, options->snapshot, &stream->layout, options->stream.memory,
				   error);
	if (rc == 0 && options->to)
		rc = frame_sink_open(&subscribe->sink, options->to, &stream->layout, error);
	return rc;
}

void subscribe_init(struct subscribe *subscribe, const struct subscribe_options *options)
{
	subscribe->options = options;
	frame_bytes_begin(&subscribe->frame_bytes, options->stream.memory);
	subscribe->sink.fd = -1;
	subscribe->client.signals = -1;
	stats_reset(&subscribe->latency);
}

int subscribe_open(struct subscribe *subscribe, struct pl_error *error)
{
	const struct subscribe_options *options = subscribe->options;
	struct pl_subscriber_options stream = options->stream;
	struct stream_token_bytes token;
	int rc = stream_token_option(options->token_file, &token, &stream, error);

	if (rc == 0)
		rc = stream_client_open(&subscribe->client, &options->common, options->address, error);
	if (rc == 0) {
		/* One frame is processed, and the snapshot keeps others.  0: the default. */
		stream.held = options->snapshot ? 1 + SNAPSHOT_FRAMES : 0;
		rc = pl_subscriber_open(subscribe->client.peer, options->name, &stream, subscribe->client.timeout,
					&subscribe->subscriber, error);
		if (rc < 0)
			rc = fail_to_subscribe(subscribe, rc, error);
	}
	stream_token_wipe(&token);
	if (rc < 0)
		return rc;
	subscribe_look(subscribe);
	/* The library's accounts begin with the first frame that the publisher had. */
	if (stream.start == PL_START_SEQUENCE && subscribe->info.accounts.first > stream.from)
		subscribe->gone = subscribe->info.accounts.first - stream.from;
	return open_outputs(subscribe, error);
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
static int attach_beside_work(struct subscribe *subscribe, uint64_t timeout, struct pl_error *error)
{
	struct stream_client waiting = subscribe->client;
	struct attachment attachment = {
		.subscriber = subscribe->subscriber,
		.peer = subscribe->client.peer,
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
static int subscribe_attach(struct subscribe *subscribe, uint64_t timeout, struct pl_error *error)
{
	struct pl_subscriber *subscriber = subscribe->subscriber;
	const char *path = subscribe->options->token_file;
	struct stream_token_bytes token;
	int rc = path ? stream_token_read(path, &token, error) : 0;

	if (rc == 0 && path)
		rc = pl_subscriber_set_token(subscriber, token.bytes, token.length, error);
	stream_token_wipe(&token);
	if (rc < 0)
		return rc;
	if (subscribe->client.work)
		return attach_beside_work(subscribe, timeout, error);
	return pl_subscriber_attach(subscriber, subscribe->client.peer, timeout, error);
}

int subscribe_reconnect(struct subscribe *subscribe, struct pl_error *error)
{
	uint64_t now = cli_now(), end = now + subscribe->options->reconnect;
	struct stream_client *client = &subscribe->client;
	int rc;

	for (;;) {
		uint64_t attempt = CLI_MAX(CLI_MIN(end - now, RECONNECT_ATTEMPT), CLI_NS_PER_MS);

		rc = stream_client_connect(client, attempt, error);
		if (rc == 0)
			rc = subscribe_attach(subscribe, attempt, error);
		now = cli_now();
		/* -ENODATA: the stream has ended, and all its frames were taken. */
		if (rc == 0 || rc == -EINTR || rc == -ENODATA || now >= end)
			break;
		if (stream_client_wait(client, -1, CLI_MIN(RECONNECT_INTERVAL, end - now)))
			return stream_fail_interrupted(error);
		now = cli_now();
		if (now >= end)
			break;
	}
	subscribe->reconnects += rc == 0;
	return rc < 0 ? fail_to_subscribe(subscribe, rc, error) : 0;
}

void subscribe_close(struct subscribe *subscribe)
{
	snapshot_close(&subscribe->snapshot);
	pl_subscriber_close(subscribe->subscriber);
	stream_client_close(&subscribe->client);
	frame_bytes_free(&subscribe->frame_bytes);
}
