/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames of `peerlane subscribe`: taken, verified and written. */
#include <string.h>

#include "cmd/common/units.h"
#include "cmd/stream/pattern.h"
#include "cmd/stream/subscribe.h"

static int verify_frame(const struct pl_frame_info *frame, struct pl_error *error)
{
	uint64_t offset = pattern_check(frame->data, frame->length, frame->sequence);

	if (offset == UINT64_MAX)
		return 0;
	return cli_fail(error, -EBADMSG, "FRAME-CONTENT", NULL, "check the memory of both hosts, and report this",
			"frame %llu differs from the test pattern at byte %llu of %llu",
			(unsigned long long)frame->sequence, (unsigned long long)offset,
			(unsigned long long)frame->length);
}

static int check_losses(struct subscribe *subscribe, bool goes_on, struct pl_error *error)
{
	struct pl_accounts accounts = subscribe_accounts(subscribe, goes_on);
	uint64_t lost = stream_accounts_lost(&accounts);

	if (!subscribe->options->lossless || (!lost && !subscribe->restarts))
		return 0;
	return cli_fail(error, -EPIPE, "FRAMES-LOST", subscribe->options->source.name,
			"use --overflow block with `peerlane publish --allow-block`, a longer --queue, or more --slots",
			"%llu frame%s lost, and %llu time%s the publisher was started again", (unsigned long long)lost,
			lost == 1 ? " was" : "s were", (unsigned long long)subscribe->restarts,
			cli_plural(subscribe->restarts));
}

static void count_frame(struct subscribe *subscribe, const struct pl_frame_info *frame)
{
	subscribe->finish = cli_now();
	if (!subscribe->frames)
		subscribe->begin = frame->sequence < subscribe->earlier_frames ? subscribe->opened : subscribe->finish;
	subscribe->frames++;
	subscribe->bytes += frame->length;
	subscribe->in_place += !!(frame->flags & PL_FRAME_IN_PLACE);
	stream_used_add(&subscribe->used, frame);
	/* A replayed frame was captured when it was recorded.  The clock of another host may be ahead. */
	if (!(frame->flags & PL_FRAME_REPLAY))
		stats_record(&subscribe->latency, frame->taken > frame->captured ? frame->taken - frame->captured : 0);
}

/* Fails if the publisher has written a frame in place while it was in use. */
static int check_unchanged(const struct pl_stream_frame *frame, struct pl_error *error)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;

	pl_frame_query(frame, &info);
	if (!(info.flags & PL_FRAME_OVERWRITTEN))
		return 0;
	return cli_fail(error, -ESTALE, "FRAME-OVERWRITTEN", NULL,
			"start `peerlane publish` with a longer --patience, or leave --in-place out",
			"the publisher has overwritten frame %llu while it was used",
			(unsigned long long)info.sequence);
}

/* Processes a frame, which it releases or hands to the snapshot. */
static int process_frame(struct subscribe *subscribe, struct pl_stream_frame *frame, struct pl_error *error)
{
	const struct subscribe_options *options = subscribe->options;
	bool read = options->verify || subscribe->sink.path || subscribe->forward;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	int rc = 0;

	if (read)
		rc = frame_bytes_read(&subscribe->frame_bytes, frame, &info, error);
	else
		pl_frame_query(frame, &info);
	count_frame(subscribe, &info);
	if (rc == 0 && options->verify) {
		rc = verify_frame(&info, error);
		subscribe->verified = rc == 0;
	}
	if (rc == 0)
		rc = check_losses(subscribe, true, error);
	if (rc == 0 && subscribe->sink.path)
		rc = frame_sink_write(&subscribe->sink, &info, error);
	if (rc == 0 && subscribe->forward)
		rc = subscribe->forward->frame(subscribe->forward->user, &info, error);
	/* That explains a failure before, too. */
	if (options->source.stream.in_place && check_unchanged(frame, error) < 0)
		rc = -ESTALE;
	if (rc == 0 && subscribe->snapshot.running)
		return snapshot_take(&subscribe->snapshot, frame, error);
	pl_frame_release(frame);
	return rc;
}

static void draw_subscribe_line(struct subscribe *subscribe)
{
	struct pl_accounts accounts;
	char text[96];

	if (!status_line_due(&subscribe->line))
		return;
	subscribe_look(subscribe);
	accounts = subscribe_accounts(subscribe, true);
	snprintf(text, sizeof(text), "%llu frame%s  %llu lost", (unsigned long long)subscribe->frames,
		 cli_plural(subscribe->frames), (unsigned long long)stream_accounts_lost(&accounts));
	status_line_draw(&subscribe->line, subscribe->frames, subscribe->bytes, text);
}

/*
 * Waits for a frame, a signal, or the time to look at the snapshot, and serves the relay meanwhile.  Returns 0, or the
 * errno of a snapshot that failed.
 */
static int wait_for_frame(struct subscribe *subscribe, struct pl_error *error)
{
	uint64_t limit = subscribe->line.shown ? STATUS_LINE_INTERVAL : UINT64_MAX;
	bool pending;
	int rc = snapshot_look(&subscribe->snapshot, &pending, error);

	if (rc < 0)
		return rc;
	if (pending)
		limit = CLI_MIN(limit, SNAPSHOT_INTERVAL);
	stream_client_wait(&subscribe->client, pl_subscriber_fd(subscribe->subscriber), limit);
	return 0;
}

/* Handles the loss of the connection. */
static int continue_stream(struct subscribe *subscribe, struct pl_error *error)
{
	int rc;

	if (!subscribe->options->source.reconnect) {
		snprintf(error->message, sizeof(error->message),
			 "the connection is lost; frames that were published later are not counted");
		snprintf(error->hint, sizeof(error->hint),
			 "see whether the publisher still runs; --reconnect SECONDS continues after a loss");
		return -ENOTCONN;
	}
	/* Another instance may have other slots: the subscriber must hold no frame then. */
	rc = snapshot_flush(&subscribe->snapshot, error);
	if (rc == 0)
		rc = frame_sink_update(&subscribe->sink, error);
	if (rc == 0)
		rc = subscribe_reconnect(subscribe, error);
	subscribe_look(subscribe);
	if (rc != -EINTR)
		return rc;
	/* A signal while there is no connection: nothing tells which frames were published meanwhile. */
	if (!strcmp(error->id, "PEER-LOST"))
		snprintf(error->hint, sizeof(error->hint), "see whether the publisher still runs");
	return -ENOTCONN;
}

/* Handles another instance of the stream, whose sequences begin anew. */
static int begin_next_instance(struct subscribe *subscribe, struct pl_error *error)
{
	subscribe_keep_accounts(subscribe);
	subscribe->restarts++;
	/* The sequences of a relayed stream cannot begin anew. */
	if (subscribe->forward) {
		snprintf(error->hint, sizeof(error->hint), "start the relay again");
		return -ESTALE;
	}
	return check_losses(subscribe, true, error);
}

/*
 * Takes the next frame, or handles the reason that there is none.  Returns 0, -ENODATA at the end of the stream, or a
 * negative errno.
 */
static int take_frame(struct subscribe *subscribe, struct pl_error *error)
{
	const struct stream_source *source = &subscribe->options->source;
	struct cli_hint_command list;
	struct pl_stream_frame *frame;
	int rc = pl_subscriber_take(subscribe->subscriber, &frame, 1, 0, error);

	/* A restart begins the accounts anew: the last look has those of the instance before. */
	if (rc != -ESTALE)
		subscribe_look(subscribe);
	if (rc > 0)
		return process_frame(subscribe, frame, error);
	switch (rc) {
	case -EAGAIN:
		rc = frame_sink_update(&subscribe->sink, error);
		return rc == 0 ? wait_for_frame(subscribe, error) : rc;
	case -ENOTCONN:
		subscribe->over = true;
		rc = continue_stream(subscribe, error);
		subscribe->over = rc < 0;
		return rc;
	case -ESTALE:
		return begin_next_instance(subscribe, error);
	case -ENODATA:
		subscribe->over = true;
		if (subscribe->info.stream.state == PL_STREAM_ENDED)
			return -ENODATA;
		snprintf(error->hint, sizeof(error->hint), "`%s` shows whether it runs again",
			 cli_hint_command(&list, "streams", &source->common, source->address));
		return -EPIPE;
	default:
		stream_token_hint(source->token_file, error);
		return rc;
	}
}

/* Completes the files after the last frame.  Keeps the first failure. */
static int finish_outputs(struct subscribe *subscribe, int rc, struct pl_error *error)
{
	struct pl_error ignored;
	int closed = snapshot_flush(&subscribe->snapshot, rc < 0 ? &ignored : error);

	rc = rc < 0 ? rc : closed;
	closed = frame_sink_close(&subscribe->sink, rc < 0 ? &ignored : error);
	return rc < 0 ? rc : closed;
}

int subscribe_frames(struct subscribe *subscribe, struct pl_error *error)
{
	const struct subscribe_options *options = subscribe->options;
	int rc;

	status_line_begin(&subscribe->line, !options->source.common.quiet && !options->source.common.json);
	rc = check_losses(subscribe, true, error);
	while (rc == 0 && subscribe->frames < options->count && !cli_signal_pending()) {
		rc = take_frame(subscribe, error);
		if (subscribe->forward)
			subscribe->forward->work.serve(subscribe->forward->work.user);
		draw_subscribe_line(subscribe);
	}
	status_line_end(&subscribe->line);
	subscribe->end = rc == -ENODATA                                   ? SUBSCRIBE_ENDED
			 : rc == 0 && subscribe->frames == options->count ? SUBSCRIBE_COUNT
			 : rc == 0 || rc == -EINTR                        ? SUBSCRIBE_SIGNAL
									  : SUBSCRIBE_FAILED;
	if (rc == -ENODATA || rc == -EINTR)
		rc = 0;
	if (rc == 0)
		rc = check_losses(subscribe, !subscribe->over, error);
	rc = finish_outputs(subscribe, rc, error);
	if (rc < 0)
		subscribe->end = SUBSCRIBE_FAILED;
	return rc;
}
