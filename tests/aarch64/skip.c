/* SPDX-License-Identifier: BSD-2-Clause */
/* Skips the cases of a cmocka program whose names match TEST_SKIP. tests/aarch64/run-test sets the variable. */
#include <stdlib.h>

/* Function of cmocka; programs without cmocka have none. */
void cmocka_set_skip_filter(const char *pattern) __attribute__((weak));

__attribute__((constructor)) static void skip_named_cases(void)
{
	const char *pattern = getenv("TEST_SKIP");

	if (pattern && cmocka_set_skip_filter)
		cmocka_set_skip_filter(pattern);
}
