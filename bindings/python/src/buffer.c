/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of objects of the program: by the buffer protocol, and of tensors of the host by DLPack. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "extension.h"

void *py_buffer_refuse(struct py_state *state, PyObject *object, const char *hint)
{
	bool columns;
	char fact[224];
	Py_buffer view;

	PyErr_Clear();
	if (PyObject_GetBuffer(object, &view, PyBUF_FULL_RO) < 0)
		return NULL;
	columns = PyBuffer_IsContiguous(&view, 'F');
	snprintf(fact, sizeof(fact), "%s",
		 columns ? "the elements are in the order of columns" : "the memory is not contiguous");
	for (int i = 0; i < view.ndim && view.strides && strlen(fact) < 160; i++)
		snprintf(fact + strlen(fact), sizeof(fact) - strlen(fact), "%s%zd in steps of %zd bytes",
			 i ? ", " : ": ", view.shape[i], view.strides[i]);
	PyBuffer_Release(&view);
	return py_fail(
		state, -EINVAL, columns ? "PY-ORDER" : "PY-CONTIGUOUS", "buffer", fact,
		columns ? "give numpy.ascontiguousarray(array) and keep it, or array.T, which has these columns as "
			  "rows"
			: hint);
}

/* Returns the object itself if it has a buffer, else its tensor of the host, which has one. */
static PyObject *py_buffer_source(PyObject *object)
{
	PyObject *memory, *source;

	if (PyObject_CheckBuffer(object)) {
		Py_INCREF(object);
		return object;
	}
	memory = PyImport_ImportModule("peerlane._memory");
	source = memory ? PyObject_CallMethod(memory, "source", "O", object) : NULL;
	Py_XDECREF(memory);
	return source;
}

/* True if a format of the module struct has objects of Python. Names of members stand between colons. */
static bool py_format_has_objects(const char *format)
{
	bool named = false;

	for (; *format; format++) {
		if (*format == ':')
			named = !named;
		else if (*format == 'O' && !named)
			return true;
	}
	return false;
}

/* True if the elements of an array without a format have objects. */
static bool py_type_has_objects(PyObject *array)
{
	PyObject *type = PyObject_GetAttrString(array, "dtype");
	PyObject *found = type ? PyObject_GetAttrString(type, "hasobject") : NULL;
	bool objects = found == Py_True;

	PyErr_Clear();
	Py_XDECREF(found);
	Py_XDECREF(type);
	return objects;
}

/*
 * Asks types of ctypes for members that are objects. Their formats leave out the members of unions, of packed structures
 * and of base classes. A format that begins with a byte order is that of simple elements. pickle.PickleBuffer hands on the
 * buffer of another object, which the view names. Returns -1 with an exception.
 */
static int py_members_have_objects(const Py_buffer *view)
{
	PyObject *source, *memory = NULL, *found = NULL;
	int objects = 0;

	if (!view->obj || *view->format == '<' || *view->format == '>')
		return 0;
	source = PyMemoryView_Check(view->obj) ? PyObject_GetAttrString(view->obj, "obj") : Py_NewRef(view->obj);
	if (!source)
		return -1;
	/* Types of ctypes have types of their own. */
	if (!PyType_CheckExact((PyObject *)Py_TYPE(source))) {
		memory = PyImport_ImportModule("peerlane._memory");
		found = memory ? PyObject_CallMethod(memory, "has_objects", "O", Py_TYPE(source)) : NULL;
		objects = found ? PyObject_IsTrue(found) : -1;
	}
	Py_XDECREF(found);
	Py_XDECREF(memory);
	Py_DECREF(source);
	return objects;
}

int py_buffer_check_elements(struct py_state *state, PyObject *object)
{
	int objects = 0;
	Py_buffer view;

	if (PyBytes_Check(object) || PyByteArray_Check(object))
		return 0;
	/* Some types, such as NumPy's dates, have a buffer only if no format is wanted. */
	if (PyObject_GetBuffer(object, &view, PyBUF_FULL_RO) < 0) {
		PyErr_Clear();
		objects = py_type_has_objects(object);
	} else {
		if (view.format)
			objects = py_format_has_objects(view.format) ? 1 : py_members_have_objects(&view);
		PyBuffer_Release(&view);
	}
	if (objects > 0)
		py_fail(state, -EINVAL, "PY-OBJECTS", "buffer", "the elements are objects of Python, not numbers",
			"convert it first, as with array.astype(float), or pickle the objects");
	return objects ? -1 : 0;
}

int py_buffer_open(struct py_state *state, PyObject *object, Py_buffer *view, int flags)
{
	PyObject *source = py_buffer_source(object);
	int rc;

	if (!source)
		return -1;
	if (py_buffer_check_elements(state, source) < 0) {
		Py_DECREF(source);
		return -1;
	}
	rc = PyObject_GetBuffer(source, view, flags);
	if (rc < 0 && (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_BufferError))) {
		PyObject *type, *value, *trace;

		PyErr_Fetch(&type, &value, &trace);
		rc = PyObject_GetBuffer(source, view, flags | PyBUF_FULL_RO);
		if (rc == 0) {
			/* The strides alone were the reason. */
			bool rows = PyBuffer_IsContiguous(view, 'C');

			PyBuffer_Release(view);
			rc = -1;
			if (!rows) {
				Py_CLEAR(type);
				Py_CLEAR(value);
				Py_CLEAR(trace);
				py_buffer_refuse(state, source,
						 "copy it with numpy.ascontiguousarray(array) or tensor.contiguous()");
			}
		}
		if (type)
			PyErr_Restore(type, value, trace);
	}
	/* The view keeps the source. */
	Py_DECREF(source);
	return rc;
}
