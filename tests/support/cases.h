/* SPDX-License-Identifier: BSD-2-Clause */
/* A group of tests, each run in a process of its own and within a time. */
#ifndef TEST_CASES_H
#define TEST_CASES_H

#include <stddef.h>

struct test_case {
	const char *name;
	void (*run)(void *argument);
	const void *argument;
	unsigned seconds;
};

/* Runs those that the environment's TEST_CASES names, an extended pattern as of fnmatch(3); without it, all.  Returns what
   main() shall return. */
int cases_run(const char *group, const struct test_case *cases, size_t count);

#endif
