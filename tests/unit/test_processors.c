/* SPDX-License-Identifier: BSD-2-Clause */
/* Processors of this process: of the thread's affinity, and of the time that control groups allow. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/processors.h"
#include "support/root_folder.h"

/* Processors of the stand-in for sched_getaffinity(2): each second one of twice as many. */
static unsigned allowed;
/* Bytes of the kernel's set of processors. It refuses smaller ones. */
static size_t kernel_set;

/* Replaces that of the C library in this program. Sanitizers ask it as well. */
__attribute__((no_sanitize("address", "thread", "undefined"))) int sched_getaffinity(pid_t process, size_t size,
										     cpu_set_t *set)
{
	(void)process;
	if (size < kernel_set) {
		errno = EINVAL;
		return -1;
	}
	CPU_ZERO_S(size, set);
	for (unsigned i = 0; i < allowed; i++)
		CPU_SET_S(2 * i, size, set);
	return 0;
}

/* Folder that stands for "/". */
static char root[] = "/tmp/peerlane-processors-XXXXXX";

static void write_root_file(const char *name, const char *text)
{
	root_folder_write(root, name, text);
}

static int open_root(void **state)
{
	(void)state;
	allowed = 64;
	kernel_set = 128;
	strcpy(root + sizeof(root) - 7, "XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

/* Only processors of the thread's affinity count, in sets of any kernel. */
static void test_affinity(void **state)
{
	(void)state;
	assert_int_equal(pl_processors_below(root), 64);
	allowed = 2;
	assert_int_equal(pl_processors_below(root), 2);
	allowed = 3000;
	kernel_set = 1024;
	assert_int_equal(pl_processors_below(root), 3000);
}

/* Where the kernel's set is larger than any that is known, all processors count. */
static void test_no_affinity(void **state)
{
	(void)state;
	kernel_set = SIZE_MAX;
	assert_int_equal(pl_processors_below(root), sysconf(_SC_NPROCESSORS_ONLN));
}

static void check_limit(const char *text, unsigned wanted)
{
	write_root_file("sys/fs/cgroup/pod/container/cpu.max", text);
	assert_int_equal(pl_processors_below(root), wanted);
}

/* A part of a processor counts as one. */
static void test_group(void **state)
{
	(void)state;
	write_root_file("proc/self/cgroup", "4:cpu,cpuacct:/other\n0::/pod/container\n");
	write_root_file("sys/fs/cgroup/other/cpu.max", "100000 100000\n");
	assert_int_equal(pl_processors_below(root), 64);
	check_limit("max 100000\n", 64);
	check_limit("200000 100000\n", 2);
	check_limit("200001 100000\n", 3);
	check_limit("1000 100000\n", 1);
	check_limit("50000 10000\n", 5);
	check_limit("6500000 100000\n", 64);
	check_limit("18446744073709551615 1\n", 64);
	/* No kernel writes these. */
	check_limit("0 100000\n", 1);
	check_limit("100000 0\n", 64);
	check_limit("100000\n", 64);
	check_limit("", 64);
}

/* The tightest limit of all groups counts. */
static void test_tightest_limit(void **state)
{
	(void)state;
	write_root_file("proc/self/cgroup", "0::/pod/container\n");
	write_root_file("sys/fs/cgroup/pod/container/cpu.max", "800000 100000\n");
	assert_int_equal(pl_processors_below(root), 8);
	write_root_file("sys/fs/cgroup/pod/cpu.max", "400000 100000\n");
	assert_int_equal(pl_processors_below(root), 4);
	write_root_file("sys/fs/cgroup/cpu.max", "300000 100000\n");
	assert_int_equal(pl_processors_below(root), 3);
	/* In a container the path may be that of the host: only the root group is there. */
	write_root_file("proc/self/cgroup", "0::/system.slice/container\n");
	assert_int_equal(pl_processors_below(root), 3);
}

static void check_limit_1(const char *quota, const char *period, unsigned wanted)
{
	write_root_file("sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", quota);
	write_root_file("sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", period);
	assert_int_equal(pl_processors_below(root), wanted);
}

/* Version 1, also beside a hierarchy of version 2 without this controller. */
static void test_version_1(void **state)
{
	(void)state;
	write_root_file("proc/self/cgroup", "5:cpuset:/other\n4:cpuacct,cpu:/pod\n1:name=cpu:/other\n0::/\n");
	write_root_file("sys/fs/cgroup/cpu/other/cpu.cfs_quota_us", "100000\n");
	write_root_file("sys/fs/cgroup/cpu/other/cpu.cfs_period_us", "100000\n");
	assert_int_equal(pl_processors_below(root), 64);
	check_limit_1("-1\n", "100000\n", 64);
	check_limit_1("250000\n", "100000\n", 3);
	check_limit_1("1000\n", "100000\n", 1);
	check_limit_1("250000\n", "0\n", 64);
	check_limit_1("250000\n", "", 64);
	check_limit_1("800000\n", "100000\n", 8);
	/* In a container the path is that of the host, and only the container's group is there. */
	write_root_file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
	write_root_file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	write_root_file("proc/self/cgroup", "4:cpu,cpuacct:/docker/0123\n");
	assert_int_equal(pl_processors_below(root), 2);
	write_root_file("proc/self/cgroup", "4:cpu,cpuacct\n4\n\n:cpu\n");
	assert_int_equal(pl_processors_below(root), 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_affinity, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_no_affinity, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_group, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_tightest_limit, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_version_1, open_root, remove_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
