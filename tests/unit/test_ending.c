/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A signal ends rank 0 of a matrix: once its results are saved, and a second later if they are not, by a clock that nobody sets.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/matrix/ending.h"

#define HOUR 3600
#define LIMIT 60 /* seconds; the child ends much earlier */

/* The wall clock of this program is an hour ahead of the kernel's, which is as if somebody set that back after each look. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, time);

	if (clock == CLOCK_REALTIME)
		time->tv_sec += HOUR;
	return rc;
}

/* The child: sends itself the signal while the results are held. `release`: the results are released after it, at some time. */
static void end_by_own_signal(bool release)
{
	struct ending *ending;
	struct pl_error error;

	signal(SIGTERM, SIG_DFL);
	alarm(LIMIT);
	ending_block_signals();
	if (ending_open(&ending, "results", 1, &error) < 0)
		_exit(1);
	ending_hold(ending);
	kill(getpid(), SIGTERM);
	if (release)
		ending_release(ending);
	for (;;)
		pause();
}

static void check_child(bool release)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0)
		end_by_own_signal(release);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
}

static void test_results_released(void **state)
{
	(void)state;
	check_child(true);
}

static void test_results_held(void **state)
{
	(void)state;
	check_child(false);
}

/* Once the process ends, no other thread begins to save results; without a signal, holds follow one another. */
static void test_holds_in_turn(void **state)
{
	struct ending *ending;
	struct pl_error error;

	(void)state;
	ending_block_signals();
	assert_int_equal(ending_open(&ending, "results", 2, &error), 0);
	for (unsigned i = 0; i < 2; i++) {
		ending_hold(ending);
		ending_set_pairs(ending, i);
		ending_release(ending);
	}
	ending_close(ending);
	ending_unblock_signals();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_results_released),
		cmocka_unit_test(test_results_held),
		cmocka_unit_test(test_holds_in_turn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
