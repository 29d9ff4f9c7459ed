/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections and signals of `peerlane publish`. */
#include <poll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "cmd/stream/pattern.h"
#include "cmd/stream/publish.h"

#define BATCH 16
/* Connections of a publisher: its subscribers, and others that list streams. */
#define PEERS_MAX 320
#define SLOTS_DEFAULT 16

static int open_publisher(struct publish *publish, struct pl_error *error)
{
	const struct publish_options *options = publish->options;
	const struct frame_source *source = &publish->source;
	struct pl_publisher_options stream = PL_PUBLISHER_OPTIONS_INIT;
	int rc;

	stream.slots = options->slots ? (unsigned)options->slots : SLOTS_DEFAULT;
	stream.slot_bytes = source->frame_bytes;
	stream.layout = source->layout;
	stream.content_type = source->path ? NULL : PATTERN_CONTENT_TYPE;
	stream.allow_block = options->allow_block;
	stream.patience = options->patience;
	rc = cli_check_memory(stream.slots * source->frame_bytes, error);
	if (rc < 0)
		return cli_fail(error, rc, "NO-MEMORY", options->name, "use fewer --slots, or smaller frames",
				"this host has no memory for %u slots of %llu bytes", stream.slots,
				(unsigned long long)source->frame_bytes);
	return pl_publisher_open(publish->context, options->name, &stream, &publish->publisher, error);
}

int publish_open(struct publish *publish, struct pl_error *error)
{
	const struct publish_options *options = publish->options;
	struct cli_options common = options->common;
	char address[300];
	int rc = cli_address(options->listen, address, sizeof(address), error);

	publish->signals = -1;
	if (rc == 0)
		rc = publish->signals = cli_signal_fd(0, error);
	common.program = CLI_PROGRAM_PUBLISH;
	common.peers_max = PEERS_MAX;
	if (rc >= 0)
		rc = cli_open(&publish->context, &common, PL_PROGRESS_THREAD, error);
	if (rc == 0)
		rc = open_publisher(publish, error);
	if (rc == 0)
		rc = pl_listen(publish->context, address, &publish->listener, error);
	if (rc == 0)
		rc = pl_accept_start(publish->listener, 0, NULL, error);
	return rc;
}

void publish_close(struct publish *publish)
{
	pl_publisher_close(publish->publisher);
	pl_close(publish->context);
	if (publish->signals >= 0)
		close(publish->signals);
	frame_source_close(&publish->source);
}

unsigned publish_subscribers(const struct publish *publish)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;

	pl_publisher_query(publish->publisher, &info);
	return info.subscribers;
}

static void handle_publish_event(struct publish *publish, struct pl_completion *completion)
{
	if (completion->kind == PL_KIND_LOST)
		pl_peer_close(completion->peer);
	/* Without memory for another accept, the connections that exist go on. */
	if (completion->kind == PL_KIND_ACCEPT && pl_accept_start(publish->listener, 0, NULL, NULL) < 0)
		cli_warn("no memory to accept more connections");
	/* No subscriber sends notifications; the data of one that does is freed. */
	pl_notification_free(publish->context, completion);
}

static void draw_publish_line(struct publish *publish)
{
	char text[96];

	if (!status_line_due(&publish->line))
		return;
	snprintf(text, sizeof(text), "%llu frames  %u subscribers  %llu refused", (unsigned long long)publish->frames,
		 publish_subscribers(publish), (unsigned long long)publish->refused);
	status_line_draw(&publish->line, publish->frames, publish->bytes, text);
}

bool publish_serve(struct publish *publish, int fd, uint64_t nanoseconds)
{
	struct pollfd fds[] = { { .fd = pl_fd(publish->context), .events = POLLIN },
				{ .fd = publish->signals, .events = POLLIN },
				{ .fd = fd, .events = POLLIN } };
	uint64_t limit = publish->line.shown ? CLI_MIN(nanoseconds, STATUS_LINE_INTERVAL) : nanoseconds;
	struct timespec time = { .tv_sec = (time_t)(limit / CLI_NS_PER_S), .tv_nsec = (long)(limit % CLI_NS_PER_S) };
	struct pl_completion completions[BATCH];
	struct signalfd_siginfo signal;
	int count;

	if (ppoll(fds, CLI_ARRAY_SIZE(fds), limit == UINT64_MAX ? NULL : &time, NULL) < 0)
		return false;
	do {
		count = fds[0].revents ? pl_poll(publish->context, completions, BATCH) : 0;
		for (int i = 0; i < count; i++)
			handle_publish_event(publish, &completions[i]);
	} while (count == BATCH);
	if (fds[1].revents && read(publish->signals, &signal, sizeof(signal)) == sizeof(signal))
		publish->stopping = true;
	draw_publish_line(publish);
	publish->looked = cli_now();
	return fds[2].revents;
}
