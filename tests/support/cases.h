/* SPDX-License-Identifier: BSD-2-Clause */
/* Group of tests, each run in its own process with a time limit. */
#ifndef TEST_CASES_H
#define TEST_CASES_H

#include <stddef.h>

struct test_case {
	const char *name;
	void (*run)(void *argument);
	const void *argument;
	unsigned seconds;
};

/*
 * Runs the tests that the environment variable TEST_CASES selects by an extended pattern of fnmatch(3).  Runs all tests
 * if the variable is unset.  Returns the exit status for main().
 */
int cases_run(const char *group, const struct test_case *cases, size_t count);

#endif
