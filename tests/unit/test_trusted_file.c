/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that decide about trust: owners, modes, folders and sizes that are refused, and those just inside the limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/trusted_file.h"

/* Users without an account. */
#define USER 54321
#define OTHER 54322

static char folder[] = "/tmp/trusted-XXXXXX";

static int enter_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) && chdir(folder) == 0 && chmod(folder, 0755) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
	(void)state;
	unlink("file");
	unlink("inner/file");
	rmdir("inner");
	return chdir("/") || rmdir(folder);
}

/* Writes a file of `size` letters with a mode, and gives it to a user if this process may. */
static void write_file(const char *path, size_t size, mode_t mode, uid_t owner)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	char *letters = malloc(size + 1);

	assert_true(fd >= 0 && letters);
	memset(letters, 'a', size);
	assert_int_equal(write(fd, letters, size), size);
	free(letters);
	assert_int_equal(fchmod(fd, mode), 0);
	if (owner != geteuid())
		assert_int_equal(fchown(fd, owner, (gid_t)-1), 0);
	close(fd);
}

static int read_status(const char *path, bool secret)
{
	struct pl_error error;
	size_t length = 0;
	char *text;
	int rc = pl_trusted_file_read(&pl_system_allocator, path, secret, &text, &length, &error);

	assert_true((rc == 0) == (text != NULL));
	if (rc == 0)
		assert_int_equal(text[length], 0);
	else
		assert_string_equal(error.id, rc == -EACCES ? "FILE-UNSAFE" : rc == -EINVAL ? "FILE-TEXT" : "SYSTEM");
	pl_free(&pl_system_allocator, text);
	return rc;
}

static int read_with_mode(mode_t mode, uid_t owner, bool secret)
{
	write_file("file", 10, mode, owner);
	return read_status("file", secret);
}

static void test_file_modes(void **state)
{
	uid_t own = geteuid();

	(void)state;
	assert_int_equal(read_with_mode(0644, own, false), 0);
	assert_int_equal(read_with_mode(0664, own, false), -EACCES);
	assert_int_equal(read_with_mode(0646, own, false), -EACCES);
	assert_int_equal(read_with_mode(0600, own, true), 0);
	assert_int_equal(read_with_mode(0604, own, true), -EACCES);
	/* A group may read a secret of root, but not of another user. */
	assert_int_equal(read_with_mode(0640, own, true), own == 0 ? 0 : -EACCES);
}

static void test_file_sizes(void **state)
{
	(void)state;
	write_file("file", 0, 0600, geteuid());
	assert_int_equal(read_status("file", true), 0);
	write_file("file", PL_TRUSTED_FILE_MAX, 0600, geteuid());
	assert_int_equal(read_status("file", true), 0);
	write_file("file", PL_TRUSTED_FILE_MAX + 1, 0600, geteuid());
	assert_int_equal(read_status("file", true), -EFBIG);
	assert_int_equal(read_status("missing", true), -ENOENT);
	assert_int_equal(read_status(".", true), -EACCES);
}

/* Lines behind a byte 0 would be ignored, also one that revokes an identity. */
static void test_byte_zero(void **state)
{
	static const off_t places[] = { 0, 5, 9 };
	struct pl_error error;
	size_t length;
	char *text;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(places); i++) {
		int fd;

		write_file("file", 10, 0600, geteuid());
		fd = open("file", O_WRONLY);
		assert_true(fd >= 0 && pwrite(fd, "", 1, places[i]) == 1);
		close(fd);
		assert_int_equal(read_status("file", false), -EINVAL);
	}
	/* The file may be a certificate in DER. */
	assert_int_equal(pl_trusted_file_read(&pl_system_allocator, "file", false, &text, &length, &error), -EINVAL);
	assert_non_null(strstr(error.hint, "PEM"));
}

static void test_folder_modes(void **state)
{
	(void)state;
	assert_int_equal(mkdir("inner", 0755), 0);
	write_file("inner/file", 10, 0600, geteuid());
	assert_int_equal(read_status("inner/file", true), 0);
	assert_int_equal(chmod("inner", 0777), 0);
	assert_int_equal(read_status("inner/file", true), -EACCES);
	/* The sticky bit protects the files of a folder that all users can write. */
	assert_int_equal(chmod("inner", 01777), 0);
	assert_int_equal(read_status("inner/file", true), 0);
	assert_int_equal(chmod("inner", 0777), 0);
	/* A path without a folder is in the current folder. */
	assert_int_equal(chdir("inner"), 0);
	assert_int_equal(read_status("file", true), -EACCES);
	assert_int_equal(chmod(".", 0755), 0);
	assert_int_equal(read_status("file", true), 0);
	assert_int_equal(chdir(".."), 0);
}

/* Checks files and folders of root, of the reader and of another user, for each kind of reader. */
static void test_owners(void **state)
{
	static const uid_t owners[] = { 0, USER, OTHER }, readers[] = { 0, USER };

	(void)state;
	if (geteuid() != 0)
		skip();
	mkdir("inner", 0755);
	for (size_t i = 0; i < PL_ARRAY_SIZE(owners); i++) {
		for (size_t j = 0; j < PL_ARRAY_SIZE(readers); j++) {
			bool trusted = owners[i] == 0 || owners[i] == readers[j];

			write_file("file", 10, 0644, owners[i]);
			write_file("inner/file", 10, 0644, 0);
			assert_int_equal(chown("inner", owners[i], (gid_t)-1), 0);
			assert_int_equal(seteuid(readers[j]), 0);
			assert_int_equal(read_status("file", false), trusted ? 0 : -EACCES);
			assert_int_equal(read_status("inner/file", false), trusted ? 0 : -EACCES);
			assert_int_equal(seteuid(0), 0);
		}
	}
	write_file("file", 10, 0640, USER);
	write_file("inner/file", 10, 0600, USER);
	assert_int_equal(chown("inner", 0, (gid_t)-1), 0);
	assert_int_equal(seteuid(USER), 0);
	assert_int_equal(read_status("file", true), -EACCES);
	assert_int_equal(read_status("inner/file", true), 0);
	assert_int_equal(seteuid(0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file_modes), cmocka_unit_test(test_file_sizes),
		cmocka_unit_test(test_byte_zero),  cmocka_unit_test(test_folder_modes),
		cmocka_unit_test(test_owners),
	};

	return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
