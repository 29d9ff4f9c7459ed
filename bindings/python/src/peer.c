/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers: connections, and the regions that they share. */
#include <errno.h>
#include <stddef.h>

#include "extension.h"

#include <structmember.h>

PyObject *py_peer_new(struct py_context *context, struct pl_peer *handle)
{
	struct py_peer *peer =
		py_object_new(context->future ? context->state->async_peer : context->state->peer, context);

	if (!peer) {
		pl_peer_close(handle);
		return NULL;
	}
	peer->handle = handle;
	if (py_weak_set(&peer->weak, (PyObject *)peer) < 0)
		Py_CLEAR(peer);
	return (PyObject *)peer;
}

/* Returns the object as a peer; NULL if it is none. */
struct py_peer *py_as_peer(struct py_object *object)
{
	PyTypeObject *type = Py_TYPE((PyObject *)object);
	const struct py_state *state = object->context->state;

	return type == state->peer || type == state->async_peer ? (struct py_peer *)object : NULL;
}

/* Returns the object of a handle, borrowed. The handle may be gone, so nothing in it is read; the object may be ending. */
struct py_peer *py_find_peer(struct py_context *context, const struct pl_peer *handle)
{
	for (struct py_object *object = handle ? context->objects : NULL; object; object = object->next) {
		struct py_peer *peer = py_as_peer(object);

		if (peer && peer->handle == handle && !object->closed)
			return peer;
	}
	return NULL;
}

static void py_peer_end(struct py_peer *peer)
{
	struct py_context *context = peer->base.context;

	if (peer->base.closed || !peer->handle || !py_object_quiet(&peer->base))
		return;
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		pl_peer_close(peer->handle);
	Py_END_ALLOW_THREADS
	context->users--;
}

static PyObject *py_peer_close(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	(void)unused;
	py_peer_end((struct py_peer *)self);
	Py_RETURN_NONE;
}

static void py_peer_finish(PyObject *self)
{
	struct py_peer *peer = (struct py_peer *)self;

	PyObject_ClearWeakRefs(self);
	Py_CLEAR(peer->weak);
	py_peer_end(peer);
}

static void py_peer_dealloc(PyObject *self)
{
	py_object_dealloc(self, py_peer_finish);
}

static PyObject *py_peer_exit(PyObject *self, PyObject *arguments)
{
	return py_peer_close(self, arguments);
}

struct py_import_call {
	struct pl_peer *peer;
	const void *token;
	size_t length;
};

static int py_post_import(void *argument, uint64_t user_data, struct pl_operation **operation, struct pl_error *error)
{
	struct py_import_call *call = argument;

	return pl_remote_import_start(call->peer, call->token, call->length, user_data, operation, error);
}

static PyObject *py_peer_import(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "token", "timeout", NULL };
	struct py_peer *peer = (struct py_peer *)self;
	struct py_context *context = peer->base.context;
	struct py_references references = { { self } };
	struct py_import_call call;
	PyObject *values[2], *token, *result = NULL;
	uint64_t timeout;

	if (py_parse("import_", names, 1, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[1], names[1], UINT64_MAX, &timeout) < 0)
		return NULL;
	token = py_get_token(values[0], names[0]);
	if (!token)
		return NULL;
	if (py_object_check(&peer->base) == 0) {
		call.peer = peer->handle;
		call.token = PyBytes_AsString(token);
		call.length = (size_t)PyBytes_Size(token);
		result = py_submit(context, PY_WAIT, timeout, py_post_import, &call, &references);
	}
	Py_DECREF(token);
	return result;
}

/* import_all(blob, timeout=None): blocks also with asyncio, at most for the timeout. */
static PyObject *py_peer_import_all(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "blob", "timeout", NULL };
	struct py_peer *peer = (struct py_peer *)self;
	struct py_context *context = peer->base.context;
	PyObject *values[2], *blob;
	struct pl_remote_set *set;
	struct pl_error error;
	const char *content;
	uint64_t timeout;
	size_t length;
	int rc;

	if (py_parse("import_all", names, 1, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[1], names[1], 0, &timeout) < 0)
		return NULL;
	blob = py_get_token(values[0], names[0]);
	if (!blob || py_object_check(&peer->base) < 0) {
		Py_XDECREF(blob);
		return NULL;
	}
	content = PyBytes_AsString(blob);
	length = (size_t)PyBytes_Size(blob);
	py_hold(&peer->base);
	Py_BEGIN_ALLOW_THREADS
		rc = pl_remote_set_import(peer->handle, content, length, values[1] && !timeout ? 1 : timeout, &set,
					  &error);
	Py_END_ALLOW_THREADS
	py_unhold(&peer->base);
	Py_DECREF(blob);
	return rc ? py_raise(context->state, &error) : py_remote_set_new(context, set, self);
}

/* reconnect(address=None, timeout=None): no other call may use the peer meanwhile. */
static PyObject *py_peer_reconnect(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "address", "timeout", NULL };
	struct py_peer *peer = (struct py_peer *)self;
	struct py_context *context = peer->base.context;
	PyObject *values[2], *owner = NULL;
	const char *address = NULL;
	struct pl_error error;
	uint64_t timeout;
	bool ready;
	int rc = 0;

	if (py_parse("reconnect", names, 0, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[1], names[1], 0, &timeout) < 0)
		return NULL;
	if (values[0] && !(address = py_get_text(values[0], names[0], &owner)))
		return NULL;
	ready = py_object_check(&peer->base) == 0;
	/* Calls of other threads are refused meanwhile, as by a closed peer. */
	if (ready && (ready = py_object_quiet(&peer->base))) {
		struct pl_peer *handle = peer->handle;

		py_hold(&peer->base);
		Py_BEGIN_ALLOW_THREADS
			rc = pl_peer_reconnect(&handle, address, timeout, &error);
		Py_END_ALLOW_THREADS
		py_unhold(&peer->base);
		peer->connection += rc == 0;
		peer->handle = handle;
		peer->base.closed = false;
	}
	Py_XDECREF(owner);
	if (!ready)
		return PyErr_Occurred() ? NULL : (py_context_check(context), NULL);
	if (rc)
		return py_raise(context->state, &error);
	Py_RETURN_NONE;
}

/* prepare(region): makes the first transfers of a region with this peer fast. */
static PyObject *py_peer_prepare(PyObject *self, PyObject *value)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_peer *peer = (struct py_peer *)self;
	struct py_context *context = peer->base.context;
	struct py_region *region;
	struct pl_error error;
	int rc;

	if (py_object_check(&peer->base) < 0 || py_use_region(context, value, false, &region) < 0)
		return NULL;
	py_hold(&peer->base);
	region->base.users++;
	Py_BEGIN_ALLOW_THREADS
		rc = pl_region_prepare(peer->handle, region->handle, &error);
	Py_END_ALLOW_THREADS
	region->base.users--;
	py_unhold(&peer->base);
	if (rc)
		return py_raise(context->state, &error);
	Py_RETURN_NONE;
}

static PyObject *py_peer_connected(PyObject *self, void *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_peer *peer = (struct py_peer *)self;
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	(void)unused;
	if (peer->base.closed || peer->base.context->status != PY_OPEN)
		Py_RETURN_FALSE;
	return PyBool_FromLong(pl_peer_query(peer->handle, &info) == 0 && info.connected);
}

static PyObject *py_peer_repr(PyObject *self)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_peer *peer = (struct py_peer *)self;
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	if (peer->base.closed || peer->base.context->status != PY_OPEN || pl_peer_query(peer->handle, &info))
		return PyUnicode_FromString("<peerlane.Peer, closed>");
	return PyUnicode_FromFormat("<peerlane.Peer %s, %s, %s>", info.address, info.fabric,
				    info.connected ? "connected" : "not connected");
}

#define TRANSFER_ARGUMENTS \
	"($self, remote, region, remote_offset=0, offset=0, length=None, visible='acknowledged', direct=False, " \
	"fence=False, notify=None, timeout=None, stream=None, more=False)\n--\n\n"
#define VECTOR_ARGUMENTS \
	"($self, remote, region, remote_offsets, offsets, lengths, visible='acknowledged', direct=False, " \
	"fence=False, " \
	"notify=None, timeout=None, stream=None, more=False)\n--\n\n"
#define PREPARE_ARGUMENTS "($self, remote, region, remote_offsets, offsets, lengths)\n--\n\n"
#define ATTRIBUTES "fence=False, timeout=None"
#define PEER_METHODS \
	{ "close", py_peer_close, METH_NOARGS, \
	  "close($self)\n--\n\nEnd the connection. Running operations are cancelled." }, \
		{ "__enter__", py_object_enter, METH_NOARGS, NULL }, \
		{ "__reduce__", py_object_reduce, METH_NOARGS, NULL }, \
		{ "__exit__", py_peer_exit, METH_VARARGS, NULL }, \
		{ "import_", PY_METHOD(py_peer_import), PY_FAST, \
		  "import_($self, token, timeout=None)\n--\n\nImport a region by its token; return the remote " \
		  "region." }, \
		{ "import_all", PY_METHOD(py_peer_import_all), PY_FAST, \
		  "import_all($self, blob, timeout=None)\n--\n\n" \
		  "Import all regions of Context.share_all() in one round trip; return a RemoteSet. Blocks." }, \
		{ "reconnect", PY_METHOD(py_peer_reconnect), PY_FAST, \
		  "reconnect($self, address=None, timeout=None)\n--\n\n" \
		  "Connect anew and import all remote regions again, which stay valid. Blocks." }, \
		{ "prepare", py_peer_prepare, METH_O, \
		  "prepare($self, region, /)\n--\n\nPrepare a region of this end for fast first transfers. Blocks." }, \
		{ "streams", PY_METHOD(py_peer_streams), PY_FAST, \
		  "streams($self, timeout=30, token=None)\n--\n\n" \
		  "Return a list of dictionaries of the peer's streams, with that of a token. Blocks." }, \
		{ "subscribe", PY_METHOD(py_peer_subscribe), PY_FAST, \
		  "subscribe($self, name, start='live', position=0, overflow='drop-oldest', queue=4, held=2, " \
		  "every=1, " \
		  "memory_bytes=None, memory='host', in_place=False, timeout=30, push=False, token=None)\n--\n\n" \
		  "Subscribe to a stream; return its Subscriber, which yields frames. Blocks.\n\n" \
		  "start is \"live\", \"latest\", \"history\" (the `position` newest frames) or \"sequence\" (frame " \
		  "`position`).\n" \
		  "overflow is \"drop-oldest\", \"drop-newest\" or \"block\". At most `held` frames may be in use at " \
		  "a " \
		  "time. token is that of Publisher.share(), for a stream that needs one." }, \
		{ "info", py_peer_info, METH_NOARGS, "info($self)\n--\n\nReturn a dictionary of properties." }, \
		{ "identity", py_peer_identity, METH_NOARGS, \
		  "identity($self)\n--\n\nReturn a dictionary with the proofs and rights of the other end." }, \
		{ "events", py_peer_events, METH_NOARGS, "events($self)\n--\n\nReturn the log of the connection." }, \
		{ "write", PY_METHOD(py_peer_write), PY_FAST, \
		  "write" TRANSFER_ARGUMENTS "Write a range of a region to a remote region. One-sided." }, \
		{ "read", PY_METHOD(py_peer_read), PY_FAST, \
		  "read" TRANSFER_ARGUMENTS "Read a range of a remote region into a region. One-sided." }, \
		{ "writev", PY_METHOD(py_peer_writev), PY_FAST, \
		  "writev" VECTOR_ARGUMENTS "Write many ranges as one operation.\n\n" \
		  "Offsets and lengths are arrays of 64-bit integers or lists; `lengths` may be one number for " \
		  "all." }, \
		{ "readv", PY_METHOD(py_peer_readv), PY_FAST, \
		  "readv" VECTOR_ARGUMENTS "Read many ranges as one operation, as writev()." }, \
		{ "prepare_writev", PY_METHOD(py_peer_prepare_writev), PY_FAST, \
		  "prepare_writev" PREPARE_ARGUMENTS \
		  "Check the ranges of a writev() once; return a Vector, which writes them many times." }, \
		{ "prepare_readv", PY_METHOD(py_peer_prepare_readv), PY_FAST, \
		  "prepare_readv" PREPARE_ARGUMENTS \
		  "Check the ranges of a readv() once; return a Vector, which reads them many times." }, \
		{ "fetch_add", PY_METHOD(py_peer_fetch_add), PY_FAST, \
		  "fetch_add($self, remote, remote_offset, add, " ATTRIBUTES ")\n--\n\n" \
		  "Add to a 64-bit word, atomically. The receipt has the old value." }, \
		{ "compare_swap", PY_METHOD(py_peer_compare_swap), PY_FAST, \
		  "compare_swap($self, remote, remote_offset, compare, swap, " ATTRIBUTES ")\n--\n\n" \
		  "Replace a 64-bit word if it equals `compare`. The receipt has the old value." }, \
		{ "send", PY_METHOD(py_peer_send), PY_FAST, \
		  "send($self, data, tag=0, offset=0, length=None, " ATTRIBUTES ", confidential=False)\n--\n\n" \
		  "Send a message: a range of a region, or a bytes-like object of at most 8192 bytes, which is " \
		  "copied." }, \
		{ "receive", PY_METHOD(py_peer_receive), PY_FAST, \
		  "receive($self, region, tag=0, mask=0xffffffffffffffff, offset=0, length=None, " \
		  "timeout=None)\n--\n\n" \
		  "Receive a message with (its tag & mask) == (tag & mask). The receipt has its length and tag." }, \
	{ \
		"notify", PY_METHOD(py_peer_notify), PY_FAST, \
			"notify($self, value, data=None, " ATTRIBUTES ")\n--\n\n" \
			"Send a number and up to 1024 bytes, which arrive in the other end's notifications()." \
	}

static PyMethodDef py_peer_methods[] = {
	PEER_METHODS,
	{ "write_start", PY_METHOD(py_peer_write_start), PY_FAST,
	  "write_start" TRANSFER_ARGUMENTS "Begin a write; return its Operation." },
	{ "read_start", PY_METHOD(py_peer_read_start), PY_FAST,
	  "read_start" TRANSFER_ARGUMENTS "Begin a read; return its Operation." },
	{ "writev_start", PY_METHOD(py_peer_writev_start), PY_FAST,
	  "writev_start" VECTOR_ARGUMENTS "Begin a writev(); return its Operation." },
	{ "readv_start", PY_METHOD(py_peer_readv_start), PY_FAST,
	  "readv_start" VECTOR_ARGUMENTS "Begin a readv(); return its Operation." },
	{ "send_start", PY_METHOD(py_peer_send_start), PY_FAST,
	  "send_start($self, data, tag=0, offset=0, length=None, " ATTRIBUTES ", confidential=False)\n--\n\n"
	  "Begin to send a message; return its Operation." },
	{ "receive_start", PY_METHOD(py_peer_receive_start), PY_FAST,
	  "receive_start($self, region, tag=0, mask=0xffffffffffffffff, offset=0, length=None, timeout=None)\n--\n\n"
	  "Post a buffer for a message; return its Operation." },
	{ NULL, NULL, 0, NULL },
};

static PyMethodDef py_async_peer_methods[] = {
	PEER_METHODS,
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef py_peer_fields[] = {
	{ "connected", py_peer_connected, NULL, "False once the connection is lost or closed", NULL },
	{ "closed", py_object_closed, NULL, "True if this end has closed the peer", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

static PyMemberDef py_peer_members[] = {
	{ "__weaklistoffset__", T_PYSSIZET, offsetof(struct py_peer, references), READONLY, NULL },
	{ NULL, 0, 0, 0, NULL },
};

PyType_Spec py_peer_spec = {
	.name = "peerlane.Peer",
	.basicsize = sizeof(struct py_peer),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_peer_dealloc },
				  { Py_tp_traverse, py_object_traverse },
				  { Py_tp_repr, py_peer_repr },
				  { Py_tp_methods, py_peer_methods },
				  { Py_tp_getset, py_peer_fields },
				  { Py_tp_members, py_peer_members },
				  { Py_tp_doc,
				    "Other end of a connection, from Context.connect() or Listener.accept()." },
				  { 0, NULL } },
};

PyType_Spec py_async_peer_spec = {
	.name = "peerlane.aio.Peer",
	.basicsize = sizeof(struct py_peer),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_peer_dealloc },
				  { Py_tp_traverse, py_object_traverse },
				  { Py_tp_repr, py_peer_repr },
				  { Py_tp_methods, py_async_peer_methods },
				  { Py_tp_getset, py_peer_fields },
				  { Py_tp_members, py_peer_members },
				  { Py_tp_doc, "Other end of a connection. Methods that move data return futures." },
				  { 0, NULL } },
};
