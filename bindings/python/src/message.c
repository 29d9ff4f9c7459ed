/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages and notifications. */
#include <errno.h>

#include "extension.h"

struct py_message_call {
	struct py_peer *peer;
	struct pl_buffer buffer;
	Py_buffer copied; /* of a bytes-like object */
	uint64_t tag, mask;
	struct py_attributes attributes;
};

static int py_post_send(void *argument, uint64_t user_data, struct pl_operation **operation, struct pl_error *error)
{
	struct py_message_call *call = argument;

	call->attributes.library.user_data = user_data;
	if (call->buffer.region)
		return pl_send(call->peer->handle, call->tag, &call->buffer, &call->attributes.library, operation,
			       error);
	return pl_send_copy(call->peer->handle, call->tag, call->copied.buf, (size_t)call->copied.len,
			    &call->attributes.library, operation, error);
}

/* Posts a message of a bytes-like object, which the library copies during the call. */
static PyObject *py_send_copy(struct py_message_call *call, enum py_mode mode, PyObject *data,
			      struct py_references *references)
{
	struct py_context *context = call->peer->base.context;
	PyObject *result = NULL;

	if (py_buffer_open(context->state, data, &call->copied, PyBUF_SIMPLE) < 0)
		return NULL;
	if (call->copied.len > PL_SEND_COPY_MAX)
		py_fail(context->state, -EMSGSIZE, "PY-MESSAGE-SIZE", "data",
			"a message without a region has at most 8192 bytes", "register the memory and send the region");
	else if (py_object_check(&call->peer->base) == 0)
		result = py_submit(context, mode, UINT64_MAX, py_post_send, call, references);
	PyBuffer_Release(&call->copied);
	return result;
}

static PyObject *py_send(PyObject *self, enum py_mode mode, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = {
		"data", "tag", "offset", "length", "fence", "timeout", "confidential", NULL
	};
	struct py_message_call call = { .peer = (struct py_peer *)self };
	struct py_context *context = call.peer->base.context;
	struct py_references references = { { self } };
	struct py_region *region;
	PyObject *values[7], *attributes[PY_ATTRIBUTE_COUNT] = { NULL };
	int confidential;

	if (py_parse("send", names, 1, arguments, count, keywords, values) < 0)
		return NULL;
	attributes[2] = values[4];
	attributes[4] = values[5];
	confidential = values[6] ? PyObject_IsTrue(values[6]) : 0;
	if (confidential < 0 || py_get_u64(values[1], names[1], &call.tag) < 0 ||
	    py_get_attributes(context->state, attributes, &call.attributes) < 0)
		return NULL;
	if (confidential)
		call.attributes.library.flags |= PL_CONFIDENTIAL;
	if (Py_TYPE(values[0]) != context->state->region) {
		if (values[2] || values[3])
			return PyErr_Format(PyExc_TypeError, "offset and length belong to a Region");
		return py_send_copy(&call, mode, values[0], &references);
	}
	if (py_use_region(context, values[0], false, &region) < 0 ||
	    py_get_range(values[2], values[3], region, &call.buffer.offset, &call.buffer.length) < 0 ||
	    py_object_check(&region->base) < 0 || py_object_check(&call.peer->base) < 0)
		return NULL;
	call.buffer.region = region->handle;
	py_references_set(&references, self, region, NULL);
	return py_submit(context, mode, UINT64_MAX, py_post_send, &call, &references);
}

PyObject *py_peer_send(PyObject *self, PY_ARGUMENTS)
{
	return py_send(self, PY_WAIT, arguments, count, keywords);
}

PyObject *py_peer_send_start(PyObject *self, PY_ARGUMENTS)
{
	return py_send(self, PY_START, arguments, count, keywords);
}

static int py_post_receive(void *argument, uint64_t user_data, struct pl_operation **operation, struct pl_error *error)
{
	struct py_message_call *call = argument;

	call->attributes.library.user_data = user_data;
	return pl_receive(call->peer->handle, call->tag, call->mask, call->buffer.region ? &call->buffer : NULL,
			  &call->attributes.library, operation, error);
}

static PyObject *py_receive(PyObject *self, enum py_mode mode, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "region", "tag", "mask", "offset", "length", "timeout", NULL };
	struct py_message_call call = { .peer = (struct py_peer *)self, .mask = UINT64_MAX };
	struct py_context *context = call.peer->base.context;
	struct py_references references = { { self } };
	PyObject *values[6], *attributes[PY_ATTRIBUTE_COUNT] = { NULL };
	struct py_region *region = NULL;

	if (py_parse("receive", names, 1, arguments, count, keywords, values) < 0)
		return NULL;
	attributes[4] = values[5];
	if (py_get_u64(values[1], names[1], &call.tag) < 0 || py_get_u64(values[2], names[2], &call.mask) < 0 ||
	    py_get_attributes(context->state, attributes, &call.attributes) < 0)
		return NULL;
	if (values[0] != Py_None) {
		if (py_use_region(context, values[0], true, &region) < 0 ||
		    py_get_range(values[3], values[4], region, &call.buffer.offset, &call.buffer.length) < 0 ||
		    py_object_check(&region->base) < 0)
			return NULL;
		call.buffer.region = region->handle;
	}
	if (py_object_check(&call.peer->base) < 0)
		return NULL;
	py_references_set(&references, self, region, NULL);
	if (context->future)
		return py_submit_future(context, py_post_receive, &call, &references, true);
	return py_submit(context, mode, UINT64_MAX, py_post_receive, &call, &references);
}

PyObject *py_peer_receive(PyObject *self, PY_ARGUMENTS)
{
	return py_receive(self, PY_WAIT, arguments, count, keywords);
}

PyObject *py_peer_receive_start(PyObject *self, PY_ARGUMENTS)
{
	return py_receive(self, PY_START, arguments, count, keywords);
}

struct py_notify_call {
	struct py_peer *peer;
	uint64_t value;
	const void *data;
	size_t length;
	struct py_attributes attributes;
};

static int py_post_notify(void *argument, uint64_t user_data, struct pl_operation **operation, struct pl_error *error)
{
	struct py_notify_call *call = argument;

	call->attributes.library.user_data = user_data;
	return pl_notify(call->peer->handle, call->value, call->data, call->length, &call->attributes.library,
			 operation, error);
}

PyObject *py_peer_notify(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "value", "data", "fence", "timeout", NULL };
	struct py_notify_call call = { .peer = (struct py_peer *)self };
	struct py_context *context = call.peer->base.context;
	struct py_references references = { { self } };
	PyObject *values[4], *data = NULL, *attributes[PY_ATTRIBUTE_COUNT] = { NULL }, *result = NULL;

	if (py_parse("notify", names, 1, arguments, count, keywords, values) < 0)
		return NULL;
	attributes[2] = values[2];
	attributes[4] = values[3];
	if (py_get_u64(values[0], names[0], &call.value) < 0 ||
	    py_get_attributes(context->state, attributes, &call.attributes) < 0)
		return NULL;
	if (values[1]) {
		data = py_get_bytes(values[1], names[1]);
		if (!data)
			return NULL;
		call.length = (size_t)PyBytes_Size(data);
		call.data = call.length ? PyBytes_AsString(data) : NULL;
	}
	if (py_object_check(&call.peer->base) == 0)
		result = py_submit(context, PY_WAIT, UINT64_MAX, py_post_notify, &call, &references);
	Py_XDECREF(data);
	return result;
}
