/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections and signals of `peerlane replay`. */
#include <poll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "cmd/stream/replay.h"

#define BATCH 16
/* Connections of a publisher: its subscribers, and others that list streams. */
#define PEERS_MAX 320

/* Reads the first frame, whose sequence begins the stream. */
static int read_first_frame(struct replay *replay, struct pl_error *error)
{
	struct recording_frame frame;
	int rc = recording_next(&replay->reader, &frame, error);

	if (rc == 0)
		return cli_fail(error, -ENODATA, "RECORDING-EMPTY", replay->options->file, NULL,
				"the recording has no frames");
	recording_rewind(&replay->reader);
	replay->first = frame.sequence;
	return rc < 0 ? rc : 0;
}

static int open_replayed_stream(struct replay *replay, struct pl_error *error)
{
	const struct replay_options *options = replay->options;
	const struct recording_header *header = &replay->reader.header;
	struct pl_publisher_options stream = PL_PUBLISHER_OPTIONS_INIT;
	uint64_t stride = (header->slot_bytes + RECORDING_PAGE - 1) / RECORDING_PAGE * RECORDING_PAGE;
	int rc;

	stream.slots = options->slots ? (unsigned)options->slots : header->slots;
	stream.slot_bytes = header->slot_bytes;
	stream.metadata_bytes = header->metadata_bytes;
	stream.layout = header->layout;
	stream.content_type = header->content_type[0] ? header->content_type : NULL;
	stream.first = replay->first;
	stream.allow_block = options->allow_block;
	/* A recording is complete: subscribers that may hold it back get all of it. */
	stream.patience = UINT64_MAX;
	rc = cli_check_memory(stream.slots * stride, error);
	if (rc < 0)
		return cli_fail(error, rc, "NO-MEMORY", options->file, "use fewer --slots",
				"this host has no memory for %u slots of %llu bytes", stream.slots,
				(unsigned long long)header->slot_bytes);
	return pl_publisher_open(replay->context, options->name ? options->name : header->name, &stream,
				 &replay->publisher, error);
}

int replay_open(struct replay *replay, struct pl_error *error)
{
	struct cli_options common = replay->options->common;
	char address[300];
	int rc = read_first_frame(replay, error);

	if (rc == 0)
		rc = cli_address(replay->options->listen, address, sizeof(address), error);
	if (rc == 0)
		rc = replay->signals = cli_signal_fd(0, error);
	common.program = CLI_PROGRAM_REPLAY;
	common.peers_max = PEERS_MAX;
	if (rc >= 0)
		rc = cli_open(&replay->context, &common, PL_PROGRESS_THREAD, error);
	if (rc == 0)
		rc = open_replayed_stream(replay, error);
	if (rc == 0)
		rc = pl_listen(replay->context, address, &replay->listener, error);
	if (rc == 0)
		rc = pl_accept_start(replay->listener, 0, NULL, error);
	return rc;
}

void replay_close(struct replay *replay)
{
	pl_publisher_close(replay->publisher);
	pl_close(replay->context);
	if (replay->signals >= 0)
		close(replay->signals);
}

unsigned replay_subscribers(const struct replay *replay)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;

	pl_publisher_query(replay->publisher, &info);
	return info.subscribers;
}

static void handle_replay_event(struct replay *replay, struct pl_completion *completion)
{
	if (completion->kind == PL_KIND_LOST)
		pl_peer_close(completion->peer);
	/* Without memory for another accept, the connections that exist go on. */
	if (completion->kind == PL_KIND_ACCEPT && pl_accept_start(replay->listener, 0, NULL, NULL) < 0)
		cli_warn("no memory to accept more connections");
	/* No subscriber sends notifications; the data of one that does is freed. */
	pl_notification_free(replay->context, completion);
}

static void draw_replay_line(struct replay *replay)
{
	char text[96];

	if (!status_line_due(&replay->line))
		return;
	snprintf(text, sizeof(text), "%llu frames  %u subscribers", (unsigned long long)replay->frames,
		 replay_subscribers(replay));
	status_line_draw(&replay->line, replay->frames, replay->bytes, text);
}

void replay_serve(struct replay *replay, uint64_t nanoseconds)
{
	struct pollfd fds[] = { { .fd = pl_fd(replay->context), .events = POLLIN },
				{ .fd = replay->signals, .events = POLLIN } };
	uint64_t limit = replay->line.shown ? CLI_MIN(nanoseconds, STATUS_LINE_INTERVAL) : nanoseconds;
	struct timespec time = { .tv_sec = (time_t)(limit / CLI_NS_PER_S), .tv_nsec = (long)(limit % CLI_NS_PER_S) };
	struct pl_completion completions[BATCH];
	struct signalfd_siginfo signal;
	int count;

	if (ppoll(fds, CLI_ARRAY_SIZE(fds), &time, NULL) < 0)
		return;
	do {
		count = fds[0].revents ? pl_poll(replay->context, completions, BATCH) : 0;
		for (int i = 0; i < count; i++)
			handle_replay_event(replay, &completions[i]);
	} while (count == BATCH);
	if (fds[1].revents && read(replay->signals, &signal, sizeof(signal)) == sizeof(signal))
		replay->stopping = true;
	draw_replay_line(replay);
	replay->looked = cli_now();
}
