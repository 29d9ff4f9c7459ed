/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of `peerlane subscribe`, and its outputs. */
#include <string.h>
#include <unistd.h>

#include "cmd/stream/pattern.h"
#include "cmd/stream/reconnect.h"
#include "cmd/stream/subscribe.h"

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
		subscribe->opened = cli_now();
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
	if (stream.start != PL_START_LIVE)
		subscribe->earlier_frames = subscribe->info.stream.published;
	/* The library's accounts begin with the first frame that the publisher had. */
	if (stream.start == PL_START_SEQUENCE && subscribe->info.accounts.first > stream.from)
		subscribe->gone = subscribe->info.accounts.first - stream.from;
	return open_outputs(subscribe, error);
}

int subscribe_reconnect(struct subscribe *subscribe, struct pl_error *error)
{
	const struct subscribe_options *options = subscribe->options;
	struct stream_reconnect reconnect = {
		.client = &subscribe->client,
		.subscriber = subscribe->subscriber,
		.name = options->name,
		.token_file = options->token_file,
		.limit = options->reconnect,
		.line = &subscribe->line,
		.quiet = options->common.quiet,
	};
	int rc = stream_reconnect(&reconnect, error);

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
