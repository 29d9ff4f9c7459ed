/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames over a way that is slower than their publisher: the subscriber gets as many as the way carries, and not only laps.
 *
 * A proxy is the way. It publishes a frame for each two thirds of a frame's bytes that pass through it, so a frame takes as long
 * as one and a half publications, on every machine.
 */
#include <stdio.h>
#include <string.h>

#include <peerlane/stream.h>

#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/proxy.h"

#define BYTES (192u << 10)
#define BYTES_PER_FRAME (BYTES / 3 * 2)
#define SLOTS 4u
#define FRAMES 300u

struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct proxy proxy;
	pthread_mutex_t lock; /* of publications */
	uint64_t passed;      /* bytes towards the subscriber since the last publication; the proxy's thread */
	atomic_uint published;
};

static const struct setting tcp_threads = {
	.name = "pull", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting tcp_push = {
	.name = "push", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

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

	/* Before the first frame, bytes of the handshake pass. */
	if (direction != 1 || !atomic_load(&rig->published))
		return;
	for (rig->passed += length; rig->passed >= BYTES_PER_FRAME; rig->passed -= BYTES_PER_FRAME)
		publish_one(rig);
}

static void rig_open(struct rig *rig, const struct setting *setting)
{
	struct scenario_environment *environment = &rig->environment;
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options subscriber = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	pthread_mutex_init(&rig->lock, NULL);
	environment_listen(environment, setting);
	proxy_start(&rig->proxy, environment->address, &(struct damage){ .kind = DAMAGE_NONE });
	rig->proxy.user = rig;
	rig->proxy.passes = bytes_pass;
	options.slot_bytes = BYTES;
	options.slots = SLOTS;
	check_ok(pl_publisher_open(environment->far, "fast", &options, &rig->publisher, &error), &error);
	check_ok(pl_connect(environment->near, rig->proxy.address, AMPLE_TIME, &environment->near_peer, &error),
		 &error);
	check_ok(pl_accept(environment->listener, AMPLE_TIME, &environment->far_peer, &error), &error);
	subscriber.push = !strcmp(setting->name, "push");
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

static void test_slow_way(void *argument)
{
	struct pl_accounts accounts;
	struct rig rig;

	rig_open(&rig, argument);
	publish_one(&rig);
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
	printf("%s: %llu delivered, %llu dropped, %llu lapped\n", ((const struct setting *)argument)->name,
	       (unsigned long long)accounts.delivered, (unsigned long long)accounts.dropped,
	       (unsigned long long)accounts.lapped);
	check(accounts.lapped >= FRAMES / 10);
	check(accounts.delivered + accounts.dropped >= FRAMES / 6);
	rig_close(&rig);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "slow way", test_slow_way, &tcp_threads, 60 },
		{ "slow way push", test_slow_way, &tcp_push, 60 },
	};

	return cases_run("stream_slow", cases, sizeof(cases) / sizeof(cases[0]));
}
