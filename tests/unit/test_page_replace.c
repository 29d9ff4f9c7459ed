/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replacement of pages, with failures of the kernel. This program's mremap(2) and mmap(2) replace the C library's: they fail as the kernel
 * does when it has no memory of its own.
 */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "memory/page_replace.h"

#define PAGE 65536u /* of all hosts */
#define SIZE (4 * PAGE)
#define USED (SIZE - 100)

static enum { MOVES, FAILS, UNMAPS } move;
static bool maps_nothing; /* at a wanted address */
static unsigned moves;

static void find_next(const char *name, void *function)
{
	void *found = dlsym(RTLD_NEXT, name);

	memcpy(function, &found, sizeof(found));
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *(*next)(void *, size_t, int, int, int, off_t);

	if (address && maps_nothing) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	find_next("mmap", &next);
	return next(address, length, protection, flags, fd, offset);
}

void *mremap(void *old, size_t old_size, size_t new_size, int flags, ...)
{
	void *(*next)(void *, size_t, size_t, int, ...);
	va_list arguments;
	void *at;

	va_start(arguments, flags);
	at = va_arg(arguments, void *);
	va_end(arguments);
	moves++;
	if (move == UNMAPS)
		assert_int_equal(munmap(at, new_size), 0);
	if (move != MOVES) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	find_next("mremap", &next);
	return next(old, old_size, new_size, flags, at);
}

static bool is_mapped(const void *address)
{
	return msync((void *)(uintptr_t)address, PAGE, MS_ASYNC) == 0;
}

/* A mapping of a file that another process may write, with unmapped room on both sides. */
struct rig {
	uint8_t *room, *at, *file;
	uint8_t *pages;
};

static int rig_open(void **state)
{
	static struct rig rig;
	int fd = memfd_create("test", MFD_CLOEXEC);

	move = MOVES;
	maps_nothing = false;
	moves = 0;
	assert_int_equal(ftruncate(fd, SIZE), 0);
	rig.file = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	rig.room = mmap(NULL, 3 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	rig.at = mmap(rig.room + SIZE, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	rig.pages = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(rig.file != MAP_FAILED && rig.at == rig.room + SIZE && rig.pages != MAP_FAILED);
	close(fd);
	memset(rig.file, 1, SIZE);
	memset(rig.pages, 2, USED);
	*state = &rig;
	return 0;
}

static int rig_close(void **state)
{
	struct rig *rig = *state;

	/* Given up, moved or not. */
	assert_false(is_mapped(rig->pages));
	munmap(rig->room, 3 * SIZE);
	return munmap(rig->file, SIZE);
}

/* True if the pages at the address have the bytes of the new ones, whatever the owner of the file writes. */
static bool has_new_pages(const struct rig *rig)
{
	rig->file[0] = 3;
	for (size_t i = 0; i < USED; i++)
		if (rig->at[i] != 2)
			return false;
	return true;
}

static bool is_writable(uint8_t *at)
{
	int zeros[2];
	bool writable;

	assert_int_equal(pipe(zeros), 0);
	assert_int_equal(write(zeros[1], "\2", 1), 1);
	writable = read(zeros[0], at, 1) == 1;
	close(zeros[0]);
	close(zeros[1]);
	return writable;
}

static void test_moved(void **state)
{
	struct rig *rig = *state;

	assert_int_equal(pl_pages_replace(rig->at, rig->pages, SIZE, USED, PROT_READ), PL_PAGES_REPLACED);
	assert_int_equal(moves, 1);
	assert_true(has_new_pages(rig));
	assert_false(is_writable(rig->at));
}

static void test_kept(void **state)
{
	struct rig *rig = *state;

	move = FAILS;
	assert_int_equal(pl_pages_replace(rig->at, rig->pages, SIZE, USED, PROT_READ), PL_PAGES_KEPT);
	rig->file[1] = 4;
	assert_int_equal(rig->at[1], 4);
}

static void test_hole_is_filled(void **state)
{
	struct rig *rig = *state;

	move = UNMAPS;
	assert_int_equal(pl_pages_replace(rig->at, rig->pages, SIZE, USED, PROT_READ), PL_PAGES_REPLACED);
	assert_true(has_new_pages(rig));
	assert_false(is_writable(rig->at));
}

static void test_hole_is_filled_for_writing(void **state)
{
	struct rig *rig = *state;

	move = UNMAPS;
	assert_int_equal(pl_pages_replace(rig->at, rig->pages, SIZE, 0, PROT_READ | PROT_WRITE), PL_PAGES_REPLACED);
	assert_int_equal(rig->at[0], 0);
	assert_true(is_writable(rig->at + SIZE - PAGE));
	assert_int_equal(rig->file[SIZE - PAGE], 1);
}

static void test_hole_stays(void **state)
{
	struct rig *rig = *state;

	move = UNMAPS;
	maps_nothing = true;
	assert_int_equal(pl_pages_replace(rig->at, rig->pages, SIZE, USED, PROT_READ), PL_PAGES_TORN);
	assert_false(is_mapped(rig->at));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_moved, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_kept, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_hole_is_filled, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_hole_is_filled_for_writing, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_hole_stays, rig_open, rig_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
