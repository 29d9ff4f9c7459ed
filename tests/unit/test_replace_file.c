/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that commands write, in folders that are not writable, on mount points and on full disks. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/common/output.h"

/* Users without an account. */
#define OTHER 54321
#define THIRD 54322

/* Errors of the next calls; 0: none. */
static int no_file, no_rename;

/* Replaces that of the C library in this program. */
int mkostemp(char *name, int flags)
{
	if (no_file) {
		errno = no_file;
		return -1;
	}
	return mkostemps(name, 0, flags);
}

/* Replaces that of the C library in this program. */
int rename(const char *from, const char *to)
{
	if (no_rename) {
		errno = no_rename;
		return -1;
	}
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

struct place {
	char folder[32], path[48];
};

static int open_place(void **state)
{
	static struct place place;

	strcpy(place.folder, "/tmp/peerlane-replace-XXXXXX");
	if (!mkdtemp(place.folder))
		return -1;
	snprintf(place.path, sizeof(place.path), "%s/file", place.folder);
	no_file = no_rename = 0;
	*state = &place;
	return 0;
}

/* Fails if a file stays in the folder. */
static int close_place(void **state)
{
	const struct place *place = *state;

	unlink(place->path);
	return rmdir(place->folder);
}

static void write_old(const struct place *place, const char *text, mode_t mode)
{
	FILE *file = fopen(place->path, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
	assert_int_equal(chmod(place->path, mode), 0);
}

static struct stat assert_content(const struct place *place, const char *expected)
{
	FILE *file = fopen(place->path, "re");
	struct stat status;
	char text[64] = "";

	assert_non_null(file);
	assert_int_equal(fread(text, 1, sizeof(text) - 1, file), strlen(expected));
	assert_string_equal(text, expected);
	assert_int_equal(fstat(fileno(file), &status), 0);
	fclose(file);
	return status;
}

/* A writable file that no other file can replace is written itself, and the rest of its content is cut off. */
static void test_a_file_is_written_in_place(void **state)
{
	static const struct {
		int no_file, no_rename;
	} cases[] = {
		{ EACCES, 0 }, { EPERM, 0 }, { EROFS, 0 }, { 0, EBUSY }, { 0, EXDEV }, { 0, EROFS },
	};
	struct place *place = *state;
	struct pl_error error;
	struct stat before, after;

	for (size_t i = 0; i < CLI_ARRAY_SIZE(cases); i++) {
		write_old(place, "old content\n", 0640);
		before = assert_content(place, "old content\n");
		no_file = cases[i].no_file;
		no_rename = cases[i].no_rename;
		assert_int_equal(cli_replace_file(place->path, "new", 0644, &error), 0);
		after = assert_content(place, "new\n");
		assert_int_equal(after.st_ino, before.st_ino);
		assert_int_equal(after.st_mode & 0777, 0640);
	}
}

/* rename(2) refuses so to replace another user's file in a folder with the sticky bit. */
static void test_a_file_that_may_not_be_replaced_is_not_written(void **state)
{
	static const int refusals[] = { EPERM, EACCES };
	struct place *place = *state;
	struct pl_error error;

	write_old(place, "old\n", 0666);
	for (size_t i = 0; i < CLI_ARRAY_SIZE(refusals); i++) {
		no_rename = refusals[i];
		assert_int_equal(cli_replace_file(place->path, "secret", 0600, &error), -refusals[i]);
		assert_string_equal(error.call, "rename");
		assert_int_equal(assert_content(place, "old\n").st_mode & 0777, 0666);
	}
}

/* In a folder with the sticky bit, a file that is written in place belongs to this user or to the folder's owner. */
static void test_the_owner_of_a_file_counts_in_a_sticky_folder(void **state)
{
	static const struct {
		mode_t folder;
		uid_t folder_owner, owner;
		int code;
	} cases[] = {
		{ 01777, 0, OTHER, -EACCES }, { 01755, 0, OTHER, -EACCES }, { 01777, OTHER, THIRD, -EACCES },
		{ 01777, OTHER, OTHER, 0 },   { 01777, OTHER, 0, 0 },       { 01777, 0, 0, 0 },
		{ 0755, 0, OTHER, 0 },
	};
	struct place *place = *state;
	struct pl_error error;

	if (geteuid() != 0)
		skip();
	for (size_t i = 0; i < CLI_ARRAY_SIZE(cases); i++) {
		write_old(place, "old\n", 0666);
		assert_int_equal(chown(place->path, cases[i].owner, 0), 0);
		assert_int_equal(chown(place->folder, cases[i].folder_owner, 0), 0);
		assert_int_equal(chmod(place->folder, cases[i].folder), 0);
		no_file = i % 2 ? EACCES : 0;
		no_rename = EBUSY;
		assert_int_equal(cli_replace_file(place->path, "new", 0644, &error), cases[i].code);
		if (cases[i].code)
			assert_non_null(strstr(error.message, "another user"));
		assert_content(place, cases[i].code ? "old\n" : "new\n");
		unlink(place->path);
	}
}

/* Another process, which puts a pipe in the place of the file, and may read it. */
struct attacker {
	const struct place *place;
	int reads, *fd;
};

static int write_and_swap(FILE *file, const void *argument)
{
	const struct attacker *attacker = argument;
	const char *path = attacker->place->path;

	if (unlink(path) < 0 || mkfifo(path, 0666) < 0)
		return -errno;
	if (attacker->reads)
		*attacker->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	return fputs("secret", file) < 0 ? -errno : 0;
}

static void test_a_pipe_is_not_written_in_place(void **state)
{
	struct place *place = *state;
	int fd = -1;
	struct attacker attacker = { .place = place, .fd = &fd };
	struct pl_error error;
	char byte;

	no_rename = EBUSY;
	for (attacker.reads = 0; attacker.reads < 2; attacker.reads++) {
		write_old(place, "old\n", 0600);
		assert_int_equal(cli_replace_file_by(place->path, write_and_swap, &attacker, 0600, &error), -ENXIO);
		if (attacker.reads) {
			assert_true(fd >= 0);
			assert_int_equal(read(fd, &byte, 1), 0);
			close(fd);
		}
		unlink(place->path);
	}
}

/* Content for the user only does not reach a file that others can read. */
static void test_secret_content_restricts_the_file(void **state)
{
	struct place *place = *state;
	struct pl_error error;

	write_old(place, "old\n", 0644);
	no_rename = EBUSY;
	assert_int_equal(cli_replace_file(place->path, "secret", 0600, &error), 0);
	assert_int_equal(assert_content(place, "secret\n").st_mode & 0777, 0600);
}

static void test_the_error_tells_what_failed(void **state)
{
	struct place *place = *state;
	struct pl_error error;
	char path[64];

	no_file = EACCES;
	assert_int_equal(cli_replace_file(place->path, "new", 0644, &error), -EACCES);
	assert_string_equal(error.call, "open");
	assert_non_null(strstr(error.message, "in the folder"));
	assert_true(*error.hint);
	no_file = 0;
	no_rename = EBUSY;
	assert_int_equal(cli_replace_file(place->path, "new", 0644, &error), -EBUSY);
	assert_string_equal(error.call, "rename");
	snprintf(path, sizeof(path), "%s/none/file", place->folder);
	assert_int_equal(cli_replace_file(path, "new", 0644, &error), -ENOENT);
	assert_non_null(strstr(error.hint, "create the folder first"));
}

static int write_without_space(FILE *file, const void *argument)
{
	(void)argument;
	return fputs("new", file) < 0 || fflush(file) ? -errno : -ENOSPC;
}

/* Neither does another failure that is none of the folder. */
static void test_a_full_disk_keeps_the_old_file(void **state)
{
	static const int others[] = { ENOSPC, EDQUOT, EMFILE };
	struct place *place = *state;
	struct pl_error error;

	write_old(place, "old\n", 0644);
	assert_int_equal(cli_replace_file_by(place->path, write_without_space, NULL, 0644, &error), -ENOSPC);
	assert_string_equal(error.call, "write");
	assert_content(place, "old\n");
	for (size_t i = 0; i < CLI_ARRAY_SIZE(others); i++) {
		no_file = others[i];
		assert_int_equal(cli_replace_file(place->path, "new", 0644, &error), -others[i]);
		assert_content(place, "old\n");
	}
}

static int write_refused(FILE *file, const void *argument)
{
	(void)file;
	(void)argument;
	return -EACCES;
}

/* A failure of the content itself does not touch the file, whatever its errno is. */
static void test_content_that_fails_keeps_the_old_file(void **state)
{
	struct place *place = *state;
	struct pl_error error;

	write_old(place, "old\n", 0644);
	assert_int_equal(cli_replace_file_by(place->path, write_refused, NULL, 0644, &error), -EACCES);
	assert_content(place, "old\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_file_is_written_in_place, open_place, close_place),
		cmocka_unit_test_setup_teardown(test_a_file_that_may_not_be_replaced_is_not_written, open_place,
						close_place),
		cmocka_unit_test_setup_teardown(test_the_owner_of_a_file_counts_in_a_sticky_folder, open_place,
						close_place),
		cmocka_unit_test_setup_teardown(test_a_pipe_is_not_written_in_place, open_place, close_place),
		cmocka_unit_test_setup_teardown(test_secret_content_restricts_the_file, open_place, close_place),
		cmocka_unit_test_setup_teardown(test_the_error_tells_what_failed, open_place, close_place),
		cmocka_unit_test_setup_teardown(test_a_full_disk_keeps_the_old_file, open_place, close_place),
		cmocka_unit_test_setup_teardown(test_content_that_fails_keeps_the_old_file, open_place, close_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
