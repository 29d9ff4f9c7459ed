/* SPDX-License-Identifier: BSD-2-Clause */
/* Receipts: completions of successful operations. */
#include "extension.h"

struct py_receipt {
	PyObject_HEAD struct pl_completion completion;
};

PyObject *py_receipt_new(struct py_state *state, const struct pl_completion *completion)
{
	struct py_receipt *receipt = PyObject_New(struct py_receipt, state->receipt);

	if (receipt) {
		receipt->completion = *completion;
		receipt->completion.peer = NULL;
		receipt->completion.remote = NULL;
	}
	return (PyObject *)receipt;
}

static void py_receipt_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	PyObject_Free(self);
	Py_DECREF(type);
}

PyObject *py_result(struct py_context *context, const struct pl_completion *completion,
		    struct py_references *references, const struct pl_error *error)
{
	if (error)
		return py_raise(context->state, error);
	switch (completion->kind) {
	case PL_KIND_CONNECT:
	case PL_KIND_ACCEPT:
		if (!completion->peer)
			return py_fail(context->state, -108, "PY-CLOSED", "peer", "the peer was closed meanwhile", "");
		return py_peer_new(context, completion->peer);
	case PL_KIND_IMPORT:
		return py_remote_new(context, completion->remote, references->objects[0], false);
	default:
		return py_receipt_new(context->state, completion);
	}
}

static PyObject *py_text_or_none(const char *text)
{
	if (!text)
		Py_RETURN_NONE;
	return PyUnicode_FromString(text);
}

enum py_receipt_field {
	PY_BYTES,
	PY_BYTES_DIRECT,
	PY_BYTES_STAGED,
	PY_TAG,
	PY_VALUE,
	PY_SECONDS,
	PY_RAIL,
	PY_LANES,
	PY_FABRIC,
	PY_ROUTE,
	PY_REASON,
	PY_VISIBLE,
	PY_VISIBILITY,
};

const char *py_route_name(unsigned route)
{
	static const char *const names[] = { "none", "direct", "staged" };

	return names[route < 3 ? route : 0];
}

static PyObject *py_receipt_get(PyObject *self, void *field)
{
	static const char *const levels[] = { "default", "on-wire", "acknowledged", "placed", "gpu-visible" };
	const struct pl_completion *completion = &((struct py_receipt *)self)->completion;

	switch ((enum py_receipt_field)(uintptr_t)field) {
	case PY_BYTES:
		return PyLong_FromUnsignedLongLong(completion->bytes);
	case PY_BYTES_DIRECT:
		return PyLong_FromUnsignedLongLong(completion->bytes - completion->bytes_staged);
	case PY_BYTES_STAGED:
		return PyLong_FromUnsignedLongLong(completion->bytes_staged);
	case PY_TAG:
		return PyLong_FromUnsignedLongLong(completion->tag);
	case PY_VALUE:
		return PyLong_FromUnsignedLongLong(completion->value);
	case PY_SECONDS:
		return PyFloat_FromDouble((double)(completion->completed - completion->posted) / 1e9);
	case PY_RAIL:
		return PyLong_FromUnsignedLong(completion->rail);
	case PY_LANES:
		return PyLong_FromUnsignedLong(completion->lanes);
	case PY_FABRIC:
		return py_text_or_none(completion->fabric);
	case PY_ROUTE:
		return py_text_or_none(py_route_name(completion->route));
	case PY_REASON:
		return py_text_or_none(completion->reason);
	case PY_VISIBLE:
		return py_text_or_none(levels[completion->visible < 5 ? completion->visible : 0]);
	case PY_VISIBILITY:
		return py_text_or_none(completion->visibility);
	}
	return NULL;
}

static PyObject *py_receipt_repr(PyObject *self)
{
	const struct pl_completion *completion = &((struct py_receipt *)self)->completion;

	return PyUnicode_FromFormat("<peerlane.Receipt %llu bytes, %s, %s>", (unsigned long long)completion->bytes,
				    completion->fabric ? completion->fabric : "no fabric",
				    py_route_name(completion->route));
}

#define FIELD(name, value, text) \
	{ \
		name, py_receipt_get, NULL, text, (void *)(uintptr_t)(value) \
	}
static PyGetSetDef py_receipt_fields[] = {
	FIELD("bytes", PY_BYTES, "payload bytes that moved"),
	FIELD("bytes_direct", PY_BYTES_DIRECT, "of these, bytes that were not staged"),
	FIELD("bytes_staged", PY_BYTES_STAGED, "of these, bytes that were staged at either end"),
	FIELD("tag", PY_TAG, "tag of a received message"),
	FIELD("value", PY_VALUE, "old value of an atomic operation"),
	FIELD("seconds", PY_SECONDS, "time from the call to the completion"),
	FIELD("rail", PY_RAIL, "card or socket that carried most of the bytes"),
	FIELD("lanes", PY_LANES, "number of cards or sockets that carried bytes"),
	FIELD("fabric", PY_FABRIC, "\"local\", \"verbs\" or \"tcp\""),
	FIELD("route", PY_ROUTE, "\"direct\", \"staged\" or \"none\""),
	FIELD("reason", PY_REASON, "reason for the route"),
	FIELD("visible", PY_VISIBLE, "level of visibility of the bytes"),
	FIELD("visibility", PY_VISIBILITY, "mechanism that made the bytes visible; None if no bytes moved"),
	{ NULL, NULL, NULL, NULL, NULL },
};

PyType_Spec py_receipt_spec = {
	.name = "peerlane.Receipt",
	.basicsize = sizeof(struct py_receipt),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_receipt_dealloc },
				  { Py_tp_getset, py_receipt_fields },
				  { Py_tp_repr, py_receipt_repr },
				  { Py_tp_doc,
				    "Receipt of an operation: the bytes, their route and its reason, and times." },
				  { 0, NULL } },
};
