/* SPDX-License-Identifier: BSD-2-Clause */
/* Listeners, and connections to them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "extension.h"

PyObject *py_listener_new(struct py_context *context, struct pl_listener *handle)
{
	PyTypeObject *type = context->future ? context->state->async_listener : context->state->listener;
	struct py_listener *listener = py_object_new(type, context);

	if (listener)
		listener->handle = handle;
	else
		pl_listener_close(handle);
	return (PyObject *)listener;
}

PyObject *py_context_listen(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD(self);
	static const char *const names[] = { "address", NULL };
	struct py_context *context = (struct py_context *)self;
	const char *address = "127.0.0.1:0";
	PyObject *values[1], *owner = NULL;
	struct pl_listener *handle;
	struct pl_error error;
	int rc;

	if (py_parse("listen", names, 0, arguments, count, keywords, values) < 0)
		return NULL;
	if (values[0] && !(address = py_get_text(values[0], names[0], &owner)))
		return NULL;
	if (py_context_check(context) < 0) {
		Py_XDECREF(owner);
		return NULL;
	}
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		rc = pl_listen(context->handle, address, &handle, &error);
	Py_END_ALLOW_THREADS
	context->users--;
	Py_XDECREF(owner);
	return rc ? py_raise(context->state, &error) : py_listener_new(context, handle);
}

struct py_connect_call {
	struct pl_context *context;
	const char *address;
	uint64_t timeout;
};

static int py_post_connect(void *argument, uint64_t user_data, struct pl_operation **operation, struct pl_error *error)
{
	struct py_connect_call *call = argument;

	return pl_connect_start(call->context, call->address, call->timeout, user_data, operation, error);
}

/* Returns an address with a port: that of the commands if it has none. `owner` keeps the text. */
static const char *py_get_address(PyObject *value, PyObject **owner)
{
	const char *text = py_get_text(value, "address", owner), *host_end = text ? strrchr(text, ']') : NULL;
	PyObject *full;

	if (!text || !*text || strchr(host_end ? host_end : text, ':'))
		return text;
	full = PyBytes_FromFormat("%s:19875", text);
	Py_DECREF(*owner);
	*owner = full;
	return full ? PyBytes_AsString(full) : NULL;
}

PyObject *py_context_connect(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD(self);
	static const char *const names[] = { "address", "timeout", NULL };
	struct py_context *context = (struct py_context *)self;
	struct py_references references = { { NULL } };
	struct py_connect_call call;
	PyObject *values[2], *owner, *result;

	if (py_parse("connect", names, 1, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[1], names[1], 0, &call.timeout) < 0)
		return NULL;
	call.address = py_get_address(values[0], &owner);
	if (!call.address)
		return NULL;
	/* The library takes 0 for the default. */
	if (values[1] && call.timeout == 0)
		call.timeout = 1;
	result = NULL;
	if (py_context_check(context) == 0) {
		call.context = context->handle;
		result = py_submit(context, PY_WAIT, UINT64_MAX, py_post_connect, &call, &references);
	}
	Py_DECREF(owner);
	return result;
}

/* Waits in slices for the next peer. */
static PyObject *py_listener_accept(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "timeout", NULL };
	struct py_listener *listener = (struct py_listener *)self;
	struct py_context *context = listener->base.context;
	PyObject *values[1];
	struct pl_peer *peer;
	struct pl_error error;
	uint64_t left, given;
	int rc;

	if (py_parse("accept", names, 0, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[0], names[0], UINT64_MAX, &left) < 0)
		return NULL;
	given = left;
	for (;;) {
		uint64_t slice = left < PY_SLICE_NS ? left : PY_SLICE_NS;

		if (py_object_check(&listener->base) < 0)
			return NULL;
		py_hold(&listener->base);
		Py_BEGIN_ALLOW_THREADS
			rc = pl_accept(listener->handle, slice, &peer, &error);
		Py_END_ALLOW_THREADS
		py_unhold(&listener->base);
		if (rc == 0)
			return py_peer_new(context, peer);
		left -= left == UINT64_MAX ? 0 : slice;
		if (rc == -ETIMEDOUT && left == 0)
			/* The library knows the last slice only. */
			snprintf(error.message, sizeof(error.message), "no peer has connected within %.3f s",
				 (double)given / 1e9);
		if (rc != -ETIMEDOUT || left == 0)
			return py_raise(context->state, &error);
		if (PyErr_CheckSignals() < 0)
			return NULL;
	}
}

static int py_post_accept(void *argument, uint64_t user_data, struct pl_operation **operation, struct pl_error *error)
{
	return pl_accept_start(argument, user_data, operation, error);
}

/* accept() of asyncio: returns a future. */
static PyObject *py_listener_accept_start(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_listener *listener = (struct py_listener *)self;
	struct py_references references = { { self } };

	(void)unused;
	if (py_object_check(&listener->base) < 0)
		return NULL;
	return py_submit_future(listener->base.context, py_post_accept, listener->handle, &references, true);
}

static void py_listener_end(struct py_listener *listener)
{
	struct py_context *context = listener->base.context;

	if (listener->base.closed || !listener->handle || !py_object_quiet(&listener->base))
		return;
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		pl_listener_close(listener->handle);
	Py_END_ALLOW_THREADS
	context->users--;
}

static PyObject *py_listener_close(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	(void)unused;
	py_listener_end((struct py_listener *)self);
	Py_RETURN_NONE;
}

static void py_listener_finish(PyObject *self)
{
	py_listener_end((struct py_listener *)self);
}

static void py_listener_dealloc(PyObject *self)
{
	py_object_dealloc(self, py_listener_finish);
}

static PyObject *py_listener_exit(PyObject *self, PyObject *arguments)
{
	return py_listener_close(self, arguments);
}

static PyObject *py_listener_address(PyObject *self, void *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_listener *listener = (struct py_listener *)self;
	char address[80];

	(void)unused;
	if (py_object_check(&listener->base) < 0)
		return NULL;
	pl_listener_address(listener->handle, address, sizeof(address));
	return PyUnicode_FromString(address);
}

static PyObject *py_listener_repr(PyObject *self)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_listener *listener = (struct py_listener *)self;
	char address[80];

	if (listener->base.closed || listener->base.context->status != PY_OPEN)
		return PyUnicode_FromString("<peerlane.Listener, closed>");
	pl_listener_address(listener->handle, address, sizeof(address));
	return PyUnicode_FromFormat("<peerlane.Listener %s>", address);
}

#define LISTENER_METHODS \
	{ "close", py_listener_close, METH_NOARGS, \
	  "close($self)\n--\n\nStop listening. Accepted peers stay connected." }, \
		{ "__enter__", py_object_enter, METH_NOARGS, NULL }, \
		{ "__reduce__", py_object_reduce, METH_NOARGS, NULL }, \
	{ \
		"__exit__", py_listener_exit, METH_VARARGS, NULL \
	}

static PyMethodDef py_listener_methods[] = {
	{ "accept", PY_METHOD(py_listener_accept), PY_FAST,
	  "accept($self, timeout=None)\n--\n\nWait for the next authenticated peer." },
	LISTENER_METHODS,
	{ NULL, NULL, 0, NULL },
};

static PyMethodDef py_async_listener_methods[] = {
	{ "accept", py_listener_accept_start, METH_NOARGS,
	  "accept($self)\n--\n\nReturn a future of the next authenticated peer." },
	LISTENER_METHODS,
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef py_listener_fields[] = {
	{ "address", py_listener_address, NULL, "bound address, \"127.0.0.1:45123\"", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

PyType_Spec py_listener_spec = {
	.name = "peerlane.Listener",
	.basicsize = sizeof(struct py_listener),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_listener_dealloc },
				  { Py_tp_traverse, py_object_traverse },
				  { Py_tp_repr, py_listener_repr },
				  { Py_tp_methods, py_listener_methods },
				  { Py_tp_getset, py_listener_fields },
				  { Py_tp_doc, "Address on which peers are accepted, from Context.listen()." },
				  { 0, NULL } },
};

PyType_Spec py_async_listener_spec = {
	.name = "peerlane.aio.Listener",
	.basicsize = sizeof(struct py_listener),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_listener_dealloc },
				  { Py_tp_traverse, py_object_traverse },
				  { Py_tp_repr, py_listener_repr },
				  { Py_tp_methods, py_async_listener_methods },
				  { Py_tp_getset, py_listener_fields },
				  { Py_tp_doc,
				    "Address on which peers are accepted, from peerlane.aio.Context.listen()." },
				  { 0, NULL } },
};
