/* SPDX-License-Identifier: BSD-2-Clause */
/* Options of a context, from keyword arguments with the names of struct pl_options. */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "extension.h"

enum py_option_type {
	PY_OPTION_TEXT,
	PY_OPTION_BYTES, /* with a length in the next field */
	PY_OPTION_SECONDS,
	PY_OPTION_CHOICE, /* None, True or False */
	PY_OPTION_UNSIGNED,
	PY_OPTION_SIZE,
	PY_OPTION_U64,
	PY_OPTION_PROGRESS,
	PY_OPTION_POLL, /* seconds; 0: threads do not poll */
	PY_OPTION_GID,
	PY_OPTION_FUNCTION,
};

#define OPTION(name, type) \
	{ \
#name, PY_OPTION_##type, offsetof(struct pl_options, name) \
	}
static const struct py_option {
	const char *name;
	enum py_option_type type;
	size_t offset;
} py_options[] = {
	OPTION(progress, PROGRESS),
	OPTION(workers, UNSIGNED),
	OPTION(lanes, UNSIGNED),
	OPTION(fabric, TEXT),
	OPTION(key, BYTES),
	OPTION(encrypt_data, CHOICE),
	OPTION(insecure, CHOICE),
	OPTION(operation_timeout, SECONDS),
	OPTION(connect_timeout, SECONDS),
	OPTION(keepalive, SECONDS),
	OPTION(rails, UNSIGNED),
	OPTION(devices, TEXT),
	OPTION(staging_bytes, SIZE),
	OPTION(narrow_grants, CHOICE),
	OPTION(keep_bytes, SIZE),
	OPTION(routes, TEXT),
	OPTION(traffic_class, UNSIGNED),
	OPTION(peers_max, UNSIGNED),
	OPTION(program, TEXT),
	OPTION(identity, TEXT),
	OPTION(authority, TEXT),
	OPTION(authorized, TEXT),
	OPTION(known_hosts, TEXT),
	OPTION(expected, TEXT),
	OPTION(trust_new, CHOICE),
	OPTION(authorize, FUNCTION),
	OPTION(refused, FUNCTION),
	OPTION(old_key, BYTES),
	OPTION(peers_rate, U64),
	OPTION(poll_time, POLL),
	OPTION(topology, TEXT),
	OPTION(service_level, UNSIGNED),
	OPTION(gid_index, GID),
	OPTION(pkey, UNSIGNED),
	OPTION(ack_timeout, UNSIGNED),
	OPTION(retries, UNSIGNED),
	OPTION(rnr_timer, UNSIGNED),
	OPTION(gpu_multiprocessors, UNSIGNED),
};

static int py_option_keep(PyObject *owners, PyObject *owner)
{
	int rc = PyList_Append(owners, owner);

	Py_DECREF(owner);
	return rc;
}

static int py_option_bytes(const struct py_option *option, PyObject *value, char *field, PyObject *owners)
{
	PyObject *bytes = py_get_bytes(value, option->name);
	size_t length;

	if (!bytes || py_option_keep(owners, bytes) < 0)
		return -1;
	length = (size_t)PyBytes_Size(bytes);
	*(const void **)(void *)field = PyBytes_AsString(bytes);
	/* The fields `key` and `old_key` precede those of their lengths. */
	memcpy(field + sizeof(void *), &length, sizeof(length));
	return 0;
}

static int py_option_progress(struct py_state *state, PyObject *value, enum pl_progress *progress, PyObject *owners)
{
	PyObject *owner;
	const char *text = py_get_text(value, "progress", &owner);

	if (!text || py_option_keep(owners, owner) < 0)
		return -1;
	if (strcmp(text, "thread") != 0 && strcmp(text, "manual") != 0) {
		py_fail(state, -EINVAL, "PY-OPTION", text, "progress is \"thread\" or \"manual\"", "");
		return -1;
	}
	*progress = *text == 'm' ? PL_PROGRESS_MANUAL : PL_PROGRESS_THREAD;
	return 0;
}

static int py_option_number(const struct py_option *option, PyObject *value, char *field)
{
	uint64_t number = 0;

	if (option->type == PY_OPTION_SECONDS || option->type == PY_OPTION_POLL) {
		if (py_get_ns(value, option->name, 0, &number) < 0)
			return -1;
		if (option->type == PY_OPTION_POLL && number == 0)
			number = PL_NO_POLLING;
		memcpy(field, &number, sizeof(number));
		return 0;
	}
	if (py_get_u64(value, option->name, &number) < 0)
		return -1;
	if (option->type == PY_OPTION_GID)
		number++;
	if (option->type == PY_OPTION_UNSIGNED || option->type == PY_OPTION_GID) {
		if (number > UINT_MAX) {
			PyErr_Format(PyExc_ValueError, "%s must be below 2**32", option->name);
			return -1;
		}
		memcpy(field, &(unsigned){ (unsigned)number }, sizeof(unsigned));
	} else {
		memcpy(field, &number, sizeof(number));
	}
	return 0;
}

static int py_option_set(struct py_state *state, const struct py_option *option, PyObject *value, char *field,
			 PyObject *owners)
{
	PyObject *owner;
	int truth;

	switch (option->type) {
	case PY_OPTION_TEXT:
		*(const char **)(void *)field = py_get_text(value, option->name, &owner);
		return *(const char **)(void *)field ? py_option_keep(owners, owner) : -1;
	case PY_OPTION_BYTES:
		return py_option_bytes(option, value, field, owners);
	case PY_OPTION_CHOICE:
		truth = PyObject_IsTrue(value);
		*(enum pl_choice *)(void *)field = truth ? PL_ON : PL_OFF;
		return truth < 0 ? -1 : 0;
	case PY_OPTION_PROGRESS:
		return py_option_progress(state, value, (enum pl_progress *)(void *)field, owners);
	default:
		return py_option_number(option, value, field);
	}
}

/* Fills options; `owners` keeps their texts. Options that are None keep their defaults. */
int py_options_parse(struct py_context *context, PyObject *given, struct pl_options *options, PyObject *owners)
{
	PyObject *name, *value;
	Py_ssize_t at = 0;
	int rc = 0;

	while (rc == 0 && given && PyDict_Next(given, &at, &name, &value)) {
		const struct py_option *option = NULL;

		for (size_t i = 0; i < sizeof(py_options) / sizeof(*py_options) && !option; i++) {
			if (PyUnicode_CompareWithASCIIString(name, py_options[i].name) == 0)
				option = &py_options[i];
		}
		if (!option) {
			PyErr_Format(PyExc_TypeError, "a context has no option '%U'", name);
			return -1;
		}
		if (value == Py_None)
			continue;
		if (option->type == PY_OPTION_FUNCTION)
			rc = py_function_option(context, option->name, value, options);
		else
			rc = py_option_set(context->state, option, value, (char *)options + option->offset, owners);
	}
	return rc;
}
