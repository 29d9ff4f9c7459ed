/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef NCCL_QUIET_THREAD_H
#define NCCL_QUIET_THREAD_H

#include <pthread.h>
#include <signal.h>

/* As pthread_create(), of a thread that runs no signal handlers of the program. */
static inline int quiet_thread_create(pthread_t *thread, void *(*run)(void *), void *argument)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	rc = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

#endif
