/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks for code that runs in any thread or in a child process, where cmocka's checks do not work.  A failed check
 * prints its file, line and reason on stderr and aborts the process.
 */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <peerlane/peerlane.h>

void check_failed(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4), noreturn));
void check_status_at(const char *file, int line, const char *call, int status, int expected,
		     const struct pl_error *error);
void check_one_of_at(const char *file, int line, const char *call, int status, const int *expected, size_t count);

void check_completion_at(const char *file, int line, struct pl_context *context, const struct pl_completion *completion,
			 int expected);

#define check(condition) \
	do { \
		if (!(condition)) \
			check_failed(__FILE__, __LINE__, "%s", #condition); \
	} while (0)

#define check_number(actual, expected) \
	do { \
		long long check_a = (long long)(actual), check_e = (long long)(expected); \
		if (check_a != check_e) \
			check_failed(__FILE__, __LINE__, "%s is %lld, not %lld", #actual, check_a, check_e); \
	} while (0)

#define check_text(actual, expected) \
	do { \
		const char *check_a = (actual), *check_e = (expected); \
		if (!check_a || strcmp(check_a, check_e)) \
			check_failed(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #actual, \
				     check_a ? check_a : "(null)", check_e); \
	} while (0)

/*
 * Evaluates a call once and compares its status.  On an expected failure, `error`, if not NULL, must hold the same
 * code.
 */
#define check_status(call, expected, error) check_status_at(__FILE__, __LINE__, #call, (call), (expected), (error))
#define check_ok(call, error) check_status(call, 0, error)

/* Compares the status of a completion of pl_poll(), and reports its error if it differs. */
#define check_completion(context, completion, expected) \
	check_completion_at(__FILE__, __LINE__, (context), (completion), (expected))

/* Checks that the status is one of several: check_one_of(status, -EPROTO, -ECONNRESET). */
#define check_one_of(call, ...) \
	check_one_of_at(__FILE__, __LINE__, #call, (call), (const int[]){ __VA_ARGS__ }, \
			sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int))

#endif
