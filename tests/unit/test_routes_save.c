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

/* Saves the profile with a limit for the size of files in place of a full disk. */
static int save_on_full_disk(const struct pl_profile *profile, const char *path)
{
	struct rlimit limit, full;
	struct pl_error error;
	int rc;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &limit);
	full = (struct rlimit){ .rlim_cur = FULL, .rlim_max = limit.rlim_max };
	setrlimit(RLIMIT_FSIZE, &full);
	rc = routes_save(profile, path, &error);
	setrlimit(RLIMIT_FSIZE, &limit);
	return rc;
}

static void test_full_disk_keeps_the_old_profile(void **state)
{
	struct pl_proof proof = { .gpu = "0000:17:00.0", .model = "A GPU", .device = "mlx5_0" };
	struct pl_profile profile = { .proofs = &proof, .count = 1 };
	char folder[] = "/tmp/peerlane-routes-XXXXXX", path[64], before[4096], text[4096];
	struct pl_error error;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/routes.json", folder);
	assert_int_equal(routes_save(&profile, path, &error), 0);
	read_text(path, before, sizeof(before));
	assert_true(strlen(before) > FULL);
	assert_non_null(strstr(before, "mlx5_0"));

	snprintf(proof.device, sizeof(proof.device), "mlx5_1");
	assert_int_equal(save_on_full_disk(&profile, path), -EFBIG);
	read_text(path, text, sizeof(text));
	assert_string_equal(text, before);

	assert_int_equal(routes_save(&profile, path, &error), 0);
	read_text(path, text, sizeof(text));
	assert_non_null(strstr(text, "mlx5_1"));
	unlink(path);
	/* No temporary file is left. */
	assert_int_equal(rmdir(folder), 0);
}

static void test_full_disk_leaves_no_target_of_a_link(void **state)
{
	struct pl_proof proof = { .gpu = "0000:17:00.0", .model = "A GPU", .device = "mlx5_0" };
	struct pl_profile profile = { .proofs = &proof, .count = 1 };
	char folder[] = "/tmp/peerlane-routes-XXXXXX", path[64], target[64], text[4096];
	struct pl_error error;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/link", folder);
	snprintf(target, sizeof(target), "%s/routes.json", folder);
	assert_int_equal(symlink("routes.json", path), 0);
	assert_int_equal(save_on_full_disk(&profile, path), -EFBIG);
	assert_int_equal(access(target, F_OK), -1);

	assert_int_equal(routes_save(&profile, path, &error), 0);
	read_text(target, text, sizeof(text));
	assert_non_null(strstr(text, "mlx5_0"));
	unlink(target);
	unlink(path);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_disk_keeps_the_old_profile),
		cmocka_unit_test(test_full_disk_leaves_no_target_of_a_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
