/* SPDX-License-Identifier: BSD-2-Clause */
/* Contexts. peerlane.Context and peerlane.aio.Context derive from this type. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "extension.h"

static int py_context_init(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_error error;
	struct py_state *state = context->state;
	PyObject *owners;
	int rc = -1;

	if (PyTuple_Size(arguments) > 0) {
		PyErr_SetString(PyExc_TypeError, "options of a context need their names");
		return -1;
	}
	if (context->status != PY_UNOPENED) {
		PyErr_SetString(PyExc_RuntimeError, "the context has been opened already");
		return -1;
	}
	owners = PyList_New(0);
	if (!owners || py_weak_set(&context->weak, self) < 0) {
		Py_XDECREF(owners);
		return -1;
	}
	if (py_options_parse(context, keywords, &options, owners) == 0) {
		context->status = PY_CLOSING;
		Py_BEGIN_ALLOW_THREADS
			rc = pl_open(&context->handle, &options, &error);
		Py_END_ALLOW_THREADS
		context->status = rc ? PY_UNOPENED : PY_OPEN;
		if (rc)
			py_raise(state, &error);
	}
	Py_DECREF(owners);
	if (rc)
		return -1;
	PY_LOCK(&state->lock);
	context->next = state->contexts;
	context->link = &state->contexts;
	if (context->next)
		context->next->link = &context->next;
	state->contexts = context;
	PY_UNLOCK(&state->lock);
	return 0;
}

static PyObject *py_context_create(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	PyObject *module = PyImport_ImportModule("peerlane._peerlane");
	struct py_context *context;

	(void)arguments;
	(void)keywords;
	if (!module)
		return NULL;
	context = (struct py_context *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (context) {
		context->state = PyModule_GetState(module);
		context->record_free = UINT32_MAX;
		context->kept = PyList_New(0);
		if (!context->kept)
			Py_CLEAR(context);
	}
	Py_DECREF(module);
	return (PyObject *)context;
}

static void py_context_unlink(struct py_context *context)
{
	PY_LOCK(&context->state->lock);
	if (context->link) {
		*context->link = context->next;
		if (context->next)
			context->next->link = context->link;
		context->link = NULL;
	}
	PY_UNLOCK(&context->state->lock);
}

/* Ends all objects of a context that is closed. Objects may go when references are given up. */
static void py_context_forget_objects(struct py_context *context)
{
	struct py_state *state = context->state;

	while (context->objects) {
		struct py_object *object = context->objects;
		struct py_references references = { { NULL } };
		PyTypeObject *type = Py_TYPE((PyObject *)object);

		py_object_unlink(object);
		object->closed = true;
		if (type == state->region)
			py_region_forget((struct py_region *)object, &references);
		else if (type == state->operation)
			py_operation_forget((struct py_operation *)object, &references);
		/* The object may be gone afterwards. */
		py_references_clear(&references);
	}
	for (size_t i = 0; i < context->orphan_count; i++)
		py_references_clear(&context->orphans[i].references);
	context->orphan_count = 0;
	Py_CLEAR(context->kept);
}

static void py_context_shut(struct py_context *context)
{
	struct pl_context *handle = context->handle;

	context->status = PY_CLOSING;
	while (context->users)
		py_sleep_slice();
	py_batches_drop(context);
	Py_BEGIN_ALLOW_THREADS
		pl_close(handle);
	Py_END_ALLOW_THREADS
	/* A fork during the close copies a context that the child must not use. */
	context->handle = NULL;
	context->status = PY_CLOSED;
	py_context_unlink(context);
	py_context_forget_objects(context);
	py_records_end(context);
	/* Callbacks may refer to the context. */
	Py_CLEAR(context->authorize);
	Py_CLEAR(context->refused);
	Py_CLEAR(context->sink);
}

static PyObject *py_context_close(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;

	(void)unused;
	if (context->status == PY_CLOSING)
		py_context_await_end(context);
	if (context->status == PY_FORKED)
		Py_RETURN_NONE;
	if (context->status == PY_UNOPENED)
		context->status = PY_CLOSED;
	if (context->status == PY_CLOSED)
		Py_RETURN_NONE;
	if (context->exports)
		return py_fail(context->state, -EBUSY, "PY-EXPORTED", "context",
			       "memoryviews or tensors of its regions exist",
			       "release them before the context is closed");
	py_context_shut(context);
	Py_RETURN_NONE;
}

static void py_context_count_going(struct py_state *state, int change)
{
	PY_LOCK(&state->lock);
	state->going += (unsigned)change;
	PY_UNLOCK(&state->lock);
}

/* The close lets other threads run. None may find the context meanwhile, but the end of the interpreter waits for it. */
static void py_context_shut_alone(struct py_context *context)
{
	py_context_unlink(context);
	if (context->status == PY_OPEN) {
		py_context_count_going(context->state, 1);
		py_context_shut(context);
		py_context_count_going(context->state, -1);
	}
}

/* Leaves the records out: pending futures keep the context. */
static int py_context_traverse(PyObject *self, visitproc visit, void *arg)
{
	struct py_context *context = (struct py_context *)self;
	int rc = 0;

	Py_VISIT((PyObject *)Py_TYPE(self));
	Py_VISIT(context->weak);
	Py_VISIT(context->kept);
	Py_VISIT(context->sink);
	Py_VISIT(context->future);
	Py_VISIT(context->future_options);
	Py_VISIT(context->running_loop);
	Py_VISIT(context->run);
	Py_VISIT(context->authorize);
	Py_VISIT(context->refused);
	for (size_t i = 0; i < context->orphan_count && !rc; i++)
		rc = py_references_traverse(&context->orphans[i].references, visit, arg);
	return rc;
}

/*
 * Breaks cycles through the functions of the program. A view in the same cycle needs the context: the view ends in this
 * collection, and the context in the next one.
 */
static int py_context_break(PyObject *self)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;

	if (context->status == PY_OPEN && context->exports)
		return 0;
	py_context_shut_alone(context);
	Py_CLEAR(context->sink);
	Py_CLEAR(context->authorize);
	Py_CLEAR(context->refused);
	return 0;
}

static void py_context_dealloc(PyObject *self)
{
	struct py_context *context = (struct py_context *)self;
	PyTypeObject *type = Py_TYPE(self);

	PyObject_GC_UnTrack(self);
	py_context_shut_alone(context);
	Py_XDECREF(context->weak);
	Py_XDECREF(context->kept);
	Py_XDECREF(context->sink);
	Py_XDECREF(context->future);
	Py_XDECREF(context->future_options);
	Py_XDECREF(context->running_loop);
	Py_XDECREF(context->run);
	Py_XDECREF(context->authorize);
	Py_XDECREF(context->refused);
	free(context->records);
	free(context->chains);
	free(context->asked);
	free(context->orphans);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyObject *py_context_enter(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	(void)unused;
	if (py_context_check((struct py_context *)self) < 0)
		return NULL;
	Py_INCREF(self);
	return self;
}

/* _close_late(): closes the context when no views of its memory exist any more. */
static PyObject *py_context_close_late(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;

	(void)unused;
	context->closes_late = true;
	if (!context->exports)
		return PyObject_CallMethod(self, "_end_late", NULL);
	Py_RETURN_NONE;
}

static PyObject *py_context_exit(PyObject *self, PyObject *arguments)
{
	PY_GUARD(self);

	/* The cause of the exception counts. Its traceback may hold the views: the last of them closes the context. */
	if (((struct py_context *)self)->exports && py_exit_failed(arguments))
		return py_context_close_late(self, NULL);
	return PyObject_CallMethod(self, "close", NULL);
}

/* _bind(sink, future=None, options=None): sets the receiver of events, and the class of futures with its arguments. */
static PyObject *py_context_bind(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD(self);
	static const char *const names[] = { "sink", "future", "options", NULL };
	struct py_context *context = (struct py_context *)self;
	PyObject *values[3];

	if (py_parse("_bind", names, 1, arguments, count, keywords, values) < 0)
		return NULL;
	if (values[1] && !context->running_loop) {
		PyObject *events = PyImport_ImportModule("asyncio.events");

		context->running_loop = events ? PyObject_GetAttrString(events, "_get_running_loop") : NULL;
		Py_XDECREF(events);
		if (!context->running_loop)
			return NULL;
	}
	Py_INCREF(values[0]);
	Py_XINCREF(values[1]);
	Py_XINCREF(values[2]);
	Py_XDECREF(context->sink);
	Py_XDECREF(context->future);
	Py_XDECREF(context->future_options);
	context->sink = values[0];
	context->future = values[1];
	context->future_options = values[2];
	context->loop = values[2] ? PyDict_GetItemString(values[2], "loop") : NULL;
	context->thread = PyThread_get_thread_ident();
	Py_RETURN_NONE;
}

static PyObject *py_context_fd(PyObject *self, PyObject *unused)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;
	int fd;

	(void)unused;
	if (py_context_check(context) < 0)
		return NULL;
	fd = pl_fd(context->handle);
	return fd < 0 ? py_raise_code(context->state, fd, "fileno", "context") : PyLong_FromLong(fd);
}

static PyObject *py_context_closed(PyObject *self, void *unused)
{
	PY_GUARD(self);
	(void)unused;
	return PyBool_FromLong(((struct py_context *)self)->status != PY_OPEN);
}

/* True if the last view closes the context. */
static PyObject *py_context_closes_late(PyObject *self, void *unused)
{
	PY_GUARD(self);
	struct py_context *context = (struct py_context *)self;

	(void)unused;
	return PyBool_FromLong(context->closes_late && context->exports);
}

static PyObject *py_context_pending(PyObject *self, void *unused)
{
	PY_GUARD(self);
	(void)unused;
	return PyLong_FromUnsignedLong(((struct py_context *)self)->record_used);
}

/* reload(key=None, old_key=None): reads the files of identities again, and replaces the keys. */
static PyObject *py_context_reload(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD(self);
	static const char *const names[] = { "key", "old_key", NULL };
	struct py_context *context = (struct py_context *)self;
	struct pl_credentials credentials = PL_CREDENTIALS_INIT;
	PyObject *values[2], *bytes[2] = { NULL, NULL };
	struct pl_error error;
	bool ready = true;
	int rc;

	if (py_parse("reload", names, 0, arguments, count, keywords, values) < 0 || py_context_check(context) < 0)
		return NULL;
	for (int i = 0; i < 2; i++) {
		bytes[i] = values[i] ? py_get_bytes(values[i], names[i]) : NULL;
		ready = ready && (bytes[i] || !values[i]);
	}
	if (ready) {
		credentials.key = bytes[0] ? PyBytes_AsString(bytes[0]) : NULL;
		credentials.key_length = bytes[0] ? (size_t)PyBytes_Size(bytes[0]) : 0;
		credentials.old_key = bytes[1] ? PyBytes_AsString(bytes[1]) : NULL;
		credentials.old_key_length = bytes[1] ? (size_t)PyBytes_Size(bytes[1]) : 0;
		context->users++;
		Py_BEGIN_ALLOW_THREADS
			rc = pl_context_reload(context->handle, values[0] || values[1] ? &credentials : NULL, &error);
		Py_END_ALLOW_THREADS
		context->users--;
		if (rc) {
			py_raise(context->state, &error);
			ready = false;
		}
	}
	Py_XDECREF(bytes[0]);
	Py_XDECREF(bytes[1]);
	if (!ready)
		return NULL;
	Py_RETURN_NONE;
}

static PyMethodDef py_context_methods[] = {
	{ "close", py_context_close, METH_NOARGS,
	  "close($self)\n--\n\n"
	  "Close the context and all its objects. Running operations are cancelled.\n\n"
	  "Afterwards no memory is in use. Raises PY-EXPORTED while memoryviews or tensors of regions exist." },
	{ "__enter__", py_context_enter, METH_NOARGS, NULL },
	{ "__exit__", py_context_exit, METH_VARARGS, NULL },
	{ "fileno", py_context_fd, METH_NOARGS,
	  "fileno($self)\n--\n\nReturn a descriptor that polls readable while there is work. Do not close it." },
	{ "allocate", PY_METHOD(py_context_allocate), PY_FAST,
	  "allocate($self, length, kind='host', access='')\n--\n\n"
	  "Allocate zeroed memory, \"host\", \"cuda\" or \"cuda:N\", and return its region.\n\n"
	  "memoryview(region) is the memory of a host region; torch.from_dlpack(region) is a tensor of any." },
	{ "share_all", PY_METHOD(py_context_share_all), PY_FAST,
	  "share_all($self, regions, rights=None, lifetime=None)\n--\n\n"
	  "Share many regions; return a Blob, which a peer imports in one round trip." },
	{ "revoke_all", py_context_revoke_all, METH_O,
	  "revoke_all($self, blob, /)\n--\n\nRevoke all tokens of a blob of share_all()." },
	{ "listen", PY_METHOD(py_context_listen), PY_FAST,
	  "listen($self, address='127.0.0.1:0')\n--\n\n"
	  "Listen for peers at \"host:port\", \"[v6]:port\" or \":port\"; port 0 picks a free one." },
	{ "connect", PY_METHOD(py_context_connect), PY_FAST,
	  "connect($self, address, timeout=None)\n--\n\nConnect to a listener of another context; return the peer.\n\n"
	  "An address without a port means port 19875, which the commands use." },
	{ "publish", PY_METHOD(py_context_publish), PY_FAST,
	  "publish($self, name, layout=None, slot_bytes=None, slots=16, loans=1, subscribers=256, metadata_bytes=0, "
	  "content_type=None, allow_block=False, patience=1.0, first=0, memory='host', "
	  "needs_token=False)\n--\n\n"
	  "Open a stream of frames, to which all peers can subscribe, or with needs_token those that have a token of "
	  "share(); return its Publisher.\n\n"
	  "layout is the peerlane.Layout of frames without one of their own. slot_bytes is the most bytes of a frame, "
	  "that "
	  "of the layout unless given. memory is \"host\", \"cuda\" or \"cuda:N\"." },
	{ "reload", PY_METHOD(py_context_reload), PY_FAST,
	  "reload($self, key=None, old_key=None)\n--\n\n"
	  "Read the files of identities again, and replace the keys if given." },
	{ "staging", py_context_staging, METH_NOARGS,
	  "staging($self)\n--\n\nReturn a dictionary about host memory that is locked for staging." },
	{ "registrations", py_context_registrations, METH_NOARGS,
	  "registrations($self)\n--\n\nReturn a dictionary about registrations of RDMA cards." },
	{ "traffic", py_context_traffic, METH_NOARGS,
	  "traffic($self)\n--\n\n"
	  "Return the operations that have ended, as traffic[kind][fabric]: done, failed, bytes, staged, seconds and "
	  "times,\n"
	  "a histogram whose bucket i ends at 64 * 2**i nanoseconds.  Fabrics without operations are left out." },
	{ "queues", py_context_queues, METH_NOARGS,
	  "queues($self)\n--\n\n"
	  "Return the queues of each fabric: peers, running and fenced operations, receives without a message, and "
	  "unexpected messages without a receive." },
	{ "error_counts", py_context_error_counts, METH_NOARGS,
	  "error_counts($self)\n--\n\nReturn the number of failed operations by id of their error." },
	{ "state", py_context_state, METH_NOARGS,
	  "state($self)\n--\n\nReturn a dictionary about the context now: peers, regions, running operations." },
	{ "_close_late", py_context_close_late, METH_NOARGS, NULL },
	{ "_bind", PY_METHOD(py_context_bind), PY_FAST, NULL },
	{ "_register_buffer", PY_METHOD(py_context_register_buffer), PY_FAST, NULL },
	{ "_register_address", PY_METHOD(py_context_register_address), PY_FAST, NULL },
	{ "_check_loop", py_context_check_loop, METH_NOARGS, NULL },
	{ "_take_lost", py_context_take_lost, METH_NOARGS, NULL },
	{ "_poll", py_context_poll, METH_NOARGS, NULL },
	{ "_hold", py_context_hold, METH_O, NULL },
	{ "_wait_event", py_context_wait_event, METH_O, NULL },
	{ "_cancel_asked", py_context_cancel_asked, METH_NOARGS, NULL },
	{ "_cancel_all", py_context_cancel_all, METH_NOARGS, NULL },
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef py_context_fields[] = {
	{ "closed", py_context_closed, NULL, "True if the context is closed, or was copied by a fork", NULL },
	{ "_closes_late", py_context_closes_late, NULL, NULL, NULL },
	{ "_pending", py_context_pending, NULL, NULL, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

PyType_Spec py_context_spec = {
	.name = "peerlane._peerlane.Context",
	.basicsize = sizeof(struct py_context),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
	.slots = (PyType_Slot[]){ { Py_tp_new, py_context_create },
				  { Py_tp_init, py_context_init },
				  { Py_tp_dealloc, py_context_dealloc },
				  { Py_tp_traverse, py_context_traverse },
				  { Py_tp_clear, py_context_break },
				  { Py_tp_methods, py_context_methods },
				  { Py_tp_getset, py_context_fields },
				  { 0, NULL } },
};
