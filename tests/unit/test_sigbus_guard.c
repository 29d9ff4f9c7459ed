/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Guard of the command against files that other programs truncate. This program's mmap(2) replaces the C library's. Children install the
 * guard, because a signal ends some of them.
 */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/transfer/sigbus_guard.h"

/* True if the kernel unmaps a page and then has none to put in its place: another thread's memory gets the address. */
static bool lacks_pages;

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *(*next)(void *, size_t, int, int, int, off_t);
	void *found = dlsym(RTLD_NEXT, "mmap"), *mapping;

	memcpy(&next, &found, sizeof(next));
	mapping = next(address, length, protection, flags, fd, offset);
	if (!lacks_pages)
		return mapping;
	errno = ENOMEM;
	return MAP_FAILED;
}

/* Maps a file of no bytes. */
static volatile uint8_t *map_truncated(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	void *mapping = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	return mapping == MAP_FAILED ? NULL : mapping;
}

/* Returns the status of a child that runs the function, and exits with its result. */
static int run_guarded(int (*function)(void))
{
	pid_t child = fork();
	int status = -1;

	assert_true(child >= 0);
	if (child == 0) {
		sigbus_guard_install();
		_exit(function());
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static bool ended_by_sigbus(int status)
{
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
}

static int access_twice(void)
{
	volatile uint8_t *at = map_truncated(), *other = map_truncated();
	bool none = sigbus_guard_count() == 0;

	at[4095] = 5;
	errno = 7;
	return none && at[0] == 0 && at[4095] == 5 && other[1] == 0 && sigbus_guard_count() == 2 && errno == 7 ? 0 : 1;
}

static int access_hole(void)
{
	volatile uint8_t *at = map_truncated();

	lacks_pages = true;
	at[0] = 5;
	return at[0] == 5 ? 2 : 1; /* memory of others has changed */
}

static int signal_self(void)
{
	raise(SIGBUS);
	return 1;
}

static void test_truncated_pages_are_replaced(void **state)
{
	(void)state;
	assert_int_equal(run_guarded(access_twice), 0);
}

static void test_failure_ends_the_process_before_the_access(void **state)
{
	(void)state;
	assert_true(ended_by_sigbus(run_guarded(access_hole)));
}

static void test_other_signals_end_the_process(void **state)
{
	(void)state;
	assert_true(ended_by_sigbus(run_guarded(signal_self)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_truncated_pages_are_replaced),
		cmocka_unit_test(test_failure_ends_the_process_before_the_access),
		cmocka_unit_test(test_other_signals_end_the_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
