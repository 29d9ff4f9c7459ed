/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane replay` */
#include "cmd/stream/replay.h"

#include <unistd.h>

#include "cmd/common/output.h"

/* Finds the sequence that begins the stream: that of the first frame, or the first one that the recording lost before. */
static int find_first_sequence(struct replay *replay, struct pl_error *error)
{
	const struct recording_reader *reader = &replay->reader;
	struct recording_frame frame;
	int rc = recording_next(&replay->reader, &frame, error);

	if (rc == 0)
		return cli_fail(error, -ENODATA, "RECORDING-EMPTY", replay->options->file, NULL,
				"the recording has no frames");
	if (rc < 0)
		return rc;
	recording_rewind(&replay->reader);
	replay->first = reader->indexed ? CLI_MIN(reader->summary.accounts.first, frame.sequence) : frame.sequence;
	return 0;
}

static int replay_stream(struct replay *replay, struct pl_error *error)
{
	const struct replay_options *options = replay->options;
	const struct recording_header *header = &replay->reader.header;
	struct pl_publisher_options stream = PL_PUBLISHER_OPTIONS_INIT;

	stream.slots = options->slots ? (unsigned)options->slots : header->slots;
	stream.slot_bytes = header->slot_bytes;
	stream.metadata_bytes = header->metadata_bytes;
	stream.layout = header->layout;
	stream.content_type = header->content_type[0] ? header->content_type : NULL;
	stream.first = replay->first;
	stream.allow_block = options->allow_block;
	/* A recording is complete: subscribers that may hold it back get all of it. */
	stream.patience = UINT64_MAX;
	return stream_server_publish(&replay->server, options->name ? options->name : header->name, &stream,
				     &options->share, error);
}

static int replay_open(struct replay *replay, struct pl_error *error)
{
	const struct cli_options *common = &replay->options->common;
	int rc = find_first_sequence(replay, error);

	if (rc == 0)
		rc = replay->server.signals = cli_signal_fd(0, error);
	if (rc >= 0)
		rc = stream_server_open(&replay->server, common, CLI_PROGRAM_REPLAY, error);
	if (rc == 0)
		rc = replay_stream(replay, error);
	if (rc == 0)
		rc = stream_server_listen(&replay->server, replay->options->listen, &replay->options->share, error);
	return rc == 0 ? stream_server_announce(&replay->server, common, "replaying", error) : rc;
}

static void replay_close(struct replay *replay)
{
	stream_server_close(&replay->server);
	if (replay->server.signals >= 0)
		close(replay->server.signals);
}

static int publish_recording(struct replay *replay)
{
	struct pl_error error;
	int rc = replay_open(replay, &error), status;

	if (rc < 0) {
		replay_close(replay);
		return cli_report_for(&replay->options->common, &error);
	}
	rc = replay_frames(replay, &error);
	cli_signal_ignore();
	status = replay_print_totals(replay, rc < 0 ? &error : NULL);
	replay_close(replay);
	return status;
}

int pl_cli_replay(int argc, char **argv)
{
	struct replay_options options;
	struct replay replay = { .options = &options, .server = { .signals = -1 } };
	struct pl_error error;
	int status;

	replay_parse_arguments(&options, argc, argv);
	if (recording_open(&replay.reader, options.file, &error) < 0)
		return cli_report_for(&options.common, &error);
	status = options.check || options.info ? replay_check(&replay) : publish_recording(&replay);
	recording_close(&replay.reader);
	return status;
}
