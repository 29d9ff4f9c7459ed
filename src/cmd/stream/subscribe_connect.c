/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of `peerlane subscribe`, and its outputs. */
#include <string.h>
#include <unistd.h>

#include "cmd/stream/pattern.h"
#include "cmd/stream/reconnect.h"
#include "cmd/stream/subscribe.h"

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
		rc = snapshot_open(&subscribe->snapshot, options->snapshot, &stream->layout,
				   options->source.stream.memory, error);
	if (rc == 0 && options->to)
		rc = frame_sink_open(&subscribe->sink, options->to, &stream->layout, error);
	return rc;
}

void subscribe_init(struct subscribe *subscribe, const struct subscribe_options *options)
{
	subscribe->options = options;
	frame_bytes_begin(&subscribe->frame_bytes, options->source.stream.memory);
	subscribe->sink.fd = -1;
	subscribe->client.signals = -1;
	stats_reset(&subscribe->latency);
}

/* Subscribes for one frame that is processed, and those that the snapshot keeps.  0: the default. */
static int subscribe_first(struct subscribe *subscribe, struct pl_error *error)
{
	struct pl_subscriber_options stream = subscribe->options->source.stream;
	struct stream_reconnect attempts = stream_attempts(&subscribe->options->source, &subscribe->client,
							   subscribe->subscriber, &subscribe->line);
	int rc;

	stream.held = subscribe->options->snapshot ? 1 + SNAPSHOT_FRAMES : 0;
	attempts.stream = &stream;
	rc = stream_subscribe(&attempts, error);
	subscribe->subscriber = attempts.subscriber;
	subscribe->opened = subscribe->client.connected;
	return rc;
}

int subscribe_open(struct subscribe *subscribe, struct pl_error *error)
{
	const struct subscribe_options *options = subscribe->options;
	const struct pl_subscriber_options *stream = &options->source.stream;
	int rc = stream_client_begin(&subscribe->client, &options->source.common, options->source.address, error);

	if (rc == 0)
		rc = subscribe_first(subscribe, error);
	if (rc < 0)
		return rc;
	subscribe_look(subscribe);
	if (stream->start != PL_START_LIVE)
		subscribe->earlier_frames = subscribe->info.stream.published;
	/* The library's accounts begin with the first frame that the publisher had. */
	if (stream->start == PL_START_SEQUENCE && subscribe->info.accounts.first > stream->from)
		subscribe->gone = subscribe->info.accounts.first - stream->from;
	return open_outputs(subscribe, error);
}

int subscribe_reconnect(struct subscribe *subscribe, struct pl_error *error)
{
	struct stream_reconnect attempts = stream_attempts(&subscribe->options->source, &subscribe->client,
							   subscribe->subscriber, &subscribe->line);
	int rc = stream_reconnect(&attempts, error);

	subscribe->reconnects += rc == 0;
	if (rc < 0)
		stream_subscribe_hint(&attempts, error);
	return rc;
}

void subscribe_close(struct subscribe *subscribe)
{
	snapshot_close(&subscribe->snapshot);
	pl_subscriber_close(subscribe->subscriber);
	stream_client_close(&subscribe->client);
	frame_bytes_free(&subscribe->frame_bytes);
}
