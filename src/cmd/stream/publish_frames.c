/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames of `peerlane publish`: from the source into slots, at the rate that was asked for. */
#include <time.h>

#include "cmd/common/units.h"
#include "cmd/stream/publish.h"

/* Time after which connections and signals are handled between two frames. */
#define LOOK_INTERVAL CLI_NS_PER_MS
/* Frames that are later than this are not made up for. */
#define LATE_MAX (100 * CLI_NS_PER_MS)

static uint64_t wall_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * CLI_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void draw_publish_line(struct publish *publish)
{
	unsigned subscribers;
	char text[96];

	if (!status_line_due(&publish->line))
		return;
	subscribers = stream_server_subscribers(&publish->server);
	if (!publish->begin) {
		snprintf(text, sizeof(text), "waiting for subscribers: %u of %llu", subscribers,
			 (unsigned long long)publish->options->subscribers);
		status_line_tell(&publish->line, text);
		return;
	}
	snprintf(text, sizeof(text), "%llu frame%s  %u subscriber%s  %llu refused", (unsigned long long)publish->frames,
		 cli_plural(publish->frames), subscribers, cli_plural(subscribers),
		 (unsigned long long)publish->refused);
	status_line_draw(&publish->line, publish->frames, publish->bytes, text);
}

/* Handles connections and signals, and the line of statistics. */
static void publish_serve(struct publish *publish, int fd, uint64_t nanoseconds)
{
	uint64_t limit = publish->line.shown ? CLI_MIN(nanoseconds, STATUS_LINE_INTERVAL) : nanoseconds;

	stream_server_wait(&publish->server, fd, limit);
	draw_publish_line(publish);
}

static void wait_for_subscribers(struct publish *publish)
{
	/* A new subscriber is no event of the context, so the number is read at intervals. */
	while (!publish->server.stopping && stream_server_subscribers(&publish->server) < publish->options->subscribers)
		publish_serve(publish, -1, STREAM_SERVER_SLICE);
}

/* Waits for the time of the next frame. */
static void wait_for_period(struct publish *publish)
{
	uint64_t now = cli_now();

	if (publish->pace.period) {
		while (!publish->server.stopping && now < publish->pace.next) {
			publish_serve(publish, -1, publish->pace.next - now);
			now = cli_now();
		}
		if (now > publish->pace.next + LATE_MAX)
			publish->pace.next = now;
		frame_pace_advance(&publish->pace);
	}
	if (now - publish->server.looked >= LOOK_INTERVAL)
		publish_serve(publish, -1, 0);
}

/*
 * Borrows a slot.  The test source behaves as a camera: a frame without a slot within its period is refused, which
 * returns -EAGAIN.  Other frames wait.  Returns -EINTR after a signal.
 */
static int borrow_slot(struct publish *publish, struct pl_stream_frame **frame, struct pl_error *error)
{
	bool camera = !publish->source.path && publish->pace.period;
	uint64_t end = cli_now() + publish->pace.period;

	for (;;) {
		uint64_t slice = camera ? CLI_MIN(STREAM_SERVER_SLICE, publish->pace.period) : STREAM_SERVER_SLICE;
		int rc = pl_publisher_loan(publish->server.publisher, slice, frame, error);

		if (rc != -EAGAIN)
			return rc;
		publish_serve(publish, -1, 0);
		if (publish->server.stopping)
			return -EINTR;
		if (camera && cli_now() >= end) {
			publish->refused++;
			return -EAGAIN;
		}
	}
}

/* Waits until the source has a frame.  Returns 0, -ENODATA at its end, -EINTR after a signal, or its failure. */
static int wait_for_source(struct publish *publish, struct pl_error *error)
{
	int rc;

	while ((rc = frame_source_begin(&publish->source, error)) == 0) {
		publish_serve(publish, publish->source.fd, UINT64_MAX);
		if (publish->server.stopping)
			return -EINTR;
	}
	return rc > 0 ? 0 : rc;
}

/* Fills the slot.  Discards the frame after a failure or a signal. */
static int fill_slot(struct publish *publish, struct pl_stream_frame *frame, struct pl_error *error)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	void *data;
	int rc;

	pl_frame_query(frame, &info);
	data = publish->frame.gpu ? frame_bytes_buffer(&publish->frame, publish->source.frame_bytes) : info.data;
	if (!data) {
		pl_frame_discard(frame);
		return cli_fail_errno(error, -ENOMEM, "malloc", publish->options->name);
	}
	while ((rc = frame_source_fill(&publish->source, data, info.sequence, error)) == 0) {
		publish_serve(publish, publish->source.fd, UINT64_MAX);
		if (publish->server.stopping)
			rc = -EINTR;
		if (rc < 0)
			break;
	}
	if (rc > 0 && publish->frame.gpu)
		rc = pl_frame_copy_in(frame, 0, data, publish->source.frame_bytes, error);
	if (rc < 0)
		pl_frame_discard(frame);
	return rc < 0 ? rc : 0;
}

static int publish_frame(struct publish *publish, struct pl_error *error)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_stream_frame *frame;
	int rc = borrow_slot(publish, &frame, error);

	if (rc < 0)
		return rc;
	/* The test pattern is captured when it is made, input when it is complete. */
	if (!publish->source.path)
		options.captured = wall_clock();
	options.length = publish->source.frame_bytes;
	rc = fill_slot(publish, frame, error);
	if (rc < 0)
		return rc;
	rc = pl_frame_publish(frame, &options, error);
	if (rc < 0) {
		pl_frame_discard(frame);
		return rc;
	}
	publish->frames++;
	publish->bytes += options.length;
	return 0;
}

int publish_frames(struct publish *publish, struct pl_error *error)
{
	const struct publish_options *options = publish->options;
	int rc = 0;

	status_line_begin(&publish->line, !options->common.quiet && !options->common.json);
	wait_for_subscribers(publish);
	publish->begin = cli_now();
	frame_pace_begin(&publish->pace, options->rate, publish->begin);
	while (rc == 0 && !publish->server.stopping && publish->frames < options->count) {
		rc = wait_for_source(publish, error);
		if (rc == 0)
			wait_for_period(publish);
		if (rc == 0 && !publish->server.stopping)
			rc = publish_frame(publish, error);
		/* A refused frame leaves no trace in the stream. */
		if (rc == -EAGAIN)
			rc = 0;
	}
	publish->end = cli_now();
	if (rc == -ENODATA || rc == -EINTR)
		rc = 0;
	stream_server_begin_end(&publish->server, &options->common);
	if (rc < 0)
		stream_server_fail(&publish->server);
	else
		rc = stream_server_end(&publish->server, error);
	status_line_end(&publish->line);
	return rc;
}
