/* SPDX-License-Identifier: BSD-2-Clause */
/* Energy of processor packages, read from a folder in place of /sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* The command is not part of the library, so its source is included. */
#include "bench/perf/cost.c"

#define ROOT_MAX 64

static void write_zone_file(const char *root, const char *zone, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/class", root);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/class/powercap", root);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/class/powercap/%s", root, zone);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/class/powercap/%s/%s", root, zone, name);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void write_zone(const char *root, const char *name, const char *energy)
{
	write_zone_file(root, name, "energy_uj", energy);
	write_zone_file(root, name, "max_energy_range_uj", "262143328850\n");
}

static int make_sysfs(void **state)
{
	char *root = strdup("/tmp/bench_cost.XXXXXX");

	*state = root;
	return root && mkdtemp(root) ? 0 : -1;
}

static int remove_sysfs(void **state)
{
	char command[ROOT_MAX + 16];

	snprintf(command, sizeof(command), "rm -rf '%s'", (char *)*state);
	free(*state);
	return system(command);
}

static void test_energy_is_the_sum_of_packages_without_their_parts(void **state)
{
	struct bench_cost cost;
	struct bench_spent spent;

	write_zone(*state, "intel-rapl:0", "1000000\n");
	write_zone(*state, "intel-rapl:0:0", "500\n");
	write_zone(*state, "intel-rapl:1", "262143000000\n");
	write_zone(*state, "intel-rapl-mmio:0", "700\n");
	write_zone_file(*state, "intel-rapl", "enabled", "1\n");
	bench_cost_open(&cost, *state);
	assert_int_equal(cost.packages, 2);
	assert_string_equal(cost.no_joules, "");
	bench_cost_begin(&cost);
	write_zone(*state, "intel-rapl:0", "3500000\n");
	write_zone(*state, "intel-rapl:0:0", "900000000\n");
	/* The counter of this package wrapped around. */
	write_zone(*state, "intel-rapl:1", "671150\n");
	bench_cost_end(&cost, &spent);
	assert_true(spent.has_joules);
	assert_true(spent.joules > 2.5 + 0.999999 && spent.joules < 2.5 + 1.000001);
	bench_cost_close(&cost);
}

static void check_no_joules(const char *root, const char *reason)
{
	struct bench_cost cost;
	struct bench_spent spent;

	bench_cost_open(&cost, root);
	assert_int_equal(cost.packages, 0);
	assert_non_null(strstr(cost.no_joules, reason));
	bench_cost_begin(&cost);
	bench_cost_end(&cost, &spent);
	assert_false(spent.has_joules);
	/* The result has either cycles or the reason for their absence. */
	assert_int_equal(spent.has_cycles, cost.no_cycles[0] == '\0');
	bench_cost_close(&cost);
}

static void test_missing_packages_give_a_reason(void **state)
{
	check_no_joules(*state, "no package");
	write_zone(*state, "intel-rapl-mmio:0", "700\n");
	check_no_joules(*state, "no package");
}

static void test_unreadable_package_makes_energy_unknown(void **state)
{
	write_zone(*state, "intel-rapl:0", "1000000\n");
	write_zone_file(*state, "intel-rapl:1", "max_energy_range_uj", "262143328850\n");
	check_no_joules(*state, "only root");
	write_zone_file(*state, "intel-rapl:1", "energy_uj", "a lot\n");
	check_no_joules(*state, "only root");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_energy_is_the_sum_of_packages_without_their_parts, make_sysfs,
						remove_sysfs),
		cmocka_unit_test_setup_teardown(test_missing_packages_give_a_reason, make_sysfs, remove_sysfs),
		cmocka_unit_test_setup_teardown(test_unreadable_package_makes_energy_unknown, make_sysfs, remove_sysfs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
