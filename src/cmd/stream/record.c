/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane record` */
#include "cmd/stream/record.h"

#include <stdlib.h>
#include <unistd.h>

#include "cmd/common/output.h"

static int open_record(struct record *record, struct pl_error *error)
{
	const struct record_options *options = record->options;
	struct pl_subscriber_options stream = options->source.stream;
	struct stream_reconnect attempts =
		stream_attempts(&options->source, &record->client, record->subscriber, &record->line);
	int rc;

	/* A file that exists is told before the publisher is asked. */
	if (!options->force && access(options->to, F_OK) == 0)
		return cli_fail(error, -EEXIST, "FILE-EXISTS", options->to,
				"choose another file, or replace it with --force", "the file exists");
	rc = stream_client_begin(&record->client, &options->source.common, options->source.address, error);
	if (rc < 0)
		return rc;
	stream.held = 1;
	attempts.stream = &stream;
	rc = stream_subscribe(&attempts, error);
	record->subscriber = attempts.subscriber;
	record->opened = record->client.connected;
	return rc;
}

static void close_record(struct record *record)
{
	pl_subscriber_close(record->subscriber);
	stream_client_close(&record->client);
}

static int run_record(struct record *record)
{
	struct pl_error error;
	int rc = open_record(record, &error), status;

	if (rc < 0) {
		close_record(record);
		return cli_report_for(&record->options->source.common, &error);
	}
	rc = record_frames(record, &error);
	cli_signal_ignore();
	status = record_print(record, rc < 0 ? &error : NULL);
	close_record(record);
	return status;
}

int pl_cli_record(int argc, char **argv)
{
	struct record *record = calloc(1, sizeof(*record));
	struct record_options options;
	int status;

	if (!record) {
		cli_warn("there is no memory");
		return CLI_FAILED;
	}
	record->options = &options;
	record->client.signals = -1;
	record_parse_arguments(&options, argc, argv);
	status = run_record(record);
	free(record);
	return status;
}
