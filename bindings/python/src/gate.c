/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that Python does not know, and that ask for the interpreter's lock. While the interpreter ends, such a thread would
 * wait for ever, or end with the locks that it holds. So none may ask from then on, and the end waits for those that did.
 */
#include <pthread.h>

#include "extension.h"

/* The mutex protects both fields. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static unsigned entered;
static bool ended;

bool py_thread_enter(PyGILState_STATE *before)
{
	bool open;

	pthread_mutex_lock(&gate);
	open = !ended;
	if (open)
		entered++;
	pthread_mutex_unlock(&gate);
	if (open)
		*before = PyGILState_Ensure();
	return open;
}

void py_thread_leave(PyGILState_STATE before)
{
	PyGILState_Release(before);
	pthread_mutex_lock(&gate);
	/* A child of a fork in between has none. */
	if (entered)
		entered--;
	pthread_cond_broadcast(&gate_changed);
	pthread_mutex_unlock(&gate);
}

void py_threads_end(void)
{
	Py_BEGIN_ALLOW_THREADS
		pthread_mutex_lock(&gate);
		ended = true;
		while (entered)
			pthread_cond_wait(&gate_changed, &gate);
		pthread_mutex_unlock(&gate);
	Py_END_ALLOW_THREADS
}

void py_threads_forked(void)
{
	pthread_mutex_init(&gate, NULL);
	pthread_cond_init(&gate_changed, NULL);
	entered = 0;
}
