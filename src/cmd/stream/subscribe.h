/* SPDX-License-Identifier: BSD-2-Clause */
/* State of `peerlane subscribe`. */
#ifndef PL_CMD_STREAM_SUBSCRIBE_H
#define PL_CMD_STREAM_SUBSCRIBE_H

#include "cmd/common/cli.h"
#include "cmd/common/stats.h"
#include "cmd/stream/client.h"
#include "cmd/stream/frame_bytes.h"
#include "cmd/stream/frame_sink.h"
#include "cmd/stream/reconnect.h"
#include "cmd/stream/snapshot.h"
#include "cmd/stream/status_line.h"
#include "cmd/stream/stream_accounts.h"
#include "cmd/stream/stream_server.h"
#include "cmd/stream/token_file.h"

struct subscribe_options {
	struct stream_source source;
	const char *to, *snapshot;
	uint64_t count; /* frames after which the command ends; UINT64_MAX: no limit */
	bool verify, lossless;
};

/* Reason for the end of the command. */
enum subscribe_end {
	SUBSCRIBE_ENDED, /* the stream ended */
	SUBSCRIBE_COUNT, /* --count frames were taken */
	SUBSCRIBE_SIGNAL,
	SUBSCRIBE_FAILED,
};

/* Receiver of all frames beside the files: a relay. */
struct subscribe_forward {
	struct stream_server *server; /* its stream is described in the results */
	struct stream_client_work work;
	void *user;
	/* Passes a frame on.  Returns 0; -EINTR once a signal is pending; or a negative errno with *error filled. */
	int (*frame)(void *user, const struct pl_frame_info *frame, struct pl_error *error);
};

struct subscribe {
	const struct subscribe_options *options;
	const struct subscribe_forward *forward; /* NULL: none */
	struct stream_client client;
	struct pl_subscriber *subscriber;
	struct pl_subscriber_info info; /* of the last look */
	struct pl_accounts earlier;     /* sums of instances before the present one; first and next are 0 */
	struct frame_bytes frame_bytes;
	struct frame_sink sink;
	struct snapshot snapshot;
	struct status_line line;
	struct stats latency; /* captured to taken, in nanoseconds */
	enum subscribe_end end;
	uint64_t gone;          /* frames from --start sequence:N that the publisher no longer had */
	uint64_t frames, bytes; /* taken */
	uint64_t in_place;      /* frames among them that lay in the publisher's ring */
	struct stream_used used; /* frames taken of this instance */
	uint64_t opened;         /* cli_now() before the subscription */
	uint64_t earlier_frames; /* sequence behind the frames that were published before it; 0: --start live */
	uint64_t begin,
		finish; /* cli_now() of the first and the last frame; earlier frames begin with the subscription */
	uint64_t restarts, reconnects;
	bool verified; /* all frames had the test pattern */
	bool over; /* the stream ended, or its publisher was closed or lost: frames behind the last one were wanted */
};

/* Parses the command line (subscribe_options.c). */
void subscribe_parse_arguments(struct subscribe_options *options, int argc, char **argv);

/* -- connection and outputs (subscribe_connect.c) ------------------------------------------------------ */

/* Begins a zeroed structure. */
void subscribe_init(struct subscribe *subscribe, const struct subscribe_options *options);
/* Subscribes, and opens the outputs. */
int subscribe_open(struct subscribe *subscribe, struct pl_error *error);
/*
 * Continues over another connection within --reconnect.  Returns 0; -EINTR; -ENODATA if the stream has ended; or the
 * reason.
 */
int subscribe_reconnect(struct subscribe *subscribe, struct pl_error *error);
void subscribe_close(struct subscribe *subscribe);

/* Takes frames until the end (subscribe_frames.c).  Returns 0 or a negative errno. */
int subscribe_frames(struct subscribe *subscribe, struct pl_error *error);

/* -- accounts (subscribe_accounts.c) ------------------------------------------------------------------- */

/* Looks at the state of the subscriber: fills subscribe->info. */
void subscribe_look(struct subscribe *subscribe);
/* Adds the accounts of the present instance to those of earlier ones, and begins those of the next one. */
void subscribe_keep_accounts(struct subscribe *subscribe);
/*
 * Returns the sums over all instances.  If the stream goes on, frames behind the last that was taken are left out: the
 * command did not want them.
 */
struct pl_accounts subscribe_accounts(const struct subscribe *subscribe, bool goes_on);

/* Prints the results (subscribe_output.c); `error` NULL: none.  Returns an exit status. */
int subscribe_print(const struct subscribe *subscribe, const struct pl_error *error);

#endif
