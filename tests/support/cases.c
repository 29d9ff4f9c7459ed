/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/cases.h"

#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/process.h"

static void case_test(void **state)
{
	const struct test_case *one = *state;

	int status = process_run(one->name, one->seconds, one->run, (void *)one->argument);

	if (status == SKIPPED)
		skip();
	assert_int_equal(status, 0);
}

int cases_run(const char *group, const struct test_case *cases, size_t count)
{
	struct CMUnitTest *tests = calloc(count, sizeof(*tests));
	const char *wanted = getenv("TEST_CASES");
	size_t chosen = 0;
	int failed;

	if (!tests)
		return 2;
	for (size_t i = 0; i < count; i++)
		if (!wanted || !fnmatch(wanted, cases[i].name, FNM_EXTMATCH))
			tests[chosen++] =
				(struct CMUnitTest){ cases[i].name, case_test, NULL, NULL, (void *)&cases[i] };
	if (!chosen) {
		fprintf(stderr, "%s: no case is called %s\n", group, wanted ? wanted : "anything");
		free(tests);
		return 2;
	}
	/* cmocka_run_group_tests() is a macro that needs an array, so the test calls the function below it. */
	failed = _cmocka_run_group_tests(group, tests, chosen, NULL, NULL);
	free(tests);
	return failed ? 1 : 0;
}
