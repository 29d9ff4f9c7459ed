/* SPDX-License-Identifier: BSD-2-Clause */
/* Vectored operations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "extension.h"

struct py_vector_call {
	struct py_peer *peer;
	bool reads;
	struct pl_transfer *transfers;
	size_t count;
	struct py_attributes attributes;
};

static int py_post_vector(void *argument, uint64_t user_data, struct pl_operation **operation, struct pl_error *error)
{
	struct py_vector_call *call = argument;

	call->attributes.library.user_data = user_data;
	if (call->reads)
		return pl_readv(call->peer->handle, call->transfers, call->count, &call->attributes.library, operation,
				error);
	return pl_writev(call->peer->handle, call->transfers, call->count, &call->attributes.library, operation, error);
}

/* True for a format of integers with 64 bits, as array.array("Q") and NumPy's uint64 and int64 have. */
static bool py_is_integer_format(const char *format)
{
	if (!format)
		return false;
	if (*format == '@' || *format == '=' || *format == '<')
		format++;
	return *format && strchr("QqLlNn", *format) && !format[1];
}

/* Reads numbers of an array into one field of each transfer. */
static int py_numbers_of_array(PyObject *value, const char *name, struct py_vector_call *call, size_t field)
{
	char *at = (char *)call->transfers + field;
	Py_buffer view;
	int rc = -1;

	if (PyObject_GetBuffer(value, &view, PyBUF_ND | PyBUF_FORMAT) < 0)
		return -1;
	if (view.ndim != 1 || view.itemsize != 8 || !py_is_integer_format(view.format)) {
		PyErr_Format(PyExc_TypeError, "%s must be an array of integers with 64 bits and one dimension", name);
	} else if ((size_t)view.shape[0] != call->count) {
		PyErr_Format(PyExc_ValueError, "%s must have %zu elements, not %zd", name, call->count, view.shape[0]);
	} else {
		for (size_t i = 0; i < call->count; i++, at += sizeof(*call->transfers))
			memcpy(at, (const char *)view.buf + i * 8, 8);
		rc = 0;
	}
	PyBuffer_Release(&view);
	return rc;
}

/* Reads numbers of an array or a sequence, or one number for all. */
static int py_get_numbers(PyObject *value, const char *name, struct py_vector_call *call, size_t field)
{
	char *at = (char *)call->transfers + field;
	uint64_t number = 0;
	Py_ssize_t length;

	if (PyObject_CheckBuffer(value))
		return py_numbers_of_array(value, name, call, field);
	if (PyIndex_Check(value)) {
		if (py_get_u64(value, name, &number) < 0)
			return -1;
		for (size_t i = 0; i < call->count; i++, at += sizeof(*call->transfers))
			memcpy(at, &number, sizeof(number));
		return 0;
	}
	length = PySequence_Size(value);
	if (length < 0)
		return -1;
	if ((size_t)length != call->count) {
		PyErr_Format(PyExc_ValueError, "%s must have %zu elements, not %zd", name, call->count, length);
		return -1;
	}
	for (size_t i = 0; i < call->count; i++, at += sizeof(*call->transfers)) {
		PyObject *item = PySequence_GetItem(value, (Py_ssize_t)i);
		int rc = item ? py_get_u64(item, name, &number) : -1;

		Py_XDECREF(item);
		if (rc < 0)
			return -1;
		memcpy(at, &number, sizeof(number));
	}
	return 0;
}

/* Fills the transfers: values are remote, region, remote_offsets, offsets, lengths. */
static int py_vector_fill(struct py_context *context, struct py_vector_call *call, PyObject *const *values,
			  struct py_references *references)
{
	struct py_region *region;
	struct py_remote *remote;
	Py_ssize_t length = PyObject_Size(values[2]);

	if (length < 0)
		return -1;
	call->count = (size_t)length;
	call->transfers = calloc(call->count ? call->count : 1, sizeof(*call->transfers));
	if (!call->transfers) {
		PyErr_NoMemory();
		return -1;
	}
	if (py_get_numbers(values[2], "remote_offsets", call, offsetof(struct pl_transfer, remote_offset)) < 0 ||
	    py_get_numbers(values[3], "offsets", call, offsetof(struct pl_transfer, offset)) < 0 ||
	    py_get_numbers(values[4], "lengths", call, offsetof(struct pl_transfer, length)) < 0 ||
	    py_use_region(context, values[1], call->reads, &region) < 0 ||
	    py_use_remote(context, values[0], &remote) < 0 || py_object_check(&call->peer->base) < 0)
		return -1;
	for (size_t i = 0; i < call->count; i++) {
		call->transfers[i].region = region->handle;
		call->transfers[i].remote = remote->handle;
	}
	py_references_set(references, call->peer, region, remote);
	return 0;
}

static PyObject *py_vector(PyObject *self, enum py_mode mode, bool reads, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "remote",           "region", "remote_offsets", "offsets", "lengths",
					     PY_ATTRIBUTE_NAMES, NULL };
	struct py_vector_call call = { .peer = (struct py_peer *)self, .reads = reads };
	struct py_context *context = call.peer->base.context;
	struct py_references references;
	PyObject *values[5 + PY_ATTRIBUTE_COUNT], *result = NULL;

	if (py_parse(reads ? "readv" : "writev", names, 5, arguments, count, keywords, values) < 0)
		return NULL;
	if (py_get_attributes(context->state, values + 5, &call.attributes) == 0 &&
	    py_vector_fill(context, &call, values, &references) == 0)
		result = py_submit(context, mode, UINT64_MAX, py_post_vector, &call, &references);
	free(call.transfers);
	Py_XDECREF(call.attributes.notify_data);
	return result;
}

/* prepare_writev(), prepare_readv(): (remote, region, remote_offsets, offsets, lengths) */
static PyObject *py_prepare_vector(PyObject *self, bool reads, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "remote", "region", "remote_offsets", "offsets", "lengths", NULL };
	struct py_vector_call call = { .peer = (struct py_peer *)self, .reads = reads };
	struct py_context *context = call.peer->base.context;
	struct py_references references;
	PyObject *values[5], *result = NULL;
	struct pl_vector *handle;
	struct pl_error error;
	int rc;

	if (py_parse(reads ? "prepare_readv" : "prepare_writev", names, 5, arguments, count, keywords, values) < 0)
		return NULL;
	if (py_vector_fill(context, &call, values, &references) == 0) {
		py_references_use(context, &references, 1);
		Py_BEGIN_ALLOW_THREADS
			rc = pl_vector_prepare(call.peer->handle, reads ? PL_KIND_READ : PL_KIND_WRITE, call.transfers,
					       call.count, &handle, &error);
		Py_END_ALLOW_THREADS
		py_references_use(context, &references, -1);
		result = rc ? py_raise(context->state, &error) : py_prepared_new(context, handle, &references);
	}
	free(call.transfers);
	return result;
}

PyObject *py_peer_prepare_writev(PyObject *self, PY_ARGUMENTS)
{
	return py_prepare_vector(self, false, arguments, count, keywords);
}

PyObject *py_peer_prepare_readv(PyObject *self, PY_ARGUMENTS)
{
	return py_prepare_vector(self, true, arguments, count, keywords);
}

PyObject *py_peer_writev(PyObject *self, PY_ARGUMENTS)
{
	return py_vector(self, PY_WAIT, false, arguments, count, keywords);
}

PyObject *py_peer_readv(PyObject *self, PY_ARGUMENTS)
{
	return py_vector(self, PY_WAIT, true, arguments, count, keywords);
}

PyObject *py_peer_writev_start(PyObject *self, PY_ARGUMENTS)
{
	return py_vector(self, PY_START, false, arguments, count, keywords);
}

PyObject *py_peer_readv_start(PyObject *self, PY_ARGUMENTS)
{
	return py_vector(self, PY_START, true, arguments, count, keywords);
}
