/* SPDX-License-Identifier: BSD-2-Clause */
/* State of `peerlane replay`. */
#ifndef PL_CMD_STREAM_REPLAY_H
#define PL_CMD_STREAM_REPLAY_H

#include "cmd/common/cli.h"
#include "cmd/stream/recording_reader.h"
#include "cmd/stream/status_line.h"
#include "cmd/stream/stream_accounts.h"
#include "cmd/stream/stream_server.h"
#include "cmd/stream/token_file.h"

enum replay_pace {
	REPLAY_RECORDED, /* by the times at which the frames were captured, divided by `speed` */
	REPLAY_RATE,     /* `rate` frames a second */
	REPLAY_FAST,     /* without pauses */
};

struct replay_options {
	struct cli_options common;
	const char *file, *listen, *name;
	enum replay_pace pace;
	double speed, rate;
	uint64_t slots; /* 0: those of the recorded stream */
	uint64_t subscribers;
	bool loop, allow_block, check, info;
	struct stream_share share;
};

struct replay {
	const struct replay_options *options;
	struct recording_reader reader;
	struct stream_server server;
	struct status_line line;
	uint64_t frames, bytes; /* published */
	uint64_t damaged;       /* frames whose payload had another digest: they are told as lost */
	uint64_t begin, end;
	/* Pass through the file. */
	uint64_t raised;   /* added to each recorded sequence: sequences rise in each pass */
	uint64_t first;    /* recorded sequence that begins each pass */
	uint64_t captured; /* of the first frame of the pass */
	uint64_t origin;   /* cli_now() at which the first frame of the pass is due */
	uint64_t due;      /* of the present frame */
	uint64_t number;   /* of the present frame in the pass */
	uint64_t next;     /* recorded sequence behind the last frame of the pass, or the last gap */
	uint64_t lost;     /* sequences that the recording lost, less those that were skipped in the pass */
};

/* Parses the command line (replay_options.c). */
void replay_parse_arguments(struct replay_options *options, int argc, char **argv);

/* Prints what the file has, and with --check verifies all digests (replay_check.c). Returns an exit status. */
int replay_check(struct replay *replay);

/* Publishes the frames until the end of the file or a signal, and ends the stream unless it failed (replay_frames.c). */
int replay_frames(struct replay *replay, struct pl_error *error);

/* Prints the totals; `error` NULL: none. Returns an exit status. (replay_output.c) */
int replay_print_totals(const struct replay *replay, const struct pl_error *error);

#endif
