/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Start of a subscriber with frames in GPU memory: all first calls of the driver come before its subscription begins, so that frames
 * of a running publisher are not lost meanwhile. The stand-in holds a call of the driver for as long as a test needs.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <peerlane/stream.h>

#include "core/peer.h"
#include "stream/publisher.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"

/* The ring is long enough for its mapping to be locked. */
#define SLOT (128u << 10)
#define SLOTS 8u
#define QUEUE 4u
#define HELD 2u
/* More than the engines of a context. */
#define PEERS_MAX 65u
/* Microseconds. */
#define MINUTE 60000000u

static const struct setting tcp_threads = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting local_threads = {
	.name = "thread", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct pl_error error;
	pthread_t thread;
	atomic_bool opened;
	const char *frames; /* memory of the subscriber */
	uint64_t timeout;   /* of the opening; 0: AMPLE_TIME */
	int rc;
};

/* Opens a publisher whose ring is in this memory; NULL: of the host. */
static void rig_open_ring(struct rig *rig, const struct setting *setting, uint64_t slot_bytes, const char *ring)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	if (!gpu_open("alloc"))
		exit(SKIPPED);
	gpu_standin_find();
	gpu_standin_need();
	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	rig->frames = "cuda";
	options.memory = ring;
	options.slot_bytes = slot_bytes;
	options.slots = SLOTS;
	options.subscribers = 1;
	check_ok(pl_publisher_open(rig->environment.far, "cam0", &options, &rig->publisher, &error), &error);
}

static void rig_open_slots(struct rig *rig, const struct setting *setting, uint64_t slot_bytes)
{
	rig_open_ring(rig, setting, slot_bytes, NULL);
}

static void rig_open(struct rig *rig, const struct setting *setting)
{
	rig_open_slots(rig, setting, SLOT);
}

static void rig_close(struct rig *rig)
{
	pl_subscriber_close(rig->subscriber);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static int open_frames(struct rig *rig, struct pl_subscriber **subscriber, struct pl_error *error)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;

	options.memory = rig->frames;
	options.queue = QUEUE;
	options.held = HELD;
	return pl_subscriber_open(rig->environment.near_peer, "cam0", &options,
				  rig->timeout ? rig->timeout : AMPLE_TIME, subscriber, error);
}

static void *open_in_thread(void *argument)
{
	struct rig *rig = argument;

	rig->rc = open_frames(rig, &rig->subscriber, &rig->error);
	atomic_store(&rig->opened, true);
	return NULL;
}

/* Subscribes in a thread, until it waits in a call of the driver. */
static void begin_to_open(struct rig *rig, const char *call)
{
	uint64_t limit = clock_now() + AMPLE_TIME;

	atomic_store(&rig->opened, false);
	gpu_standin.stall(call);
	check_number(pthread_create(&rig->thread, NULL, open_in_thread, rig), 0);
	while (!gpu_standin.stalled()) {
		check(clock_now() < limit && !atomic_load(&rig->opened));
		settle(&rig->environment, 1);
	}
}

static void end_opening(struct rig *rig)
{
	gpu_standin.stall(NULL);
	check_number(pthread_join(rig->thread, NULL), 0);
}

static unsigned count_subscribers(const struct rig *rig)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;

	check(pl_publisher_query(rig->publisher, &info) == 0);
	return info.subscribers;
}

static void publish_frames(struct rig *rig, unsigned count)
{
	while (count--)
		publish_filled(rig->publisher, SLOT);
}

/* Takes the next frame, which must have this sequence. */
static void take_next(struct rig *rig, uint64_t sequence)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc = pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, &error);

	check_ok(rc < 0 ? rc : 0, &error);
	check(pl_frame_query(frame, &info) == 0);
	check_number(info.sequence, sequence);
	check_number(info.lost_before, 0);
	pl_frame_release(frame);
}

/* More frames are published than queue and ring hold, while the driver is at its first call of each kind. */
static void begins_when_ready(const struct setting *setting, const char *call)
{
	struct pl_accounts accounts;
	struct rig rig;
	size_t pinned;

	rig_open(&rig, setting);
	publish_frames(&rig, 3);
	begin_to_open(&rig, call);
	check_number(count_subscribers(&rig), 0);
	publish_frames(&rig, QUEUE + SLOTS + 2);
	end_opening(&rig);
	check_ok(rig.rc, &rig.error);
	check_number(count_subscribers(&rig), 1);
	pinned = gpu_standin.pinned();
	publish_frames(&rig, QUEUE);
	for (unsigned i = 0; i < QUEUE; i++)
		take_next(&rig, 3 + QUEUE + SLOTS + 2 + i);
	accounts = exact_accounts(rig.subscriber);
	check_number(accounts.first, 3 + QUEUE + SLOTS + 2);
	check_number(accounts.delivered, QUEUE);
	check_number(accounts.next, accounts.first + QUEUE);
	/* Nothing was left to be locked once frames came. */
	check_number(gpu_standin.pinned(), pinned);
	rig_close(&rig);
}

static void first_calls(void *argument)
{
	static const char *const calls[] = { "cuMemAlloc", "cuMemHostRegister", "cuMemcpyHtoDAsync",
					     "cuMemcpyDtoHAsync" };

	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		begins_when_ready(argument, calls[i]);
}

/* Opens a subscriber of slots of 2 MiB. Returns the bytes that its GPU copied. */
static size_t bytes_of_first_copies(const struct setting *setting)
{
	struct rig rig;
	size_t copied;

	rig_open_slots(&rig, setting, 2u << 20);
	copied = gpu_standin.copied();
	check_ok(open_frames(&rig, &rig.subscriber, &rig.error), &rig.error);
	copied = gpu_standin.copied() - copied;
	rig_close(&rig);
	return copied;
}

/* A network carries no more than each copy needs to be a first one: at most 128 KiB into each frame. */
static void short_copies(void *unused)
{
	const size_t out = 1u << 20;

	(void)unused;
	check_number(bytes_of_first_copies(&tcp_threads), (QUEUE + HELD) * (128u << 10) + out);
	check_number(bytes_of_first_copies(&local_threads), (QUEUE + HELD) * (1u << 20) + out);
}

/* A subscriber that prepares has a place, which nobody else gets. */
static void place_is_kept(void *argument)
{
	struct pl_subscriber *second = NULL;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument);
	begin_to_open(&rig, "cuMemAlloc");
	check_number(pl_subscriber_open(rig.environment.near_peer, "cam0", NULL, AMPLE_TIME, &second, &error), -EMLINK);
	check_text(error.id, "STREAM-FULL");
	end_opening(&rig);
	check_ok(rig.rc, &rig.error);
	rig_close(&rig);
}

/* A subscriber that prepares holds nothing up, and the end of the stream reaches it. */
static void publisher_ends(void *argument)
{
	struct pl_subscription_info info = PL_SUBSCRIPTION_INFO_INIT;
	struct rig rig;

	rig_open(&rig, argument);
	publish_frames(&rig, 1);
	begin_to_open(&rig, "cuMemAlloc");
	check_ok(pl_publisher_end(rig.publisher, AMPLE_TIME, &rig.error), &rig.error);
	end_opening(&rig);
	check_number(rig.rc, -ENODATA);
	check_text(rig.error.id, "STREAM-ENDED");
	check_number(pl_publisher_subscribers(rig.publisher, &info, 1), 0);
	rig_close(&rig);
}

static void publisher_closes(void *argument)
{
	struct rig rig;

	rig_open(&rig, argument);
	begin_to_open(&rig, "cuMemAlloc");
	pl_publisher_close(rig.publisher);
	rig.publisher = NULL;
	end_opening(&rig);
	check_number(rig.rc, -ENODATA);
	rig_close(&rig);
}

static void await_no_prepared(const struct rig *rig)
{
	uint64_t limit = clock_now() + AMPLE_TIME;
	unsigned prepared;

	do {
		check(clock_now() < limit);
		pl_lock_take(&rig->publisher->lock);
		prepared = rig->publisher->prepared_count;
		pl_lock_release(&rig->publisher->lock);
	} while (prepared);
}

/* The first copies take longer than the call may. Its place is free again before they end. */
static void copies_take_long(void *argument)
{
	struct rig rig;

	rig_open(&rig, argument);
	rig.timeout = 2 * slowness() * SECOND;
	begin_to_open(&rig, "cuMemcpyHtoDAsync");
	gpu_standin.delay(MINUTE);
	gpu_standin.stall(NULL);
	await_no_prepared(&rig);
	gpu_standin.delay(0);
	end_opening(&rig);
	check_number(rig.rc, -ETIMEDOUT);
	check(strstr(rig.error.message, "first copies"));
	check(!rig.subscriber);
	check_number(count_subscribers(&rig), 0);
	rig.timeout = 0;
	check_ok(open_frames(&rig, &rig.subscriber, &rig.error), &rig.error);
	rig_close(&rig);
}

static void connection_is_lost(void *argument)
{
	struct rig rig;

	rig_open(&rig, argument);
	begin_to_open(&rig, "cuMemAlloc");
	pl_peer_close(rig.environment.far_peer);
	rig.environment.far_peer = NULL;
	await_no_prepared(&rig);
	end_opening(&rig);
	check_number(rig.rc, -ENOTCONN);
	rig_close(&rig);
}

/* Connects peers until one has the home engine of the subscriber's. Returns their number; the last one has it. */
static unsigned connect_beside(struct rig *rig, struct pl_peer **near, struct pl_peer **far)
{
	unsigned count = 0;

	do {
		check(count < PEERS_MAX);
		connect_pair(&rig->environment, rig->environment.near, rig->environment.listener, &near[count],
			     &far[count]);
	} while (near[count++]->home != rig->environment.near_peer->home);
	return count;
}

/* Sends a message to a peer. */
static void exchange_message(struct rig *rig, struct pl_peer *from, struct pl_peer *to)
{
	struct pl_operation *send, *receive;
	struct pl_error error;
	struct buffer buffer;
	char text[] = "beside";

	buffer_open(&buffer, rig->environment.far, 4096, PL_ACCESS_ALL);
	check_ok(pl_receive(to, 1, UINT64_MAX, &(struct pl_buffer){ buffer.region, 0, 4096 }, NULL, &receive, &error),
		 &error);
	check_ok(pl_send_copy(from, 1, text, sizeof(text), NULL, &send, &error), &error);
	complete(&rig->environment, send, NULL);
	complete(&rig->environment, receive, NULL);
	check(!memcmp(buffer.bytes, text, sizeof(text)));
	buffer_close(&buffer);
}

/* Lets the driver go on from one call of a name to the next. Returns false if the subscriber is open instead. */
static bool step_to_next_call(struct rig *rig)
{
	uint64_t limit = clock_now() + AMPLE_TIME;

	gpu_standin.step();
	while (!gpu_standin.stalled() && !atomic_load(&rig->opened)) {
		check(clock_now() < limit);
		settle(&rig->environment, 1);
	}
	return !atomic_load(&rig->opened);
}

/* While the driver is at any of the first copies, or locks memory for them, other peers of the engine go on. */
static void others_go_on(void *unused)
{
	static const struct {
		const char *ring, *frames, *call;
	} openings[] = {
		{ "cuda", NULL, "cuMemcpyDtoHAsync" },
		{ NULL, "cuda", "cuMemcpyHtoDAsync" },
		{ NULL, "cuda", "cuMemHostRegister" },
	};

	(void)unused;
	for (unsigned i = 0; i < sizeof(openings) / sizeof(openings[0]); i++) {
		struct pl_peer *near[PEERS_MAX], *far[PEERS_MAX];
		struct rig rig;
		unsigned count;

		rig_open_ring(&rig, &local_threads, SLOT, openings[i].ring);
		rig.frames = openings[i].frames;
		/* The messages are of the host. */
		gpu_kind = NULL;
		count = connect_beside(&rig, near, far);
		begin_to_open(&rig, openings[i].call);
		do
			exchange_message(&rig, near[count - 1], far[count - 1]);
		while (step_to_next_call(&rig));
		end_opening(&rig);
		check_ok(rig.rc, &rig.error);
		while (count--) {
			pl_peer_close(near[count]);
			pl_peer_close(far[count]);
		}
		rig_close(&rig);
	}
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "first calls tcp", first_calls, &tcp_threads, 60 },
		{ "first calls local", first_calls, &local_threads, 60 },
		{ "others go on", others_go_on, NULL, 60 },
		{ "short copies", short_copies, NULL, 60 },
		{ "place is kept", place_is_kept, &tcp_threads, 30 },
		{ "publisher ends", publisher_ends, &tcp_threads, 30 },
		{ "publisher closes", publisher_closes, &tcp_threads, 30 },
		{ "copies take long", copies_take_long, &tcp_threads, 60 },
		{ "connection is lost", connection_is_lost, &tcp_threads, 30 },
	};

	return cases_run("gpu_start", cases, sizeof(cases) / sizeof(cases[0]));
}
