/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames over a way that is slower than their publisher: the subscriber gets as many as the way carries, and not only laps.
 *
 * A proxy is the way. It publishes a frame whenever a number of bytes have passed through it, so the two rates have the same ratio
 * on every machine.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <peerlane/stream.h>

#include "core/peer.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/proxy.h"

#define BYTES (192u << 10)
#define FRAMES 300u

/* A way, and a ring. */
struct way {
	const struct setting *setting;
	bool push;
	unsigned slots;
	uint64_t bytes;   /* that pass between two publications */
	unsigned most;    /* publications of the proxy */
	uint64_t history; /* frames that the ring has before; 0: the subscriber begins with the next one */
	bool checked;     /* the subscriber reads the cursors behind each frame, as from an earlier release */
};

struct rig {
	struct scenario_environment environment;
	const struct way *way;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct proxy proxy;
	pthread_mutex_t lock; /* of publications */
	uint64_t passed;      /* bytes towards the subscriber since the last publication; the proxy's thread */
	atomic_uint published;
	atomic_bool begun; /* bytes that pass count */
	unsigned count;    /* publications of the proxy; its thread */
};

static const struct setting tcp_threads = {
	.name = "tcp", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
/* A frame takes as long as one and a half publications. */
static const struct way slow = { &tcp_threads, false, 4, BYTES / 3 * 2, UINT_MAX, 0, false };
static const struct way slow_checked = { &tcp_threads, false, 4, BYTES / 3 * 2, UINT_MAX, 0, true };
static const struct way slow_push = { &tcp_threads, true, 4, BYTES / 3 * 2, UINT_MAX, 0, false };
/* One publication, while the oldest frame of a full ring passes. */
static const struct way history = { &tcp_threads, false, 32, BYTES / 2, 1, 32, false };
static const struct way history_checked = { &tcp_threads, false, 32, BYTES / 2, 1, 32, true };
static const struct way history_push = { &tcp_threads, true, 32, BYTES / 2, 1, 32, false };

static void publish_one(struct rig *rig)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_stream_frame *frame;
	struct pl_frame_info info;
	struct pl_error error;

	pthread_mutex_lock(&rig->lock);
	frame = loan_frame(rig->publisher, &info);
	frame_fill(&info, BYTES);
	options.length = BYTES;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
	atomic_fetch_add(&rig->published, 1);
	pthread_mutex_unlock(&rig->lock);
}

static void bytes_pass(void *user, unsigned direction, size_t length)
{
	struct rig *rig = user;

	/* Before, bytes of the handshake pass. */
	if (direction != 1 || !atomic_load(&rig->begun))
		return;
	rig->passed += length;
	for (; rig->passed >= rig->way->bytes && rig->count < rig->way->most; rig->count++) {
		rig->passed -= rig->way->bytes;
		publish_one(rig);
	}
}

static void rig_open(struct rig *rig, const struct way *way)
{
	struct scenario_environment *environment = &rig->environment;
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options subscriber = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	rig->way = way;
	pthread_mutex_init(&rig->lock, NULL);
	environment_listen(environment, way->setting);
	proxy_start(&rig->proxy, environment->address, &(struct damage){ .kind = DAMAGE_NONE });
	rig->proxy.user = rig;
	rig->proxy.passes = bytes_pass;
	options.slot_bytes = BYTES;
	options.slots = way->slots;
	check_ok(pl_publisher_open(environment->far, "fast", &options, &rig->publisher, &error), &error);
	check_ok(pl_connect(environment->near, rig->proxy.address, AMPLE_TIME, &environment->near_peer, &error),
		 &error);
	check_ok(pl_accept(environment->listener, AMPLE_TIME, &environment->far_peer, &error), &error);
	pl_engine_lock(environment->near_peer->home);
	environment->near_peer->trailing_words = !way->checked;
	pl_engine_unlock(environment->near_peer->home);
	for (uint64_t i = 0; i < way->history; i++)
		publish_one(rig);
	subscriber.push = way->push;
	subscriber.start = way->history ? PL_START_HISTORY : PL_START_LIVE;
	subscriber.from = way->history;
	atomic_store(&rig->begun, way->history);
	check_ok(pl_subscriber_open(environment->near_peer, "fast", &subscriber, AMPLE_TIME, &rig->subscriber, &error),
		 &error);
}

/* The publisher must not wait for bytes that nobody sends any more. */
static void rig_close(struct rig *rig)
{
	proxy_stop(&rig->proxy);
	pl_subscriber_close(rig->subscriber);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
	pthread_mutex_destroy(&rig->lock);
}

static void take_ready(struct rig *rig)
{
	struct pl_stream_frame *frame;

	while (pl_subscriber_take(rig->subscriber, &frame, 1, 0, NULL) == 1) {
		struct pl_frame_info info = PL_FRAME_INFO_INIT;

		check(pl_frame_query(frame, &info) == 0 && info.length == BYTES);
		pattern_check(info.data, BYTES, info.sequence, 0);
		pl_frame_release(frame);
	}
}

static void print_accounts(const struct pl_accounts *accounts)
{
	printf("%llu delivered, %llu dropped, %llu lapped\n", (unsigned long long)accounts->delivered,
	       (unsigned long long)accounts->dropped, (unsigned long long)accounts->lapped);
}

static void test_slow_way(void *argument)
{
	struct pl_accounts accounts;
	struct rig rig;

	rig_open(&rig, argument);
	publish_one(&rig);
	atomic_store(&rig.begun, true);
	while (atomic_load(&rig.published) < FRAMES) {
		take_ready(&rig);
		accounts = exact_accounts(rig.subscriber);
		/* Nothing is under way: no byte would publish the next frame. */
		if (accounts.pending == 0 && accounts.next == atomic_load(&rig.published))
			publish_one(&rig);
		settle(&rig.environment, 1);
	}
	take_ready(&rig);
	accounts = exact_accounts(rig.subscriber);
	print_accounts(&accounts);
	check(accounts.lapped >= FRAMES / 10);
	check(accounts.delivered + accounts.dropped >= FRAMES / 6);
	rig_close(&rig);
}

/* The oldest frame of a full ring is overwritten while it is moved, and the others are not given up for that. */
static void test_history(void *argument)
{
	const struct way *way = argument;
	struct pl_accounts accounts;
	struct rig rig;

	rig_open(&rig, way);
	do {
		take_ready(&rig);
		settle(&rig.environment, 1);
		accounts = exact_accounts(rig.subscriber);
	} while (accounts.next <= way->history || accounts.pending);
	print_accounts(&accounts);
	/* A trailing word tells that the frame was copied before: the sockets hold the bytes. */
	if (way->push || way->checked)
		check_number(accounts.lapped, 1);
	check(accounts.lapped <= 1);
	rig_close(&rig);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "slow way", test_slow_way, (void *)&slow, 60 },
		{ "slow way checked", test_slow_way, (void *)&slow_checked, 60 },
		{ "slow way push", test_slow_way, (void *)&slow_push, 60 },
		{ "history", test_history, (void *)&history, 60 },
		{ "history checked", test_history, (void *)&history_checked, 60 },
		{ "history push", test_history, (void *)&history_push, 60 },
	};

	return cases_run("stream_slow", cases, sizeof(cases) / sizeof(cases[0]));
}
