/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/matrix/ending.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/condition.h"

/* A file that is being written is complete soon; mpirun waits for a second only. */
#define HOLD_MAX CLI_NS_PER_S

struct ending {
	char *path; /* without control characters */
	unsigned pairs;
	atomic_uint saved;
	pthread_mutex_t lock;
	pthread_cond_t released;
	bool held; /* the results are being saved, or the process ends */
	pthread_t waiter;
};

/* Lists the signals that end the process.  An ignored one, such as SIGHUP under nohup(1), stays ignored. */
static void list_ending_signals(sigset_t *set)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action;

	sigemptyset(set);
	for (size_t i = 0; i < CLI_ARRAY_SIZE(signals); i++)
		if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(set, signals[i]);
}

void ending_block_signals(void)
{
	sigset_t set;

	list_ending_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void ending_unblock_signals(void)
{
	sigset_t set;

	list_ending_signals(&set);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* Ends the process without destructors: other threads still run. */
static void end_by_signal(int number)
{
	sigset_t set;

	signal(number, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, number);
	kill(getpid(), number);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* Waits until the results are not being saved, and keeps them so. */
static void hold_for_good(struct ending *ending)
{
	uint64_t until = cli_now() + HOLD_MAX;

	pthread_mutex_lock(&ending->lock);
	while (ending->held && cli_condition_wait(&ending->released, &ending->lock, until))
		;
	ending->held = true;
	pthread_mutex_unlock(&ending->lock);
}

static void *wait_for_ending_signal(void *argument)
{
	struct ending *ending = argument;
	sigset_t set;
	int number, old;

	list_ending_signals(&set);
	if (sigwait(&set, &number))
		return NULL;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	hold_for_good(ending);
	dprintf(STDERR_FILENO,
		"peerlane: %s: %s has the results of %u of %u pairs\n  hint: continue with --resume %s\n",
		strsignal(number), ending->path, ending->saved, ending->pairs, ending->path);
	end_by_signal(number);
	return NULL;
}

int ending_open(struct ending **result, const char *path, unsigned pairs, struct pl_error *error)
{
	struct ending *ending = calloc(1, sizeof(*ending));
	int rc;

	if (!ending)
		return cli_fail_errno(error, -ENOMEM, "calloc", NULL);
	ending->path = strdup(path);
	if (!ending->path) {
		free(ending);
		return cli_fail_errno(error, -ENOMEM, "strdup", NULL);
	}
	cli_printable(ending->path, false);
	ending->pairs = pairs;
	pthread_mutex_init(&ending->lock, NULL);
	cli_condition_init(&ending->released);
	rc = -pthread_create(&ending->waiter, NULL, wait_for_ending_signal, ending);
	if (rc < 0) {
		pthread_cond_destroy(&ending->released);
		pthread_mutex_destroy(&ending->lock);
		free(ending->path);
		free(ending);
		return cli_fail_errno(error, rc, "pthread_create", NULL);
	}
	*result = ending;
	return 0;
}

void ending_hold(struct ending *ending)
{
	pthread_mutex_lock(&ending->lock);
	while (ending->held)
		pthread_cond_wait(&ending->released, &ending->lock);
	ending->held = true;
	pthread_mutex_unlock(&ending->lock);
}

void ending_release(struct ending *ending)
{
	pthread_mutex_lock(&ending->lock);
	ending->held = false;
	pthread_cond_signal(&ending->released);
	pthread_mutex_unlock(&ending->lock);
}

void ending_set_pairs(struct ending *ending, unsigned saved)
{
	ending->saved = saved;
}

void ending_close(struct ending *ending)
{
	if (!ending)
		return;
	pthread_cancel(ending->waiter);
	pthread_join(ending->waiter, NULL);
	pthread_cond_destroy(&ending->released);
	pthread_mutex_destroy(&ending->lock);
	free(ending->path);
	free(ending);
}
