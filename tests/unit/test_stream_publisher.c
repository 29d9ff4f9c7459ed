/* SPDX-License-Identifier: BSD-2-Clause */
/* Publishers without subscribers: limits of their options, names, queries, and the end of a stream. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/peer.h"
#include "stream/publisher.h"

#define MS ((uint64_t)1000000)

static int context_open(void **state)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	assert_int_equal(pl_open(&context, &options, &error), 0);
	*state = context;
	return 0;
}

static int context_close(void **state)
{
	pl_close(*state);
	return 0;
}

static struct pl_publisher_options usual(void)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;

	options.slots = 4;
	options.slot_bytes = 100;
	return options;
}

static struct pl_publisher *open_stream(struct pl_context *context, const char *name,
					const struct pl_publisher_options *options)
{
	struct pl_publisher *publisher;
	struct pl_error error;

	assert_int_equal(pl_publisher_open(context, name, options, &publisher, &error), 0);
	return publisher;
}

static void accept_options(struct pl_context *context, struct pl_publisher_options options)
{
	pl_publisher_close(open_stream(context, "cam0", &options));
	/* The close has freed the memory. */
	assert_true(pl_list_empty(&context->regions));
}

static void refuse_options(struct pl_context *context, struct pl_publisher_options options, const char *id)
{
	struct pl_publisher *publisher;
	struct pl_error error;

	assert_int_equal(pl_publisher_open(context, "cam0", &options, &publisher, &error), -EINVAL);
	assert_string_equal(error.id, id);
	assert_null(publisher);
}

static void test_limits(void **state)
{
	static const struct {
		const char *id;
		size_t offset, size;
		uint64_t least, most;
	} limits[] = {
#define LIMIT(id, member, least, most) \
	{ id, offsetof(struct pl_publisher_options, member), sizeof(((struct pl_publisher_options *)NULL)->member), \
	  least, most }
		LIMIT("STREAM-SLOTS", slots, 2, PL_STREAM_SLOTS_MAX),
		LIMIT("STREAM-SLOT-BYTES", slot_bytes, 1, PL_RING_SLOT_MAX),
		LIMIT("STREAM-METADATA", metadata_bytes, 0, PL_STREAM_METADATA_MAX),
		LIMIT("STREAM-LOANS", loans, 1, 3),
		LIMIT("STREAM-SUBSCRIBERS", subscribers, 1, PL_SUBSCRIBERS_MAX),
		LIMIT("STREAM-FIRST", first, 0, PL_RING_SEQUENCE_MAX),
	};
	struct pl_context *context = *state;

	for (unsigned i = 0; i < PL_ARRAY_SIZE(limits); i++) {
		const uint64_t values[] = { limits[i].least, limits[i].most, limits[i].most + 1, limits[i].least - 1 };

		for (unsigned j = 0; j < PL_ARRAY_SIZE(values); j++) {
			struct pl_publisher_options options = usual();

			/* 0 means the default of some, and the largest slots need more memory than there is. */
			if ((j == 3 && values[j] + 1 <= 1 + (i != 1)) || (j == 1 && i == 1))
				continue;
			options.slot_bytes = i == 0 ? 1 : options.slot_bytes;
			memcpy((char *)&options + limits[i].offset, &values[j], limits[i].size);
			if (j < 2)
				accept_options(context, options);
			else
				refuse_options(context, options, limits[i].id);
		}
	}
}

static void test_descriptions(void **state)
{
	static const struct pl_layout image = {
		.code = PL_ELEMENT_UINT, .bits = 8, .lanes = 1, .dimensions = 1, .shape = { 100 }
	};
	struct pl_publisher_options options = usual();

	options.layout = image;
	options.content_type = "image/raw";
	accept_options(*state, options);
	options.layout.shape[0]++;
	refuse_options(*state, options, "OPTION");
	options.layout = image;
	options.layout.code = 3;
	refuse_options(*state, options, "OPTION");
	options.layout = image;
	options.content_type = "a\n";
	refuse_options(*state, options, "OPTION");
}

static void test_first(void **state)
{
	struct pl_publisher_options options = usual();
	struct pl_publisher *publisher;
	struct pl_ring_cursors cursors;

	for (unsigned i = 0; i < 2; i++) {
		options.first = i * 5;
		publisher = open_stream(*state, "cam0", &options);
		assert_int_equal(pl_ring_cursors_decode(publisher->ring.control + PL_RING_HEADER, &cursors), 0);
		assert_true(cursors.claimed == i * 5 && cursors.published == i * 5);
		pl_publisher_close(publisher);
	}
}

/* A reader refuses later sequences, so the publisher gives none. */
static void test_last(void **state)
{
	struct pl_publisher_options options = usual();
	struct pl_publisher *publisher;
	struct pl_stream_frame *frame;
	struct pl_ring_cursors cursors;
	struct pl_error error;

	options.first = PL_RING_SEQUENCE_MAX - 1;
	options.loans = 2;
	publisher = open_stream(*state, "cam0", &options);
	assert_int_equal(pl_publisher_loan(publisher, 0, &frame, &error), 0);
	for (unsigned published = 0; published < 2; published++) {
		struct pl_stream_frame *after;

		assert_int_equal(pl_publisher_loan(publisher, UINT64_MAX, &after, &error), -ENODATA);
		assert_string_equal(error.id, "STREAM-ENDED");
		assert_null(after);
		if (!published)
			assert_int_equal(pl_frame_publish(frame, NULL, &error), 0);
	}
	assert_int_equal(pl_ring_cursors_decode(publisher->ring.control + PL_RING_HEADER, &cursors), 0);
	assert_true(cursors.published == PL_RING_SEQUENCE_MAX);
	pl_publisher_close(publisher);
}

static void test_names(void **state)
{
	struct pl_context *context = *state;
	const struct pl_publisher_options options = usual();
	struct pl_publisher *first = open_stream(context, "cam0", &options),
			    *second = open_stream(context, "cam1", &options);
	struct pl_publisher *others = calloc(PL_PUBLISHERS_MAX, sizeof(*others)), *result;
	struct pl_error error;

	pthread_mutex_lock(&context->lock);
	assert_ptr_equal(pl_publisher_find(context, "cam0"), first);
	assert_ptr_equal(pl_publisher_find(context, "cam1"), second);
	assert_null(pl_publisher_find(context, "cam"));
	pthread_mutex_unlock(&context->lock);
	assert_int_equal(pl_publisher_open(context, "cam1", &options, &result, &error), -EEXIST);
	assert_string_equal(error.id, "STREAM-EXISTS");
	for (unsigned i = 0; i < PL_PUBLISHERS_MAX - 3; i++)
		pl_list_append(&context->publishers, &others[i].link);
	result = open_stream(context, "last", &options);
	pl_publisher_close(second);
	second = open_stream(context, "cam1", &options);
	pl_publisher_close(second);
	pl_list_append(&context->publishers, &others[PL_PUBLISHERS_MAX - 3].link);
	assert_int_equal(pl_publisher_open(context, "more", &options, &second, &error), -ENOSPC);
	assert_string_equal(error.id, "STREAM-LIMIT");
	for (unsigned i = 0; i < PL_PUBLISHERS_MAX - 2; i++)
		pl_list_remove(&others[i].link);
	free(others);
	pl_publisher_close(first);
	pl_publisher_close(result);
}

/* Adds subscriptions that have no connection. */
static void subscribe(struct pl_publisher *publisher, struct pl_subscription subscriptions[2])
{
	for (unsigned i = 0; i < 2; i++) {
		subscriptions[i] = (struct pl_subscription){ .publisher = publisher, .every = 1, .announced = 7 + i };
		pl_list_append(&publisher->subscriptions, &subscriptions[i].link);
	}
}

static void test_queries(void **state)
{
	const struct pl_publisher_options options = usual();
	struct pl_publisher *publisher = open_stream(*state, "cam0", &options);
	struct pl_subscription_info infos[3] = { PL_SUBSCRIPTION_INFO_INIT };
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_subscription subscriptions[2];

	assert_int_equal(pl_publisher_query(publisher, &info), 0);
	assert_true(info.size == sizeof(info) && info.slots == 4);
	info.size++;
	assert_int_equal(pl_publisher_query(publisher, &info), -EINVAL);
	info.size = sizeof(info.size) - 1;
	assert_int_equal(pl_publisher_query(publisher, &info), -EINVAL);
	info.size = sizeof(info.size);
	info.slots = 77;
	assert_int_equal(pl_publisher_query(publisher, &info), 0);
	assert_int_equal(info.slots, 77);
	subscribe(publisher, subscriptions);
	assert_int_equal(pl_publisher_subscribers(publisher, infos, 0), 0);
	assert_int_equal(pl_publisher_subscribers(publisher, infos, 1), 1);
	assert_int_equal(pl_publisher_subscribers(publisher, infos, 3), 2);
	assert_true(infos[0].announced == 7 && infos[1].announced == 8);
	infos[0].size++;
	assert_int_equal(pl_publisher_subscribers(publisher, infos, 1), -EINVAL);
	infos[0].size = sizeof(infos[0].size) - 1;
	assert_int_equal(pl_publisher_subscribers(publisher, infos, 1), -EINVAL);
	infos[0].size = sizeof(infos[0].size);
	assert_int_equal(pl_publisher_subscribers(publisher, infos, 1), 1);
	pl_list_init(&publisher->subscriptions);
	pl_publisher_close(publisher);
}

/* A stream has ended when each subscriber has reported a fate for each frame. */
static void test_end(void **state)
{
	const struct pl_publisher_options options = usual();
	struct pl_publisher *publisher = open_stream(*state, "cam0", &options);
	struct pl_subscription subscriptions[2];
	struct pl_stream_frame *frame;
	struct pl_error error;

	assert_int_equal(pl_publisher_loan(publisher, 0, &frame, &error), 0);
	assert_int_equal(pl_publisher_end(publisher, UINT64_MAX, &error), -EBUSY);
	assert_int_equal(publisher->state, PL_STREAM_LIVE);
	assert_int_equal(pl_frame_publish(frame, NULL, &error), 0);
	subscribe(publisher, subscriptions);
	subscriptions[0].accounts.next = 1;
	assert_int_equal(pl_publisher_end(publisher, 10 * MS, &error), -ETIMEDOUT);
	assert_string_equal(error.id, "STREAM-UNREPORTED");
	assert_int_equal(publisher->state, PL_STREAM_ENDED);
	subscriptions[1].accounts.next = 1;
	subscriptions[1].accounts.pending = 1;
	assert_int_equal(pl_publisher_end(publisher, 10 * MS, &error), -ETIMEDOUT);
	assert_int_equal(pl_publisher_end(publisher, 0, &error), 0);
	subscriptions[1].accounts.pending = 0;
	assert_int_equal(pl_publisher_end(publisher, UINT64_MAX, &error), 0);
	pl_list_init(&publisher->subscriptions);
	pl_publisher_close(publisher);
	pl_publisher_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_limits, context_open, context_close),
		cmocka_unit_test_setup_teardown(test_descriptions, context_open, context_close),
		cmocka_unit_test_setup_teardown(test_first, context_open, context_close),
		cmocka_unit_test_setup_teardown(test_last, context_open, context_close),
		cmocka_unit_test_setup_teardown(test_names, context_open, context_close),
		cmocka_unit_test_setup_teardown(test_queries, context_open, context_close),
		cmocka_unit_test_setup_teardown(test_end, context_open, context_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
