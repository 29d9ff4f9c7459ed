/* SPDX-License-Identifier: BSD-2-Clause */
/* Schedule of `peerlane bench --matrix`, and the pairs that it reports as slow. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The command is not part of the library, so its source is included. */
#include "bench/matrix/plan.c"
#include "bench/matrix/again.c"
#include "bench/matrix/failures.c"

static void test_each_pair_meets_once(void **state)
{
	(void)state;
	for (int size = 2; size <= 33; size++) {
		int *met = calloc((size_t)(size * size), sizeof(*met));

		assert_non_null(met);
		for (int round = 0; round < matrix_rounds(size); round++)
			for (int rank = 0; rank < size; rank++) {
				int partner = matrix_partner(size, round, rank);

				assert_true(partner != rank && partner < size);
				if (partner < 0)
					continue;
				/* Both ranks of a pair agree, so that no rank is in two pairs. */
				assert_int_equal(matrix_partner(size, round, partner), rank);
				met[rank * size + partner]++;
			}
		for (int i = 0; i < size * size; i++)
			assert_int_equal(met[i], i / size != i % size);
		free(met);
	}
}

static struct matrix make_matrix(int size, int ranks_per_host)
{
	struct matrix matrix = { .size = size };

	matrix.ranks = calloc((size_t)size, sizeof(*matrix.ranks));
	matrix.hosts = calloc((size_t)size, sizeof(*matrix.hosts));
	matrix.cells = calloc((size_t)(size * size), sizeof(*matrix.cells));
	assert_true(matrix.ranks && matrix.hosts && matrix.cells);
	for (int i = 0; i < size; i++)
		snprintf(matrix.ranks[i].host, sizeof(matrix.ranks[i].host), "host%d", i / ranks_per_host);
	matrix_find_hosts(&matrix);
	return matrix;
}

static void free_matrix(struct matrix *matrix)
{
	free(matrix->ranks);
	free(matrix->hosts);
	free(matrix->cells);
	free(matrix->slow);
}

static void test_pairs_that_share_a_host_take_turns(void **state)
{
	static const struct {
		int size, ranks_per_host, most;
	} cases[] = { { 8, 8, 4 }, { 8, 1, 1 }, { 16, 4, 8 }, { 7, 2, 4 } };

	(void)state;
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		struct matrix matrix = make_matrix(cases[c].size, cases[c].ranks_per_host);

		for (int round = 0; round < matrix_rounds(matrix.size); round++)
			for (int a = 0; a < matrix.size; a++) {
				int turns, mine = matrix_turn(&matrix, round, a, &turns);
				int partner = matrix_partner(matrix.size, round, a);

				assert_true(turns >= 1 && turns <= cases[c].most);
				assert_int_equal(partner < 0, mine == INT32_MAX);
				for (int b = 0; b < matrix.size && partner >= 0; b++) {
					int same, other = matrix_turn(&matrix, round, b, &same);

					assert_int_equal(same, turns);
					assert_true(b == a || b == partner || other != mine ||
						    (matrix.hosts[b] != matrix.hosts[a] &&
						     matrix.hosts[b] != matrix.hosts[partner]));
				}
			}
		free_matrix(&matrix);
	}
}

static void fill_cells(struct matrix *matrix)
{
	for (int i = 0; i < matrix->size * matrix->size; i++) {
		bool self = i / matrix->size == i % matrix->size;

		matrix->cells[i].bytes_per_second = self ? NAN : 10e9 + 1e7 * (i % 7);
		matrix->cells[i].latency_us = self ? NAN : 2 + 0.01 * (i % 5);
	}
}

static void test_measured_pairs_take_no_turns(void **state)
{
	struct matrix matrix = make_matrix(6, 6);
	int turns;

	(void)state;
	matrix.measured = calloc(36, 1);
	assert_non_null(matrix.measured);
	for (int round = 0; round < matrix_rounds(6); round++) {
		int partner = matrix_partner(6, round, 0);

		/* Three pairs of one host take three turns. */
		assert_true(matrix_turn(&matrix, round, 0, &turns) < 3);
		assert_int_equal(turns, 3);
		matrix.measured[partner] = matrix.measured[partner * 6] = 1;
		assert_int_equal(matrix_turn(&matrix, round, 0, &turns), INT32_MAX);
		assert_int_equal(matrix_turn(&matrix, round, partner, &turns), INT32_MAX);
		assert_int_equal(turns, 2);
	}
	free(matrix.measured);
	free_matrix(&matrix);
}

/* Leaves a rank of a matrix out. */
static struct world leave_rank_out(struct matrix *matrix, uint8_t *gone, int rank)
{
	gone[rank] = 1;
	return (struct world){ .size = matrix->size, .gone = gone };
}

static void test_hosts_with_one_name_are_told_apart(void **state)
{
	static const char *const names[] = { "a", "a#2", "b", "a", "a#3", "a#2", "" };
	static const char boot_ids[] = "123145";
	static const int hosts[] = { 0, 1, 2, 0, 4, 1, 6 };
	struct matrix matrix = make_matrix(7, 1);

	(void)state;
	for (int i = 0; i < 6; i++) {
		snprintf(matrix.ranks[i].host, MATRIX_HOST, "%c", names[i][0]);
		snprintf(matrix.ranks[i].boot_id, MATRIX_BOOT_ID, "%c", i == 5 ? '2' : boot_ids[i]);
	}
	memset(matrix.ranks[6].host, 0, MATRIX_HOST);
	matrix_find_hosts(&matrix);
	for (int i = 0; i < 7; i++) {
		assert_string_equal(matrix.ranks[i].host, names[i]);
		assert_int_equal(matrix.hosts[i], hosts[i]);
	}
	/* The end of a long name makes room for the number. */
	memset(matrix.ranks[0].host, 'x', MATRIX_HOST - 1);
	memcpy(matrix.ranks[1].host, matrix.ranks[0].host, MATRIX_HOST);
	matrix_find_hosts(&matrix);
	assert_true(matrix.hosts[1] == 1 && strlen(matrix.ranks[1].host) < MATRIX_HOST &&
		    !strcmp(strchr(matrix.ranks[1].host, '#'), "#2"));
	free_matrix(&matrix);
}

static void test_ranks_left_out_have_no_partner(void **state)
{
	struct matrix matrix = make_matrix(5, 1);
	uint8_t gone[5] = { 0 };
	struct world world = leave_rank_out(&matrix, gone, 3);
	int turns, pairs = 0;

	(void)state;
	matrix.world = &world;
	for (int round = 0; round < matrix_rounds(5); round++)
		for (int rank = 0; rank < 5; rank++) {
			int turn = matrix_turn(&matrix, round, rank, &turns);

			assert_true(turn == INT32_MAX || (rank != 3 && matrix_partner(5, round, rank) != 3));
			pairs += turn != INT32_MAX;
		}
	assert_int_equal(pairs, 4 * 3);
	free_matrix(&matrix);
}

/* Returns the writing pairs as bits: rank 0 to 1, 0 to 2, ... */
static unsigned written_pairs(const struct matrix *matrix, enum matrix_schedule schedule, int phase)
{
	unsigned bits = 0;

	for (int i = 0; i < 16; i++)
		bits |= (unsigned)matrix_writes(matrix, schedule, phase, i / 4, i % 4) << i;
	return bits;
}

static void test_schedules_omit_ranks_left_out(void **state)
{
	static const struct {
		enum matrix_schedule schedule;
		int phase;
		unsigned all, without_2;
	} cases[] = {
		{ MATRIX_RING, 0, 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12, 1u << 1 | 1u << 7 | 1u << 12 },
		{ MATRIX_ALL_TO_ALL, 0, 0x7bdeu, 0x300au | 0x90u },
		{ MATRIX_ONE_TO_ALL, 0, 0xeu, 0xau },
		{ MATRIX_ONE_TO_ALL, 1, 0x1110u, 0x1010u },
	};
	struct matrix matrix = make_matrix(4, 1);
	uint8_t gone[4] = { 0 };
	struct world world;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		matrix.world = NULL;
		assert_int_equal(written_pairs(&matrix, cases[i].schedule, cases[i].phase), cases[i].all);
		world = leave_rank_out(&matrix, gone, 2);
		matrix.world = &world;
		assert_int_equal(written_pairs(&matrix, cases[i].schedule, cases[i].phase), cases[i].without_2);
		assert_true(cases[i].phase < matrix_phases(cases[i].schedule));
	}
	assert_int_equal(matrix_phases(MATRIX_PAIRS), 2);
	free_matrix(&matrix);
}

static void test_rounds_are_spread(void **state)
{
	(void)state;
	for (int wanted = 1; wanted <= 31; wanted++)
		for (int i = 1; i < wanted; i++) {
			int before = matrix_spread_round(31, wanted, i - 1), round = matrix_spread_round(31, wanted, i);

			assert_true(round - before >= 31 / wanted && round - before <= 31 / wanted + 1 && round < 31);
		}
	assert_int_equal(matrix_spread_round(31, 0, 7), 7);
}

/* Counts a turn of one pair. */
static void count_pair(struct matrix *matrix, int one, int other, bool failed)
{
	struct matrix_outcome outcomes[7];

	for (int i = 0; i < 7; i++)
		outcomes[i] = (struct matrix_outcome){ i == one ? other : i == other ? one : -1, failed };
	assert_int_equal(matrix_count_turn(matrix, outcomes), 0);
}

static void test_a_rank_that_fails_three_times_is_found(void **state)
{
	struct matrix_failures failures[7] = { 0 };
	struct matrix matrix = make_matrix(7, 1);

	(void)state;
	matrix.failures = failures;
	/* A failure speaks against nobody until more than half of the ranks are connected. */
	count_pair(&matrix, 0, 1, true);
	count_pair(&matrix, 1, 2, false);
	count_pair(&matrix, 2, 3, false);
	count_pair(&matrix, 0, 3, true);
	assert_int_equal(failures[0].count, 0);
	count_pair(&matrix, 3, 4, false);
	count_pair(&matrix, 0, 4, true);
	/* Rank 5 is connected with nobody, so this speaks against neither. */
	count_pair(&matrix, 0, 5, true);
	count_pair(&matrix, 2, 0, true);
	assert_false(matrix_keeps_failing(&matrix, 0));
	count_pair(&matrix, 0, 1, true);
	assert_true(matrix_keeps_failing(&matrix, 0));
	for (int i = 1; i < 7; i++)
		assert_int_equal(failures[i].count, 0);
	matrix_forgive_failures(&matrix, 4);
	assert_false(matrix_keeps_failing(&matrix, 0));
	count_pair(&matrix, 0, 3, false);
	assert_int_equal(failures[0].count, 0);
	free_matrix(&matrix);
}

/* Fleet of which the ranks from `first` to `last` lose the others when `round` begins. */
struct broken {
	int size, first, last, round;
	bool inside; /* they reach each other */
};

static bool is_broken(const struct broken *broken, int rank)
{
	return rank >= broken->first && rank <= broken->last;
}

/* Measures all rounds.  Returns the number of healthy ranks that are left out, and in *missed of broken ones that are not. */
static int count_wrong(const struct broken *broken, int *missed)
{
	struct matrix matrix = make_matrix(broken->size, 1);
	uint8_t *gone = calloc((size_t)broken->size, 1);
	struct matrix_outcome *outcomes = calloc((size_t)broken->size, sizeof(*outcomes));
	struct world world = { .size = broken->size, .gone = gone };
	int wrong = 0;

	matrix.failures = calloc((size_t)broken->size, sizeof(*matrix.failures));
	assert_true(gone && outcomes && matrix.failures);
	matrix.world = &world;
	for (int round = 0; round < matrix_rounds(broken->size); round++) {
		for (int i = 0; i < broken->size; i++) {
			int partner = matrix_partner(broken->size, round, i);
			bool one = is_broken(broken, i), other = partner >= 0 && is_broken(broken, partner);

			outcomes[i].partner = partner < 0 || gone[i] || gone[partner] ? -1 : partner;
			outcomes[i].failed =
				round >= broken->round && (one != other || (one && other && !broken->inside));
		}
		assert_int_equal(matrix_count_turn(&matrix, outcomes), 0);
		for (int i = 1; i < broken->size; i++)
			gone[i] = gone[i] || matrix_keeps_failing(&matrix, i);
		for (int i = 1; i < broken->size; i++)
			if (gone[i])
				matrix_forgive_failures(&matrix, i);
	}
	*missed = 0;
	for (int i = 0; i < broken->size; i++) {
		wrong += gone[i] && !is_broken(broken, i);
		*missed += i > 0 && !gone[i] && is_broken(broken, i);
	}
	free(matrix.failures);
	free(outcomes);
	free(gone);
	free_matrix(&matrix);
	return wrong;
}

/* Breaks groups of up to `most` adjacent ranks, in steps.  Those of up to a fifth of all are found. */
static void check_broken_groups(int size, int most, int step, int round, bool inside)
{
	for (int count = 1; count <= most; count += step)
		for (int first = 1; first + count <= size; first += step) {
			struct broken broken = { size, first, first + count - 1, round, inside };
			int missed, wrong = count_wrong(&broken, &missed);

			if (wrong || (missed && 5 * count <= size))
				fail_msg("%d of %d ranks broken from %d in round %d: %d wrong, %d missed", count, size,
					 first, round, wrong, missed);
		}
}

static void test_only_ranks_of_a_broken_switch_are_left_out(void **state)
{
	(void)state;
	for (int inside = 0; inside < 2; inside++) {
		check_broken_groups(31, 15, 1, 0, inside);
		check_broken_groups(32, 15, 1, 0, inside);
		check_broken_groups(8, 2, 1, 0, inside);
		check_broken_groups(100, 33, 12, 0, inside);
		check_broken_groups(200, 60, 41, 0, inside);
		/* A switch that breaks later was part of the majority before. */
		check_broken_groups(100, 33, 12, 40, inside);
	}
}

/* Adds slow directions between two ranks. */
static void add_slow(struct matrix *matrix, int from, int to)
{
	matrix->slow[matrix->slow_count++] = (struct matrix_slow){ .from = from, .to = to };
}

static void test_slow_pairs_are_measured_again(void **state)
{
	struct matrix matrix = make_matrix(24, 2);
	uint8_t suspects[24 * 24] = { 0 }, met[24 * 24] = { 0 }, earlier[24 * 24] = { 0 };
	int turns = 1, pairs = 0;

	(void)state;
	matrix.slow = calloc(64, sizeof(*matrix.slow));
	assert_non_null(matrix.slow);
	add_slow(&matrix, 3, 2);
	add_slow(&matrix, 2, 3);
	add_slow(&matrix, 3, 8);
	add_slow(&matrix, 12, 10);
	/* Rank 5 is slow with nine others. */
	for (int i = 14; i < 23; i++)
		add_slow(&matrix, 5, i);
	/* An earlier run has this one. */
	add_slow(&matrix, 6, 7);
	matrix.measured = earlier;
	earlier[6 * 24 + 7] = 1;
	assert_int_equal(matrix_mark_suspects(&matrix, suspects), 3);
	assert_true(suspects[2 * 24 + 3] && suspects[3 * 24 + 8] && suspects[10 * 24 + 12]);
	for (int turn = 0; turn < turns; turn++) {
		uint8_t hosts[24] = { 0 };

		for (int rank = 0; rank < 24; rank++) {
			int partner = matrix_plan_suspects(&matrix, suspects, turn, rank, &turns), same;

			if (partner < 0)
				continue;
			assert_int_equal(matrix_plan_suspects(&matrix, suspects, turn, partner, &same), rank);
			pairs += rank < partner;
			met[rank * 24 + partner] = rank < partner;
			assert_true(++hosts[matrix.hosts[rank]] == 1 || matrix.hosts[rank] == matrix.hosts[partner]);
		}
	}
	assert_int_equal(pairs, 3);
	assert_int_equal(turns, 2);
	assert_memory_equal(met, suspects, sizeof(met));
	free_matrix(&matrix);
}

static void test_the_better_values_count(void **state)
{
	const struct matrix_cell first = { .bytes_per_second = 10, .latency_us = 2, .fabric = "tcp" };
	const struct matrix_cell faster = { .bytes_per_second = 20, .latency_us = 3, .fabric = "verbs" };
	const struct matrix_cell failed = { .bytes_per_second = NAN, .latency_us = NAN, .failed = 1 };
	struct matrix_cell cell = first;

	(void)state;
	matrix_keep_better(&cell, &failed);
	assert_true(cell.bytes_per_second == 10 && cell.latency_us == 2 && !cell.failed);
	matrix_keep_better(&cell, &faster);
	assert_true(cell.bytes_per_second == 20 && cell.latency_us == 2);
	assert_string_equal(cell.fabric, "verbs");
	matrix_keep_better(&cell, &first);
	assert_true(cell.bytes_per_second == 20 && cell.latency_us == 2);
	assert_string_equal(cell.fabric, "verbs");
	cell = matrix_empty_cell();
	matrix_keep_better(&cell, &first);
	assert_true(cell.bytes_per_second == 10 && cell.latency_us == 2);
}

static void test_only_outliers_are_slow(void **state)
{
	struct matrix matrix = make_matrix(8, 1);

	(void)state;
	fill_cells(&matrix);
	matrix.cells[0 * 8 + 3].bytes_per_second = 3e9;
	matrix.cells[5 * 8 + 2].latency_us = 9;
	/* More than 5 deviations of a uniform matrix, but less than the factor of 1.25. */
	matrix.cells[6 * 8 + 1].bytes_per_second = 9e9;
	matrix.cells[7 * 8 + 4].bytes_per_second = NAN;
	assert_int_equal(matrix_judge(&matrix), 0);
	assert_int_equal(matrix.slow_count, 2);
	assert_true(matrix.slow[0].from == 0 && matrix.slow[0].to == 3 && !matrix.slow[0].latency);
	assert_true(matrix.slow[1].from == 5 && matrix.slow[1].to == 2 && matrix.slow[1].latency);
	assert_true(matrix.slow[0].median > 10e9 && matrix.slow[0].median < 10.1e9 && matrix.slow[0].value < 3.1e9);
	free_matrix(&matrix);
}

static void test_steps_of_the_clock_are_not_slow(void **state)
{
	struct matrix matrix = make_matrix(4, 4);

	(void)state;
	fill_cells(&matrix);
	for (int i = 0; i < 16; i++)
		matrix.cells[i].latency_us = 0.02;
	matrix.cells[1].latency_us = 0.03;
	matrix.cells[2].latency_us = 0.04;
	matrix.cells[7].latency_us = 0.05;
	assert_int_equal(matrix_judge(&matrix), 0);
	assert_int_equal(matrix.slow_count, 1);
	assert_true(matrix.slow[0].from == 1 && matrix.slow[0].to == 3 && matrix.slow[0].latency);
	free_matrix(&matrix);
}

static void test_unknown_values_are_not_slow(void **state)
{
	struct matrix matrix = make_matrix(3, 3);

	(void)state;
	for (int i = 0; i < 9; i++)
		matrix.cells[i].bytes_per_second = matrix.cells[i].latency_us = NAN;
	assert_int_equal(matrix_judge(&matrix), 0);
	assert_int_equal(matrix.slow_count, 0);
	assert_true(isnan(matrix.medians[0].bytes_per_second) && isnan(matrix.medians[1].bytes_per_second));
	free_matrix(&matrix);
}

/* Two hosts of four ranks each: pairs between hosts are slower than pairs within a host, which is not a defect. */
static void test_pairs_within_and_between_hosts_are_judged_separately(void **state)
{
	struct matrix matrix = make_matrix(8, 4);

	(void)state;
	for (int i = 0; i < 64; i++) {
		bool one = matrix.hosts[i / 8] == matrix.hosts[i % 8], self = i / 8 == i % 8;

		/* Rates vary by a factor of two, as on a busy machine. */
		matrix.cells[i].bytes_per_second = self ? NAN : (one ? 20e9 : 1e9) * (1 + (i * 7 % 10) / 10.0);
		matrix.cells[i].latency_us = self ? NAN : (one ? 0.1 : 20) * (1 + (i * 3 % 10) / 10.0);
	}
	assert_int_equal(matrix_judge(&matrix), 0);
	assert_int_equal(matrix.slow_count, 0);
	assert_true(matrix.medians[1].bytes_per_second > 15 * matrix.medians[0].bytes_per_second);
	matrix.cells[1 * 8 + 6].bytes_per_second = 0.02e9;
	matrix.cells[1 * 8 + 2].bytes_per_second = 1e9;
	matrix.cells[7 * 8 + 5].latency_us = 20;
	assert_int_equal(matrix_judge(&matrix), 0);
	assert_int_equal(matrix.slow_count, 3);
	assert_true(matrix.slow[0].from == 1 && matrix.slow[0].to == 6 && matrix.slow[0].median < 3e9);
	assert_true(matrix.slow[1].from == 1 && matrix.slow[1].to == 2 && matrix.slow[1].median > 20e9);
	assert_true(matrix.slow[2].from == 7 && matrix.slow[2].to == 5 && matrix.slow[2].latency);
	free_matrix(&matrix);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_pair_meets_once),
		cmocka_unit_test(test_pairs_that_share_a_host_take_turns),
		cmocka_unit_test(test_measured_pairs_take_no_turns),
		cmocka_unit_test(test_hosts_with_one_name_are_told_apart),
		cmocka_unit_test(test_ranks_left_out_have_no_partner),
		cmocka_unit_test(test_schedules_omit_ranks_left_out),
		cmocka_unit_test(test_rounds_are_spread),
		cmocka_unit_test(test_a_rank_that_fails_three_times_is_found),
		cmocka_unit_test(test_only_ranks_of_a_broken_switch_are_left_out),
		cmocka_unit_test(test_slow_pairs_are_measured_again),
		cmocka_unit_test(test_the_better_values_count),
		cmocka_unit_test(test_only_outliers_are_slow),
		cmocka_unit_test(test_steps_of_the_clock_are_not_slow),
		cmocka_unit_test(test_unknown_values_are_not_slow),
		cmocka_unit_test(test_pairs_within_and_between_hosts_are_judged_separately),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
