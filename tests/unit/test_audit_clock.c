/* SPDX-License-Identifier: BSD-2-Clause */
/* A strict audit log goes on as soon as it can be written again, although the wall clock was set back meanwhile. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/transfer/audit.h"

#define HOUR 3600
#define DEADLINE (60 * CLI_NS_PER_S)

/* The wall clock of this program is an hour ahead of the kernel's, which is as if somebody set that back after each look. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, time);

	if (clock == CLOCK_REALTIME)
		time->tv_sec += HOUR;
	return rc;
}

/* Sets the largest size of files.  A file that has it cannot be written.  Returns the size before. */
static rlim_t limit_files(rlim_t bytes)
{
	struct rlimit limit;
	rlim_t before;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	before = limit.rlim_cur;
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	return before;
}

static void wait_until_blocked(struct audit *audit, bool blocked)
{
	uint64_t end = cli_now() + DEADLINE;

	while (audit_is_blocked(audit) != blocked) {
		assert_true(cli_now() < end);
		usleep(1000);
	}
}

static void test_the_log_is_tried_again(void **state)
{
	char path[] = "/tmp/peerlane-audit-XXXXXX";
	const struct audit_options options = { .target = path, .strict = true };
	const struct audit_event event = { .event = "read", .name = "data" };
	struct pl_error error;
	struct audit *audit;
	int fd = mkstemp(path);
	rlim_t size;

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(audit_open(&audit, &options, &error), 0);
	size = limit_files(0);
	audit_write(audit, &event);
	wait_until_blocked(audit, true);
	limit_files(size);
	wait_until_blocked(audit, false);
	audit_close(audit);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_log_is_tried_again),
	};

	signal(SIGXFSZ, SIG_IGN);
	return cmocka_run_group_tests_name("audit clock", tests, NULL, NULL);
}
