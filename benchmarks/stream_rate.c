/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stream_rate FABRIC[@HOST] BYTES SECONDS [QUEUE [SLOTS [PLACE [PAUSE [POLL [BATCH]]]]]]: frames of a stream from one process to
 * another on this host, over the loopback interface or the address HOST. The subscriber holds slots back, so that no frame is
 * lost; with PLACE 1 it uses frames in the ring. The publisher does not fill the frames: the rate is that of the stream. It waits
 * for PAUSE microseconds before each frame, so that the queue is empty. Waiting threads poll for POLL microseconds; 0: the
 * library's default. A call takes up to BATCH frames. Prints a JSON object with frames and bytes a second, the time from
 * publication to take, and the reads of the cursors that a frame needs.
 *
 * With FABRIC none there is no subscriber: the cost of the publisher's calls. With FABRIC alternate one thread publishes BATCH
 * frames and takes them in place, again and again: the cost of the calls of both ends, whose instructions callgrind can count.
 */
#include "support.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <peerlane/stream.h>

#define TIMEOUT (60 * NS_PER_S)
#define LATENCIES_MAX 1000000u
#define BATCH_MAX 256u
/* Frames after which the publisher looks at the clock. */
#define LOOK_INTERVAL 16u

struct run {
	const char *fabric, *host; /* `host` NULL: the loopback interface */
	size_t bytes;
	double seconds;
	unsigned queue, slots, batch;
	bool in_place;
	uint64_t pause, poll; /* nanoseconds */
};

static struct pl_context *open_end(const struct run *run)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	options.fabric = run->fabric;
	options.insecure = run->host != NULL;
	options.poll_time = run->poll;
	MUST(pl_open(&context, &options, &error), &error);
	return context;
}

/* Publishes until the stream has run for its time, then ends it. */
static void publish(const void *argument, int address_pipe)
{
	const struct run *run = argument;
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_frame_options frame_options = PL_FRAME_OPTIONS_INIT;
	struct pl_context *context = open_end(run);
	struct pl_publisher *publisher;
	struct pl_stream_frame *frame;
	struct pl_listener *listener;
	struct pl_error error;
	struct pl_peer *peer;
	char address[96];
	uint64_t end;

	options.slot_bytes = run->bytes;
	options.slots = run->slots;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	frame_options.length = run->bytes;
	MUST(pl_publisher_open(context, "rate", &options, &publisher, &error), &error);
	snprintf(address, sizeof(address), "%s:0", run->host ? run->host : "127.0.0.1");
	MUST(pl_listen(context, address, &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	put(address_pipe, address, sizeof(address));
	MUST(pl_accept(listener, TIMEOUT, &peer, &error), &error);
	for (struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT; info.blocking == 0;)
		pl_publisher_query(publisher, &info);
	end = now_ns() + (uint64_t)(run->seconds * NS_PER_S);
	/* A look at the clock takes as long as a third of a small frame. */
	for (uint64_t frames = 0; (!run->pause && frames % LOOK_INTERVAL) || now_ns() < end; frames++) {
		if (run->pause)
			nanosleep(&(struct timespec){ .tv_sec = (time_t)(run->pause / NS_PER_S),
						      .tv_nsec = (long)(run->pause % NS_PER_S) },
				  NULL);
		MUST(pl_publisher_loan(publisher, TIMEOUT, &frame, &error), &error);
		MUST(pl_frame_publish(frame, &frame_options, &error), &error);
	}
	MUST(pl_publisher_end(publisher, TIMEOUT, &error), &error);
	pl_close(context);
}

/* Prints the lowest cost of a frame in rounds that take SECONDS together. */
static void publish_alone(const struct run *run)
{
	const unsigned rounds = 1000;
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_frame_options frame_options = PL_FRAME_OPTIONS_INIT;
	struct pl_options context_options = PL_OPTIONS_INIT;
	struct pl_publisher *publisher;
	struct pl_stream_frame *frame;
	struct pl_context *context;
	struct pl_error error;
	double lowest = 1e18;

	MUST(pl_open(&context, &context_options, &error), &error);
	options.slot_bytes = frame_options.length = run->bytes;
	options.slots = run->slots;
	MUST(pl_publisher_open(context, "rate", &options, &publisher, &error), &error);
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t begin = now_ns(), now = begin, frames = 0;
		double cost;

		for (; now - begin < run->seconds * NS_PER_S / rounds; now = now_ns())
			for (unsigned j = 0; j < 1000; j++, frames++) {
				MUST(pl_publisher_loan(publisher, 0, &frame, &error), &error);
				MUST(pl_frame_publish(frame, &frame_options, &error), &error);
			}
		cost = (double)(now - begin) / (double)frames;
		lowest = cost < lowest ? cost : lowest;
	}
	printf("{\"frames_per_second\": %.0f, \"nanoseconds_per_frame\": %.1f}\n", NS_PER_S / lowest, lowest);
	pl_close(context);
}

/* Publishes and takes in one thread, over the local fabric. */
static void alternate(const struct run *run)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options subscriber_options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_frame_options frame_options = PL_FRAME_OPTIONS_INIT;
	struct pl_context *far = open_end(run), *near = open_end(run);
	struct pl_stream_frame *frames[BATCH_MAX];
	struct pl_subscriber *subscriber;
	struct pl_publisher *publisher;
	struct pl_listener *listener;
	uint64_t begin, now, count = 0;
	struct pl_error error;
	struct pl_peer *peer;
	char address[96];

	options.slot_bytes = frame_options.length = run->bytes;
	options.slots = run->slots;
	options.allow_block = true;
	MUST(pl_publisher_open(far, "rate", &options, &publisher, &error), &error);
	MUST(pl_listen(far, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	MUST(pl_connect(near, address, TIMEOUT, &peer, &error), &error);
	subscriber_options.overflow = PL_OVERFLOW_BLOCK;
	subscriber_options.in_place = true;
	subscriber_options.queue = run->queue;
	subscriber_options.held = run->batch + 1;
	MUST(pl_subscriber_open(peer, "rate", &subscriber_options, TIMEOUT, &subscriber, &error), &error);
	begin = now = now_ns();
	for (; now - begin < run->seconds * NS_PER_S; now = now_ns(), count += run->batch) {
		for (unsigned i = 0; i < run->batch; i++) {
			MUST(pl_publisher_loan(publisher, TIMEOUT, &frames[0], &error), &error);
			MUST(pl_frame_publish(frames[0], &frame_options, &error), &error);
		}
		for (unsigned taken = 0; taken < run->batch;) {
			int rc = pl_subscriber_take(subscriber, frames, run->batch - taken, TIMEOUT, &error);

			MUST(rc, &error);
			for (int i = 0; i < rc; i++, taken++) {
				struct pl_frame_info info = PL_FRAME_INFO_INIT;

				pl_frame_query(frames[i], &info);
				pl_frame_release(frames[i]);
			}
		}
	}
	printf("{\"frames_per_second\": %.0f, \"nanoseconds_per_frame\": %.1f}\n",
	       (double)count * NS_PER_S / (double)(now - begin), (double)(now - begin) / (double)count);
	pl_subscriber_close(subscriber);
	pl_close(near);
	pl_close(far);
}

static void subscribe(const void *argument, const char *address)
{
	const struct run *run = argument;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscriber_info state = PL_SUBSCRIBER_INFO_INIT;
	struct pl_context *context = open_end(run);
	uint64_t *latencies = malloc(LATENCIES_MAX * sizeof(*latencies)), begin = 0, took;
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *batch[BATCH_MAX];
	struct pl_error error;
	struct pl_peer *peer;
	uint64_t frames = 0, taken = 0, warm_up;
	int rc;

	MUST(pl_connect(context, address, TIMEOUT, &peer, &error), &error);
	options.overflow = PL_OVERFLOW_BLOCK;
	options.queue = run->queue;
	options.in_place = run->in_place;
	options.held = run->batch + 1;
	MUST(pl_subscriber_open(peer, "rate", &options, TIMEOUT, &subscriber, &error), &error);
	/* Until then, both ends touch pages of the ring and of the subscriber for the first time. */
	warm_up = 2 * (run->queue + run->slots + 2);
	while ((rc = pl_subscriber_take(subscriber, batch, run->batch, TIMEOUT, &error)) > 0) {
		for (int i = 0; i < rc; i++) {
			struct pl_frame_info info = PL_FRAME_INFO_INIT;

			pl_frame_query(batch[i], &info);
			if (++taken == warm_up)
				begin = now_ns();
			else if (taken > warm_up)
				latencies[frames++ % LATENCIES_MAX] = info.taken - info.published;
			pl_frame_release(batch[i]);
		}
	}
	took = now_ns() - begin;
	if (rc != -ENODATA)
		give_up("pl_subscriber_take", rc, &error);
	if (frames == 0) {
		fprintf(stderr, "all %llu frames were warm-up: allow more SECONDS, or fewer SLOTS\n",
			(unsigned long long)taken);
		exit(1);
	}
	sort_times(latencies, frames < LATENCIES_MAX ? frames : LATENCIES_MAX);
	pl_subscriber_query(subscriber, &state);
	printf("{\"frames_per_second\": %.0f, \"bytes_per_second\": %.0f, \"latency_p50_us\": %.2f, "
	       "\"checks_per_frame\": %.3f}\n",
	       (double)frames * NS_PER_S / (double)took, (double)frames * (double)run->bytes * NS_PER_S / (double)took,
	       (double)latencies[(frames < LATENCIES_MAX ? frames : LATENCIES_MAX) / 2] / 1000,
	       (double)state.checks / (double)taken);
	free(latencies);
	pl_close(context);
}

int main(int argc, char **argv)
{
	struct run run = { .queue = 8, .slots = 16, .batch = 1 };

	if (argc < 4) {
		fprintf(stderr, "usage: stream_rate FABRIC[@HOST] BYTES SECONDS [QUEUE [SLOTS [PLACE [PAUSE [POLL "
				"[BATCH]]]]]]\n");
		return 2;
	}
	run.fabric = strtok(argv[1], "@");
	run.host = strtok(NULL, "");
	run.bytes = strtoull(argv[2], NULL, 10);
	run.seconds = strtod(argv[3], NULL);
	if (argc > 4)
		run.queue = (unsigned)atoi(argv[4]);
	if (argc > 5)
		run.slots = (unsigned)atoi(argv[5]);
	if (argc > 6)
		run.in_place = atoi(argv[6]);
	if (argc > 7)
		run.pause = strtoull(argv[7], NULL, 10) * 1000;
	if (argc > 8)
		run.poll = strtoull(argv[8], NULL, 10) * 1000;
	if (argc > 9)
		run.batch = (unsigned)atoi(argv[9]);
	if (run.batch < 1 || run.batch > BATCH_MAX) {
		fprintf(stderr, "stream_rate: BATCH is 1 to %u\n", BATCH_MAX);
		return 2;
	}
	if (!strcmp(run.fabric, "none")) {
		publish_alone(&run);
		return 0;
	}
	if (!strcmp(run.fabric, "alternate")) {
		run.fabric = "local";
		alternate(&run);
		return 0;
	}
	return run_stream(&run, publish, subscribe);
}
