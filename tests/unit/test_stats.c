/* SPDX-License-Identifier: BSD-2-Clause */
/* Percentiles of a histogram, compared with those of the sorted values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* The command is not part of the library, so its source is included. */
#include "cmd/common/stats.c"

#define VALUES 20000

static uint64_t next_value(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 11;
}

static int compare_values(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static uint64_t exact_percentile(const uint64_t *sorted, size_t count, double percent)
{
	double exact_rank = (double)count * percent / 100;
	size_t rank = (size_t)exact_rank;

	if ((double)rank < exact_rank)
		rank++;
	return sorted[rank ? rank - 1 : 0];
}

static void assert_close(uint64_t value, uint64_t expected)
{
	uint64_t difference = value > expected ? value - expected : expected - value;

	if ((double)difference > (double)expected * 0.016)
		fail_msg("%llu is not within 1.6 %% of %llu", (unsigned long long)value, (unsigned long long)expected);
}

static void check_percentiles(uint64_t *values, size_t count)
{
	static const double percents[] = { 0, 1, 25, 50, 90, 99, 99.9, 99.99, 100 };
	struct stats stats;

	stats_reset(&stats);
	for (size_t i = 0; i < count; i++)
		stats_record(&stats, values[i]);
	qsort(values, count, sizeof(*values), compare_values);
	for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++)
		assert_close(stats_percentile(&stats, percents[i]), exact_percentile(values, count, percents[i]));
	assert_int_equal(stats.count, count);
	assert_true(stats.minimum == values[0]);
	assert_true(stats.maximum == values[count - 1]);
	assert_true(stats_percentile(&stats, 100) == values[count - 1]);
}

static void test_empty(void **state)
{
	struct stats stats;

	(void)state;
	stats_reset(&stats);
	assert_int_equal(stats_percentile(&stats, 50), 0);
	assert_true(stats_mean(&stats) == 0);
}

static void test_one_value(void **state)
{
	static const uint64_t values[] = { 0, 1, 127, 128, 129, 12345, 1ull << 40, UINT64_MAX - 1, UINT64_MAX };

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct stats stats;

		stats_reset(&stats);
		stats_record(&stats, values[i]);
		for (double percent = 0; percent <= 100; percent += 12.5)
			assert_true(stats_percentile(&stats, percent) == values[i]);
	}
}

/* Buckets cover the whole range without gaps and overlaps. */
static void test_buckets(void **state)
{
	unsigned last = 0;

	(void)state;
	for (uint64_t value = 0; value < 1u << 20; value++) {
		unsigned bucket = stats_bucket(value);

		assert_true(bucket == last || bucket == last + 1);
		last = bucket;
	}
	for (unsigned bit = 7; bit < 64; bit++)
		assert_int_equal(stats_bucket(1ull << bit), stats_bucket((1ull << bit) - 1) + 1);
	assert_int_equal(stats_bucket(UINT64_MAX), STATS_BUCKETS - 1);
	for (unsigned bucket = 0; bucket < STATS_BUCKETS; bucket++)
		assert_int_equal(stats_bucket(bucket_middle(bucket)), bucket);
}

static void test_uniform(void **state)
{
	uint64_t *values = malloc(VALUES * sizeof(*values)), seed = 1;

	(void)state;
	assert_non_null(values);
	for (size_t i = 0; i < VALUES; i++)
		values[i] = next_value(&seed) % 1000000;
	check_percentiles(values, VALUES);
	free(values);
}

static void test_mean_and_deviation(void **state)
{
	uint64_t seed = 5, sum = 0;
	struct stats stats;

	(void)state;
	stats_reset(&stats);
	assert_true(stats_deviation(&stats) == 0);
	for (size_t i = 0; i < VALUES; i++) {
		uint64_t value = 500000 + next_value(&seed) % 1000000;

		sum += value;
		stats_record(&stats, value);
	}
	assert_true(stats_mean(&stats) == (double)sum / VALUES);
	/* The deviation of a uniform distribution is its width divided by the square root of 12. */
	assert_close((uint64_t)stats_deviation(&stats), 288675);
	stats_reset(&stats);
	for (size_t i = 0; i < 1000; i++)
		stats_record(&stats, i % 2 ? 50 : 100);
	assert_true(stats_mean(&stats) == 75 && stats_deviation(&stats) == 25);
}

/* Distribution of latencies: most values are close to each other, and a few are a thousand times larger. */
static void test_long_tail(void **state)
{
	uint64_t *values = malloc(VALUES * sizeof(*values)), seed = 7;

	(void)state;
	assert_non_null(values);
	for (size_t i = 0; i < VALUES; i++) {
		uint64_t random = next_value(&seed);

		values[i] = 8000 + random % 500;
		if (random % 200 == 0)
			values[i] *= 1 + random % 1000;
	}
	check_percentiles(values, VALUES);
	free(values);
}

static void test_every_magnitude(void **state)
{
	uint64_t *values = malloc(VALUES * sizeof(*values)), seed = 3;

	(void)state;
	assert_non_null(values);
	for (size_t i = 0; i < VALUES; i++)
		values[i] = (next_value(&seed) << 11) >> (i % 64);
	check_percentiles(values, VALUES);
	free(values);
}

static void test_mean(void **state)
{
	struct stats stats;

	(void)state;
	stats_reset(&stats);
	for (uint64_t value = 1; value <= 1000; value++)
		stats_record(&stats, value);
	assert_true(stats_mean(&stats) == 500.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),           cmocka_unit_test(test_one_value),
		cmocka_unit_test(test_buckets),         cmocka_unit_test(test_mean_and_deviation),
		cmocka_unit_test(test_uniform),         cmocka_unit_test(test_long_tail),
		cmocka_unit_test(test_every_magnitude), cmocka_unit_test(test_mean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
