/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of --token: which bytes are a token, and whose files are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/stream/token_file.h"

static char path[] = "/tmp/peerlane-token-XXXXXX";
static struct pl_error error;

static int make_file(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

/* Reads a file with this text. */
static int read_text(const char *text, struct stream_token_bytes *token)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	return stream_token_read(path, token, &error);
}

static void test_digits(void **state)
{
	static const uint8_t bytes[] = { 0x00, 0xff, 0x1a, 0x9f };
	struct stream_token_bytes token;

	(void)state;
	assert_int_equal(read_text("00ff1a9f", &token), 0);
	assert_int_equal(token.length, sizeof(bytes));
	assert_memory_equal(token.bytes, bytes, sizeof(bytes));
	assert_int_equal(read_text("00ff1a9f \t\r\n", &token), 0);
	assert_int_equal(token.length, sizeof(bytes));
	stream_token_wipe(&token);
	assert_int_equal(token.length, 0);
	assert_int_equal(token.bytes[1], 0);
}

static void test_no_token(void **state)
{
	static const char *const texts[] = {
		"", "\n", "abc", "0", "AB", "ag", "/0", ":0", "`0", "0 0", " 00", "00\n00"
	};
	struct stream_token_bytes token;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		assert_int_equal(read_text(texts[i], &token), -EINVAL);
		assert_string_equal(error.id, "TOKEN-FILE");
	}
}

/* The longest token, with up to two line ends. */
static void test_lengths(void **state)
{
	char text[2 * PL_TOKEN_MAX + 4];
	struct stream_token_bytes token;

	(void)state;
	memset(text, 'a', sizeof(text));
	text[2 * PL_TOKEN_MAX] = '\0';
	assert_int_equal(read_text(text, &token), 0);
	assert_int_equal(token.length, PL_TOKEN_MAX);
	strcpy(text + 2 * PL_TOKEN_MAX, "\n\n");
	assert_int_equal(read_text(text, &token), 0);
	strcpy(text + 2 * PL_TOKEN_MAX, "\n\n\n");
	assert_int_equal(read_text(text, &token), -EINVAL);
	strcpy(text + 2 * PL_TOKEN_MAX, "aa");
	assert_int_equal(read_text(text, &token), -EINVAL);
}

/* Other users may not read or replace a token. Devices and pipes have no such users. */
static void test_modes(void **state)
{
	static const mode_t open_modes[] = { 0640, 0620, 0610, 0604, 0602, 0601, 0666 };
	struct stream_token_bytes token;

	(void)state;
	for (size_t i = 0; i < sizeof(open_modes) / sizeof(*open_modes); i++) {
		assert_int_equal(chmod(path, open_modes[i]), 0);
		assert_int_equal(read_text("00ff", &token), -EACCES);
		assert_string_equal(error.id, "TOKEN-FILE-OPEN");
	}
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(read_text("00ff", &token), 0);
	assert_int_equal(stream_token_read("/dev/null", &token, &error), -EINVAL);
	assert_int_equal(stream_token_read("/tmp/no/such/token", &token, &error), -ENOENT);
	assert_int_equal(stream_token_read("/", &token, &error), -EISDIR);
}

static void test_option(void **state)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct stream_token_bytes token;

	(void)state;
	assert_int_equal(stream_token_option(NULL, &token, &options, &error), 0);
	assert_null(options.token);
	assert_int_equal(read_text("00ff", &token), 0);
	assert_int_equal(stream_token_option(path, &token, &options, &error), 0);
	assert_ptr_equal(options.token, token.bytes);
	assert_int_equal(options.token_length, 2);
}

/* Gives an error of the library its hint. Returns true if its object is the file. */
static bool hint_of(const char *id, const char *file, const char *hint)
{
	struct pl_error given = { .code = -EACCES };

	snprintf(given.id, sizeof(given.id), "%s", id);
	snprintf(given.hint, sizeof(given.hint), "old hint");
	stream_token_hint(file, &given);
	assert_non_null(strstr(given.hint, hint));
	assert_true(!given.object[0] || !strcmp(given.object, "file"));
	return given.object[0];
}

static void test_hints(void **state)
{
	(void)state;
	assert_false(hint_of("STREAM-TOKEN-NEEDED", "file", "add --token FILE"));
	assert_false(hint_of("STREAM-TOKEN-REVOKED", "file", "the present file"));
	assert_true(hint_of("TOKEN-FOREIGN", "file", "the present file"));
	assert_true(hint_of("TOKEN-MALFORMED", "file", "the present file"));
	assert_false(hint_of("TOKEN-FOREIGN", NULL, "the present file"));
	assert_false(hint_of("STREAM-UNKNOWN", "file", "old hint"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_digits), cmocka_unit_test(test_no_token), cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_modes),  cmocka_unit_test(test_option),   cmocka_unit_test(test_hints),
	};

	return cmocka_run_group_tests_name("stream token file", tests, make_file, remove_file);
}
