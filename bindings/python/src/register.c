/* SPDX-License-Identifier: BSD-2-Clause */
/* Registration of memory: of objects with the buffer protocol, of addresses, and of memory that the library allocates. */
#include <errno.h>
#include <stdlib.h>

#include "extension.h"

/* Releases a buffer when the capsule that keeps it goes. */
static void py_buffer_release(PyObject *capsule)
{
	Py_buffer *view = PyCapsule_GetPointer(capsule, NULL);

	PyBuffer_Release(view);
	free(view);
}

/* Gets the memory of an object, writable if possible. Returns a capsule that keeps it. */
static PyObject *py_buffer_get(struct py_state *state, PyObject *object, Py_buffer **view)
{
	PyObject *capsule;

	if (py_buffer_check_elements(state, object) < 0)
		return NULL;
	*view = malloc(sizeof(**view));
	if (!*view)
		return PyErr_NoMemory();
	if (PyObject_GetBuffer(object, *view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
		PyErr_Clear();
		if (PyObject_GetBuffer(object, *view, PyBUF_C_CONTIGUOUS) < 0) {
			free(*view);
			return py_buffer_refuse(
				state, object,
				"register the whole array and use offsets, or a contiguous copy that you keep");
		}
	}
	capsule = PyCapsule_New(*view, NULL, py_buffer_release);
	if (!capsule) {
		PyBuffer_Release(*view);
		free(*view);
	}
	return capsule;
}

static PyObject *py_register(struct py_context *context, void *pointer, size_t length, PyObject *access,
			     PyObject *keeper, bool readonly)
{
	struct pl_region *handle;
	struct pl_error error;
	unsigned rights;
	int rc;

	if (py_get_rights(context->state, access, true, &rights) < 0)
		return NULL;
	if (readonly && rights & ~(unsigned)(PL_ACCESS_READ | PL_ACCESS_STRICT))
		return py_fail(context->state, -EACCES, "PY-READONLY", "buffer", "the memory is read-only",
			       "use access=\"r\", or a writable object such as a bytearray");
	if (length == 0)
		return py_fail(context->state, -EINVAL, "PY-EMPTY", "buffer", "the memory has no bytes",
			       "register at least 1 byte");
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		rc = pl_region_register(context->handle, pointer, length, rights, &handle, &error);
	Py_END_ALLOW_THREADS
	context->users--;
	return rc ? py_raise(context->state, &error) : py_region_new(context, handle, keeper, readonly);
}

/* _register_buffer(object, access) */
PyObject *py_context_register_buffer(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD(self);
	static const char *const names[] = { "object", "access", NULL };
	struct py_context *context = (struct py_context *)self;
	PyObject *values[2], *keeper, *region;
	Py_buffer *view;

	if (py_parse("register", names, 1, arguments, count, keywords, values) < 0 || py_context_check(context) < 0)
		return NULL;
	keeper = py_buffer_get(context->state, values[0], &view);
	if (!keeper)
		return NULL;
	/* Exporters run code of their own, which may close the context. */
	region = py_context_check(context) < 0
			 ? NULL
			 : py_register(context, view->buf, (size_t)view->len, values[1], keeper, view->readonly);
	Py_DECREF(keeper);
	return region;
}

/* _register_address(address, length, access, keeper, readonly) */
PyObject *py_context_register_address(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD(self);
	static const char *const names[] = { "address", "length", "access", "keep", "readonly", NULL };
	struct py_context *context = (struct py_context *)self;
	PyObject *values[5];
	uint64_t address = 0, length = 0;
	int readonly;

	if (py_parse("register", names, 2, arguments, count, keywords, values) < 0 ||
	    py_get_u64(values[0], "address", &address) < 0 || py_get_u64(values[1], "length", &length) < 0)
		return NULL;
	readonly = values[4] ? PyObject_IsTrue(values[4]) : 0;
	if (readonly < 0 || py_context_check(context) < 0)
		return NULL;
	return py_register(context, (void *)(uintptr_t)address, length, values[2], values[3], readonly);
}

PyObject *py_context_allocate(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD(self);
	static const char *const names[] = { "length", "kind", "access", NULL };
	struct py_context *context = (struct py_context *)self;
	PyObject *values[3], *owner = NULL;
	struct pl_region *handle;
	struct pl_error error;
	const char *kind = "host";
	uint64_t length = 0;
	unsigned rights;
	int rc;

	if (py_parse("allocate", names, 1, arguments, count, keywords, values) < 0 ||
	    py_get_u64(values[0], names[0], &length) < 0 || py_get_rights(context->state, values[2], true, &rights) < 0)
		return NULL;
	if (values[1] && !(kind = py_get_text(values[1], names[1], &owner)))
		return NULL;
	if (py_context_check(context) < 0) {
		Py_XDECREF(owner);
		return NULL;
	}
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		rc = pl_region_allocate_in(context->handle, kind, length, rights, &handle, &error);
	Py_END_ALLOW_THREADS
	context->users--;
	Py_XDECREF(owner);
	return rc ? py_raise(context->state, &error) : py_region_new(context, handle, NULL, false);
}
