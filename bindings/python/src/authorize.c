/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The options `authorize` and `refused` of contexts: functions of the program that decide about each other end, and learn
 * of refused ones.
 *
 * The library calls them on a thread that holds the lock of an engine, and the calls wait for the interpreter lock. So no
 * call that waits for an engine may hold the interpreter lock.
 */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "extension.h"

#define FIELD(name) \
	{ \
#name, offsetof(struct pl_rights, name), sizeof(((struct pl_rights *)NULL)->name) \
	}
static const struct py_right {
	const char *name;
	size_t offset, size;
} py_rights[] = { FIELD(clients), FIELD(quota), FIELD(rate), FIELD(imports), FIELD(requests) };

static int py_rights_set_names(struct pl_rights *rights, PyObject *value)
{
	PyObject *owner;
	const char *text = py_get_text(value, "names", &owner);
	int length;

	if (!text)
		return -1;
	length = snprintf(rights->names, sizeof(rights->names), "%s", text);
	Py_DECREF(owner);
	if ((size_t)length < sizeof(rights->names))
		return 0;
	PyErr_Format(PyExc_ValueError, "names has at most %zu bytes", sizeof(rights->names) - 1);
	return -1;
}

static int py_rights_set_number(const struct py_right *right, struct pl_rights *rights, PyObject *value)
{
	uint64_t number = 0;

	if (py_get_u64(value, right->name, &number) < 0)
		return -1;
	if (right->size == sizeof(number)) {
		memcpy((char *)rights + right->offset, &number, sizeof(number));
		return 0;
	}
	if (number > UINT32_MAX) {
		PyErr_Format(PyExc_ValueError, "%s must be below 2**32", right->name);
		return -1;
	}
	memcpy((char *)rights + right->offset, &(unsigned){ (unsigned)number }, sizeof(unsigned));
	return 0;
}

static int py_rights_set(struct py_state *state, PyObject *name, PyObject *value, struct pl_rights *rights)
{
	if (!PyUnicode_Check(name)) {
		PyErr_Format(PyExc_TypeError, "names of rights are texts, not %R", name);
		return -1;
	}
	if (PyUnicode_CompareWithASCIIString(name, "access") == 0)
		return py_get_rights(state, value, false, &rights->access);
	if (PyUnicode_CompareWithASCIIString(name, "until") == 0)
		return py_get_ns(value, "until", 0, &rights->until);
	if (PyUnicode_CompareWithASCIIString(name, "names") == 0)
		return py_rights_set_names(rights, value);
	for (size_t i = 0; i < sizeof(py_rights) / sizeof(*py_rights); i++)
		if (PyUnicode_CompareWithASCIIString(name, py_rights[i].name) == 0)
			return py_rights_set_number(&py_rights[i], rights, value);
	PyErr_Format(PyExc_ValueError, "there is no right %R", name);
	return -1;
}

/* Takes over the rights that a dictionary names. Returns 0, or -1 with an exception. */
static int py_rights_update(struct py_state *state, PyObject *given, struct pl_rights *rights)
{
	PyObject *copy = PyDict_Copy(given), *name, *value;
	Py_ssize_t at = 0;
	int rc = copy ? 0 : -1;

	while (rc == 0 && PyDict_Next(copy, &at, &name, &value))
		rc = py_rights_set(state, name, value, rights);
	Py_XDECREF(copy);
	return rc;
}

/* Asks the function of the program. Returns 0 to admit the other end; -1 with an exception; or -EACCES. */
static int py_authorize_ask(struct py_context *context, const struct pl_identity *identity, struct pl_rights *rights)
{
	struct pl_rights changed = *rights;
	PyObject *about = py_identity_dict(identity, rights), *answer;
	int rc;

	if (!about)
		return -1;
	answer = PyObject_CallFunctionObjArgs(context->authorize, about, NULL);
	Py_DECREF(about);
	if (!answer)
		return -1;
	if (PyDict_Check(answer)) {
		rc = py_rights_update(context->state, answer, &changed);
	} else if (PyBool_Check(answer)) {
		rc = answer == Py_True ? 0 : -EACCES;
	} else {
		PyErr_Format(PyExc_TypeError, "authorize() must return True, False or a dictionary of rights, not %R",
			     answer);
		rc = -1;
	}
	Py_DECREF(answer);
	if (rc == 0)
		*rights = changed;
	return rc;
}

/*
 * The library calls with an engine's lock held, which the end of a context takes, too. So no collection may find a context
 * in a cycle meanwhile. The ends of peers, listeners and regions wait (late.c). The mutex protects the number of
 * callbacks that run, and what the first one found.
 */
static pthread_mutex_t callbacks_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned callbacks;
static int collects;

static bool py_callback_begin(PyGILState_STATE *before)
{
	if (!py_thread_enter(before))
		return false;
	pthread_mutex_lock(&callbacks_mutex);
	if (callbacks++ == 0)
		collects = PyGC_Disable();
	pthread_mutex_unlock(&callbacks_mutex);
	py_late_enter();
	return true;
}

static void py_callback_end(PyGILState_STATE before)
{
	pthread_mutex_lock(&callbacks_mutex);
	/* A child of a fork in between has none. */
	if (callbacks && --callbacks == 0 && collects)
		PyGC_Enable();
	pthread_mutex_unlock(&callbacks_mutex);
	/* On a thread of the library this ends the thread's state for Python, and objects that only the state holds. */
	py_thread_leave(before);
	py_late_leave();
}

void py_callbacks_forked(void)
{
	pthread_mutex_init(&callbacks_mutex, NULL);
	if (callbacks && collects)
		PyGC_Enable();
	callbacks = 0;
}

/* Called by the library. An exception refuses the other end. */
static int py_authorize(void *user, const struct pl_identity *identity, struct pl_rights *rights)
{
	struct py_context *context = user;
	PyObject *type, *value, *trace;
	PyGILState_STATE before;
	int rc;

	if (!py_callback_begin(&before))
		return -EACCES;
	/* A call of this thread that makes progress may have an exception set. */
	PyErr_Fetch(&type, &value, &trace);
	rc = py_authorize_ask(context, identity, rights);
	if (PyErr_Occurred())
		PyErr_WriteUnraisable(context->authorize);
	PyErr_Restore(type, value, trace);
	py_callback_end(before);
	return rc < 0 ? -EACCES : 0;
}

/* Called by the library, as py_authorize(). */
static void py_refused(void *user, const struct pl_identity *identity, const struct pl_error *error)
{
	struct py_context *context = user;
	PyObject *type, *value, *trace, *about, *made, *answer = NULL;
	PyGILState_STATE before;

	if (!py_callback_begin(&before))
		return;
	PyErr_Fetch(&type, &value, &trace);
	about = py_identity_dict(identity, NULL);
	made = about ? py_new_error(context->state, error) : NULL;
	if (made)
		answer = PyObject_CallFunctionObjArgs(context->refused, about, made, NULL);
	if (!answer)
		PyErr_WriteUnraisable(context->refused);
	Py_XDECREF(answer);
	Py_XDECREF(made);
	Py_XDECREF(about);
	PyErr_Restore(type, value, trace);
	py_callback_end(before);
}

int py_function_option(struct py_context *context, const char *name, PyObject *function, struct pl_options *options)
{
	bool decides = strcmp(name, "authorize") == 0;
	PyObject **kept = decides ? &context->authorize : &context->refused, *old = *kept;

	if (!PyCallable_Check(function)) {
		PyErr_Format(PyExc_TypeError, "%s must be a function, not %R", name, function);
		return -1;
	}
	Py_INCREF(function);
	*kept = function;
	Py_XDECREF(old);
	if (decides) {
		options->authorize = py_authorize;
		options->authorize_user = context;
	} else {
		options->refused = py_refused;
		options->refused_user = context;
	}
	return 0;
}
