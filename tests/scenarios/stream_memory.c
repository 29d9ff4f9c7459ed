/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of streams over each fabric: that of a subscription at the publisher, and allocations of a frame. */
#include <malloc.h>
#include <stdlib.h>

#include <peerlane/stream.h>

#include "scenarios/scenario.h"
#include "support/frames.h"

#define SLOT 8192
#define SLOTS 8u
/* Limits of a publisher, and of a connection: the last quarter uses another one. */
#define SUBSCRIBERS 256u
#define SUBSCRIBERS_OF_PEER 192u
#define SUBSCRIPTION_MOST 4096
#define FRAMES 300u
/* Buffers of encrypted sockets that engines keep: they may allocate one of them late. */
#define BUFFERS 24u
/* With AddressSanitizer the library keeps no operations for later ones, so allocations of frames cannot be counted. */
#if defined(__SANITIZE_ADDRESS__)
#define POOLED false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POOLED false
#endif
#endif
#ifndef POOLED
#define POOLED true
#endif

/* Memory of one context. */
struct account {
	atomic_ulong calls; /* that allocated */
	atomic_long bytes;  /* in use */
};

static void *count_pointer(struct account *account, void *pointer)
{
	atomic_fetch_add(&account->calls, 1);
	atomic_fetch_add(&account->bytes, (long)malloc_usable_size(pointer));
	return pointer;
}

static void *count_allocation(size_t size, void *user)
{
	return count_pointer(user, malloc(size));
}

static void *count_reallocation(void *pointer, size_t size, void *user)
{
	struct account *account = user;

	atomic_fetch_sub(&account->bytes, (long)malloc_usable_size(pointer));
	return count_pointer(account, realloc(pointer, size));
}

static void count_release(void *pointer, void *user)
{
	struct account *account = user;

	atomic_fetch_sub(&account->bytes, (long)malloc_usable_size(pointer));
	free(pointer);
}

/* Two more contexts with accounts: a publisher in `far`, and its subscribers in `near`. */
struct counted {
	struct account near_account, far_account;
	struct pl_context *near, *far;
	struct pl_listener *listener;
	struct pl_peer *near_peer, *far_peer, *second_near, *second_far;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscribers[SUBSCRIBERS];
	unsigned count;
	struct pump pump;
};

static struct pl_context *open_counted(struct scenario_environment *environment, struct account *account)
{
	struct pl_allocator allocator = { count_allocation, count_reallocation, count_release, account };
	struct pl_options options = setting_options(environment->setting);
	struct pl_context *context;

	options.allocator = &allocator;
	context = context_open_with(&options);
	drive(environment, context);
	return context;
}

static void counted_open(struct scenario_environment *environment, struct counted *counted)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;
	char address[96];

	memset(counted, 0, sizeof(*counted));
	counted->near = open_counted(environment, &counted->near_account);
	counted->far = open_counted(environment, &counted->far_account);
	counted->listener = listener_open(environment->setting, counted->far, address);
	connect_pair(environment, counted->near, counted->listener, &counted->near_peer, &counted->far_peer);
	connect_pair(environment, counted->near, counted->listener, &counted->second_near, &counted->second_far);
	pump_start(environment, &counted->pump, counted->far);
	options.slot_bytes = SLOT;
	options.slots = SLOTS;
	options.subscribers = SUBSCRIBERS;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	check_ok(pl_publisher_open(counted->far, "frames", &options, &counted->publisher, &error), &error);
}

static void counted_subscribe(struct counted *counted, bool push)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_peer *peer = counted->count < SUBSCRIBERS_OF_PEER ? counted->near_peer : counted->second_near;
	struct pl_error error;

	options.overflow = PL_OVERFLOW_BLOCK;
	options.queue = 1;
	options.push = push;
	check_ok(pl_subscriber_open(peer, "frames", &options, AMPLE_TIME, &counted->subscribers[counted->count++],
				    &error),
		 &error);
}

static void counted_close(struct scenario_environment *environment, struct counted *counted)
{
	for (unsigned i = 0; i < counted->count; i++)
		pl_subscriber_close(counted->subscribers[i]);
	pump_stop(&counted->pump);
	pl_publisher_close(counted->publisher);
	pl_peer_close(counted->near_peer);
	pl_peer_close(counted->far_peer);
	pl_peer_close(counted->second_near);
	pl_peer_close(counted->second_far);
	pl_listener_close(counted->listener);
	drive_no_more(environment, counted->near);
	drive_no_more(environment, counted->far);
	pl_close(counted->near);
	pl_close(counted->far);
	check_number(atomic_load(&counted->near_account.bytes), 0);
	check_number(atomic_load(&counted->far_account.bytes), 0);
}

/* Publishes a frame, and each subscriber takes it. */
static void pass_frame(struct counted *counted)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_stream_frame *frame;
	struct pl_frame_info info;
	struct pl_error error;

	frame = loan_frame(counted->publisher, &info);
	options.length = 1 + info.sequence % SLOT;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
	for (unsigned i = 0; i < counted->count; i++) {
		int rc = pl_subscriber_take(counted->subscribers[i], &frame, 1, AMPLE_TIME, &error);

		check_ok(rc < 0 ? rc : 0, &error);
		pl_frame_release(frame);
	}
}

/* The first subscriber and its frames pay for what the connection keeps. */
static void measure_subscriptions(struct scenario_environment *environment, bool push)
{
	struct counted counted;
	unsigned most = environment->setting->slow ? SUBSCRIBERS / 8 : SUBSCRIBERS;
	long before, each;

	counted_open(environment, &counted);
	counted_subscribe(&counted, push);
	for (unsigned i = 0; i < 2 * SLOTS; i++)
		pass_frame(&counted);
	before = atomic_load(&counted.far_account.bytes);
	while (counted.count < most)
		counted_subscribe(&counted, push);
	for (unsigned i = 0; i < 2 * SLOTS; i++)
		pass_frame(&counted);
	each = (atomic_load(&counted.far_account.bytes) - before) / (most - 1);
	printf("bytes of a subscription: %ld\n", each);
	check(each > 0 && each <= SUBSCRIPTION_MOST);
	counted_close(environment, &counted);
}

static void subscription_memory(struct scenario_environment *environment)
{
	measure_subscriptions(environment, false);
}

static void subscription_memory_push(struct scenario_environment *environment)
{
	measure_subscriptions(environment, true);
}

static void measure_frames(struct scenario_environment *environment, bool push)
{
	struct counted counted;
	unsigned long calls;

	if (!POOLED)
		return;
	counted_open(environment, &counted);
	counted_subscribe(&counted, push);
	for (unsigned i = 0; i < FRAMES; i++)
		pass_frame(&counted);
	calls = atomic_load(&counted.near_account.calls) + atomic_load(&counted.far_account.calls);
	for (unsigned i = 0; i < FRAMES; i++)
		pass_frame(&counted);
	calls = atomic_load(&counted.near_account.calls) + atomic_load(&counted.far_account.calls) - calls;
	printf("allocations of %u frames: %lu\n", FRAMES, calls);
	check(calls <= (environment->setting->encrypted ? BUFFERS : 0));
	counted_close(environment, &counted);
}

static void frame_allocations(struct scenario_environment *environment)
{
	measure_frames(environment, false);
}

static void frame_allocations_push(struct scenario_environment *environment)
{
	measure_frames(environment, true);
}

const struct scenario stream_memory_scenarios[] = {
	{ "stream-memory", subscription_memory, 0 },
	{ "stream-memory-push", subscription_memory_push, 0 },
	{ "stream-allocations", frame_allocations, 0 },
	{ "stream-allocations-push", frame_allocations_push, 0 },
	{ NULL, NULL, 0 },
};
