/* SPDX-License-Identifier: BSD-2-Clause */
/* State of `peerlane publish`. */
#ifndef PL_CMD_STREAM_PUBLISH_H
#define PL_CMD_STREAM_PUBLISH_H

#include "cmd/common/cli.h"
#include "cmd/stream/frame_bytes.h"
#include "cmd/stream/frame_pace.h"
#include "cmd/stream/frame_source.h"
#include "cmd/stream/status_line.h"
#include "cmd/stream/stream_server.h"
#include "cmd/stream/token_file.h"

/* Frames a second of the test source. */
#define PUBLISH_DEFAULT_RATE 30

struct publish_options {
	struct cli_options common;
	const char *name, *listen, *from, *dtype, *shape;
	const char *memory; /* of the slots; NULL: host memory */
	uint64_t frame_bytes, slots, subscribers;
	uint64_t count; /* frames after which the stream ends; UINT64_MAX: no limit */
	double rate;    /* frames a second; 0: without pauses; negative: not given */
	bool allow_block;
	uint64_t patience; /* nanoseconds; 0: the default of the library */
	struct pl_layout layout;
	struct stream_share share;
};

struct publish {
	const struct publish_options *options;
	struct stream_server server;
	struct frame_source source;
	struct frame_bytes frame; /* made here, for slots in GPU memory */
	struct status_line line;
	struct frame_pace pace; /* by cli_now() */
	uint64_t frames, bytes; /* published */
	uint64_t refused;       /* frames of the test source that got no slot within their period */
	uint64_t begin, end;
};

/* Parses the command line (publish_options.c). */
void publish_parse_arguments(struct publish_options *options, int argc, char **argv);

/* -- frames (publish_frames.c) --------------------------------------------------------------------------- */

/* Publishes frames until the end of the input, --count or a signal, and ends the stream unless it failed. */
int publish_frames(struct publish *publish, struct pl_error *error);

/* -- results (publish_output.c) --------------------------------------------------------------------------- */

/* Prints the totals; `error` NULL: none.  Returns CLI_OK or CLI_OUTPUT. */
int publish_print_totals(const struct publish *publish, const struct pl_error *error);

#endif
