/* SPDX-License-Identifier: BSD-2-Clause */
/* State of `peerlane record`. */
#ifndef PL_CMD_STREAM_RECORD_H
#define PL_CMD_STREAM_RECORD_H

#include "cmd/common/cli.h"
#include "cmd/stream/client.h"
#include "cmd/stream/reconnect.h"
#include "cmd/stream/recording_gaps.h"
#include "cmd/stream/recording_writer.h"
#include "cmd/stream/status_line.h"
#include "cmd/stream/stream_accounts.h"
#include "cmd/stream/token_file.h"

struct record_options {
	struct stream_source source;
	const char *to;
	uint64_t count;   /* frames after which the command ends; UINT64_MAX: no limit */
	uint64_t seconds; /* nanoseconds after which it ends; UINT64_MAX: no limit */
	bool force;
};

struct record {
	const struct record_options *options;
	struct stream_client client;
	struct pl_subscriber *subscriber;
	struct pl_subscriber_info info; /* of the last look */
	struct recording_writer writer;
	struct recording_gaps gaps;
	struct status_line line;
	enum recording_end end;
	struct stream_used used; /* frames in the file */
	uint64_t bytes;          /* of these frames */
	uint64_t gone;           /* frames from --start sequence:N that the publisher no longer had */
	uint64_t reconnects;
	uint64_t replayed;      /* frames among them that a replay published */
	uint64_t deadline;      /* cli_now() of the end of --seconds; UINT64_MAX: none */
	uint64_t opened;        /* cli_now() before the subscription */
	uint64_t earlier;       /* sequence behind the frames that were published before it; 0: --start live */
	uint64_t begin,
		finish; /* cli_now() of the first and the last frame; earlier frames begin with the subscription */
	bool indexed;           /* the file has its index */
};

/* Parses the command line (record_options.c). */
void record_parse_arguments(struct record_options *options, int argc, char **argv);

/*
 * Records frames until the end, and completes the file (record_frames.c). Returns 0 or a negative errno; `record->end`
 * tells the reason.
 */
int record_frames(struct record *record, struct pl_error *error);
/* Returns the fates of all sequences up to the last one that concerns the recording. */
struct pl_accounts record_accounts(const struct record *record);

/* Prints the results (record_output.c); `error` NULL: none. Returns an exit status. */
int record_print(const struct record *record, const struct pl_error *error);

#endif
