/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranks that rank 0 of `peerlane bench --matrix` admits or refuses, messages that it does not accept, and links. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/matrix/link.h"
/* The command is not part of the library, so its source is included. */
#include "bench/matrix/coordinator.c"

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
		{ { 1, 4, "night", "a", "--size 8" }, false, "" },
		{ { 3, 4, "night", "a", "--size 8" }, false, "" },
		{ { 1, 4, "night", "a", "--size 8" }, true, "MATRIX-LATE" },
		{ { 2, 4, "night", "a", "--size 8" }, false, "MATRIX-RANK-TWICE" },
		{ { 0, 4, "night", "a", "--size 8" }, false, "MATRIX-RANK-TWICE" },
		{ { 4, 4, "night", "a", "--size 8" }, false, "MATRIX-RANK-TWICE" },
		{ { INT32_MAX, 4, "night", "a", "--size 8" }, false, "MATRIX-RANK-TWICE" },
		{ { 1, 3, "night", "a", "--size 8" }, false, "MATRIX-DIFFERS" },
		{ { 1, 4, "", "a", "--size 8" }, false, "MATRIX-DIFFERS" },
		{ { 1, 4, "night", "a", "--size 9" }, false, "MATRIX-DIFFERS" },
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
	return NULL;
}

/* Handles events until rank 3 has joined. */
static void wait_for_rank_3(struct rendezvous *first)
{
	struct pl_error error;

	while (!first->by_rank[3] && rendezvous_sleep(first, UINT64_MAX))
		assert_int_equal(handle_events(first, &error), 0);
}

/* Rank 0 closes the connection of rank 3 once, as it does if HELLO comes too late. */
static void test_a_rank_that_was_lost_joins_again(void **state)
{
	struct fixture *fixture = make_fixture();
	struct rendezvous *first = &fixture->rendezvous;
	struct pl_error error;
	uint8_t gone[RANKS] = { 0 };
	struct late late;
	pthread_t thread;

	(void)state;
	open_first(fixture);
	first->world.gone = gone;
	prepare_late_rank(&late, first);
	assert_int_equal(pthread_create(&thread, NULL, join_as_rank_3, &late), 0);
	wait_for_rank_3(first);
	clear_seat(first, first->by_rank[3]);
	wait_for_rank_3(first);
	first->begun = first->world.ended = true;
	assert_int_equal(answer_ranks(first, NULL, 0, &error), 0);
	pthread_join(thread, NULL);
	assert_string_equal(late.error.id, "");
	pl_peer_close(late.silent);
	pl_close(late.rendezvous.context);
	coordinator_close(first);
	pl_close(first->context);
	free(fixture);
}

/* One of three ranks, of which rank 1 takes no connection. */
struct linked {
	struct world world;
	uint8_t gone[3], lost[3];
	struct matrix matrix;
	struct link_end end;
	struct link links[2];
};

static const struct matrix_options link_options = { .step_timeout = 20 * CLI_NS_PER_S };
static atomic_bool link_is_up; /* of rank 2 with rank 0 */

/* Rank 0 waits for rank 1 until all other links are up. */
static void notice_loss(struct world *world)
{
	world->lost[1] = world->rank == 0 && atomic_load(&link_is_up);
}

static const struct world_ops link_ops = { .notice = notice_loss };

static void open_linked(struct linked *linked, int rank, struct matrix_end *ends)
{
	size_t length = sizeof(ends->token);
	struct link_end *end = &linked->end;
	struct pl_error error;

	*linked = (struct linked){ .world = { .ops = &link_ops, .rank = rank, .size = 3 },
				   .matrix = { .rank = rank, .size = 3 },
				   .links = { { .rank = rank == 0 ? 1 : 0 }, { .rank = 2 } } };
	linked->world.gone = linked->gone;
	linked->world.lost = linked->lost;
	linked->matrix.world = &linked->world;
	*end = (struct link_end){ .matrix = &linked->matrix, .options = &link_options, .ends = ends };
	assert_int_equal(cli_open(&end->context, &loopback, PL_PROGRESS_THREAD, &error), 0);
	assert_int_equal(pl_listen(end->context, "127.0.0.1:0", &end->listener, &error), 0);
	pl_listener_address(end->listener, ends[rank].address, sizeof(ends[rank].address));
	assert_int_equal(pl_region_allocate_in(end->context, "host", 4096, PL_ACCESS_ALL, &end->region, &error), 0);
	assert_int_equal(pl_region_share(end->region, NULL, ends[rank].token, &length, &error), 0);
	ends[rank].token_length = (uint32_t)length;
}

static void close_linked(struct linked *linked, int count)
{
	links_close(linked->links, count);
	pl_listener_close(linked->end.listener);
	pl_region_deregister(linked->end.region);
	pl_close(linked->end.context);
}

static void *connect_rank_2(void *argument)
{
	struct linked *linked = argument;

	links_connect(&linked->end, linked->links, 1, 7);
	atomic_store(&link_is_up, true);
	return NULL;
}

/* Opens a socket whose backlog takes connections that nobody answers. */
static int listen_silently(char *address, size_t size)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&in, length) == 0 && listen(fd, 8) == 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &length), 0);
	snprintf(address, size, "127.0.0.1:%u", ntohs(in.sin_port));
	return fd;
}

static void test_a_silent_rank_delays_no_other_link(void **state)
{
	struct matrix_end *ends = calloc(3, sizeof(*ends));
	struct linked first, last;
	pthread_t thread;
	int silent;

	(void)state;
	assert_non_null(ends);
	silent = listen_silently(ends[1].address, sizeof(ends[1].address));
	open_linked(&first, 0, ends);
	open_linked(&last, 2, ends);
	assert_int_equal(pthread_create(&thread, NULL, connect_rank_2, &last), 0);
	links_connect(&first.end, first.links, 2, 7);
	pthread_join(thread, NULL);
	assert_string_equal(first.links[0].error.id, "MATRIX-LOST");
	assert_true(first.links[0].rc < 0 && first.links[1].rc == 0 && last.links[0].rc == 0);
	assert_true(first.links[1].remote && last.links[0].remote);
	close_linked(&first, 2);
	close_linked(&last, 1);
	close(silent);
	free(ends);
}

/* Rank 2 of three, at which a connection stays silent: what it sees once rank 0 has its link. */
static struct {
	struct linked *linked;
	struct pl_context *silent;
	bool seen, lost;
} watch;

/* Rank 1 is lost once rank 0 has its link, and the silent connection had time to notice its end. */
static void notice_silent_connection(struct world *world)
{
	struct pl_completion completion;

	if (world->rank != 2 || !watch.linked->links[0].peer || watch.seen)
		return;
	watch.seen = true;
	usleep(100000);
	while (pl_poll(watch.silent, &completion, 1) == 1)
		watch.lost = watch.lost || completion.kind == PL_KIND_LOST;
	world->lost[1] = 1;
}

static void *connect_rank_0(void *argument)
{
	struct linked *linked = argument;

	links_connect(&linked->end, linked->links + 1, 1, 7);
	return NULL;
}

static void test_a_silent_connection_delays_no_link(void **state)
{
	static const struct world_ops ops = { .notice = notice_silent_connection };
	struct matrix_end *ends = calloc(3, sizeof(*ends));
	struct linked first, last;
	struct pl_peer *peer;
	struct pl_error error;
	pthread_t thread;

	(void)state;
	assert_non_null(ends);
	open_linked(&first, 0, ends);
	open_linked(&last, 2, ends);
	last.world.ops = &ops;
	last.links[1].rank = 1;
	watch.linked = &last;
	assert_int_equal(cli_open(&watch.silent, &loopback, PL_PROGRESS_THREAD, &error), 0);
	assert_int_equal(pl_connect(watch.silent, ends[2].address, 20 * CLI_NS_PER_S, &peer, &error), 0);
	assert_int_equal(pthread_create(&thread, NULL, connect_rank_0, &first), 0);
	links_connect(&last.end, last.links, 2, 7);
	pthread_join(thread, NULL);
	assert_true(watch.seen && !watch.lost);
	assert_true(last.links[0].rc == 0 && last.links[0].remote && first.links[1].rc == 0);
	assert_string_equal(last.links[1].error.id, "MATRIX-LOST");
	pl_peer_close(peer);
	pl_close(watch.silent);
	close_linked(&first, 2);
	close_linked(&last, 2);
	free(ends);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_missing_ranks_of_the_run_join),
		cmocka_unit_test(test_parts_make_one_message),
		cmocka_unit_test(test_parts_of_other_messages_are_not_taken),
		cmocka_unit_test(test_a_rank_that_comes_at_the_end_is_late),
		cmocka_unit_test(test_a_rank_that_was_lost_joins_again),
		cmocka_unit_test(test_a_silent_rank_delays_no_other_link),
		cmocka_unit_test(test_a_silent_connection_delays_no_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
