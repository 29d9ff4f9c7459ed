/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames of a stream: the source publishes them, and the client subscribes with frames in device memory. The publisher waits
 * for the subscriber, so that no frame is lost.
 */
#include "bench/workflow/workflow.h"

#include "bench/common/process.h"

#define STREAM_NAME "frames"
#define PATIENCE (100 * CLI_NS_PER_MS)

/* -- source ---------------------------------------------------------------------------------------------- */

int workflow_stream_open(struct workflow_server *server)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;

	/* So many slots that the content of a slot is that of all its frames: see workflow_content_slot(). */
	options.slots = server->setup.depth + 1;
	options.slot_bytes = server->setup.size;
	options.subscribers = 1;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	return pl_publisher_open(server->context, STREAM_NAME, &options, &server->stream.publisher, &server->error);
}

/* Without a subscriber, nothing would hold the source back. */
static bool has_subscriber(const struct workflow_stream *stream)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;

	return pl_publisher_query(stream->publisher, &info) == 0 && info.subscribers;
}

/* Writes the content of a slot, which all later frames in it keep. */
static void fill_slot(const struct workflow_server *server, const struct pl_stream_frame *frame, uint32_t slot)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	uint64_t size = server->setup.size, seed = server->run.seed;

	pl_frame_query(frame, &info);
	workflow_frame_fill(info.data, size, seed, slot);
	if (slot == 1 && server->run.fault == WORKFLOW_FAULT_SOURCE)
		workflow_frame_damage(info.data, size, seed);
}

static void *publish_frames(void *argument)
{
	struct workflow_server *server = argument;
	struct workflow_stream *stream = &server->stream;
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	uint64_t number = 0;

	options.length = server->setup.size;
	while (stream->rc == 0 && !atomic_load(&stream->stop) && has_subscriber(stream)) {
		struct pl_stream_frame *frame;
		int rc = pl_publisher_loan(stream->publisher, PATIENCE, &frame, &stream->error);

		if (rc == -EAGAIN)
			continue;
		if (rc == 0 && number <= server->setup.depth)
			fill_slot(server, frame, (uint32_t)number);
		if (rc == 0)
			rc = pl_frame_publish(frame, &options, &stream->error);
		stream->rc = rc;
		number++;
	}
	return NULL;
}

int workflow_stream_start(struct workflow_server *server)
{
	struct workflow_stream *stream = &server->stream;
	int rc;

	if (stream->started)
		return cli_fail(&server->error, -EPROTO, "BENCH-PROTOCOL", NULL, BENCH_VERSION_HINT,
				"the client started a stream twice");
	stream->rc = 0;
	atomic_store(&stream->stop, false);
	rc = -pthread_create(&stream->thread, NULL, publish_frames, server);
	stream->started = rc == 0;
	return rc < 0 ? cli_fail_errno(&server->error, rc, "pthread_create", NULL) : 0;
}

int workflow_stream_close(struct workflow_server *server)
{
	struct workflow_stream *stream = &server->stream;
	int rc = 0;

	if (stream->started) {
		atomic_store(&stream->stop, true);
		pthread_join(stream->thread, NULL);
		rc = stream->rc;
		if (rc < 0)
			server->error = stream->error;
	}
	pl_publisher_close(stream->publisher);
	stream->publisher = NULL;
	stream->started = false;
	return rc;
}

/* -- client ---------------------------------------------------------------------------------------------- */

int workflow_subscribe(struct workflow_run *run, struct pl_error *error)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	int rc;

	options.overflow = PL_OVERFLOW_BLOCK;
	/* The program holds as many frames as with the other methods, and as many more are read ahead. */
	options.queue = options.held = run->depth;
	options.memory = run->compute->memory;
	options.memory_bytes = SIZE_MAX;
	run->traffic = (struct pl_traffic)PL_TRAFFIC_INIT;
	rc = pl_context_traffic(run->source->context, PL_KIND_READ, NULL, &run->traffic, error);
	if (rc == 0)
		rc = pl_subscriber_open(run->source->peer, STREAM_NAME, &options, run->source->timeout,
					&run->subscriber, error);
	return rc < 0 ? rc : pl_notify(run->source->peer, 1, NULL, 0, NULL, NULL, error);
}

/* Frames give no receipts: the context has counted their reads. */
static void count_stream_bytes(struct workflow_run *run)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_traffic traffic = PL_TRAFFIC_INIT;
	struct pl_completion sum = { .reason = "reads of a subscriber, as the context counts them" };

	if (pl_peer_query(run->source->peer, &info) < 0 ||
	    pl_context_traffic(run->source->context, PL_KIND_READ, NULL, &traffic, NULL) < 0)
		return;
	sum.bytes = traffic.bytes - run->traffic.bytes;
	sum.bytes_staged = traffic.staged - run->traffic.staged;
	sum.route = sum.bytes_staged ? PL_ROUTE_STAGED : PL_ROUTE_DIRECT;
	sum.fabric = info.fabric;
	workflow_totals_add(&run->totals, &sum);
}

void workflow_unsubscribe(struct workflow_run *run)
{
	if (!run->subscriber)
		return;
	count_stream_bytes(run);
	for (uint32_t i = 0; i < run->depth; i++)
		workflow_stream_release(&run->frames[i]);
	pl_subscriber_close(run->subscriber);
	run->subscriber = NULL;
}

int workflow_stream_take(struct workflow_run *run, uint64_t number, struct pl_error *error)
{
	struct workflow_frame *frame = &run->frames[number % run->depth];
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	int rc = pl_subscriber_take(run->subscriber, &frame->frame, 1, run->source->timeout, error);

	if (rc < 0)
		return rc;
	pl_frame_query(frame->frame, &info);
	if (info.sequence != number || info.length != run->memory->size)
		return cli_fail(error, -EPROTO, "BENCH-PROTOCOL", NULL, BENCH_VERSION_HINT,
				"frame %llu of %llu bytes came as frame %llu of the stream",
				(unsigned long long)info.sequence, (unsigned long long)info.length,
				(unsigned long long)number);
	return 0;
}

void *workflow_stream_data(const struct workflow_frame *frame)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;

	pl_frame_query(frame->frame, &info);
	return info.data;
}

void workflow_stream_release(struct workflow_frame *frame)
{
	pl_frame_release(frame->frame);
	frame->frame = NULL;
}
