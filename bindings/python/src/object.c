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
	if (!object->closed && !object->closes_late)
		return 0;
	name = PyType_GetName(Py_TYPE((PyObject *)object));
	text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
	if (text)
		py_fail(object->context->state, -EBADF, "PY-CLOSED", text, "the object is closed",
			"close or release an object after its last use only");
	Py_XDECREF(name);
	return -1;
}

PyObject *py_object_enter(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	(void)unused;
	if (py_object_check((struct py_object *)self) < 0)
		return NULL;
	Py_INCREF(self);
	return self;
}

bool py_exit_failed(PyObject *arguments)
{
	return PyTuple_Size(arguments) > 0 && PyTuple_GetItem(arguments, 0) != Py_None;
}

void py_close_late(PyObject *self, const char *close)
{
	PyObject *type, *value, *trace, *result;

	if (py_late_close(self, close))
		return;
	PyErr_Fetch(&type, &value, &trace);
	result = PyObject_CallMethod(self, close, NULL);
	if (!result)
		PyErr_WriteUnraisable(self);
	Py_XDECREF(result);
	PyErr_Restore(type, value, trace);
}

void py_exports_count(struct py_object *object, Py_ssize_t *exports, int change, const char *close)
{
	struct py_context *context = object->context;

	*exports += change;
	context->exports += (size_t)change;
	if (!*exports && object->closes_late && !object->closed)
		py_close_late((PyObject *)object, close);
	if (!context->exports && context->closes_late && context->status == PY_OPEN)
		py_close_late((PyObject *)context, "_end_late");
}

PyObject *py_object_closed(PyObject *self, void *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_object *object = (struct py_object *)self;

	(void)unused;
	return PyBool_FromLong(object->closed || object->context->status != PY_OPEN);
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

/* Returns false if the object ends later, on another thread. */
static bool py_object_end(PyObject *self, void (*end)(PyObject *self))
{
	PY_GUARD_CONTEXT_OF(self);
	PyObject *type, *value, *trace;

	py_object_unlink((struct py_object *)self);
	if (py_late_add((struct py_object *)self, end))
		return false;
	PyErr_Fetch(&type, &value, &trace);
	end(self);
	PyErr_Restore(type, value, trace);
	return true;
}

int py_references_traverse(const struct py_references *references, visitproc visit, void *arg)
{
	for (int i = 0; i < PY_REFERENCES; i++)
		Py_VISIT(references->objects[i]);
	return 0;
}

int py_object_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT((PyObject *)Py_TYPE(self));
	Py_VISIT((PyObject *)((struct py_object *)self)->context);
	return 0;
}

void py_object_dealloc(PyObject *self, void (*end)(PyObject *self))
{
	PyObject *context = (PyObject *)((struct py_object *)self)->context;
	PyTypeObject *type = Py_TYPE(self);

	PyObject_GC_UnTrack(self);
	if (!py_object_end(self, end))
		return;
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
	Py_DECREF(context);
}

/* Makes a weak reference for py_weak_get(), unless the global lock makes it needless. Returns 0, or -1 with an exception. */
int py_weak_set(PyObject **weak, PyObject *object)
{
#ifdef Py_GIL_DISABLED
	Py_XDECREF(*weak);
	*weak = PyWeakref_NewRef(object, NULL);
	return *weak ? 0 : -1;
#else
	(void)weak;
	(void)object;
	return 0;
#endif
}

/* Returns a new reference to an object of a list; NULL without an exception if the object has no references any more. */
PyObject *py_weak_get(PyObject *weak, void *object)
{
#ifdef Py_GIL_DISABLED
	PyObject *found = NULL;

	(void)object;
	if (PyWeakref_GetRef(weak, &found) < 0)
		PyErr_Clear();
	return found;
#else
	(void)weak;
	Py_INCREF((PyObject *)object);
	return object;
#endif
}

/* Returns a list of the open contexts. */
PyObject *py_contexts(struct py_state *state)
{
	PyObject *list = PyList_New(0), *held = NULL;
	int rc = 0;

	PY_LOCK(&state->lock);
	for (struct py_context *context = state->contexts; list && rc == 0 && context; context = context->next) {
		/* Never the last reference: the list has one, too. */
		Py_XDECREF(held);
		held = py_weak_get(context->weak, context);
		rc = held ? PyList_Append(list, held) : 0;
	}
	PY_UNLOCK(&state->lock);
	Py_XDECREF(held);
	if (rc < 0)
		Py_CLEAR(list);
	return list;
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

/* Fails if one of the objects was closed since the caller looked. */
int py_references_check(const struct py_references *references)
{
	for (int i = 0; i < PY_REFERENCES; i++) {
		struct py_object *object = (struct py_object *)references->objects[i];

		if (!object)
			continue;
		if (Py_TYPE((PyObject *)object) == object->context->state->remote &&
		    ((struct py_remote *)object)->in_set &&
		    py_object_check((struct py_object *)((struct py_remote *)object)->owner) < 0)
			return -1;
		if (py_object_check(object) < 0)
			return -1;
	}
	return 0;
}

void py_references_clear(struct py_references *references)
{
	for (int i = 0; i < PY_REFERENCES; i++)
		Py_CLEAR(references->objects[i]);
}
