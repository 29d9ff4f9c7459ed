/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane record` */
#include "cmd/stream/record.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/output.h"

void record_hint_at_options(const struct record *record, struct pl_error *error)
{
	stream_token_hint(error);
	if (!strcmp(error->id, "STREAM-UNKNOWN"))
		snprintf(error->hint, sizeof(error->hint), "`peerlane streams %s` lists the streams",
			 record->options->address);
	if (!strcmp(error->id, "STREAM-NO-BLOCK"))
		snprintf(error->hint, sizeof(error->hint),
			 "start the publisher with --allow-block, or use another --overflow");
	if (!strcmp(error->id, "STREAM-MEMORY"))
		snprintf(error->hint, sizeof(error->hint), "use a smaller --queue, or raise --memory-limit");
	if (error->code == -ENOTSUP && record->options->stream.push)
		snprintf(error->hint, sizeof(error->hint), "leave --push out");
}

static int open_record(struct record *record, struct pl_error *error)
{
	const struct record_options *options = record->options;
	struct pl_subscriber_options stream = options->stream;
	struct stream_token_bytes token;
	int rc;

	/* A file that exists is told before the publisher is asked. */
	if (!options->force && access(options->to, F_OK) == 0)
		return cli_fail(error, -EEXIST, "FILE-EXISTS", options->to,
				"choose another file, or replace it with --force", "the file exists");
	rc = stream_token_option(options->token_file, &token, &stream, error);
	if (rc == 0)
		rc = stream_client_open(&record->client, &options->common, options->address, error);
	if (rc == 0) {
		record->opened = cli_now();
		stream.held = 1;
		rc = pl_subscriber_open(record->client.peer, options->name, &stream, record->client.timeout,
					&record->subscriber, error);
		if (rc < 0)
			record_hint_at_options(record, error);
	}
	stream_token_wipe(&token);
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
		return cli_report_for(&record->options->common, &error);
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
