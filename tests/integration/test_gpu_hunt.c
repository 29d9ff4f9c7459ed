/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hunt for torn frames in GPU memory, between two processes: the publisher overwrites the slots of its GPU at full speed,
 * by copies from locked host memory. Each frame has one value in all words. A reader without the lap rule must get mixed
 * frames, or the hunt proves nothing; the subscriber must get none.
 *
 * The publisher has GPU 0, and the reader GPU 1 if the machine has one: over the local fabric its copies use NVLink then,
 * and stay within GPU 0 otherwise.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/gpu.h"
#include "support/publishing.h"

#define WORDS ((size_t)512 << 10)
#define BYTES (WORDS * sizeof(uint64_t))
#define SLOTS 3u
/* Values that frames have in turn. A slot that is used again gets another one: SLOTS is no multiple of VALUES. */
#define VALUES 16u
/* Frames that the publisher publishes with pauses, and then without. */
#define PACED 16u
#define FAST 48u

struct hunt {
	struct setting setting;
	const char *publisher; /* memory */
	bool to_gpu, push;
};

/* Reader without the lap rule. */
struct naive {
	const struct hunt *hunt;
	struct pl_peer *peer;
	const struct pl_subscriber *subscriber;
	struct pl_region *cursors, *frame;
	void *memory;          /* of the frame */
	uint64_t *words;       /* locked; a copy of it */
	unsigned single, pair; /* mixed frames of one read, and of two */
};

static uint64_t value_of(uint64_t sequence)
{
	return 0x0101010101010101u * (1 + sequence % VALUES);
}

static bool is_whole(const uint64_t *words, uint64_t value)
{
	for (size_t i = 0; i < WORDS; i++)
		if (words[i] != value)
			return false;
	return true;
}

/* -- publisher ------------------------------------------------------------------------------------------------- */

static void publish_frame(struct pl_publisher *publisher, const struct hunt *hunt, const uint64_t *images)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_stream_frame *frame = loan_frame(publisher, &info);
	const uint64_t *image = images + info.sequence % VALUES * WORDS;
	struct pl_error error;

	if (hunt->publisher)
		gpu_copy_in(info.data, image, BYTES);
	else
		memcpy(info.data, image, BYTES);
	options.length = BYTES;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

static struct pl_publisher *open_publisher(struct pl_context *context, const struct hunt *hunt)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher *publisher;
	struct pl_error error;

	options.slot_bytes = BYTES;
	options.slots = SLOTS;
	options.memory = hunt->publisher;
	check_ok(pl_publisher_open(context, "hunt", &options, &publisher, &error), &error);
	return publisher;
}

/* Publishes without waiting for anybody until the parent sends a byte: some frames with short pauses, then some at full speed. */
static void child_publish(const void *argument, int to, int from)
{
	const struct hunt *hunt = argument;
	uint64_t *images = aligned_alloc(4096, VALUES * BYTES), random = 1;
	struct pl_publisher *publisher;
	struct pl_listener *listener;
	struct pl_context *context;
	struct pl_peer *peer;
	char address[96];

	check(images && gpu_open("alloc"));
	for (size_t i = 0; i < VALUES * WORDS; i++)
		images[i] = value_of(i / WORDS);
	gpu_pin(images, VALUES * BYTES);
	context = context_open(&hunt->setting);
	publisher = open_publisher(context, hunt);
	listener = listener_open(&hunt->setting, context, address);
	check(write(to, address, sizeof(address)) == sizeof(address));
	check(pl_accept(listener, AMPLE_TIME, &peer, NULL) == 0);
	for (unsigned count = 0; !publishing_child_is_told(from); count++) {
		struct timespec pause = { .tv_nsec = (long)(random_next(&random) % (2 * MS)) };

		publish_frame(publisher, hunt, images);
		if (count % (PACED + FAST) < PACED)
			nanosleep(&pause, NULL);
	}
	pl_close(context);
	_exit(0);
}

/* ThreadSanitizer reports the overwriting of frames, which the test is about, as a race in the publisher's process. */
static void skip_with_thread_sanitizer(void)
{
#ifdef __SANITIZE_THREAD__
	puts("ThreadSanitizer reports the overwriting, which the test is about");
	exit(SKIPPED);
#endif
}

/* Ends the case as skipped without a GPU, which another process finds out. */
static void require_gpu(void)
{
	pid_t probe = process_fork();

	if (probe == 0)
		_exit(gpu_open("alloc") ? 0 : SKIPPED);
	if (process_wait(probe) != 0)
		exit(SKIPPED);
}

/* -- readers --------------------------------------------------------------------------------------------------- */

static void naive_open(struct naive *naive, const struct hunt *hunt, struct pl_context *context)
{
	struct pl_error error;

	naive->hunt = hunt;
	naive->words = aligned_alloc(4096, BYTES);
	naive->memory = hunt->to_gpu ? gpu_allocate(BYTES) : aligned_alloc(4096, BYTES);
	check(naive->words && naive->memory);
	gpu_pin(naive->words, BYTES);
	check_ok(pl_region_register(context, naive->memory, BYTES, PL_ACCESS_LOCAL, &naive->frame, &error), &error);
	check_ok(pl_region_allocate(context, PL_RING_CURSORS, PL_ACCESS_LOCAL, &naive->cursors, &error), &error);
}

/* After the end of the context. */
static void naive_close(struct naive *naive)
{
	if (naive->hunt->to_gpu)
		gpu_free(naive->memory);
	else
		free(naive->memory);
	gpu_unpin(naive->words);
	free(naive->words);
}

static void naive_read(const struct naive *naive, const struct pl_transfer *transfer)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	check_ok(pl_read(naive->peer, transfer, naive->hunt->to_gpu ? &attributes : NULL, &operation, &error), &error);
	check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
}

/* Returns the sequence of the newest frame. */
static uint64_t naive_newest(const struct naive *naive)
{
	const uint64_t *words = pl_region_address(naive->cursors);
	const struct pl_transfer transfer = { naive->subscriber->control, PL_RING_HEADER, naive->cursors, 0,
					      PL_RING_CURSORS };

	naive_read(naive, &transfer);
	return le64toh(words[1]) - 1;
}

/*
 * Reads a frame with the subscriber's keys, in parts, and checks nothing afterwards. It pauses between two parts until the
 * publisher has used the slot again, because a fast machine reads a frame before that. Returns true if it was mixed.
 */
static bool naive_mixed(const struct naive *naive, uint64_t sequence, unsigned parts)
{
	uint64_t at = pl_ring_slot_offset(&naive->subscriber->geometry, sequence), length = BYTES / parts;

	for (unsigned i = 0; i < parts; i++) {
		const struct pl_transfer transfer = { naive->subscriber->payload, at + i * length, naive->frame,
						      i * length, length };

		while (i && naive_newest(naive) <= sequence + SLOTS)
			;
		naive_read(naive, &transfer);
	}
	if (naive->hunt->to_gpu)
		gpu_copy_out(naive->memory, naive->words, BYTES);
	else
		memcpy(naive->words, naive->memory, BYTES);
	return !is_whole(naive->words, naive->words[0]);
}

/* Reads the oldest frame of the ring, which the publisher overwrites next, in one part, and the newest one in two. */
static void naive_hunt(struct naive *naive)
{
	uint64_t newest = naive_newest(naive);

	if (newest >= SLOTS - 2)
		naive->single += naive_mixed(naive, newest - (SLOTS - 2), 1);
	naive->pair += naive_mixed(naive, naive_newest(naive), 2);
}

static void take_some(struct pl_subscriber *subscriber, const struct hunt *hunt, uint64_t *words, uint64_t *last)
{
	struct pl_stream_frame *frames[2];
	int count = pl_subscriber_take(subscriber, frames, 2, 0, NULL);

	check(count > 0 || count == -EAGAIN);
	for (int i = 0; i < count; i++) {
		struct pl_frame_info info = PL_FRAME_INFO_INIT;

		check(pl_frame_query(frames[i], &info) == 0 && info.length == BYTES);
		if (hunt->to_gpu)
			gpu_copy_out(info.data, words, BYTES);
		check(is_whole(hunt->to_gpu ? words : info.data, value_of(info.sequence)));
		check(*last == UINT64_MAX || info.sequence == *last + info.lost_before + 1);
		*last = info.sequence;
		pl_frame_release(frames[i]);
	}
}

/*
 * True once both readers have seen enough. GPUs read frames faster than a processor fills them: then the subscriber is hardly ever
 * lapped, and more mixed frames of the naive reader prove that slots are overwritten. Only the subscriber can read pushed frames.
 */
static bool hunt_is_over(const struct naive *naive, const struct pl_accounts *accounts)
{
	unsigned mixed = naive->single + naive->pair;

	if (naive->hunt->push)
		return accounts->delivered >= 30 && (accounts->lapped >= 3 || accounts->delivered >= 3000);
	return accounts->delivered >= 30 && mixed >= 3 && (accounts->lapped >= 3 || mixed >= 100);
}

static void test_hunt(void *argument)
{
	const struct hunt *hunt = argument;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	uint64_t limit = clock_now() + 2 * AMPLE_TIME, last = UINT64_MAX;
	struct pl_accounts accounts = { 0 };
	struct pl_subscriber *subscriber;
	struct naive naive = { 0 };
	struct pl_context *context;
	struct pl_error error;
	struct publishing_child child;
	bool second;

	skip_with_thread_sanitizer();
	require_gpu();
	/* Before this process uses the driver, which does not work in a child of such a process. */
	publishing_child_start(&child, child_publish, hunt);
	second = gpu_open_on("alloc", 1);
	check(second || gpu_open("alloc"));
	context = context_open(&hunt->setting);
	check_ok(pl_connect(context, child.address, AMPLE_TIME, &naive.peer, &error), &error);
	options.memory = !hunt->to_gpu ? NULL : second ? "cuda:1" : "cuda:0";
	options.push = hunt->push;
	check_ok(pl_subscriber_open(naive.peer, "hunt", &options, AMPLE_TIME, &subscriber, &error), &error);
	naive.subscriber = subscriber;
	naive_open(&naive, hunt, context);
	while (!hunt_is_over(&naive, &accounts)) {
		if (clock_now() > limit) {
			fprintf(stderr,
				"void: mixed frames of the naive reader: %u of one read, %u of two; "
				"%llu delivered, %llu lapped\n",
				naive.single, naive.pair, (unsigned long long)accounts.delivered,
				(unsigned long long)accounts.lapped);
			abort();
		}
		if (!hunt->push)
			naive_hunt(&naive);
		take_some(subscriber, hunt, naive.words, &last);
		accounts = exact_accounts(subscriber);
	}
	printf("mixed frames of the naive reader: %u of one read, %u of two; the subscriber took %llu whole frames, "
	       "%llu were "
	       "overwritten\n",
	       naive.single, naive.pair, (unsigned long long)accounts.delivered, (unsigned long long)accounts.lapped);
	publishing_child_end(&child);
	pl_close(context);
	naive_close(&naive);
}

#define OVER_LOCAL \
	{ \
		.name = "thread", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1 \
	}
#define OVER_TCP \
	{ \
		.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 2 \
	}

static const struct hunt local_gpu = { OVER_LOCAL, "cuda:0", true, false };
static const struct hunt local_to_host = { OVER_LOCAL, "cuda:0", false, false };
static const struct hunt local_from_host = { OVER_LOCAL, NULL, true, false };
static const struct hunt local_push = { OVER_LOCAL, "cuda:0", true, true };
static const struct hunt tcp_gpu = { OVER_TCP, "cuda:0", true, false };
static const struct hunt tcp_push = { OVER_TCP, "cuda:0", true, true };

int main(void)
{
	static const struct test_case cases[] = {
		{ "local", test_hunt, &local_gpu, 60 },
		{ "local-to-host", test_hunt, &local_to_host, 60 },
		{ "local-from-host", test_hunt, &local_from_host, 60 },
		{ "local-push", test_hunt, &local_push, 60 },
		{ "tcp", test_hunt, &tcp_gpu, 60 },
		{ "tcp-push", test_hunt, &tcp_push, 60 },
	};

	return cases_run("gpu-hunt", cases, sizeof(cases) / sizeof(cases[0]));
}
