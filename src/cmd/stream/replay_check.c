/* SPDX-License-Identifier: BSD-2-Clause */
/* Content of a recording, for `peerlane replay --check` and `--info`. */
#include <string.h>

#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/stream/layout_text.h"
#include "cmd/stream/recording_gaps.h"
#include "cmd/stream/replay.h"
#include "cmd/stream/stream_json.h"

struct content {
	uint64_t frames, bytes;
	uint64_t first, last;      /* sequences */
	uint64_t earliest, latest; /* times of capture */
	uint64_t damaged;          /* payloads with another digest */
	uint64_t wrong_entries;    /* of the index */
	struct recording_gaps gaps;
};

static void count_content(struct content *content, const struct recording_frame *frame)
{
	if (!content->frames) {
		content->first = frame->sequence;
		content->earliest = content->latest = frame->captured;
	}
	content->frames++;
	content->bytes += frame->length;
	content->last = frame->sequence;
	content->earliest = CLI_MIN(content->earliest, frame->captured);
	content->latest = CLI_MAX(content->latest, frame->captured);
	recording_gaps_add(&content->gaps, frame->sequence);
}

/* Verifies the payload, and the entry of the index. */
static int verify_recorded(struct replay *replay, struct content *content, const struct recording_frame *frame,
			   struct pl_error *error)
{
	const struct recording_reader *reader = &replay->reader;
	struct recording_entry entry;
	int rc = recording_read(reader, frame, NULL, error);

	if (rc == -EBADMSG) {
		content->damaged++;
		cli_report(error);
		rc = 0;
	}
	if (rc < 0 || !reader->indexed)
		return rc;
	if (reader->number <= reader->summary.frames) {
		rc = recording_entry(reader, reader->number - 1, &entry, error);
		if (rc == 0 && (entry.sequence != frame->sequence || entry.offset + RECORDING_PAGE != reader->payload))
			content->wrong_entries++;
	}
	return rc;
}

/* Reads all frames. Returns 0; -EBADMSG if the recording is damaged; or a negative errno. */
static int read_content(struct replay *replay, struct content *content, struct pl_error *error)
{
	struct recording_reader *reader = &replay->reader;
	struct recording_frame frame;
	int rc;

	while ((rc = recording_next(reader, &frame, error)) == 1) {
		if (!content->frames)
			recording_gaps_begin(&content->gaps,
					     reader->indexed ? CLI_MIN(reader->summary.accounts.first, frame.sequence)
							     : frame.sequence);
		count_content(content, &frame);
		rc = replay->options->check ? verify_recorded(replay, content, &frame, error) : 0;
		if (rc < 0)
			return rc;
	}
	if (rc < 0)
		return rc;
	if (reader->indexed && (content->wrong_entries || content->frames != reader->summary.frames))
		return cli_fail(error, -EBADMSG, "RECORDING-DAMAGED", reader->path,
				"replay the frames, and record again", "the index does not match the frames");
	if (content->damaged)
		return cli_fail(error, -EBADMSG, "RECORDING-DAMAGED", reader->path,
				"look for errors of the disk: dmesg", "%llu of %llu payloads are damaged",
				(unsigned long long)content->damaged, (unsigned long long)content->frames);
	return 0;
}

/* -- output -------------------------------------------------------------------------------------------- */

/* Describes the recorded stream as one that has ended. */
static struct pl_publisher_info recorded_stream(const struct recording_header *header, const struct content *content)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;

	memcpy(info.name, header->name, sizeof(info.name));
	memcpy(info.content_type, header->content_type, sizeof(info.content_type));
	memcpy(info.instance, header->instance, sizeof(info.instance));
	info.created = header->created;
	info.layout = header->layout;
	info.slots = header->slots;
	info.slot_bytes = header->slot_bytes;
	info.metadata_bytes = header->metadata_bytes;
	info.claimed = info.published = content->frames ? content->last + 1 : 0;
	info.state = PL_STREAM_ENDED;
	return info;
}

static int print_content_json(const struct replay *replay, const struct content *content, const struct pl_error *error)
{
	const struct recording_reader *reader = &replay->reader;
	struct pl_publisher_info info = recorded_stream(&reader->header, content);
	struct json_object *object = cli_json_begin();
	bool any = content->frames;

	cli_json_add(object, "file", cli_json_text(reader->path));
	cli_json_add(object, "stream", stream_json_describe(&info, -1));
	cli_json_add(object, "recorded", json_object_new_uint64(reader->header.recorded));
	cli_json_add(object, "indexed", json_object_new_boolean(reader->indexed));
	cli_json_add(object, "rest", json_object_new_uint64(reader->rest));
	cli_json_add(object, "end", cli_json_text(recording_end_name(reader->summary.reason)));
	cli_json_add(object, "frames", json_object_new_uint64(content->frames));
	cli_json_add(object, "bytes", json_object_new_uint64(content->bytes));
	cli_json_add(object, "first", any ? json_object_new_uint64(content->first) : NULL);
	cli_json_add(object, "last", any ? json_object_new_uint64(content->last) : NULL);
	cli_json_add(object, "earliest", any ? json_object_new_uint64(content->earliest) : NULL);
	cli_json_add(object, "latest", any ? json_object_new_uint64(content->latest) : NULL);
	cli_json_add(object, "accounts", reader->indexed ? stream_json_accounts(&reader->summary.accounts) : NULL);
	cli_json_add(object, "gaps", recording_gaps_json(&content->gaps));
	cli_json_add(object, "checked", json_object_new_boolean(replay->options->check));
	cli_json_add(object, "damaged", json_object_new_uint64(content->damaged));
	cli_json_add(object, "error", error ? cli_json_error(error) : NULL);
	return cli_json_results(object);
}

static void print_accounts(const struct pl_accounts *accounts)
{
	struct wrap_line line = { .length = 0 };

	stream_accounts_add_lost(&line, accounts);
	wrap_line_add(&line, "; aborted %llu", (unsigned long long)accounts->aborted);
	wrap_line_print(&line, stdout);
}

static void print_content_text(const struct replay *replay, const struct content *content)
{
	const struct recording_reader *reader = &replay->reader;
	char dtype[STREAM_DTYPE_MAX], shape[STREAM_SHAPE_MAX], bytes[CLI_UNIT_MAX], time[CLI_UNIT_MAX];

	printf("stream %s: %s %s, frames of up to %s\n", reader->header.name,
	       stream_dtype_format(dtype, &reader->header.layout), stream_shape_format(shape, &reader->header.layout),
	       cli_format_bytes(bytes, reader->header.slot_bytes));
	printf("%llu frame%s, %s", (unsigned long long)content->frames, cli_plural(content->frames),
	       cli_format_bytes(bytes, content->bytes));
	if (content->frames)
		printf(", sequences %llu to %llu, captured within %s", (unsigned long long)content->first,
		       (unsigned long long)content->last, cli_format_time(time, content->latest - content->earliest));
	putchar('\n');
	if (reader->indexed) {
		printf("ended by: %s\n", recording_end_name(reader->summary.reason));
		print_accounts(&reader->summary.accounts);
	} else {
		printf("no index: the writer was killed, or had no room; %s behind the last whole frame\n",
		       cli_format_bytes(bytes, reader->rest));
	}
	recording_gaps_print(stdout, &content->gaps);
}

int replay_check(struct replay *replay)
{
	struct content content = { 0 };
	struct pl_error error;
	int rc = read_content(replay, &content, &error);
	int status = replay->options->check && !replay->reader.indexed ? CLI_DEGRADED : CLI_OK;

	if (replay->options->common.json) {
		if (print_content_json(replay, &content, rc < 0 ? &error : NULL) != CLI_OK)
			status = CLI_OUTPUT;
	} else {
		print_content_text(replay, &content);
		if (replay->options->check && rc == 0)
			puts("all digests are right");
	}
	return rc < 0 ? cli_report(&error) : status;
}
