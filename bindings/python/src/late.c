/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ends of objects during a call of `authorize` or `refused`.
 *
 * The calling thread holds the lock of an engine, for which the end of a peer, listener or region waits. The function of the
 * program may drop the last reference to such an object; without a global lock, the interpreter also ends objects there
 * whose last reference another thread has dropped. These objects wait in a list, and a thread of their own ends them once
 * the engine is free. The order of their ends does not matter, as each keeps its context alive.
 */
#include <pthread.h>

#include "extension.h"

/* The mutex protects the list, and whether a thread serves it. */
static pthread_mutex_t late_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct py_object *late_objects;
static bool late_served;

/* Calls of `authorize` and `refused` that this thread is in. */
static _Thread_local unsigned py_callback_depth;

static struct py_object *py_late_next(void)
{
	struct py_object *object;

	pthread_mutex_lock(&late_mutex);
	object = late_objects;
	if (object)
		late_objects = object->next;
	else
		late_served = false;
	pthread_mutex_unlock(&late_mutex);
	return object;
}

static void *py_late_serve(void *unused)
{
	PyGILState_STATE before;
	struct py_object *object;

	(void)unused;
	/* At the end of the interpreter the objects stay: their contexts are closed. */
	if (!py_thread_enter(&before))
		return NULL;
	while ((object = py_late_next()))
		py_object_dealloc((PyObject *)object, object->end);
	py_thread_leave(before);
	return NULL;
}

/* Called with the mutex. Without a thread the objects wait for the next attempt. */
static void py_late_start(void)
{
	pthread_t thread;

	if (late_objects && !late_served && pthread_create(&thread, NULL, py_late_serve, NULL) == 0) {
		pthread_detach(thread);
		late_served = true;
	}
}

bool py_late_add(struct py_object *object, void (*end)(PyObject *self))
{
	if (!py_callback_depth)
		return false;
	object->end = end;
	pthread_mutex_lock(&late_mutex);
	object->next = late_objects;
	late_objects = object;
	py_late_start();
	pthread_mutex_unlock(&late_mutex);
	return true;
}

void py_late_enter(void)
{
	py_callback_depth++;
}

bool py_late_inside(void)
{
	return py_callback_depth != 0;
}

void py_late_leave(void)
{
	py_callback_depth--;
	/* The function may have returned what a thread needs. */
	pthread_mutex_lock(&late_mutex);
	py_late_start();
	pthread_mutex_unlock(&late_mutex);
}

void py_late_forked(void)
{
	pthread_mutex_init(&late_mutex, NULL);
	late_objects = NULL;
	late_served = false;
}
