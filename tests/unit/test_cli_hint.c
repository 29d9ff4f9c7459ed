/* SPDX-License-Identifier: BSD-2-Clause */
/* Hints of the command in place of those of the library: the ids of the errors choose them, whatever their texts are. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/common/cli.h"

static void test_option_of_command(void **state)
{
	struct pl_error needed = { -EACCES, "IDENTITY-NEEDED", "connect", "", "", "another text" };
	struct pl_error used = { -EADDRINUSE, "LISTEN-IN-USE", "bind", "", "", "another text" };
	struct pl_error insecure = { -EPERM, "INSECURE-ADDRESS", "bind", "", "", "another text" };

	(void)state;
	assert_non_null(strstr(cli_hint(&needed), "--identity FILE"));
	assert_non_null(strstr(cli_hint(&insecure), "--insecure"));
	assert_non_null(strstr(cli_hint(&used), "give both ends another port"));
}

static void test_hint_stays(void **state)
{
	struct pl_error refused = { -EACCES, "IDENTITY-REFUSED", "connect", "", "", "see pl_options.identity" };
	/* An error of the command's own names no call. */
	struct pl_error insecure = { -EPERM, "INSECURE-ADDRESS", "", "", "", "use --metrics 127.0.0.1:0" };

	(void)state;
	assert_string_equal(cli_hint(&refused), refused.hint);
	assert_string_equal(cli_hint(&insecure), insecure.hint);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_option_of_command),
		cmocka_unit_test(test_hint_stays),
	};

	return cmocka_run_group_tests_name("hints of the command", tests, NULL, NULL);
}
