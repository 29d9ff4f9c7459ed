/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "memory/mappings.h"

/* Mappings side by side, each of one page: writable, read-only, writable, of a file, writable, none, writable. */
#define PAGES 7
static const bool is_fragile[PAGES] = { false, true, false, true, false, false, false };

static size_t page;

static char *map_pages(void)
{
	char *begin = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int file = memfd_create("test", MFD_CLOEXEC);

	assert_true(begin != MAP_FAILED && file >= 0);
	assert_int_equal(ftruncate(file, (off_t)page), 0);
	assert_int_equal(mprotect(begin + page, page, PROT_READ), 0);
	assert_true(mmap(begin + 3 * page, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
		    MAP_FAILED);
	assert_int_equal(munmap(begin + 5 * page, page), 0);
	close(file);
	return begin;
}

static bool expect_fragile(unsigned from, unsigned to)
{
	bool any = false;

	for (unsigned i = from; i <= to; i++)
		any |= is_fragile[i];
	return any;
}

/* All ranges of pages, once with whole pages and once with one byte of the first and the last page. */
static void test_ranges(void **state)
{
	char *begin = map_pages();
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	int known;

	(void)state;
	assert_true(fd >= 0);
	known = pl_mappings_query(fd, (uintptr_t)begin, (uintptr_t)begin);
	assert_true(known == 0 || known == -ENOTTY);
	for (unsigned from = 0; from < PAGES; from++) {
		for (unsigned to = from; to < PAGES; to++) {
			uintptr_t first = (uintptr_t)begin + from * page, last = (uintptr_t)begin + (to + 1) * page - 1;
			uintptr_t inner_first = first + page - 1, inner_last = last - page + 1;
			int expected = expect_fragile(from, to);

			assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
			assert_int_equal(pl_mappings_read(fd, first, last), expected);
			assert_int_equal(pl_mappings_fragile(first, last), expected);
			if (known == 0)
				assert_int_equal(pl_mappings_query(fd, first, last), expected);
			if (from == to)
				continue;
			assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
			assert_int_equal(pl_mappings_read(fd, inner_first, inner_last), expected);
			assert_int_equal(pl_mappings_fragile(inner_first, inner_last), expected);
		}
	}
	close(fd);
	munmap(begin, PAGES * page);
}

/* Nothing is mapped from there to the end of the address space; the kernel's own page is not writable. */
static void test_end(void **state)
{
	uintptr_t last = UINTPTR_MAX;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), known = pl_mappings_query(fd, last, last);

	(void)state;
	assert_true(known == 0 || known == -ENOTTY);
	assert_int_equal(pl_mappings_read(fd, last, last), 0);
	close(fd);
	assert_true(pl_mappings_query(-1, 0, last) < 0);
	assert_true(pl_mappings_read(-1, 0, last) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_end),
	};

	page = (size_t)sysconf(_SC_PAGESIZE);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
