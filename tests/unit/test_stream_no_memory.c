/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of streams that the publisher's end has no memory for: it ends the connection if one end waits for the message, and repeats
 * an announcement.
 */
#include <stdlib.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "core/fabric.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

static const struct setting setting = {
	.name = "no-memory", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* True while no memory can grow: that of unsent messages does. */
static atomic_bool exhausted;
/* Allocations that failed. */
static atomic_uint refusals;

static void *rig_allocate(size_t size, void *user)
{
	(void)user;
	return malloc(size);
}

static void *rig_reallocate(void *pointer, size_t size, void *user)
{
	(void)user;
	if (!atomic_load(&exhausted))
		return realloc(pointer, size);
	atomic_fetch_add(&refusals, 1);
	return NULL;
}

static void rig_release(void *pointer, void *user)
{
	(void)user;
	free(pointer);
}

static const struct pl_allocator allocator = { rig_allocate, rig_reallocate, rig_release, NULL };

struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
};

static void rig_open(struct rig *rig)
{
	struct pl_publisher_options published = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_options options = setting_options(&setting);
	struct scenario_environment *environment = &rig->environment;
	struct pl_error error;

	options.allocator = &allocator;
	*environment = (struct scenario_environment){ .setting = &setting };
	environment->near = context_open(&setting);
	environment->far = context_open_with(&options);
	environment->listener = listener_open(&setting, environment->far, environment->address);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
	published.slot_bytes = 64;
	check_ok(pl_publisher_open(environment->far, "cam0", &published, &rig->publisher, &error), &error);
}

/* Another channel uses the memory that the engine has for messages, or no more. */
static void set_exhausted(struct rig *rig, bool value)
{
	struct pl_engine *engine = rig->environment.far_peer->home;

	pl_engine_lock(engine);
	check(!engine->messages_owner || engine->messages_owner == rig);
	engine->messages_owner = value ? rig : NULL;
	atomic_store(&exhausted, value);
	pl_engine_unlock(engine);
}

static void rig_close(struct rig *rig)
{
	set_exhausted(rig, false);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static void subscribed_is_lost(void *unused)
{
	struct pl_subscriber *subscriber;
	struct pl_error error;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	set_exhausted(&rig, true);
	check_number(pl_subscriber_open(rig.environment.near_peer, "cam0", NULL, UINT64_MAX, &subscriber, &error),
		     -ENOTCONN);
	rig_close(&rig);
}

static void listed_is_lost(void *unused)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_error error;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	set_exhausted(&rig, true);
	check_number(pl_peer_publishers(rig.environment.near_peer, &info, 1, UINT64_MAX, &error), -ENOTCONN);
	rig_close(&rig);
}

static void closed_is_lost(void *unused)
{
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	check_ok(pl_subscriber_open(rig.environment.near_peer, "cam0", NULL, AMPLE_TIME, &subscriber, &error), &error);
	set_exhausted(&rig, true);
	pl_publisher_close(rig.publisher);
	rig.publisher = NULL;
	check_number(pl_subscriber_take(subscriber, &frame, 1, UINT64_MAX, &error), -ENOTCONN);
	pl_subscriber_close(subscriber);
	rig_close(&rig);
}

/* No later frame replaces the announcement. */
static void announcement_is_repeated(void *unused)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame;
	struct pl_frame_info info;
	struct pl_error error;
	struct rig rig;

	(void)unused;
	rig_open(&rig);
	check_ok(pl_subscriber_open(rig.environment.near_peer, "cam0", NULL, AMPLE_TIME, &subscriber, &error), &error);
	for (unsigned i = 1; i <= 3; i++) {
		unsigned before = atomic_load(&refusals);

		set_exhausted(&rig, true);
		frame = loan_frame(rig.publisher, &info);
		check_ok(pl_frame_publish(frame, &options, &error), &error);
		/* The publisher tries again and again. */
		while (atomic_load(&refusals) < before + i)
			usleep(1000);
		check_number(pl_subscriber_take(subscriber, &frame, 1, 0, &error), -EAGAIN);
		set_exhausted(&rig, false);
		check_number(pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error), 1);
		pl_frame_release(frame);
	}
	check_number(exact_accounts(subscriber).delivered, 3);
	pl_subscriber_close(subscriber);
	rig_close(&rig);
}

static const struct test_case cases[] = {
	{ "announcement-is-repeated", announcement_is_repeated, NULL, 30 },
	{ "subscribed-is-lost", subscribed_is_lost, NULL, 30 },
	{ "listed-is-lost", listed_is_lost, NULL, 30 },
	{ "closed-is-lost", closed_is_lost, NULL, 30 },
};

int main(void)
{
	return cases_run("stream-no-memory", cases, PL_ARRAY_SIZE(cases));
}
