/* SPDX-License-Identifier: BSD-2-Clause */
/* Exceptions from errors of the library and of the extension. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "extension.h"

/* Returns an exception of the class that peerlane._errors chooses. */
PyObject *py_new_error(struct py_state *state, const struct pl_error *error)
{
	PyObject *made;
	PyObject *texts[5];
	const char *parts[5] = { error->id, error->call, error->object, error->message, error->hint };
	PyObject *code = PyLong_FromLong(-(long)error->code);

	/* The library cuts texts at a byte, so the last character may be incomplete. */
	for (int i = 0; i < 5; i++)
		texts[i] = PyUnicode_DecodeUTF8(parts[i], (Py_ssize_t)strlen(parts[i]), "replace");
	made = code && texts[0] && texts[1] && texts[2] && texts[3] && texts[4]
		       ? PyObject_CallFunctionObjArgs(state->make_error, code, texts[0], texts[1], texts[2], texts[3],
						      texts[4], NULL)
		       : NULL;
	Py_XDECREF(code);
	for (int i = 0; i < 5; i++)
		Py_XDECREF(texts[i]);
	return made;
}

void *py_raise(struct py_state *state, const struct pl_error *error)
{
	PyObject *made = py_new_error(state, error);

	if (made)
		PyErr_SetObject((PyObject *)Py_TYPE(made), made);
	Py_XDECREF(made);
	return NULL;
}

/* Raises the error of a function of the library that gives the code of a system call only. */
void *py_raise_code(struct py_state *state, int code, const char *call, const char *object)
{
	const bool limited = code == -EMFILE || code == -ENFILE;
	struct pl_error error = { .code = code };

	snprintf(error.id, sizeof(error.id), "%s", limited ? "DESCRIPTOR-LIMIT" : "SYSTEM");
	if (limited)
		snprintf(error.hint, sizeof(error.hint), "%s",
			 code == -EMFILE ? "raise the limit of open files: ulimit -n, or LimitNOFILE= of the unit"
					 : "raise the host's limit of open files: sysctl fs.file-max");
	snprintf(error.call, sizeof(error.call), "%s", call);
	snprintf(error.object, sizeof(error.object), "%s", object);
	snprintf(error.message, sizeof(error.message), "%s", strerror(-code));
	return py_raise(state, &error);
}

/* Raises an error of the extension itself. */
void *py_fail(struct py_state *state, int code, const char *id, const char *object, const char *message,
	      const char *hint)
{
	struct pl_error error = { .code = code };

	snprintf(error.id, sizeof(error.id), "%s", id);
	snprintf(error.object, sizeof(error.object), "%s", object);
	snprintf(error.message, sizeof(error.message), "%s", message);
	snprintf(error.hint, sizeof(error.hint), "%s", hint);
	return py_raise(state, &error);
}
