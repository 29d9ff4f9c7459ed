/* SPDX-License-Identifier: BSD-2-Clause */
/* Saved profiles of routes: the library, which may read the file at any time, sees the old or the new one. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/check/routes.h"

/* Bytes of the largest file, in place of a full disk: fewer than a profile has. */
#define FULL 100

static void read_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");

	assert_non_null(file);
	text[fread(text, 1, size - 1, file)] = '\0';
	fclose(file);
}

static void test_full_disk_keeps_the_old_profile(void **state)
{
	struct pl_proof proof = { .gpu = "0000:17:00.0", .model = "A GPU", .device = "mlx5_0" };
	struct pl_profile profile = { .proofs = &proof, .count = 1 };
	char folder[] = "/tmp/peerlane-routes-XXXXXX", path[64], before[4096], text[4096];
	struct rlimit limit, full;
	struct pl_error error;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/routes.json", folder);
	assert_int_equal(routes_save(&profile, path, &error), 0);
	read_text(path, before, sizeof(before));
	assert_true(strlen(before) > FULL);
	assert_non_null(strstr(before, "mlx5_0"));

	snprintf(proof.device, sizeof(proof.device), "mlx5_1");
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &limit);
	full = (struct rlimit){ .rlim_cur = FULL, .rlim_max = limit.rlim_max };
	setrlimit(RLIMIT_FSIZE, &full);
	assert_int_equal(routes_save(&profile, path, &error), -EFBIG);
	setrlimit(RLIMIT_FSIZE, &limit);
	read_text(path, text, sizeof(text));
	assert_string_equal(text, before);

	assert_int_equal(routes_save(&profile, path, &error), 0);
	read_text(path, text, sizeof(text));
	assert_non_null(strstr(text, "mlx5_1"));
	unlink(path);
	/* No temporary file is left. */
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_disk_keeps_the_old_profile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
