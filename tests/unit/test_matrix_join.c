/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranks that rank 0 of `peerlane bench --matrix` admits or refuses, and messages that it does not accept. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The command is not part of the library, so its source is included. */
#include "bench/matrix/coordinator.c"

/* Results of the next calls of pl_connect() by member.c, which fail; 0: the real result. */
static struct {
	atomic_uint calls;
	int fail_call, code;
} connects;

static int connect_unless_failing(struct pl_context *context, const char *address, uint64_t timeout,
				  struct pl_peer **peer, struct pl_error *error)
{
	if ((int)atomic_fetch_add(&connects.calls, 1) + 1 == connects.fail_call)
		return cli_fail_errno(error, connects.code, "connect", address);
	return pl_connect(context, address, timeout, peer, error);
}

#define pl_connect connect_unless_failing
#include "bench/matrix/member.c"
#undef pl_connect

#define RANKS 4

/* Rank 0 of four, at which rank 2 is here. */
struct fixture {
	struct membership membership;
	struct rendezvous_options options;
	struct world_loss losses[RANKS];
	struct seat seat, *by_rank[RANKS];
	struct rendezvous rendezvous;
};

static struct fixture *make_fixture(void)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	fixture->membership = (struct membership){ .size = RANKS, .run = "night" };
	fixture->options = (struct rendezvous_options){ .membership = &fixture->membership, .terms = "--size 8" };
	fixture->seat.rank = 2;
	fixture->seat.process = 7;
	fixture->by_rank[2] = &fixture->seat;
	fixture->rendezvous = (struct rendezvous){ .options = &fixture->options,
						   .world = { .size = RANKS, .losses = fixture->losses },
						   .by_rank = fixture->by_rank };
	return fixture;
}

static void test_only_missing_ranks_of_the_run_join(void **state)
{
	static const struct {
		struct hello hello;
		bool begun;
		const char *id;
	} cases[] = {
		{ { 1, 4, "night", "a", "--size 8", 1 }, false, "" },
		{ { 3, 4, "night", "a", "--size 8", 1 }, false, "" },
		{ { 1, 4, "night", "a", "--size 8", 1 }, true, "MATRIX-LATE" },
		{ { 2, 4, "night", "a", "--size 8", 8 }, false, "MATRIX-RANK-TWICE" },
		{ { 2, 4, "night", "a", "--size 8", 7 }, false, "" },
		{ { 0, 4, "night", "a", "--size 8", 1 }, false, "MATRIX-RANK-TWICE" },
		{ { 4, 4, "night", "a", "--size 8", 1 }, false, "MATRIX-RANK-TWICE" },
		{ { INT32_MAX, 4, "night", "a", "--size 8", 1 }, false, "MATRIX-RANK-TWICE" },
		{ { 1, 3, "night", "a", "--size 8", 1 }, false, "MATRIX-DIFFERS" },
		{ { 1, 4, "", "a", "--size 8", 1 }, false, "MATRIX-DIFFERS" },
		{ { 1, 4, "night", "a", "--size 9", 1 }, false, "MATRIX-DIFFERS" },
	};
	struct fixture *fixture = make_fixture();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pl_error error = { .id = "" };

		fixture->rendezvous.begun = cases[i].begun;
		assert_int_equal(judge_hello(&fixture->rendezvous, &cases[i].hello, &error) < 0, *cases[i].id != '\0');
		assert_string_equal(error.id, cases[i].id);
	}
	free(fixture);
}

/* Adds a notification with the head that rendezvous_send() writes, and no data. */
static int add_part(struct inbox *inbox, uint32_t length, uint32_t at, size_t bytes, size_t most)
{
	uint8_t data[PL_NOTIFY_DATA_MAX] = { 0 };
	struct cursor cursor = { .to = data };

	cursor_put(&cursor, length, 4);
	cursor_put(&cursor, at, 4);
	return inbox_add(inbox,
			 &(struct pl_completion){ .data = data,
						  .data_length = (uint32_t)(8 + bytes),
						  .value = 0x504cull << 48 | (uint64_t)RENDEZVOUS_PART << 32 | 7 },
			 most);
}

static void test_parts_make_one_message(void **state)
{
	struct inbox inbox = { .bytes = NULL };

	(void)state;
	assert_int_equal(add_part(&inbox, 30, 0, 10, 30), 0);
	assert_int_equal(add_part(&inbox, 30, 0, 10, 30), -EPROTO);
	assert_int_equal(add_part(&inbox, 31, 10, 10, 31), -EPROTO);
	assert_int_equal(add_part(&inbox, 30, 10, 21, 30), -EPROTO);
	assert_int_equal(add_part(&inbox, 30, 10, 0, 30), -EPROTO);
	assert_true(!inbox.ready && inbox.got == 10);
	assert_int_equal(add_part(&inbox, 30, 10, 20, 30), 0);
	assert_true(inbox.ready && inbox.type == RENDEZVOUS_PART && inbox.sequence == 7);
	/* The next message waits until this one is taken. */
	assert_int_equal(add_part(&inbox, 30, 0, 10, 30), -EPROTO);
	inbox_clear(&inbox);
	assert_int_equal(add_part(&inbox, 30, 0, 10, 29), -EPROTO);
	assert_int_equal(add_part(&inbox, 0, 0, 0, 29), 0);
	assert_true(inbox.ready);
	inbox_clear(&inbox);
}

/* Gives rank 2 a message that rank 0 takes as part number 5. */
static bool takes_part(enum rendezvous_type type, uint32_t sequence, size_t length, uint8_t all[RANKS])
{
	struct fixture *fixture = make_fixture();
	uint8_t own = 9;
	bool here;

	memset(all, 1, RANKS);
	fixture->rendezvous.sequence = 5;
	fixture->seat.inbox = (struct inbox){ .bytes = calloc(1, 8),
					      .length = length,
					      .got = length,
					      .sequence = sequence,
					      .type = (uint8_t)type,
					      .ready = true };
	assert_non_null(fixture->seat.inbox.bytes);
	*fixture->seat.inbox.bytes = 3;
	take_parts(&fixture->rendezvous, &own, 1, all);
	here = fixture->by_rank[2];
	inbox_clear(&fixture->seat.inbox);
	free(fixture);
	return here;
}

static void test_parts_of_other_messages_are_not_taken(void **state)
{
	static const uint8_t with[RANKS] = { 9, 0, 3, 0 }, without[RANKS] = { 9, 0, 0, 0 };
	uint8_t all[RANKS];

	(void)state;
	assert_true(takes_part(RENDEZVOUS_PART, 5, 1, all));
	assert_memory_equal(all, with, RANKS);
	assert_false(takes_part(RENDEZVOUS_PART, 4, 1, all));
	assert_memory_equal(all, without, RANKS);
	assert_false(takes_part(RENDEZVOUS_PART, 5, 2, all));
	assert_memory_equal(all, without, RANKS);
	assert_false(takes_part(RENDEZVOUS_HELLO, 5, 1, all));
	assert_memory_equal(all, without, RANKS);
}

static const struct cli_options loopback = { .fabric = "tcp", .lanes = 1, .program = CLI_PROGRAM_MATRIX };

/* Rank 3, and a connection to rank 0 that never says which rank it is. */
struct late {
	struct membership membership;
	struct rendezvous_options options;
	uint8_t gone[RANKS], lost[RANKS];
	struct rendezvous rendezvous;
	struct pl_peer *silent;
	struct pl_error error;
	atomic_bool ended;
};

/* Joins, and closes both connections when rank 0 has answered. */
static void *join_late(void *argument)
{
	struct late *late = argument;

	if (member_open(&late->rendezvous, &late->error) == 0)
		*late->error.id = '\0';
	pl_peer_close(late->silent);
	pl_close(late->rendezvous.context);
	return NULL;
}

static void prepare_late_rank(struct late *late, const struct rendezvous *first)
{
	*late = (struct late){ .membership = *first->options->membership, .options = *first->options };
	late->membership.rank = 3;
	late->options.membership = &late->membership;
	late->options.join_timeout = 20 * CLI_NS_PER_S;
	late->rendezvous =
		(struct rendezvous){ .options = &late->options,
				     .process = 9,
				     .world = { .rank = 3, .size = RANKS, .gone = late->gone, .lost = late->lost } };
	pl_listener_address(first->listener, late->membership.address, sizeof(late->membership.address));
	assert_int_equal(cli_open(&late->rendezvous.context, &loopback, PL_PROGRESS_THREAD, &late->error), 0);
	assert_int_equal(pl_connect(late->rendezvous.context, late->membership.address, 20 * CLI_NS_PER_S,
				    &late->silent, &late->error),
			 0);
}

/* Lets rank 0 listen. */
static void open_first(struct fixture *fixture)
{
	struct rendezvous *first = &fixture->rendezvous;
	struct pl_error error;

	*first = (struct rendezvous){ .options = &fixture->options, .seat_count = 4, .world = { .size = RANKS } };
	first->seats = calloc(first->seat_count, sizeof(*first->seats));
	first->by_rank = calloc(RANKS, sizeof(struct seat *));
	first->world.losses = calloc(RANKS, sizeof(*first->world.losses));
	assert_true(first->seats && first->by_rank && first->world.losses);
	for (size_t i = 0; i < first->seat_count; i++)
		first->seats[i].rank = -1;
	snprintf(fixture->membership.address, sizeof(fixture->membership.address), "127.0.0.1:0");
	assert_int_equal(cli_open(&first->context, &loopback, PL_PROGRESS_THREAD, &error), 0);
	assert_int_equal(listen_for_ranks(first, &error), 0);
}

/* The connection of rank 3 waits for rank 0 when it closes its listener. */
static void test_a_rank_that_comes_at_the_end_is_late(void **state)
{
	struct fixture *fixture = make_fixture();
	struct rendezvous *first = &fixture->rendezvous;
	struct pl_error error;
	struct late late;
	pthread_t thread;

	(void)state;
	open_first(fixture);
	prepare_late_rank(&late, first);
	while (!first->seats[0].peer && rendezvous_sleep(first, UINT64_MAX))
		assert_int_equal(handle_events(first, &error), 0);
	first->begun = first->world.ended = true;
	assert_int_equal(pthread_create(&thread, NULL, join_late, &late), 0);
	for (struct pollfd poller = { .fd = pl_fd(first->context), .events = POLLIN }; poll(&poller, 1, 1000) == 0;)
		;
	coordinator_close(first);
	pthread_join(thread, NULL);
	assert_string_equal(late.error.id, "MATRIX-LATE");
	pl_close(first->context);
	free(fixture);
}

static void *join_as_rank_3(void *argument)
{
	struct late *late = argument;

	if (member_open(&late->rendezvous, &late->error) == 0)
		*late->error.id = '\0';
	atomic_store(&late->ended, true);
	return NULL;
}

/* Joins with a connection that is lost already. */
static void *join_lost_rank(void *argument)
{
	struct late *late = argument;

	if (join_until(&late->rendezvous, cli_now() + late->options.join_timeout, &late->error) == 0)
		*late->error.id = '\0';
	atomic_store(&late->ended, true);
	return NULL;
}

/* Handles events until rank 3 has joined, or has ended. */
static void wait_for_rank_3(struct rendezvous *first, const struct late *late)
{
	struct pl_error error;

	while (!first->by_rank[3] && !atomic_load(&late->ended) && rendezvous_sleep(first, UINT64_MAX))
		assert_int_equal(handle_events(first, &error), 0);
	assert_non_null(first->by_rank[3]);
}

/* Rank 0, at which rank 3 joins in a thread of its own. */
struct joining {
	struct fixture *fixture;
	struct rendezvous *first;
	uint8_t gone[RANKS];
	struct late late;
	pthread_t thread;
};

static void begin_joining(struct joining *joining, int fail_call, int code)
{
	*joining = (struct joining){ .fixture = make_fixture() };
	joining->first = &joining->fixture->rendezvous;
	atomic_store(&connects.calls, 0);
	connects.fail_call = fail_call;
	connects.code = code;
	open_first(joining->fixture);
	joining->first->world.gone = joining->gone;
	prepare_late_rank(&joining->late, joining->first);
	assert_int_equal(pthread_create(&joining->thread, NULL, join_as_rank_3, &joining->late), 0);
	wait_for_rank_3(joining->first, &joining->late);
}

/* Waits for the end of rank 3, which has the error `id`. */
static void end_joining(struct joining *joining, const char *id)
{
	pthread_join(joining->thread, NULL);
	assert_string_equal(joining->late.error.id, id);
	pl_peer_close(joining->late.silent);
	pl_close(joining->late.rendezvous.context);
	coordinator_close(joining->first);
	pl_close(joining->first->context);
	free(joining->fixture);
}

static void answer_rank_3(struct joining *joining)
{
	struct pl_error error;

	joining->first->begun = joining->first->world.ended = true;
	assert_int_equal(answer_ranks(joining->first, NULL, 0, &error), 0);
}

/* Rank 0 closes the connection of rank 3 once, as it does if HELLO comes too late; then the network fails once. */
static void test_a_rank_that_was_lost_joins_again(void **state)
{
	struct joining joining;

	(void)state;
	begin_joining(&joining, 2, -ETIMEDOUT);
	clear_seat(joining.first, joining.first->by_rank[3]);
	wait_for_rank_3(joining.first, &joining.late);
	answer_rank_3(&joining);
	end_joining(&joining, "");
	assert_true(atomic_load(&connects.calls) >= 3);
}

/* Rank 0 notices the loss of the first connection after the second one has come. */
static void test_a_rank_joins_again_before_its_loss_is_noticed(void **state)
{
	struct seat earlier = { .rank = 3, .process = 9 }, *seat;
	struct pl_error error;
	struct joining joining;

	(void)state;
	begin_joining(&joining, 0, 0);
	seat = joining.first->by_rank[3];
	joining.first->by_rank[3] = &earlier;
	clear_seat(joining.first, seat);
	while (joining.first->by_rank[3] == &earlier && rendezvous_sleep(joining.first, UINT64_MAX)) {
		assert_int_equal(handle_events(joining.first, &error), 0);
		for (size_t i = 0; i < joining.first->seat_count; i++)
			assert_false(joining.first->seats[i].refused);
	}
	assert_int_equal(earlier.rank, -1);
	answer_rank_3(&joining);
	end_joining(&joining, "");
}

/* Rank 0 has ended when nobody listens any more. */
static void test_a_rank_ends_with_rank_0(void **state)
{
	struct joining joining;

	(void)state;
	begin_joining(&joining, 0, 0);
	pl_listener_close(joining.first->listener);
	joining.first->listener = NULL;
	clear_seat(joining.first, joining.first->by_rank[3]);
	end_joining(&joining, "MATRIX-LOST");
	/* Until the deadline there would be more attempts. */
	assert_in_range(atomic_load(&connects.calls), 2, 4);
}

/* Waits until rank 0 has the connection that rank 3 has opened, and closes it. */
static void lose_connection(struct rendezvous *first, struct rendezvous *rank)
{
	struct pollfd poller = { .fd = pl_fd(rank->context), .events = POLLIN };
	struct pl_error error;

	while (!first->seats[1].peer && rendezvous_sleep(first, UINT64_MAX))
		assert_int_equal(handle_events(first, &error), 0);
	for (int i = 0; i < 2; i++)
		clear_seat(first, &first->seats[i]);
	assert_int_equal(poll(&poller, 1, 60000), 1);
}

/* The connection of rank 3 is lost before its HELLO; its other, silent connection is lost as well. */
static void test_losses_before_hello(void **state)
{
	struct joining joining = { .fixture = make_fixture() };
	struct rendezvous *first = &joining.fixture->rendezvous, *rank = &joining.late.rendezvous;
	struct pl_error error;

	(void)state;
	joining.first = first;
	open_first(joining.fixture);
	first->world.gone = joining.gone;
	prepare_late_rank(&joining.late, first);
	assert_int_equal(connect_to_first(rank, &error), 0);
	lose_connection(first, rank);
	/* The loss of a connection is no loss of the next one. */
	assert_int_equal(reconnect_to_first(rank, &error), 0);
	assert_int_equal(handle_member_events(rank), 0);
	assert_false(rank->lost);
	while (!first->seats[0].peer && rendezvous_sleep(first, UINT64_MAX))
		assert_int_equal(handle_events(first, &error), 0);
	clear_seat(first, &first->seats[0]);
	while (pl_notify(rank->peer, 0, NULL, 0, NULL, NULL, &error) != -ENOTCONN)
		usleep(1000);
	assert_int_equal(pthread_create(&joining.thread, NULL, join_lost_rank, &joining.late), 0);
	wait_for_rank_3(first, &joining.late);
	answer_rank_3(&joining);
	end_joining(&joining, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_missing_ranks_of_the_run_join),
		cmocka_unit_test(test_parts_make_one_message),
		cmocka_unit_test(test_parts_of_other_messages_are_not_taken),
		cmocka_unit_test(test_a_rank_that_comes_at_the_end_is_late),
		cmocka_unit_test(test_a_rank_that_was_lost_joins_again),
		cmocka_unit_test(test_a_rank_joins_again_before_its_loss_is_noticed),
		cmocka_unit_test(test_a_rank_ends_with_rank_0),
		cmocka_unit_test(test_losses_before_hello),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
