/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads of the command's own children and files while signals arrive. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/common/cli.h"

/* Signals that arrive while a read waits, before its bytes. */
#define SIGNALS 200u

static atomic_uint handled;

static void count_signal(int number)
{
	(void)number;
	atomic_fetch_add(&handled, 1);
}

struct writer {
	pthread_t thread, reader;
	int fd;
};

/* Interrupts the reader again and again, then writes. The next signal comes when the last one has arrived. */
static void *interrupt_and_write(void *argument)
{
	const struct writer *writer = argument;

	for (unsigned i = 0; i < SIGNALS; i++) {
		assert_int_equal(pthread_kill(writer->reader, SIGUSR1), 0);
		while (atomic_load(&handled) <= i)
			usleep(100);
		/* The reader waits again, or its read has failed. */
		usleep(100);
	}
	assert_int_equal(write(writer->fd, "key", 3), 3);
	return NULL;
}

/* Begins to interrupt this thread. Returns the descriptor to read from. */
static int begin_signals(struct writer *writer)
{
	/* Without SA_RESTART. */
	const struct sigaction action = { .sa_handler = count_signal };
	int ends[2];

	atomic_store(&handled, 0);
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	assert_int_equal(pipe(ends), 0);
	*writer = (struct writer){ .reader = pthread_self(), .fd = ends[1] };
	assert_int_equal(pthread_create(&writer->thread, NULL, interrupt_and_write, writer), 0);
	return ends[0];
}

static void end_signals(struct writer *writer, int fd)
{
	pthread_join(writer->thread, NULL);
	close(writer->fd);
	assert_int_equal(atomic_load(&handled), SIGNALS);
	close(fd);
}

static void test_read(void **state)
{
	struct writer writer;
	char text[8] = "";
	int fd = begin_signals(&writer);

	(void)state;
	assert_int_equal(cli_read(fd, text, sizeof(text)), 3);
	assert_string_equal(text, "key");
	end_signals(&writer, fd);
}

static void test_read_within(void **state)
{
	struct writer writer;
	char text[8] = "";
	int fd = begin_signals(&writer);

	(void)state;
	assert_int_equal(cli_read_within(fd, text, sizeof(text), 600 * CLI_NS_PER_S), 3);
	assert_string_equal(text, "key");
	end_signals(&writer, fd);
}

static void test_ends(void **state)
{
	int ends[2];
	char text[8];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(cli_read_within(ends[0], text, sizeof(text), CLI_NS_PER_MS), -ETIMEDOUT);
	close(ends[1]);
	assert_int_equal(cli_read_within(ends[0], text, sizeof(text), 600 * CLI_NS_PER_S), 0);
	assert_int_equal(cli_read(ends[0], text, sizeof(text)), 0);
	close(ends[0]);
	assert_int_equal(cli_read(ends[0], text, sizeof(text)), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_read_within),
		cmocka_unit_test(test_ends),
	};

	return cmocka_run_group_tests_name("reads of the command", tests, NULL, NULL);
}
