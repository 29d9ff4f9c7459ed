/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prepared vectors. The library lets go of a vector's peer when the peer closes or reconnects: a vector of an earlier
 * connection is refused.
 */
#include <errno.h>
#include <stdio.h>

#include "extension.h"

PyObject *py_prepared_new(struct py_context *context, struct pl_vector *handle, struct py_references *references)
{
	struct py_prepared *prepared =
		py_object_new(context->future ? context->state->async_prepared : context->state->prepared, context);

	if (!prepared) {
		pl_vector_free(handle);
		return NULL;
	}
	prepared->handle = handle;
	py_references_take(&prepared->references, references);
	prepared->connection = ((struct py_peer *)references->objects[0])->connection;
	return (PyObject *)prepared;
}

/* A context that is closed frees the vectors itself. */
static void py_prepared_end(struct py_prepared *prepared)
{
	struct py_context *context = prepared->base.context;

	if (prepared->base.closed || !prepared->handle || !py_object_quiet(&prepared->base))
		return;
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		pl_vector_free(prepared->handle);
	Py_END_ALLOW_THREADS
	context->users--;
}

static PyObject *py_prepared_release(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	(void)unused;
	py_prepared_end((struct py_prepared *)self);
	Py_RETURN_NONE;
}

static PyObject *py_prepared_exit(PyObject *self, PyObject *arguments)
{
	return py_prepared_release(self, arguments);
}

static void py_prepared_finish(PyObject *self)
{
	struct py_prepared *prepared = (struct py_prepared *)self;

	py_prepared_end(prepared);
	py_references_clear(&prepared->references);
}

static int py_prepared_traverse(PyObject *self, visitproc visit, void *arg)
{
	int rc = py_references_traverse(&((struct py_prepared *)self)->references, visit, arg);

	return rc ? rc : py_object_traverse(self, visit, arg);
}

static void py_prepared_dealloc(PyObject *self)
{
	py_object_dealloc(self, py_prepared_finish);
}

struct py_prepared_call {
	struct py_prepared *prepared;
	uint64_t remote_shift, shift;
	struct py_attributes attributes;
};

/* Compares the connections last: no other thread closes or reconnects the peer meanwhile. */
static int py_post_prepared(void *argument, uint64_t user_data, struct pl_operation **operation, struct pl_error *error)
{
	struct py_prepared_call *call = argument;
	struct py_prepared *prepared = call->prepared;

	call->attributes.library.user_data = user_data;
	if (prepared->connection == ((struct py_peer *)prepared->references.objects[0])->connection)
		return pl_vector_post(prepared->handle, call->remote_shift, call->shift, &call->attributes.library,
				      operation, error);
	*error = (struct pl_error){ .code = -EBADF };
	snprintf(error->id, sizeof(error->id), "PY-CLOSED");
	snprintf(error->object, sizeof(error->object), "Vector");
	snprintf(error->message, sizeof(error->message), "the vector was prepared for a connection that is gone");
	snprintf(error->hint, sizeof(error->hint), "prepare the vector again after reconnect()");
	return error->code;
}

static PyObject *py_prepared_submit(PyObject *self, enum py_mode mode, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "remote_shift", "shift", PY_ATTRIBUTE_NAMES, NULL };
	struct py_prepared_call call = { .prepared = (struct py_prepared *)self };
	struct py_context *context = call.prepared->base.context;
	struct py_object *peer = (struct py_object *)call.prepared->references.objects[0];
	struct py_references references = { { (PyObject *)peer, self } };
	PyObject *values[2 + PY_ATTRIBUTE_COUNT], *result = NULL;

	if (py_parse("post", names, 0, arguments, count, keywords, values) < 0 ||
	    py_get_u64(values[0], names[0], &call.remote_shift) < 0 || py_get_u64(values[1], names[1], &call.shift) < 0)
		return NULL;
	if (py_get_attributes(context->state, values + 2, &call.attributes) == 0 &&
	    py_object_check(&call.prepared->base) == 0 && py_object_check(peer) == 0)
		result = py_submit(context, mode, UINT64_MAX, py_post_prepared, &call, &references);
	Py_XDECREF(call.attributes.notify_data);
	return result;
}

static PyObject *py_prepared_post(PyObject *self, PY_ARGUMENTS)
{
	return py_prepared_submit(self, PY_WAIT, arguments, count, keywords);
}

static PyObject *py_prepared_post_start(PyObject *self, PY_ARGUMENTS)
{
	return py_prepared_submit(self, PY_START, arguments, count, keywords);
}

#define POST_ARGUMENTS \
	"($self, remote_shift=0, shift=0, visible='acknowledged', direct=False, fence=False, notify=None, " \
	"timeout=None, stream=None, more=False)\n--\n\n"
#define PREPARED_METHODS \
	{ "post", PY_METHOD(py_prepared_post), PY_FAST, \
	  "post" POST_ARGUMENTS \
	  "Move all ranges as one operation, with offsets that are larger by the shifts, in bytes." }, \
		{ "release", py_prepared_release, METH_NOARGS, \
		  "release($self)\n--\n\nGive the vector up. Running operations continue." }, \
		{ "__enter__", py_object_enter, METH_NOARGS, NULL }, \
		{ "__reduce__", py_object_reduce, METH_NOARGS, NULL }, \
	{ \
		"__exit__", py_prepared_exit, METH_VARARGS, NULL \
	}

static PyMethodDef py_prepared_methods[] = {
	PREPARED_METHODS,
	{ "post_start", PY_METHOD(py_prepared_post_start), PY_FAST,
	  "post_start" POST_ARGUMENTS "Begin a post(); return its Operation." },
	{ NULL, NULL, 0, NULL },
};

static PyMethodDef py_async_prepared_methods[] = {
	PREPARED_METHODS,
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef py_prepared_fields[] = {
	{ "closed", py_object_closed, NULL, "True if the vector was released, or its context was closed", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

#define PREPARED_TEXT \
	"Ranges of a write or a read that were checked once, to be moved many times: from Peer.prepare_writev() or " \
	"prepare_readv().\n\n" \
	"Regions that it uses cannot be deregistered before release(). Threads may post it at the same time."

PyType_Spec py_prepared_spec = {
	.name = "peerlane.Vector",
	.basicsize = sizeof(struct py_prepared),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_prepared_dealloc },
				  { Py_tp_traverse, py_prepared_traverse },
				  { Py_tp_methods, py_prepared_methods },
				  { Py_tp_getset, py_prepared_fields },
				  { Py_tp_doc, PREPARED_TEXT },
				  { 0, NULL } },
};

PyType_Spec py_async_prepared_spec = {
	.name = "peerlane.aio.Vector",
	.basicsize = sizeof(struct py_prepared),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_prepared_dealloc },
				  { Py_tp_traverse, py_prepared_traverse },
				  { Py_tp_methods, py_async_prepared_methods },
				  { Py_tp_getset, py_prepared_fields },
				  { Py_tp_doc, PREPARED_TEXT " post() returns a future." },
				  { 0, NULL } },
};
