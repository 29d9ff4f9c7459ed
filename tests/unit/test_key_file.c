/* SPDX-License-Identifier: BSD-2-Clause */
/* Key files: owners, modes, links and pipes; lengths just inside and outside the limits; keys that people can guess. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peerlane/peerlane.h"

/* Users without an account. */
#define USER 54321
#define OTHER 54322

#define KEY "kQ7vX2pL9mR4tY8wB3nZ6cF1"

static char folder[] = "/tmp/key-file-XXXXXX";

static int enter_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) && chdir(folder) == 0 && chmod(folder, 0755) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
	(void)state;
	unlink("key");
	unlink("link");
	unlink("pipe");
	return chdir("/") || rmdir(folder);
}

static void write_key(const void *bytes, size_t length, mode_t mode, uid_t owner)
{
	int fd;

	unlink("key");
	fd = open("key", O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, length), length);
	assert_int_equal(fchmod(fd, mode), 0);
	if (owner != geteuid())
		assert_int_equal(fchown(fd, owner, (gid_t)-1), 0);
	close(fd);
}

/* Expects this key. */
static void expect_key(const char *path, const void *key, size_t length)
{
	uint8_t found[PL_KEY_MAX];
	struct pl_error error;

	assert_int_equal(pl_key_file_read(path, found, &error), length);
	assert_memory_equal(found, key, length);
}

/* Expects a failure that names the file and leaves the buffer as it was. */
static void expect_refusal(const char *path, int code, const char *id, const char *hint)
{
	uint8_t found[PL_KEY_MAX] = { 0 }, before[PL_KEY_MAX] = { 0 };
	struct pl_error error = { .id = "" };

	assert_int_equal(pl_key_file_read(path, found, &error), code);
	assert_int_equal(error.code, code);
	assert_string_equal(error.id, id);
	assert_string_equal(error.object, path);
	assert_non_null(strstr(error.hint, hint));
	assert_memory_equal(found, before, sizeof(found));
	assert_int_equal(pl_key_file_read(path, found, NULL), code);
}

static void test_modes(void **state)
{
	uid_t own = geteuid();
	static const struct {
		mode_t mode;
		const char *hint; /* NULL: the key is read */
	} cases[] = {
		{ 0600, NULL },
		{ 0400, NULL },
		{ 0700, NULL },
		{ 0601, NULL },
		{ 0604, "`chmod o= key`" },
		{ 0602, "`chmod o= key`" },
		{ 0664, "`chmod o= key`" },
		{ 0620, "`chmod g= key`" },
		{ 0660, "`chmod g= key`" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		write_key(KEY, strlen(KEY), cases[i].mode, own);
		if (cases[i].hint)
			expect_refusal("key", -EACCES, "KEY-FILE-OPEN", cases[i].hint);
		else
			expect_key("key", KEY, strlen(KEY));
	}
	/* A group may read a file of root. */
	write_key(KEY, strlen(KEY), 0640, own);
	if (own)
		expect_refusal("key", -EACCES, "KEY-FILE-OPEN", "`chmod g= key`");
	else
		expect_key("key", KEY, strlen(KEY));
}

/* The mode of a folder or a device tells nothing of a key, and must stay as it is. */
static void test_other_kinds(void **state)
{
	(void)state;
	expect_refusal(".", -EISDIR, "SYSTEM", "folder");
	expect_refusal("/dev/null", -EACCES, "KEY-FILE-OPEN", "give a file that only its owner can read");
}

static void test_owners(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	write_key(KEY, strlen(KEY), 0600, OTHER);
	expect_refusal("key", -EACCES, "KEY-FILE-OPEN", "copy the key to a file of your own");
	/* The owner of a link does not count, and that of its target does. */
	assert_int_equal(symlink("key", "link"), 0);
	assert_int_equal(lchown("link", 0, 0), 0);
	expect_refusal("link", -EACCES, "KEY-FILE-OPEN", "copy the key to a file of your own");
	write_key(KEY, strlen(KEY), 0600, 0);
	assert_int_equal(chown("key", 0, USER), 0);
	assert_int_equal(lchown("link", OTHER, OTHER), 0);
	expect_key("link", KEY, strlen(KEY));
	assert_int_equal(chmod("key", 0640), 0);
	assert_int_equal(setegid(USER), 0);
	assert_int_equal(seteuid(USER), 0);
	expect_key("key", KEY, strlen(KEY));
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(setegid(0), 0);
	assert_int_equal(chown("key", USER, 0), 0);
	assert_int_equal(seteuid(USER), 0);
	expect_refusal("key", -EACCES, "KEY-FILE-OPEN", "`chmod g= key`");
	assert_int_equal(seteuid(0), 0);
}

static void test_absent_files(void **state)
{
	(void)state;
	expect_refusal("none", -ENOENT, "KEY-FILE-MISSING", "peerlane key group");
	assert_int_equal(mkdir("pipe", 0700), 0);
	expect_refusal("pipe", -EISDIR, "SYSTEM", "");
	assert_int_equal(rmdir("pipe"), 0);
}

static void test_lengths(void **state)
{
	uint8_t bytes[PL_KEY_MAX + 8];

	(void)state;
	/* No text, so that nobody can guess it. */
	memset(bytes, 0x81, sizeof(bytes));
	for (size_t length = PL_KEY_MIN - 1; length <= PL_KEY_MIN; length++) {
		bytes[length] = '\n';
		write_key(bytes, length + 1, 0600, geteuid());
		if (length < PL_KEY_MIN)
			expect_refusal("key", -EINVAL, "KEY-FILE-LENGTH", "peerlane key group");
		else
			expect_key("key", bytes, length);
		bytes[length] = 0x81;
	}
	/* A newline belongs to a key unless it is the last byte of the file. */
	bytes[PL_KEY_MAX] = '\n';
	write_key(bytes, PL_KEY_MAX, 0600, geteuid());
	expect_key("key", bytes, PL_KEY_MAX);
	write_key(bytes, PL_KEY_MAX + 1, 0600, geteuid());
	expect_key("key", bytes, PL_KEY_MAX);
	for (size_t more = 2; more < 8; more++) {
		write_key(bytes, PL_KEY_MAX + more, 0600, geteuid());
		expect_refusal("key", -EINVAL, "KEY-FILE-LENGTH", "peerlane key group");
	}
	bytes[PL_KEY_MAX + 1] = '\n';
	write_key(bytes, PL_KEY_MAX + 2, 0600, geteuid());
	expect_refusal("key", -EINVAL, "KEY-FILE-LENGTH", "peerlane key group");
}

static void test_guessable_keys(void **state)
{
	static const char *const weak[] = { "correct horse battery staple", "0123456789abcdef", "Password123456789",
					    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };

	(void)state;
	for (size_t i = 0; i < sizeof(weak) / sizeof(weak[0]); i++) {
		write_key(weak[i], strlen(weak[i]), 0600, geteuid());
		expect_refusal("key", -EINVAL, "KEY-FILE-WEAK", "peerlane key group");
	}
}

/* Writes the key in two parts, the second one when the first one has been read. */
static void *write_parts(void *unused)
{
	int fd = open("pipe", O_WRONLY), left = 1;

	(void)unused;
	if (fd < 0 || write(fd, KEY, 5) != 5)
		abort();
	while (left) {
		usleep(1000);
		if (ioctl(fd, FIONREAD, &left) < 0)
			abort();
	}
	if (write(fd, &KEY[5], strlen(KEY) - 5) < 0)
		abort();
	close(fd);
	return NULL;
}

static void test_pipe(void **state)
{
	pthread_t writer;

	(void)state;
	assert_int_equal(mkfifo("pipe", 0600), 0);
	assert_int_equal(pthread_create(&writer, NULL, write_parts, NULL), 0);
	expect_key("pipe", KEY, strlen(KEY));
	pthread_join(writer, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modes),   cmocka_unit_test(test_other_kinds),
		cmocka_unit_test(test_owners),  cmocka_unit_test(test_absent_files),
		cmocka_unit_test(test_lengths), cmocka_unit_test(test_guessable_keys),
		cmocka_unit_test(test_pipe),
	};

	return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
