/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane publish` */
#include "cmd/stream/publish.h"

#include <unistd.h>

#include "cmd/common/output.h"
#include "cmd/stream/pattern.h"

static int publish_stream(struct publish *publish, struct pl_error *error)
{
	const struct publish_options *options = publish->options;
	struct pl_publisher_options stream = PL_PUBLISHER_OPTIONS_INIT;

	stream.slots = (unsigned)options->slots;
	stream.slot_bytes = publish->source.frame_bytes;
	stream.layout = publish->source.layout;
	stream.content_type = publish->source.path ? NULL : PATTERN_CONTENT_TYPE;
	stream.allow_block = options->allow_block;
	stream.patience = options->patience;
	stream.memory = options->memory;
	return stream_server_publish(&publish->server, options->name, &stream, &options->share, error);
}

/* Opens context, listener and stream.  Returns 0 or a negative errno. */
static int publish_open(struct publish *publish, struct pl_error *error)
{
	const struct publish_options *options = publish->options;
	int rc = publish->server.signals = cli_signal_fd(0, error);

	if (rc >= 0)
		rc = stream_server_open(&publish->server, &options->common, CLI_PROGRAM_PUBLISH, error);
	if (rc == 0)
		rc = publish_stream(publish, error);
	if (rc == 0)
		rc = stream_server_listen(&publish->server, options->listen, &options->share, error);
	return rc == 0 ? stream_server_announce(&publish->server, &options->common, "publishing", error) : rc;
}

static void publish_close(struct publish *publish)
{
	stream_server_close(&publish->server);
	if (publish->server.signals >= 0)
		close(publish->server.signals);
	frame_source_close(&publish->source);
	frame_bytes_free(&publish->frame);
}

int pl_cli_publish(int argc, char **argv)
{
	struct publish_options options;
	struct publish publish = { .options = &options, .server = { .signals = -1 }, .source = { .fd = -1 } };
	struct pl_error error;
	int rc, status;

	publish_parse_arguments(&options, argc, argv);
	frame_bytes_begin(&publish.frame, options.memory);
	rc = frame_source_open(&publish.source, options.from, &options.layout, options.frame_bytes, &error);
	if (rc == 0)
		rc = publish_open(&publish, &error);
	if (rc < 0) {
		publish_close(&publish);
		return cli_report_for(&options.common, &error);
	}
	rc = publish_frames(&publish, &error);
	cli_signal_ignore();
	status = publish_print_totals(&publish, rc < 0 ? &error : NULL);
	publish_close(&publish);
	return rc < 0 ? cli_report(&error) : status;
}
