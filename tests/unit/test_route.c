/* SPDX-License-Identifier: BSD-2-Clause */
/* Choice of the access path to GPU memory, from proven rates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "profile/profile.h"

/* Adds a proof for each path, with its rate into the GPU (0: not proven).  All rates out of the GPU are equal. */
static void profile_fill(struct pl_profile *profile, const char *device, const uint64_t into[PL_GPU_PATH_COUNT])
{
	for (enum pl_gpu_path path = 0; path < PL_GPU_PATH_COUNT; path++) {
		struct pl_proof *proof = pl_profile_add(profile);

		assert_non_null(proof);
		strcpy(proof->gpu, "0000:17:00.0");
		snprintf(proof->device, sizeof(proof->device), "%s", device);
		proof->way = path;
		proof->legs[PL_INTO_GPU] = (struct pl_proof_leg){ .proven = into[path] > 0, .rate = into[path] };
		proof->legs[PL_FROM_GPU] = (struct pl_proof_leg){ .proven = true, .rate = 5 };
	}
}

static void test_path_choice(void **state)
{
	static const struct {
		uint64_t rates[PL_GPU_PATH_COUNT];
		int path; /* -1: no path */
	} cases[] = {
		{ { 0, 0, 0 }, -1 },
		{ { 0, 0, 7 }, PL_GPU_PATH_STAGED },
		{ { 10, 0, 0 }, PL_GPU_PATH_DMABUF },
		{ { 0, 10, 9 }, PL_GPU_PATH_ADDRESS },
		{ { 10, 11, 0 }, PL_GPU_PATH_ADDRESS },
		{ { 10, 10, 0 }, PL_GPU_PATH_DMABUF },
		/* Staging must be faster by more than 25 %. */
		{ { 1000, 0, 1250 }, PL_GPU_PATH_DMABUF },
		{ { 1000, 0, 1260 }, PL_GPU_PATH_STAGED },
		{ { 1, UINT64_MAX, UINT64_MAX }, PL_GPU_PATH_ADDRESS },
	};
	const struct pl_proof *proof;
	const char *reason;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct pl_profile profile = { 0 };

		profile_fill(&profile, "mlx5_1", (const uint64_t[]){ 1, 1, 1 });
		profile_fill(&profile, "mlx5_0", cases[i].rates);
		proof = pl_profile_choose(&profile, "0000:17:00.0", "mlx5_0", PL_INTO_GPU, &reason);
		assert_int_equal(proof ? (int)proof->way : -1, cases[i].path);
		assert_true(!proof || !strcmp(proof->device, "mlx5_0"));
		assert_true(strlen(reason));
		proof = pl_profile_choose(&profile, "0000:17:00.0", "mlx5_0", PL_FROM_GPU, &reason);
		assert_int_equal(proof->way, PL_GPU_PATH_DMABUF);
		assert_null(pl_profile_choose(&profile, "0000:18:00.0", "mlx5_0", PL_INTO_GPU, &reason));
		pl_profile_free(&profile);
	}
}

/*
 * Checks that a profile of another machine, or of changed hardware or software, is not used, and that the reason is
 * given.
 */
static void test_profile_of_another_machine(void **state)
{
	static const char *const here = "0123456789abcdef0123456789abcdef";
	static const struct {
		size_t offset;
		const char *why;
	} differences[] = {
		{ offsetof(struct pl_proof, gpu), "no proof" },      { offsetof(struct pl_proof, device), "no proof" },
		{ offsetof(struct pl_proof, model), "another GPU" }, { offsetof(struct pl_proof, driver), "driver" },
		{ offsetof(struct pl_proof, firmware), "firmware" },
	};
	struct pl_profile profile = { 0 };
	struct pl_proof now = { .gpu = "0000:17:00.0", .device = "mlx5_0", .driver = "CUDA 1", .firmware = "2.3" };
	const char *why;

	(void)state;
	profile_fill(&profile, "mlx5_0", (const uint64_t[]){ 1, 2, 1 });
	for (size_t i = 0; i < profile.count; i++) {
		strcpy(profile.proofs[i].driver, now.driver);
		strcpy(profile.proofs[i].firmware, now.firmware);
	}
	/* Profiles of earlier releases do not name their machine. */
	assert_null(pl_profile_advise(&profile, &now, PL_INTO_GPU, &why));
	assert_non_null(strstr(why, "another machine"));
	strcpy(profile.machine, here);
	assert_null(pl_profile_advise(&profile, &now, PL_INTO_GPU, &why));
	strcpy(profile.here, here);
	assert_int_equal(pl_profile_advise(&profile, &now, PL_INTO_GPU, &why)->way, PL_GPU_PATH_ADDRESS);
	assert_null(why);
	assert_int_equal(pl_profile_advise(&profile, &now, PL_FROM_GPU, &why)->way, PL_GPU_PATH_DMABUF);
	for (size_t i = 0; i < PL_ARRAY_SIZE(differences); i++) {
		struct pl_proof other = now;

		((char *)&other)[differences[i].offset] ^= 1;
		assert_null(pl_profile_advise(&profile, &other, PL_INTO_GPU, &why));
		assert_non_null(strstr(why, differences[i].why));
	}
	profile.here[0] ^= 1;
	assert_null(pl_profile_advise(&profile, &now, PL_INTO_GPU, &why));
	pl_profile_free(&profile);
}

/* Checks that a FIFO, a folder and a device are refused, and that nothing waits for the other end of a FIFO. */
static void test_profile_is_a_regular_file(void **state)
{
	char folder[] = "/tmp/routes-XXXXXX", fifo[64];
	const char *const files[] = { fifo, folder, "/dev/zero" };
	struct pl_profile profile;
	struct pl_error error;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	for (size_t i = 0; i < PL_ARRAY_SIZE(files); i++) {
		/* A build without json-c reads no profiles. */
		if (pl_profile_load(&profile, files[i], &error) != -ENOTSUP)
			assert_string_equal(error.id, "ROUTES-FILE");
		assert_string_equal(error.object, files[i]);
		assert_int_equal(profile.count, 0);
	}
	assert_int_equal(unlink(fifo), 0);
	assert_int_equal(rmdir(folder), 0);
}

static void test_profile_paths(void **state)
{
	char folder[] = "/tmp/routes-XXXXXX", path[256], file[256], made[PL_PROFILE_MACHINE], again[PL_PROFILE_MACHINE];
	FILE *stream;

	(void)state;
	assert_non_null(mkdtemp(folder));
	setenv("PEERLANE_ROUTES", "", 1);
	assert_false(pl_profile_path(path, sizeof(path)));
	setenv("PEERLANE_ROUTES", "/somewhere/else", 1);
	assert_true(pl_profile_path(path, sizeof(path)));
	assert_string_equal(path, "/somewhere/else");
	unsetenv("PEERLANE_ROUTES");
	setenv("XDG_CONFIG_HOME", folder, 1);
	snprintf(file, sizeof(file), "%s/peerlane", folder);
	assert_int_equal(mkdir(file, 0700), 0);
	snprintf(file, sizeof(file), "%s/peerlane/routes.json", folder);
	stream = fopen(file, "w");
	assert_non_null(stream);
	fclose(stream);
	assert_true(pl_profile_path(path, sizeof(path)));
	assert_string_equal(path, file);
	unlink(file);
	snprintf(file, sizeof(file), "%s/peerlane", folder);
	rmdir(file);
	rmdir(folder);
	pl_profile_machine(made);
	pl_profile_machine(again);
	assert_string_equal(made, again);
	assert_true(!made[0] || strlen(made) == PL_PROFILE_MACHINE - 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(test_path_choice),
						   cmocka_unit_test(test_profile_of_another_machine),
						   cmocka_unit_test(test_profile_is_a_regular_file),
						   cmocka_unit_test(test_profile_paths) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
