/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_RDMA_DRIVER_THREAD_H
#define PL_RDMA_DRIVER_THREAD_H

#include <pthread.h>
#include <signal.h>

/*
 * As pthread_create(), of a thread that calls a driver. Signals are for the program's threads, except those of a fault of the thread
 * itself.
 */
static inline int rdma_thread_create(pthread_t *thread, void *(*run)(void *), void *argument)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

#endif
