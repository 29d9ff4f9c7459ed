/* SPDX-License-Identifier: BSD-2-Clause */
/* Links of `peerlane bench --matrix` beside ranks and connections that stay silent; results of its turns. */
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* The command is not part of the library, so its source is included. */
#include "bench/matrix/turn.c"

static const struct cli_options loopback = { .fabric = "tcp", .lanes = 1, .program = CLI_PROGRAM_MATRIX };

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

#define TURN_RANKS 5
#define TURN_RAILS 2

static int left_out_rank;

static void note_left_out(struct world *world, int rank, const char *reason)
{
	(void)reason;
	left_out_rank = rank;
	world->gone[rank] = 1;
}

/* Keeps the results of a turn of one pair at rank 0; one direction fails on the last rail. */
static void keep_pair(struct matrix *matrix, int one, int other, bool failed, bool again)
{
	struct turn_result results[TURN_RANKS * TURN_RAILS] = { 0 };
	struct runner runner = { .matrix = matrix, .width = 1, .results = results };

	for (int i = 0; i < 2 * TURN_RAILS; i++) {
		bool first = i < TURN_RAILS, fails = failed && i == 2 * TURN_RAILS - 1;

		results[(first ? one : other) * TURN_RAILS + i % TURN_RAILS] = (struct turn_result){
			.partner = first ? other : one,
			.measured = 1,
			.cell = { .bytes_per_second = fails ? NAN : 1e9,
				  .latency_us = fails ? NAN : 2,
				  .failed = fails },
		};
	}
	keep_turn_results(&runner, &(struct turn){ -1, MATRIX_PAIRS, again });
}

/* Failures of a second measurement count, though the pairs keep their first results; failures of the first do not. */
static void test_failures_of_the_turn_count(void **state)
{
	static const struct world_ops ops = { .leave_out = note_left_out };
	uint8_t gone[TURN_RANKS] = { 0 };
	struct world world = { .ops = &ops, .size = TURN_RANKS, .gone = gone };
	struct matrix_failures failures[TURN_RANKS] = { 0 };
	struct matrix_cell cells[TURN_RANKS * TURN_RANKS], rails[TURN_RAILS * TURN_RANKS * TURN_RANKS];
	struct matrix matrix = { .world = &world,
				 .size = TURN_RANKS,
				 .rails = TURN_RAILS,
				 .cells = cells,
				 .rail_cells = rails,
				 .failures = failures };

	(void)state;
	left_out_rank = -1;
	for (int i = 0; i < TURN_RANKS * TURN_RANKS * TURN_RAILS; i++)
		rails[i] = cells[i % (TURN_RANKS * TURN_RANKS)] = matrix_empty_cell();
	for (int i = 1; i < 4; i++)
		keep_pair(&matrix, 0, i, false, false);
	for (int i = 0; i < 3; i++)
		keep_pair(&matrix, i, 4, i == 0, false);
	/* Rank 4 has one failure, which its successes end.  The failed cells stay. */
	matrix_cell(&matrix, 1, 4)->failed = matrix_cell(&matrix, 2, 4)->failed = 1;
	for (int i = 0; i < 3; i++)
		keep_pair(&matrix, i, 4, false, true);
	assert_int_equal(failures[4].count, 0);
	assert_int_equal(left_out_rank, -1);
	/* No recent success connects rank 4 with the others. */
	failures[4] = (struct matrix_failures){ .count = 0 };
	for (int i = 0; i < 3; i++)
		memset(failures[i].recent, 0xff, sizeof(failures[i].recent));
	for (int i = 1; i < 4; i++)
		keep_pair(&matrix, 0, i, false, true);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(left_out_rank, -1);
		keep_pair(&matrix, i, 4, true, true);
	}
	assert_int_equal(left_out_rank, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_silent_rank_delays_no_other_link),
		cmocka_unit_test(test_a_silent_connection_delays_no_link),
		cmocka_unit_test(test_failures_of_the_turn_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
