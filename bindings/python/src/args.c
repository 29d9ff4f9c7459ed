/* SPDX-License-Identifier: BSD-2-Clause */
/* Arguments of methods. PyArg_ParseTupleAndKeywords() takes longer than a small write. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "extension.h"

static int py_find_name(const char *const *names, PyObject *keyword)
{
	for (int i = 0; names[i]; i++) {
		if (PyUnicode_CompareWithASCIIString(keyword, names[i]) == 0)
			return i;
	}
	return -1;
}

/* Sorts arguments by their names into `values`; NULL: not given, or None for an argument that is not required. */
int py_parse(const char *function, const char *const *names, int required, PY_ARGUMENTS, PyObject **values)
{
	int known = 0;

	for (; names[known]; known++)
		values[known] = known < count ? arguments[known] : NULL;
	if (count > known) {
		PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments, not %zd", function, known, count);
		return -1;
	}
	for (Py_ssize_t i = 0, n = keywords ? PyTuple_Size(keywords) : 0; i < n; i++) {
		PyObject *keyword = PyTuple_GetItem(keywords, i);
		int at = py_find_name(names, keyword);

		if (at < 0) {
			PyErr_Format(PyExc_TypeError, "%s() has no argument '%U'", function, keyword);
			return -1;
		}
		if (values[at]) {
			PyErr_Format(PyExc_TypeError, "%s() got two values for '%s'", function, names[at]);
			return -1;
		}
		values[at] = arguments[count + i];
	}
	for (int i = 0; i < known; i++) {
		if (i < required && !values[i]) {
			PyErr_Format(PyExc_TypeError, "%s() needs the argument '%s'", function, names[i]);
			return -1;
		}
		if (i >= required && values[i] == Py_None)
			values[i] = NULL;
	}
	return 0;
}

/* Reads a number from 0 to 2^64 - 1. NULL leaves `number` as it is. */
int py_get_u64(PyObject *value, const char *name, uint64_t *number)
{
	PyObject *index;
	unsigned long long got;

	if (!value)
		return 0;
	index = PyNumber_Index(value);
	if (!index)
		return -1;
	got = PyLong_AsUnsignedLongLong(index);
	Py_DECREF(index);
	if (got == (unsigned long long)-1 && PyErr_Occurred()) {
		PyErr_Clear();
		PyErr_Format(PyExc_ValueError, "%s must be from 0 to 2**64 - 1, not %S", name, value);
		return -1;
	}
	*number = got;
	return 0;
}

/* Reads seconds as nanoseconds; `none` if not given, UINT64_MAX for infinity. */
int py_get_ns(PyObject *value, const char *name, uint64_t none, uint64_t *ns)
{
	double seconds;

	*ns = none;
	if (!value || value == Py_None)
		return 0;
	seconds = PyFloat_AsDouble(value);
	if (seconds == -1.0 && PyErr_Occurred())
		return -1;
	if (isnan(seconds) || seconds < 0) {
		PyErr_Format(PyExc_ValueError, "%s must be at least 0 seconds, not %S", name, value);
		return -1;
	}
	*ns = seconds >= 1.8e10 ? UINT64_MAX : (uint64_t)(seconds * 1e9);
	return 0;
}

int py_get_lifetime(PyObject *value, uint64_t *ns)
{
	if (py_get_ns(value, "lifetime", 0, ns) < 0)
		return -1;
	if (!value || value == Py_None || *ns)
		return 0;
	PyErr_Format(PyExc_ValueError,
		     "lifetime must be at least 1e-9 seconds, not %S; leave it out for a token that never ends", value);
	return -1;
}

/* Reads rights: "r", "w" and "a" in any order, of regions also "s"; "" for local use only. */
int py_get_rights(struct py_state *state, PyObject *value, bool of_region, unsigned *rights)
{
	static const struct {
		char letter;
		unsigned right;
	} letters[] = {
		{ 'r', PL_ACCESS_READ }, { 'w', PL_ACCESS_WRITE }, { 'a', PL_ACCESS_ATOMIC }, { 's', PL_ACCESS_STRICT }
	};
	PyObject *owner = NULL;
	const char *text;

	*rights = 0;
	if (!value)
		return 0;
	text = py_get_text(value, "rights", &owner);
	if (!text)
		return -1;
	for (const char *at = text; *at; at++) {
		unsigned right = 0;

		for (size_t i = 0; i < sizeof(letters) / sizeof(*letters); i++)
			right |= letters[i].letter == *at ? letters[i].right : 0;
		if (!right || (right == PL_ACCESS_STRICT && !of_region)) {
			py_fail(state, -EINVAL, "PY-RIGHTS", text,
				"rights have the letters r, w and a only; those of a region also s",
				"\"rw\" allows peers to read and write");
			Py_DECREF(owner);
			return -1;
		}
		*rights |= right;
	}
	Py_DECREF(owner);
	return 0;
}

PyObject *py_rights_text(unsigned rights)
{
	return PyUnicode_FromFormat("%s%s%s", rights & PL_ACCESS_READ ? "r" : "", rights & PL_ACCESS_WRITE ? "w" : "",
				    rights & PL_ACCESS_ATOMIC ? "a" : "");
}

/* Returns the UTF-8 text of a str or a path, which `owner` keeps; NULL with an exception. */
const char *py_get_text(PyObject *value, const char *name, PyObject **owner)
{
	PyObject *path, *bytes;
	const char *text;

	path = PyOS_FSPath(value);
	bytes = path ? PyUnicode_Check(path) ? PyUnicode_EncodeFSDefault(path) : PyObject_Bytes(path) : NULL;
	Py_XDECREF(path);
	text = bytes ? PyBytes_AsString(bytes) : NULL;
	if (text && strlen(text) != (size_t)PyBytes_Size(bytes)) {
		PyErr_Format(PyExc_ValueError, "%s has a null character", name);
		text = NULL;
	}
	if (!text)
		Py_XDECREF(bytes);
	else
		*owner = bytes;
	return text;
}

PyObject *py_get_token(PyObject *value, const char *name)
{
	PyObject *token = PyObject_GetAttrString(value, "token"), *bytes;

	if (!token)
		PyErr_Clear();
	bytes = py_get_bytes(token ? token : value, name);
	Py_XDECREF(token);
	return bytes;
}

PyObject *py_get_bytes(PyObject *value, const char *name)
{
	PyObject *method;

	if (PyObject_CheckBuffer(value))
		return PyBytes_FromObject(value);
	method = PyObject_GetAttrString(value, "__bytes__");
	Py_XDECREF(method);
	if (method)
		return PyObject_Bytes(value);
	if (!PyErr_ExceptionMatches(PyExc_AttributeError))
		return NULL;
	return PyErr_Format(PyExc_TypeError, "%s must be bytes, not %R", name, (PyObject *)Py_TYPE(value));
}
