/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames of `peerlane replay`: from the file into slots, at their times. */
#include "cmd/common/units.h"
#include "cmd/stream/replay.h"

/* Time after which connections and signals are handled between two frames. */
#define LOOK_INTERVAL CLI_NS_PER_MS
/* Frames that are later than this are not made up for. */
#define LATE_MAX (100 * CLI_NS_PER_MS)

/* -- connections -------------------------------------------------------------------------------------- */

static void draw_replay_line(struct replay *replay)
{
	unsigned subscribers;
	char text[96];

	if (!status_line_due(&replay->line))
		return;
	subscribers = stream_server_subscribers(&replay->server);
	snprintf(text, sizeof(text), "%llu frame%s  %u subscriber%s", (unsigned long long)replay->frames,
		 cli_plural(replay->frames), subscribers, cli_plural(subscribers));
	status_line_draw(&replay->line, replay->frames, replay->bytes, text);
}

/* Handles connections and signals, after waiting for an event for up to `nanoseconds`. */
static void replay_serve(struct replay *replay, uint64_t nanoseconds)
{
	uint64_t limit = replay->line.shown ? CLI_MIN(nanoseconds, STATUS_LINE_INTERVAL) : nanoseconds;

	stream_server_wait(&replay->server, -1, limit);
	draw_replay_line(replay);
}

/* -- times -------------------------------------------------------------------------------------------- */

/* Returns nanoseconds, at most about 146 years. */
static uint64_t clamp_time(double nanoseconds)
{
	return nanoseconds < 0x1p62 ? (uint64_t)nanoseconds : 1ull << 62;
}

/* Returns the time from the first frame of the pass to this one. */
static uint64_t time_in_pass(const struct replay *replay, const struct recording_frame *frame)
{
	const struct replay_options *options = replay->options;

	if (options->pace == REPLAY_RATE)
		return clamp_time((double)replay->number * 1e9 / options->rate);
	/* Clocks can go back. */
	if (options->pace == REPLAY_FAST || frame->captured < replay->captured)
		return 0;
	return clamp_time((double)(frame->captured - replay->captured) / options->speed);
}

/* Waits until the frame is due. */
static void wait_until_due(struct replay *replay, const struct recording_frame *frame)
{
	uint64_t now = cli_now();

	replay->due = CLI_MAX(replay->due, replay->origin + time_in_pass(replay, frame));
	while (!replay->server.stopping && now < replay->due) {
		replay_serve(replay, replay->due - now);
		now = cli_now();
	}
	if (now > replay->due + LATE_MAX) {
		replay->origin += now - replay->due;
		replay->due = now;
	}
	if (now - replay->server.looked >= LOOK_INTERVAL)
		replay_serve(replay, 0);
}

/* Returns the number of sequences that the recording lost. Without an index all gaps count as lost. */
static uint64_t lost_in_recording(const struct recording_reader *reader)
{
	const struct pl_accounts *accounts = &reader->summary.accounts;

	return reader->indexed ? stream_accounts_lost(accounts) : UINT64_MAX;
}

/* Returns the mean period of the pass that ends; 0: none has begun. One frame has a period only by --rate. */
static uint64_t period_of_pass(const struct replay *replay)
{
	if (replay->number && replay->options->pace == REPLAY_RATE)
		return clamp_time(1e9 / replay->options->rate);
	return replay->number > 1 ? (replay->due - replay->origin) / (replay->number - 1) : 0;
}

/* Begins a pass with its first frame: one mean period after the last frame of the pass before. */
static void begin_pass(struct replay *replay, const struct recording_frame *frame)
{
	replay->origin = replay->due = (replay->due ? replay->due : cli_now()) + period_of_pass(replay);
	replay->captured = frame->captured;
	replay->number = 0;
	replay->next = replay->first;
	replay->lost = lost_in_recording(&replay->reader);
}

/* -- slots -------------------------------------------------------------------------------------------- */

static bool replay_goes_on(void *user)
{
	struct replay *replay = user;

	replay_serve(replay, 0);
	return !replay->server.stopping;
}

/*
 * Skips to a recorded sequence. The recording has the number of lost sequences, and not which ones: the first gaps of the pass are
 * taken for them. Returns 0, -EINTR after a signal, or the reason.
 */
static int skip_recorded(struct replay *replay, uint64_t sequence, struct pl_error *error)
{
	uint64_t gap = sequence - replay->next, lost = CLI_MIN(gap, replay->lost);

	replay->lost -= lost;
	replay->next = sequence;
	return stream_server_skip(&replay->server, sequence + replay->raised, lost, replay_goes_on, replay, error);
}

/* Skips the sequences behind the last frame. */
static int skip_behind_last(struct replay *replay, struct pl_error *error)
{
	const struct recording_reader *reader = &replay->reader;
	uint64_t next = reader->indexed ? reader->summary.accounts.next : 0;

	return next > replay->next ? skip_recorded(replay, next, error) : 0;
}

/* Borrows the next slot. Returns 0, -EINTR after a signal, or the reason. */
static int borrow_replay_slot(struct replay *replay, struct pl_stream_frame **frame, struct pl_error *error)
{
	int rc;

	while ((rc = pl_publisher_loan(replay->server.publisher, STREAM_SERVER_SLICE, frame, error)) == -EAGAIN)
		if (!replay_goes_on(replay))
			return -EINTR;
	return rc;
}

/* Reads the payload into the slot, and publishes it. A damaged payload counts as lost. */
static int publish_recorded(struct replay *replay, const struct recording_frame *recorded,
			    struct pl_stream_frame *frame, struct pl_error *error)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	int rc;

	pl_frame_query(frame, &info);
	rc = recording_read(&replay->reader, recorded, info.data, error);
	if (rc == -EBADMSG) {
		replay->damaged++;
		cli_report(error);
		options.flags = PL_FRAME_LOST;
		rc = pl_frame_publish(frame, &options, error);
	} else if (rc == 0) {
		options.length = recorded->length;
		options.captured = recorded->captured;
		options.metadata = recorded->metadata;
		options.metadata_length = recorded->metadata_length;
		options.layout = recorded->layout.bits ? &recorded->layout : NULL;
		options.flags = PL_FRAME_REPLAY;
		rc = pl_frame_publish(frame, &options, error);
		replay->frames += rc == 0;
		replay->bytes += rc == 0 ? recorded->length : 0;
	}
	if (rc < 0)
		pl_frame_discard(frame);
	return rc;
}

/* Replays the next frame. Returns 1, 0 after the last one, -EINTR after a signal, or the reason. */
static int replay_frame(struct replay *replay, struct pl_error *error)
{
	struct recording_frame recorded;
	struct pl_stream_frame *frame;
	bool first = replay->reader.number == 0;
	int rc = recording_next(&replay->reader, &recorded, error);

	if (rc <= 0)
		return rc;
	if (first)
		begin_pass(replay, &recorded);
	wait_until_due(replay, &recorded);
	if (replay->server.stopping)
		return -EINTR;
	rc = skip_recorded(replay, recorded.sequence, error);
	if (rc == 0)
		rc = borrow_replay_slot(replay, &frame, error);
	replay->next += rc == 0;
	if (rc == 0)
		rc = publish_recorded(replay, &recorded, frame, error);
	replay->number++;
	return rc < 0 ? rc : 1;
}

int replay_frames(struct replay *replay, struct pl_error *error)
{
	const struct replay_options *options = replay->options;
	int rc = 1;

	status_line_begin(&replay->line, !options->common.quiet && !options->common.json);
	/* A new subscriber is no event of the context, so the number is read at intervals. */
	while (!replay->server.stopping && stream_server_subscribers(&replay->server) < options->subscribers)
		replay_serve(replay, STREAM_SERVER_SLICE);
	replay->begin = cli_now();
	while (rc == 1) {
		rc = replay_frame(replay, error);
		if (rc == 0)
			rc = skip_behind_last(replay, error);
		if (rc == 0 && options->loop) {
			replay->raised += replay->next - replay->first;
			recording_rewind(&replay->reader);
			rc = 1;
		}
	}
	replay->end = cli_now();
	if (rc == -EINTR)
		rc = 0;
	stream_server_begin_end(&replay->server, &options->common);
	if (rc < 0)
		stream_server_fail(&replay->server);
	else
		rc = stream_server_end(&replay->server, error);
	status_line_end(&replay->line);
	return rc;
}
