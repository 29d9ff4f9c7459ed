/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects of a context: their list, the counts of calls in them, and their ends. */
#include <errno.h>
#include <time.h>

#include "extension.h"

/* Sleeps 1 ms without the interpreter lock: two threads have met at one object, which is rare. */
void py_sleep_slice(void)
{
	struct timespec slice = { .tv_nsec = 1000000 };

	Py_BEGIN_ALLOW_THREADS
		nanosleep(&slice, NULL);
	Py_END_ALLOW_THREADS
}

int py_context_check(struct py_context *context)
{
	if (context->status == PY_OPEN)
		return 0;
	if (context->status == PY_FORKED)
		py_fail(context->state, -EBADF, "PY-FORKED", "context", "the context belongs to the parent process",
			"open a context in each process, or start processes with multiprocessing's \"spawn\"");
	else
		py_fail(context->state, -EBADF, "PY-CLOSED", "context", "the context is closed",
			"keep the context open, for example with `with`, as long as its objects are in use");
	return -1;
}

/* Makes an object, and puts it into the context's list. */
void *py_object_new(PyTypeObject *type, struct py_context *context)
{
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct py_object *object = (struct py_object *)allocate(type, 0);

	if (!object)
		return NULL;
	Py_INCREF((PyObject *)context);
	object->context = context;
	object->next = context->objects;
	object->link = &context->objects;
	if (object->next)
		object->next->link = &object->next;
	context->objects = object;
	return object;
}

int py_object_check(struct py_object *object)
{
	const char *text;
	PyObject *name;

	if (py_context_check(object->context) < 0)
		return -1;
	if (!object->closed)
		return 0;
	name = PyType_GetName(Py_TYPE((PyObject *)object));
	text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
	if (text)
		py_fail(object->context->state, -EBADF, "PY-CLOSED", text, "the object is closed",
			"close or release an object after its last use only");
	Py_XDECREF(name);
	return -1;
}

/*
 * Shuts an object: waits until no call uses its handle. True if the handle must then be given back to the library; false
 * if the context has been closed, or closes, and does so itself.
 */
bool py_object_quiet(struct py_object *object)
{
	object->closed = true;
	while (object->users && object->context->status == PY_OPEN)
		py_sleep_slice();
	return object->context->status == PY_OPEN;
}

/* Takes an object out of its context's list: first of all when the object goes, as a close counts references anew. */
void py_object_unlink(struct py_object *object)
{
	if (!object->link)
		return;
	*object->link = object->next;
	if (object->next)
		object->next->link = object->link;
	object->link = NULL;
}

/* Frees an object whose handle has been given back. */
void py_object_free(void *freed)
{
	struct py_object *object = freed;
	PyTypeObject *type = Py_TYPE((PyObject *)object);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
	struct py_context *context = object->context;

	py_object_unlink(object);
	release(object);
	Py_DECREF(type);
	Py_XDECREF((PyObject *)context);
}

/* __reduce__(): refuses pickling. */
PyObject *py_object_reduce(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyErr_Format(PyExc_TypeError,
			    "%R cannot be pickled: send an Invitation with the address and a token, and connect there",
			    self);
}

/* Waits until another thread has closed the context. Before that, the library may use memory of operations. */
void py_context_await_end(struct py_context *context)
{
	while (context->status == PY_CLOSING)
		py_sleep_slice();
}

/* Adds `change` to the users of a context and of the objects of a call. A remote region of a set uses the set. */
void py_references_use(struct py_context *context, const struct py_references *references, int change)
{
	context->users += (unsigned)change;
	for (int i = 0; i < PY_REFERENCES; i++) {
		struct py_object *object = (struct py_object *)references->objects[i];

		if (!object)
			continue;
		object->users += (unsigned)change;
		if (Py_TYPE((PyObject *)object) == context->state->remote && ((struct py_remote *)object)->in_set)
			((struct py_object *)((struct py_remote *)object)->owner)->users += (unsigned)change;
	}
}

void py_references_set(struct py_references *references, void *first, void *second, void *third)
{
	references->objects[0] = first;
	references->objects[1] = second;
	references->objects[2] = third;
}

/* Copies references and counts them. */
void py_references_take(struct py_references *references, struct py_references *from)
{
	*references = *from;
	for (int i = 0; i < PY_REFERENCES; i++)
		Py_XINCREF(references->objects[i]);
}

void py_references_clear(struct py_references *references)
{
	for (int i = 0; i < PY_REFERENCES; i++)
		Py_CLEAR(references->objects[i]);
}
