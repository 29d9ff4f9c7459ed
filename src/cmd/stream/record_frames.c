/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames of `peerlane record`: from the subscriber into the file. */
#include <string.h>
#include <time.h>

#include "cmd/common/units.h"
#include "cmd/stream/record.h"

/* Looks at the subscriber.  A file has one instance of a stream: the last look at that one stays. */
static void record_look(struct record *record)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT, *last = &record->info;

	if (pl_subscriber_query(record->subscriber, &info) == 0 &&
	    (!last->size || !memcmp(info.stream.instance, last->stream.instance, sizeof(last->stream.instance))))
		*last = info;
}

/* -- accounts ----------------------------------------------------------------------------------------- */

struct pl_accounts record_accounts(const struct record *record)
{
	struct pl_accounts accounts = record->info.accounts;

	/* Frames behind the last one of the file concern the recording only if the stream is over. */
	if (record->end != RECORDING_ENDED && record->end != RECORDING_LOST)
		stream_accounts_cut(&accounts, &record->used, 1);
	accounts.first -= record->gone;
	accounts.missed += record->gone;
	return accounts;
}

/* -- frames ------------------------------------------------------------------------------------------- */

static int write_frame(struct record *record, struct pl_stream_frame *taken, struct pl_error *error)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct recording_frame frame;
	int rc;

	pl_frame_query(taken, &info);
	frame = (struct recording_frame){ .sequence = info.sequence,
					  .length = info.length,
					  .captured = info.captured,
					  .metadata = info.metadata,
					  .metadata_length = (uint32_t)info.metadata_length };
	/* A layout that equals that of the stream is not stored with each frame. */
	if (memcmp(&info.layout, &record->info.stream.layout, sizeof(info.layout)) != 0)
		frame.layout = info.layout;
	rc = recording_append(&record->writer, &frame, info.data, error);
	pl_frame_release(taken);
	if (rc < 0)
		return rc;
	record->finish = cli_now();
	if (!record->used.frames)
		record->begin = info.sequence < record->earlier ? record->opened : record->finish;
	stream_used_add(&record->used, &info);
	record->bytes += info.length;
	record->replayed += (info.flags & PL_FRAME_REPLAY) != 0;
	recording_gaps_add(&record->gaps, info.sequence);
	return 0;
}

static void draw_record_line(struct record *record)
{
	struct pl_accounts accounts;
	char text[96];

	if (!status_line_due(&record->line))
		return;
	accounts = record_accounts(record);
	snprintf(text, sizeof(text), "%llu frame%s  %llu lost", (unsigned long long)record->used.frames,
		 cli_plural(record->used.frames), (unsigned long long)stream_accounts_lost(&accounts));
	status_line_draw(&record->line, record->used.frames, record->bytes, text);
}

static void wait_for_frame(struct record *record)
{
	uint64_t limit = record->line.shown ? STATUS_LINE_INTERVAL : UINT64_MAX, now = cli_now();

	if (record->deadline != UINT64_MAX)
		limit = CLI_MIN(limit, record->deadline > now ? record->deadline - now : 0);
	stream_client_wait(&record->client, pl_subscriber_fd(record->subscriber), limit);
}

/* Replaces the hint of the library by the state of the file. */
static void hint_at_frames(const struct record *record, const char *more, struct pl_error *error)
{
	snprintf(error->hint, sizeof(error->hint), "the file has %llu whole frame%s; record into another file%s",
		 (unsigned long long)record->used.frames, cli_plural(record->used.frames), more);
}

/* Adds the number of frames to the message of failed attempts to connect, whose hint stays the remedy. */
static void tell_of_attempts(const struct record *record, struct pl_error *error)
{
	size_t used = strlen(error->message), room;
	char text[64];

	/* The hint of PEER-LOST names functions of the library, and some failures of sockets have none. */
	if (!strcmp(error->id, "PEER-LOST") || !cli_hint(error)[0])
		snprintf(error->hint, sizeof(error->hint),
			 "see whether the publisher still runs, and record into another file");
	room = (size_t)snprintf(text, sizeof(text), "; the file has %llu whole frame%s",
				(unsigned long long)record->used.frames, cli_plural(record->used.frames));
	used = CLI_MIN(used, sizeof(error->message) - 1 - room);
	snprintf(error->message + used, sizeof(error->message) - used, "%s", text);
}

/* Handles the loss of the connection.  Returns 0; -ENODATA at the end of the stream; or -ENOTCONN. */
static int continue_recording(struct record *record, struct pl_error *error)
{
	const struct record_options *options = record->options;
	uint64_t now = cli_now(), left = record->deadline > now ? record->deadline - now : 0;
	struct stream_reconnect attempts =
		stream_attempts(&options->source, &record->client, record->subscriber, &record->line);
	int rc;

	if (!options->source.reconnect) {
		hint_at_frames(record, ", with --reconnect SECONDS to continue after a loss", error);
		return -ENOTCONN;
	}
	attempts.limit = CLI_MIN(options->source.reconnect, left);
	rc = stream_reconnect(&attempts, error);
	record->reconnects += rc == 0;
	record_look(record);
	if (rc == 0 || rc == -ENODATA)
		return rc;
	/* The end of --seconds, or a signal, is a loss, too: nothing tells which frames were published meanwhile. */
	stream_subscribe_hint(&attempts, error);
	tell_of_attempts(record, error);
	return -ENOTCONN;
}

/* Takes and writes the next frame, or waits for one. Returns 0, -ENODATA at the end of the stream, -EINTR, or the reason. */
static int record_frame(struct record *record, struct pl_error *error)
{
	struct pl_stream_frame *frame;
	int rc = pl_subscriber_take(record->subscriber, &frame, 1, 0, error);

	record_look(record);
	if (rc > 0)
		return write_frame(record, frame, error);
	if (rc == -EAGAIN) {
		wait_for_frame(record);
		return 0;
	}
	if (rc == -ENOTCONN)
		return continue_recording(record, error);
	/* The publisher was closed before the stream ended, or was started again: its sequences begin anew. */
	if ((rc == -ENODATA && record->info.stream.state != PL_STREAM_ENDED) || rc == -ESTALE) {
		hint_at_frames(record, "", error);
		return -ENOTCONN;
	}
	stream_token_hint(record->options->source.token_file, error);
	return rc;
}

static enum recording_end reason_of_end(const struct record *record, int rc)
{
	switch (rc) {
	case 0:
		if (record->used.frames == record->options->count)
			return RECORDING_COUNT;
		return cli_signal_pending() ? RECORDING_SIGNAL : RECORDING_TIME;
	case -EINTR:
		return RECORDING_SIGNAL;
	case -ENODATA:
		return RECORDING_ENDED;
	case -ENOTCONN:
		return RECORDING_LOST;
	case -ENOSPC:
	case -EFBIG:
	case -EDQUOT:
		return RECORDING_FULL;
	default:
		return RECORDING_FAILED;
	}
}

static uint64_t time_of_recording(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * CLI_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Creates the file once the stream is known. */
static int create_file(struct record *record, struct pl_error *error)
{
	const struct record_options *options = record->options;
	const struct pl_publisher_info *stream = &record->info.stream;
	struct recording_header header = { .created = stream->created,
					   .recorded = time_of_recording(),
					   .slot_bytes = stream->slot_bytes,
					   .slots = (uint32_t)stream->slots,
					   .metadata_bytes = (uint32_t)stream->metadata_bytes,
					   .layout = stream->layout };

	memcpy(header.instance, stream->instance, sizeof(header.instance));
	memcpy(header.content_type, stream->content_type, sizeof(header.content_type));
	memcpy(header.name, stream->name, sizeof(header.name));
	return recording_create(&record->writer, options->to, options->force, &header, error);
}

int record_frames(struct record *record, struct pl_error *error)
{
	const struct record_options *options = record->options;
	struct pl_accounts accounts;
	struct pl_error ignored;
	int rc, finished;

	record_look(record);
	if (options->source.stream.start != PL_START_LIVE)
		record->earlier = record->info.stream.published;
	rc = create_file(record, error);
	if (rc < 0) {
		record->end = RECORDING_FAILED;
		return rc;
	}
	/* The library's accounts begin with the first frame that the publisher had. */
	if (options->source.stream.start == PL_START_SEQUENCE &&
	    record->info.accounts.first > options->source.stream.from)
		record->gone = record->info.accounts.first - options->source.stream.from;
	recording_gaps_begin(&record->gaps, record->info.accounts.first - record->gone);
	record->deadline = options->seconds == UINT64_MAX ? UINT64_MAX : cli_now() + options->seconds;
	status_line_begin(&record->line, !options->source.common.quiet && !options->source.common.json);
	while (rc == 0 && record->used.frames < options->count && !cli_signal_pending() &&
	       cli_now() < record->deadline) {
		rc = record_frame(record, error);
		draw_record_line(record);
	}
	status_line_end(&record->line);
	record->end = reason_of_end(record, rc);
	if (rc == -ENODATA || rc == -EINTR)
		rc = 0;
	accounts = record_accounts(record);
	finished = recording_finish(&record->writer, record->end, &accounts, rc < 0 ? &ignored : error);
	record->indexed = finished == 0;
	if (rc < 0 && finished < 0)
		cli_warn("%s: %s: %s; `peerlane replay --check` tells which frames are whole", options->to,
			 ignored.call, ignored.message);
	return rc < 0 ? rc : finished;
}
