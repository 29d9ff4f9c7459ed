/* SPDX-License-Identifier: BSD-2-Clause */
/* The share of a processor that polling ends had, by which a measurement tells a busy host. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bench/perf/results.h"

static struct bench_row row_with(double cpu, double server_cpu)
{
	return (struct bench_row){ .plan = { .operation = bench_operation_by_name("write") },
				   .sample = { .fabric = "tcp" },
				   .elapsed = 100 * CLI_NS_PER_MS,
				   .cpu = cpu,
				   .server_cpu = server_cpu };
}

static void test_both_ends_over_tcp(void **state)
{
	const struct bench_options options = { .manual = true };
	struct bench_row row = row_with(99, 98);

	(void)state;
	assert_false(bench_row_starved(&options, &row));
	row = row_with(49, 98);
	assert_true(bench_row_starved(&options, &row));
	row = row_with(99, 12);
	assert_true(bench_row_starved(&options, &row));
	assert_true(bench_row_polling_share(&options, &row) == 12);
}

static void test_server_that_need_not_poll(void **state)
{
	const struct bench_options here = { .manual = true }, elsewhere = { .manual = true, .address_count = 1 };
	struct bench_row row = row_with(99, 12);

	(void)state;
	assert_false(bench_row_starved(&elsewhere, &row));
	row.sample.fabric = "local";
	assert_false(bench_row_starved(&here, &row));
	row.cpu = 49;
	assert_true(bench_row_starved(&here, &row));
	assert_true(bench_row_starved(&elsewhere, &row));
}

static void test_no_polling_and_short_runs(void **state)
{
	const struct bench_options manual = { .manual = true }, threads = { .manual = false };
	struct bench_row row = row_with(12, 12);

	(void)state;
	assert_true(isnan(bench_row_polling_share(&threads, &row)));
	assert_false(bench_row_starved(&threads, &row));
	row.plan.operation = bench_operation_by_name("connect");
	assert_false(bench_row_starved(&manual, &row));
	row = row_with(12, 12);
	row.elapsed--;
	assert_false(bench_row_starved(&manual, &row));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_ends_over_tcp),
		cmocka_unit_test(test_server_that_need_not_poll),
		cmocka_unit_test(test_no_polling_and_short_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
