/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors of other processes that the local fabric maps: none may let an access raise a signal. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fabric/local/local.h"

#define SIZE ((uint64_t)4 << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static int make_file(unsigned flags, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	if (fd < 0)
		return -1;
	assert_int_equal(ftruncate(fd, (off_t)SIZE), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void test_sealed_memory(void **state)
{
	int fd = make_file(0, SEALS | F_SEAL_SEAL), reading;
	bool writable = false;
	char path[32];
	void *mapping;

	(void)state;
	assert_true(local_file_is_mappable(fd, SIZE));
	assert_false(local_file_is_mappable(fd, SIZE - 1) || local_file_is_mappable(fd, SIZE + 1));
	mapping = local_map_sealed_file(fd, SIZE, &writable);
	assert_non_null(mapping);
	assert_true(writable);
	memset(mapping, 1, SIZE);
	assert_int_equal(munmap(mapping, SIZE), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reading = open(path, O_RDONLY | O_CLOEXEC);
	mapping = local_map_sealed_file(reading, SIZE, &writable);
	assert_non_null(mapping);
	assert_false(writable);
	assert_int_equal(munmap(mapping, SIZE), 0);
	assert_null(local_map_sealed_file(fd, SIZE / 2, &writable));
	close(reading);
	close(fd);
}

static void test_missing_seals(void **state)
{
	static const int seals[] = { 0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE };

	(void)state;
	for (unsigned i = 0; i < PL_ARRAY_SIZE(seals); i++) {
		int fd = make_file(0, seals[i]);

		assert_false(local_file_is_mappable(fd, SIZE));
		close(fd);
	}
}

static void test_other_files(void **state)
{
	int null = open("/dev/zero", O_RDWR | O_CLOEXEC), folder = open("/", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_false(local_file_is_mappable(null, SIZE) || local_file_is_mappable(folder, SIZE));
	assert_false(local_file_is_mappable(-1, SIZE));
	close(null);
	close(folder);
}

/* Huge pages come from a pool, which may be empty when the other process has punched a hole. */
static void test_huge_pages(void **state)
{
	int fd = make_file(MFD_HUGETLB, SEALS);
	bool writable;

	(void)state;
	if (fd < 0) {
		print_message("skipped: this kernel has no memfd of huge pages: %s\n", strerror(errno));
		skip();
	}
	assert_int_equal(fcntl(fd, F_GET_SEALS) & SEALS, SEALS);
	assert_false(local_file_is_mappable(fd, SIZE));
	assert_null(local_map_sealed_file(fd, SIZE, &writable));
	close(fd);
}

/* The seals permit holes: the access to one gives zeros. */
static void test_hole(void **state)
{
	int fd = make_file(0, SEALS);
	bool writable;
	uint8_t *mapping = local_map_sealed_file(fd, SIZE, &writable);

	(void)state;
	assert_non_null(mapping);
	memset(mapping, 1, SIZE);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)SIZE), 0);
	for (uint64_t at = 0; at < SIZE; at += 4096)
		assert_int_equal(mapping[at], 0);
	mapping[SIZE - 1] = 2;
	assert_int_equal(munmap(mapping, SIZE), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sealed_memory), cmocka_unit_test(test_missing_seals),
		cmocka_unit_test(test_other_files),   cmocka_unit_test(test_huge_pages),
		cmocka_unit_test(test_hole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
