/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ends of objects during a call of `authorize` or `refused`, and closes of those whose last view goes there.
 *
 * The calling thread holds the lock of an engine, for which the end of a peer, listener or region waits. The function of the
 * program may drop the last reference to such an object; without a global lock, the interpreter also ends objects there
 * whose last reference another thread has dropped. These objects wait in a list, and a thread of their own ends them once
 * the engine is free. The order of their ends does not matter, as each keeps its context alive.
 */
#include <pthread.h>
#include <stdlib.h>

#include "extension.h"

/* Object that its method closes. */
struct py_late_close {
	PyObject *object;
	const char *method;
	struct py_late_close *next;
};

/* The mutex protects the lists, and whether a thread serves them. */
static pthread_mutex_t late_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct py_object *late_objects;
static struct py_late_close *late_closes;
static bool late_served;

/* Calls of `authorize` and `refused` that this thread is in. */
static _Thread_local unsigned py_callback_depth;

/* Ends or closes the next object. Returns false if there is none. */
static bool py_late_serve_next(void)
{
	struct py_late_close *close;
	struct py_object *object;

	pthread_mutex_lock(&late_mutex);
	object = late_objects;
	close = object ? NULL : late_closes;
	if (object)
		late_objects = object->next;
	else if (close)
		late_closes = close->next;
	else
		late_served = false;
	pthread_mutex_unlock(&late_mutex);
	if (object) {
		py_object_dealloc((PyObject *)object, object->end);
	} else if (close) {
		py_close_late(close->object, close->method);
		Py_DECREF(close->object);
		free(close);
	}
	return object || close;
}

static void *py_late_serve(void *unused)
{
	PyGILState_STATE before;

	(void)unused;
	/* At the end of the interpreter the objects stay: their contexts are closed. */
	if (!py_thread_enter(&before))
		return NULL;
	while (py_late_serve_next())
		;
	py_thread_leave(before);
	return NULL;
}

/* Called with the mutex. Without a thread the objects wait for the next attempt. */
static void py_late_start(void)
{
	pthread_t thread;

	if ((late_objects || late_closes) && !late_served && pthread_create(&thread, NULL, py_late_serve, NULL) == 0) {
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

bool py_late_close(PyObject *object, const char *method)
{
	struct py_late_close *close = py_callback_depth ? malloc(sizeof(*close)) : NULL;

	/* Without memory the last reference ends the object. */
	if (!close)
		return py_callback_depth != 0;
	Py_INCREF(object);
	close->object = object;
	close->method = method;
	pthread_mutex_lock(&late_mutex);
	close->next = late_closes;
	late_closes = close;
	py_late_start();
	pthread_mutex_unlock(&late_mutex);
	return true;
}

void py_late_enter(void)
{
	py_callback_depth++;
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
	late_closes = NULL;
	late_served = false;
}
