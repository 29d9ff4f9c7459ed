/* SPDX-License-Identifier: BSD-2-Clause */
/* Log of the last events of a peer: merging, a full log, floods, lack of memory, threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/event_log.h"

#define WRITERS 2
#define EVENTS_A_WRITER 20000

static struct pl_event_log log_under_test;
static struct pl_event_record records[PL_EVENTS_MAX + 1];

static int open_event_log(void **state)
{
	pl_event_log_init(&log_under_test, &pl_system_allocator);
	*state = &log_under_test;
	return 0;
}

static int close_event_log(void **state)
{
	pl_event_log_destroy(*state);
	return 0;
}

static void add_event(struct pl_event_log *log, enum pl_event event, int lane, uint64_t key, const char *text)
{
	const struct pl_event_entry entry = {
		.event = (uint8_t)event, .lane = (int16_t)lane, .key = key, .text = text, .copied = true
	};

	pl_event_log_add(log, &entry);
}

/* Adds an event with a text that no other event has. */
static void add_numbered(struct pl_event_log *log, enum pl_event event, unsigned number)
{
	char text[32];

	snprintf(text, sizeof(text), "event %u", number);
	add_event(log, event, PL_NO_LANE, 0, text);
}

static size_t read_records(struct pl_event_log *log, uint64_t after, size_t capacity)
{
	memset(records, 0xff, sizeof(records));
	return pl_event_log_read(log, after, sizeof(records[0]), records, capacity);
}

static void test_equal_events_in_a_row_merge(void **state)
{
	struct pl_event_log *log = *state;
	uint64_t before = pl_now();

	add_event(log, PL_EVENT_LANE_LOST, 3, 0, "reset");
	for (unsigned i = 1; i <= 1000; i++)
		add_event(log, PL_EVENT_REFUSED_HERE, PL_NO_LANE, i, "no right");
	add_event(log, PL_EVENT_LANE_LOST, 3, 0, "reset");
	assert_int_equal(read_records(log, 0, PL_EVENTS_MAX), 3);
	assert_int_equal(records[0].sequence, 1);
	assert_int_equal(records[0].count, 1);
	assert_int_equal(records[0].lane, 3);
	assert_int_equal(records[0].event, PL_EVENT_LANE_LOST);
	assert_int_equal(records[1].count, 1000);
	assert_int_equal(records[1].sequence, 1001);
	assert_int_equal(records[1].key, 1000);
	assert_int_equal(records[1].lane, -1);
	assert_string_equal(records[1].text, "no right");
	assert_in_range(records[0].time, before, pl_now());
	assert_in_range(records[1].first_time, records[0].time, records[1].time);
	assert_in_range(records[2].time, records[1].time, pl_now());
	assert_int_equal(records[2].sequence, 1002);
}

static void test_different_events_do_not_merge(void **state)
{
	struct pl_event_log *log = *state;
	struct pl_event_entry entry = { .event = PL_EVENT_LOST, .lane = PL_NO_LANE, .status = -EIO, .text = "a" };

	add_event(log, PL_EVENT_LANE_LOST, 1, 0, "a");
	add_event(log, PL_EVENT_LANE_LOST, 2, 0, "a");
	add_event(log, PL_EVENT_LANE_LOST, 2, 0, "b");
	add_event(log, PL_EVENT_LANE_OPENED, 2, 0, "b");
	pl_event_log_add(log, &entry);
	entry.status = -EPROTO;
	pl_event_log_add(log, &entry);
	assert_int_equal(read_records(log, 0, PL_EVENTS_MAX), 6);
	assert_int_equal(records[5].status, -EPROTO);
}

/* Checks that a log keeps the newest 64 of events of one kind. */
static void test_full_log_drops_the_oldest(void **state)
{
	struct pl_event_log *log = *state;
	char text[32];

	for (unsigned i = 1; i <= 200; i++) {
		add_numbered(log, PL_EVENT_STAGED, i);
		assert_int_equal(read_records(log, 0, PL_EVENTS_MAX + 1), PL_MIN(i, (unsigned)PL_EVENTS_MAX));
	}
	for (unsigned i = 0; i < PL_EVENTS_MAX; i++) {
		snprintf(text, sizeof(text), "event %u", 200 - PL_EVENTS_MAX + 1 + i);
		assert_string_equal(records[i].text, text);
		assert_int_equal(records[i].sequence, 200 - PL_EVENTS_MAX + 1 + i);
	}
	assert_int_equal(log->room, PL_EVENTS_MAX);
}

/* Checks that floods of several kinds that alternate push no rarer event out. */
static void test_flood_keeps_other_events(void **state)
{
	struct pl_event_log *log = *state;
	unsigned kept = 0;

	add_numbered(log, PL_EVENT_CONNECTED, 1);
	for (unsigned i = 0; i < 5; i++)
		add_event(log, PL_EVENT_RAIL_LOST, (int)i, 0, "port");
	for (unsigned i = 0; i < 5000; i++)
		add_numbered(log, i % 2 ? PL_EVENT_REFUSED_HERE : PL_EVENT_LIMIT_REACHED, i);
	assert_int_equal(read_records(log, 0, PL_EVENTS_MAX), PL_EVENTS_MAX);
	assert_int_equal(records[0].event, PL_EVENT_CONNECTED);
	for (unsigned i = 0; i < PL_EVENTS_MAX; i++)
		kept += records[i].event == PL_EVENT_RAIL_LOST;
	assert_int_equal(kept, 5);
	assert_string_equal(records[PL_EVENTS_MAX - 1].text, "event 4999");
}

/* Checks that a reader that goes on gets new events, and a record that was merged with new ones. */
static void test_reading_goes_on(void **state)
{
	struct pl_event_log *log = *state;

	for (unsigned i = 1; i <= 5; i++)
		add_numbered(log, PL_EVENT_STAGED, i);
	assert_int_equal(read_records(log, 0, 2), 2);
	assert_int_equal(read_records(log, records[1].sequence, 100), 3);
	assert_string_equal(records[0].text, "event 3");
	assert_int_equal(read_records(log, 5, 100), 0);
	add_numbered(log, PL_EVENT_STAGED, 5);
	assert_int_equal(read_records(log, 5, 100), 1);
	assert_int_equal(records[0].sequence, 6);
	assert_int_equal(records[0].count, 2);
	assert_int_equal(read_records(log, 0, 0), 0);
}

/* Checks that control characters and long texts cannot reach a terminal or leave the record. */
static void test_texts_are_printable(void **state)
{
	struct pl_event_log *log = *state;
	char text[1000];

	add_event(log, PL_EVENT_LOST, PL_NO_LANE, 0, "a\x1b[2J\n\t\x7f\xc3\xa9z");
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	add_event(log, PL_EVENT_LOST, PL_NO_LANE, 0, text);
	assert_int_equal(read_records(log, 0, PL_EVENTS_MAX), 2);
	assert_string_equal(records[0].text, "a?[2J?????z");
	assert_int_equal(strlen(records[1].text), sizeof(records[1].text) - 1);
}

static void test_log_continues_another(void **state)
{
	struct pl_event_log *log = *state, earlier;

	pl_event_log_init(&earlier, &pl_system_allocator);
	for (unsigned i = 1; i <= 63; i++)
		add_numbered(&earlier, PL_EVENT_STAGED, i);
	add_numbered(&earlier, PL_EVENT_LOST, 64);
	add_numbered(log, PL_EVENT_CONNECTED, 65);
	add_numbered(log, PL_EVENT_CONNECTED, 65);
	pl_event_log_continue(log, &earlier);
	add_numbered(log, PL_EVENT_STAGED, 67);
	assert_int_equal(read_records(&earlier, 0, PL_EVENTS_MAX), 0);
	assert_int_equal(read_records(log, 0, PL_EVENTS_MAX), PL_EVENTS_MAX);
	assert_string_equal(records[0].text, "event 3");
	assert_int_equal(records[61].event, PL_EVENT_LOST);
	assert_int_equal(records[61].sequence, 64);
	assert_int_equal(records[62].sequence, 66);
	assert_int_equal(records[62].count, 2);
	assert_int_equal(records[63].sequence, 67);
	pl_event_log_destroy(&earlier);
}

/* -- lack of memory -------------------------------------------------------------------------------- */

static bool no_memory;

static void *limited_allocate(size_t size, void *user)
{
	(void)user;
	return no_memory ? NULL : malloc(size);
}

static void *limited_reallocate(void *pointer, size_t size, void *user)
{
	(void)user;
	return no_memory ? NULL : realloc(pointer, size);
}

static void limited_release(void *pointer, void *user)
{
	(void)user;
	free(pointer);
}

/* Checks that an event without memory leaves a gap, which no merged event hides. */
static void test_no_memory_leaves_a_gap(void **state)
{
	const struct pl_allocator allocator = { limited_allocate, limited_reallocate, limited_release, NULL };
	struct pl_event_log log;

	(void)state;
	pl_event_log_init(&log, &allocator);
	no_memory = true;
	add_numbered(&log, PL_EVENT_STAGED, 1);
	no_memory = false;
	assert_int_equal(read_records(&log, 0, PL_EVENTS_MAX), 0);
	for (unsigned i = 2; i <= 9; i++)
		add_numbered(&log, PL_EVENT_STAGED, i);
	no_memory = true;
	add_numbered(&log, PL_EVENT_STAGED, 9); /* merges */
	add_numbered(&log, PL_EVENT_STAGED, 10);
	no_memory = false;
	add_numbered(&log, PL_EVENT_STAGED, 9);
	assert_int_equal(read_records(&log, 0, PL_EVENTS_MAX), 9);
	assert_int_equal(records[0].sequence, 2);
	assert_int_equal(records[7].sequence, 10);
	assert_int_equal(records[7].count, 2);
	assert_int_equal(records[8].sequence, 12);
	assert_int_equal(records[8].count, 1);
	pl_event_log_destroy(&log);
}

/* -- threads --------------------------------------------------------------------------------------- */

static atomic_uint writers_left;

static void *write_events(void *argument)
{
	for (unsigned i = 0; i < EVENTS_A_WRITER; i++) {
		if (i % 3)
			add_event(argument, PL_EVENT_REFUSED_HERE, PL_NO_LANE, i, "flood");
		else
			add_numbered(argument, PL_EVENT_STAGED, i);
	}
	atomic_fetch_sub(&writers_left, 1);
	return NULL;
}

/* Checks that each snapshot is in order, and complete events only. */
static void *read_events(void *argument)
{
	struct pl_event_record *own = calloc(PL_EVENTS_MAX, sizeof(*own));

	while (atomic_load(&writers_left)) {
		size_t count = pl_event_log_read(argument, 0, sizeof(*own), own, PL_EVENTS_MAX);
		uint64_t last = 0, time = 0;

		for (size_t i = 0; i < count; i++) {
			bool flood = own[i].event == PL_EVENT_REFUSED_HERE;

			if (own[i].sequence - own[i].count < last || own[i].first_time < time ||
			    own[i].time < own[i].first_time || !strcmp(own[i].text, "flood") != flood ||
			    (!flood && strncmp(own[i].text, "event ", 6)))
				abort();
			last = own[i].sequence;
			time = own[i].time;
		}
	}
	free(own);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[WRITERS + 2];

	atomic_store(&writers_left, WRITERS);
	for (unsigned i = 0; i < WRITERS + 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, i < WRITERS ? write_events : read_events, *state), 0);
	for (unsigned i = 0; i < WRITERS + 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(log_under_test.sequence, WRITERS * EVENTS_A_WRITER);
	assert_int_equal(read_records(*state, 0, PL_EVENTS_MAX), PL_EVENTS_MAX);
}

/* Checks that each event has a name of its own. */
static void test_names(void **state)
{
	(void)state;
	for (unsigned i = PL_EVENT_FABRIC_FAILED; i <= PL_EVENT_GRANTED; i++) {
		assert_string_not_equal(pl_event_name(i), "unknown");
		for (unsigned j = PL_EVENT_FABRIC_FAILED; j < i; j++)
			assert_string_not_equal(pl_event_name(i), pl_event_name(j));
	}
	assert_string_equal(pl_event_name(0), "unknown");
	assert_string_equal(pl_event_name(PL_EVENT_GRANTED + 1), "unknown");
	assert_string_equal(pl_event_name(UINT32_MAX), "unknown");
}

#define LOG_TEST(test) cmocka_unit_test_setup_teardown(test, open_event_log, close_event_log)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOG_TEST(test_equal_events_in_a_row_merge),
		LOG_TEST(test_different_events_do_not_merge),
		LOG_TEST(test_full_log_drops_the_oldest),
		LOG_TEST(test_flood_keeps_other_events),
		LOG_TEST(test_reading_goes_on),
		LOG_TEST(test_texts_are_printable),
		LOG_TEST(test_log_continues_another),
		cmocka_unit_test(test_no_memory_leaves_a_gap),
		LOG_TEST(test_threads),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
