/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that host and control groups have left: allocations beyond it fail before they take memory. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "memory/memory_room.h"
#include "support/root_folder.h"

#define MIB (1ull << 20)
#define CALLS_MAX 16

/* Calls of fallocate(2), which this program never passes on: no case takes memory. */
static struct {
	off_t offset, length;
} calls[CALLS_MAX];
static size_t call_count;
/* Runs in each call. */
static void (*in_call)(void);
/* Calls that a signal interrupts. */
static size_t interrupted;
/* Errno with which all calls fail; 0: they succeed. */
static int failure;

int fallocate(int fd, int mode, off_t offset, off_t length)
{
	(void)fd;
	assert_int_equal(mode, 0);
	assert_true(call_count < CALLS_MAX);
	calls[call_count].offset = offset;
	calls[call_count++].length = length;
	if (in_call)
		in_call();
	if (interrupted > 0) {
		interrupted--;
		errno = EINTR;
		return -1;
	}
	if (failure) {
		errno = failure;
		return -1;
	}
	return 0;
}

/* Folder that stands for "/". */
static char root[] = "/tmp/peerlane-room-XXXXXX";

static void write_root_file(const char *name, const char *text)
{
	root_folder_write(root, name, text);
}

static int open_root(void **state)
{
	(void)state;
	call_count = 0;
	in_call = NULL;
	interrupted = 0;
	strcpy(root + sizeof(root) - 7, "XXXXXX");
	if (!mkdtemp(root))
		return -1;
	write_root_file("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:          262144 kB\n"
					"MemAvailable:    8388608 kB\nBuffers:             100 kB\n");
	return 0;
}

static int remove_root(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

static void test_host(void **state)
{
	(void)state;
	assert_int_equal(pl_memory_room(root), 8192 * MIB);
	write_root_file("proc/meminfo", "MemTotal: 1 kB\n");
	assert_int_equal(pl_memory_room(root), UINT64_MAX);
}

/* The page cache of a group is no used memory. */
static void test_group(void **state)
{
	(void)state;
	write_root_file("proc/self/cgroup", "4:memory,x:/other\n0::/pod/container\n");
	write_root_file("sys/fs/cgroup/pod/container/memory.max", "4294967296\n");
	write_root_file("sys/fs/cgroup/pod/container/memory.current", "4200000000\n");
	assert_int_equal(pl_memory_room(root), 94967296);
	write_root_file("sys/fs/cgroup/pod/container/memory.stat",
			"anon 150000000\nfile 4050000000\nactive_anon 1\ninactive_file 4000000000\n"
			"active_file 30000000\nslab_reclaimable 20000000\nslab_unreclaimable 5000000\n");
	assert_int_equal(pl_memory_room(root), 94967296 + 4050000000);
	/* A group may shrink between two reads. */
	write_root_file("sys/fs/cgroup/pod/container/memory.current", "1000\n");
	assert_int_equal(pl_memory_room(root), 4294967296);
}

/* The tightest limit of all groups counts, and memory.high slows a group before memory.max ends processes. */
static void test_tightest_limit(void **state)
{
	(void)state;
	write_root_file("proc/self/cgroup", "0::/pod/container\n");
	write_root_file("sys/fs/cgroup/pod/container/memory.max", "max\n");
	write_root_file("sys/fs/cgroup/pod/container/memory.current", "1073741824\n");
	assert_int_equal(pl_memory_room(root), 8192 * MIB);
	write_root_file("sys/fs/cgroup/pod/container/memory.high", "2147483648\n");
	assert_int_equal(pl_memory_room(root), 1024 * MIB);
	write_root_file("sys/fs/cgroup/pod/memory.max", "3221225472\n");
	write_root_file("sys/fs/cgroup/pod/memory.current", "2684354560\n");
	assert_int_equal(pl_memory_room(root), 512 * MIB);
	write_root_file("sys/fs/cgroup/memory.max", "3221225472\n");
	write_root_file("sys/fs/cgroup/memory.current", "3221225473\n");
	assert_int_equal(pl_memory_room(root), 0);
}

static void test_version_1(void **state)
{
	(void)state;
	write_root_file("proc/self/cgroup", "5:devices:/\n4:memory:/job/0::step\n0::/\n");
	write_root_file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	write_root_file("sys/fs/cgroup/memory/memory.usage_in_bytes", "10110136320\n");
	write_root_file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4294967296\n");
	write_root_file("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4294967296\n");
	write_root_file("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 7\nactive_file 7\n"
								"total_inactive_file 1073741824\n"
								"total_active_file 1073741824\n");
	assert_int_equal(pl_memory_room(root), 2048 * MIB);
}

/* Neither a wrong length nor one that the host cannot give takes any memory. */
static void test_allocation_beyond_the_room(void **state)
{
	/* Physical memory, unlike the room, does not grow while the test runs. */
	size_t physical = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
	size_t lengths[] = { (size_t)1 << 62, 4 * physical };
	struct pl_context *context;
	struct pl_region *region;
	struct pl_error error;

	(void)state;
	if (pl_memory_room("") == UINT64_MAX)
		skip();
	assert_int_equal(pl_open(&context, NULL, &error), 0);
	for (size_t i = 0; i < 2; i++) {
		unsigned long long wanted, available;

		call_count = 0;
		assert_int_equal(pl_region_allocate(context, lengths[i], PL_ACCESS_ALL, &region, &error), -ENOMEM);
		assert_int_equal(call_count, 0);
		assert_string_equal(error.id, "NO-MEMORY");
		assert_int_equal(sscanf(error.message, "%llu MiB of memory are wanted, %llu MiB are available", &wanted,
					&available),
				 2);
		assert_int_equal(wanted, lengths[i] / MIB);
		assert_true(available < wanted);
		assert_string_equal(error.hint, "ask for less, or free memory");
		assert_null(region);
	}
	pl_close(context);
}

static void test_slices(void **state)
{
	off_t next = 0;

	(void)state;
	assert_int_equal(pl_memory_room_take(root, -1, 600 * MIB, NULL), 0);
	assert_true(call_count > 1);
	for (size_t i = 0; i < call_count; i++) {
		assert_int_equal(calls[i].offset, next);
		assert_in_range(calls[i].length, 1, 256 * MIB);
		next += calls[i].length;
	}
	assert_int_equal(next, 600 * MIB);
}

/* A signal undoes a call: shorter calls follow, from the same byte. */
static void test_signals(void **state)
{
	off_t next = 0;

	(void)state;
	interrupted = 3;
	assert_int_equal(pl_memory_room_take(root, -1, 64 * MIB, NULL), 0);
	assert_true(call_count > 3);
	for (size_t i = 0; i < call_count; i++) {
		assert_int_equal(calls[i].offset, next);
		if (i >= 3)
			next += calls[i].length;
	}
	assert_int_equal(next, 64 * MIB);
	assert_true(calls[3].length < calls[0].length);
}

/* Another process takes memory after the first check. */
static void leave_little_room(void)
{
	write_root_file("proc/meminfo", "MemAvailable:     102400 kB\n");
}

static void test_shortfall_meanwhile(void **state)
{
	struct pl_error error;

	(void)state;
	assert_int_equal(pl_memory_room_check(root, 600 * MIB, 0, &error), 0);
	in_call = leave_little_room;
	assert_int_equal(pl_memory_room_take(root, -1, 600 * MIB, &error), -ENOMEM);
	assert_int_equal(call_count, 1);
	assert_string_equal(error.message, "600 MiB of memory are wanted, 356 MiB are available");
}

/* A failure of fallocate(2) is told with its own reason, and a remedy. */
static void test_failures(void **state)
{
	static const struct {
		int failure, code;
		const char *id, *text, *hint;
	} cases[] = {
		{ ENOMEM, -ENOMEM, "NO-MEMORY", "there are no 1048576 bytes of memory", "ask for less" },
		{ ENOSPC, -ENOMEM, "NO-MEMORY", "CommitLimit", "vm.overcommit_memory" },
		{ EFBIG, -EFBIG, "SYSTEM", "limit of file sizes", "ulimit -f" },
		{ EPERM, -EPERM, "SYSTEM", "seccomp", "allow fallocate(2)" },
		{ EACCES, -EACCES, "SYSTEM", "security module", "allow fallocate(2)" },
		{ EOPNOTSUPP, -EOPNOTSUPP, "SYSTEM", "this kernel", "pl_region_register()" },
		{ ENOSYS, -ENOSYS, "SYSTEM", "this kernel", "pl_region_register()" },
		{ EIO, -EIO, "SYSTEM", "Input/output error", "" },
	};
	struct pl_context *context;
	struct pl_region *region;
	struct pl_error error;

	(void)state;
	assert_int_equal(pl_open(&context, NULL, &error), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		call_count = 0;
		failure = cases[i].failure;
		assert_int_equal(pl_region_allocate(context, MIB, PL_ACCESS_ALL, &region, &error), cases[i].code);
		failure = 0;
		assert_string_equal(error.id, cases[i].id);
		assert_string_equal(error.call, "fallocate");
		assert_non_null(strstr(error.message, cases[i].text));
		assert_non_null(strstr(error.hint, cases[i].hint));
	}
	pl_close(context);
}

/* Small allocations read no files. */
static void test_small(void **state)
{
	struct pl_error error;

	(void)state;
	write_root_file("proc/meminfo", "MemAvailable: 0 kB\n");
	assert_int_equal(pl_memory_room_check(root, 1 * MIB, 0, &error), 0);
	assert_int_equal(pl_memory_room_check(root, 4 * MIB, 0, &error), -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_host, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_group, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_tightest_limit, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_version_1, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_allocation_beyond_the_room, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_slices, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_signals, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_shortfall_meanwhile, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_failures, open_root, remove_root),
		cmocka_unit_test_setup_teardown(test_small, open_root, remove_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
