/* SPDX-License-Identifier: BSD-2-Clause */
/* Extension module peerlane._peerlane, for the limited API of Python 3.11, or for one free-threaded version of Python. */
#include <errno.h>
#include <string.h>

#include "extension.h"

static PyObject *py_version(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
	return PyUnicode_FromString(pl_version());
}

/* inspect(token): (length, rights, expiry in seconds of the clock or None) */
static PyObject *py_inspect(PyObject *module, PyObject *token)
{
	struct pl_token_info info;
	struct pl_error error;
	PyObject *bytes = py_get_bytes(token, "token"), *expires;
	int rc;

	if (!bytes)
		return NULL;
	rc = pl_token_inspect(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes), &info, &error);
	Py_DECREF(bytes);
	if (rc)
		return py_raise(PyModule_GetState(module), &error);
	expires = info.expires ? PyFloat_FromDouble((double)info.expires / 1e9) : Py_BuildValue("");
	return expires ? Py_BuildValue("KNN", (unsigned long long)info.region_length, py_rights_text(info.rights),
				       expires)
		       : NULL;
}

/* stream_wait(stream, timeout=None) */
static PyObject *py_stream_wait(PyObject *module, PY_ARGUMENTS)
{
	static const char *const names[] = { "stream", "timeout", NULL };
	PyObject *values[2];
	struct pl_error error;
	uint64_t stream = 0, timeout;
	int rc;

	if (py_parse("stream_wait", names, 1, arguments, count, keywords, values) < 0 ||
	    py_get_u64(values[0], names[0], &stream) < 0 || py_get_ns(values[1], names[1], UINT64_MAX, &timeout) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
		rc = pl_stream_wait((void *)(uintptr_t)stream, timeout, &error);
	Py_END_ALLOW_THREADS
	if (rc)
		return py_raise(PyModule_GetState(module), &error);
	Py_RETURN_NONE;
}

static PyObject *py_fingerprint(PyObject *module, PyObject *path)
{
	char text[PL_FINGERPRINT_MAX];
	struct pl_error error;
	PyObject *owner;
	const char *name = py_get_text(path, "path", &owner);
	int rc;

	if (!name)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
		rc = pl_identity_fingerprint(name, text, &error);
	Py_END_ALLOW_THREADS
	Py_DECREF(owner);
	return rc ? py_raise(PyModule_GetState(module), &error) : PyUnicode_FromString(text);
}

/* _read_key(path): the pre-shared key of a file. */
static PyObject *py_read_key(PyObject *module, PyObject *path)
{
	uint8_t key[PL_KEY_MAX];
	struct pl_error error;
	PyObject *name, *made;
	int length;

	if (!PyUnicode_FSConverter(path, &name))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
		length = pl_key_file_read(PyBytes_AsString(name), key, &error);
	Py_END_ALLOW_THREADS
	Py_DECREF(name);
	if (length < 0)
		return py_raise(PyModule_GetState(module), &error);
	made = PyBytes_FromStringAndSize((const char *)key, length);
	explicit_bzero(key, sizeof(key));
	return made;
}

/* _forked(): marks the contexts of the parent process, in the child. */
static PyObject *py_forked(PyObject *module, PyObject *unused)
{
	struct py_state *state = PyModule_GetState(module);

	(void)unused;
	/* Another thread may have had the lock. */
	memset(&state->lock, 0, sizeof(state->lock));
	for (struct py_context *context = state->contexts; context; context = context->next) {
		context->status = PY_FORKED;
		context->handle = NULL;
	}
	state->going = 0;
	py_threads_forked();
	py_callbacks_forked();
	py_late_forked();
	Py_RETURN_NONE;
}

static bool py_context_exported(struct py_context *context)
{
	PY_GUARD(context);

	return context->exports != 0;
}

static bool py_contexts_going(struct py_state *state)
{
	bool going;

	PY_LOCK(&state->lock);
	going = state->going != 0;
	PY_UNLOCK(&state->lock);
	return going;
}

/* _close_all(): closes all contexts before the interpreter ends. A context with memoryviews of its memory stays open. */
static PyObject *py_close_all(PyObject *module, PyObject *unused)
{
	struct py_state *state = PyModule_GetState(module);
	PyObject *list = py_contexts(state), *closed;

	(void)unused;
	for (Py_ssize_t i = 0; list && i < PyList_Size(list); i++) {
		PyObject *context = PyList_GetItem(list, i);

		if (py_context_exported((struct py_context *)context))
			continue;
		closed = PyObject_CallMethod(context, "close", NULL);
		if (!closed)
			PyErr_WriteUnraisable(context);
		Py_XDECREF(closed);
	}
	while (py_contexts_going(state))
		py_sleep_slice();
	py_threads_end();
	if (!list)
		return NULL;
	Py_DECREF(list);
	Py_RETURN_NONE;
}

static PyMethodDef py_functions[] = {
	{ "version", py_version, METH_NOARGS, "version()\n--\n\nReturn the version of the library, \"0.1.0\"." },
	{ "inspect", py_inspect, METH_O, NULL },
	{ "gpu", py_gpu, METH_O, "gpu(number, /)\n--\n\nReturn a dictionary of the properties of a GPU of this host." },
	{ "stream_wait", PY_METHOD(py_stream_wait), PY_FAST,
	  "stream_wait(stream, timeout=None)\n--\n\nWait until the work so far of a CUDA stream is done." },
	{ "fingerprint", py_fingerprint, METH_O,
	  "fingerprint(path, /)\n--\n\nReturn the fingerprint of a file with an identity or a certificate." },
	{ "_dlpack", py_dlpack_take, METH_O, NULL },
	{ "_cancel", py_cancel_future, METH_O, NULL },
	{ "_read_key", py_read_key, METH_O, NULL },
	{ "_forked", py_forked, METH_NOARGS, NULL },
	{ "_close_all", py_close_all, METH_NOARGS, NULL },
	{ NULL, NULL, 0, NULL },
};

static PyObject *py_import_name(const char *module, const char *name)
{
	PyObject *imported = PyImport_ImportModule(module), *found;

	found = imported ? PyObject_GetAttrString(imported, name) : NULL;
	Py_XDECREF(imported);
	return found;
}

static int py_execute(PyObject *module)
{
	struct py_state *state = PyModule_GetState(module);
	const struct {
		PyType_Spec *spec;
		PyTypeObject **type;
		const char *name;
	} types[] = {
		{ &py_context_spec, &state->context, "Context" },
		{ &py_region_spec, &state->region, "Region" },
		{ &py_remote_spec, &state->remote, "Remote" },
		{ &py_remote_set_spec, &state->remote_set, "RemoteSet" },
		{ &py_listener_spec, &state->listener, "Listener" },
		{ &py_async_listener_spec, &state->async_listener, "AsyncListener" },
		{ &py_peer_spec, &state->peer, "Peer" },
		{ &py_async_peer_spec, &state->async_peer, "AsyncPeer" },
		{ &py_operation_spec, &state->operation, "Operation" },
		{ &py_receipt_spec, &state->receipt, "Receipt" },
		{ &py_tensor_spec, &state->tensor, "Tensor" },
		{ &py_publisher_spec, &state->publisher, "Publisher" },
		{ &py_subscriber_spec, &state->subscriber, "Subscriber" },
		{ &py_frame_spec, &state->frame, "Frame" },
		{ &py_prepared_spec, &state->prepared, "Vector" },
		{ &py_async_prepared_spec, &state->async_prepared, "AsyncVector" },
	};

	/* Threads of the library take the lock of the main interpreter. */
	if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
		PyErr_SetString(PyExc_ImportError, "peerlane does not work in a subinterpreter: import it in the main "
						   "interpreter, or in a process of its own");
		return -1;
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		PyObject *type = PyType_FromModuleAndSpec(module, types[i].spec, NULL);

		if (!type || PyModule_AddObjectRef(module, types[i].name, type) < 0)
			return -1;
		*types[i].type = (PyTypeObject *)type;
	}
	state->make_error = py_import_name("peerlane._errors", "make_error");
	state->token = py_import_name("peerlane._tokens", "Token");
	state->blob = py_import_name("peerlane._tokens", "Blob");
	state->layout = py_import_name("peerlane._streams", "Layout");
	state->notification = py_import_name("peerlane._tokens", "Notification");
	state->future_result = PyUnicode_InternFromString("set_result");
	state->future_fail = PyUnicode_InternFromString("set_exception");
	state->no_arguments = PyTuple_New(0);
	state->loop_key = PyUnicode_InternFromString("__asyncio_running_event_loop__");
	state->future_cancel = PyUnicode_InternFromString("_end_cancelled");
	return state->make_error && state->token && state->blob && state->layout && state->notification &&
			       state->future_result && state->future_fail && state->future_cancel &&
			       state->no_arguments && state->loop_key
		       ? 0
		       : -1;
}

static struct PyModuleDef py_module = {
	PyModuleDef_HEAD_INIT,
	.m_name = "_peerlane",
	.m_size = sizeof(struct py_state),
	.m_methods = py_functions,
	.m_slots = (PyModuleDef_Slot[]){ { Py_mod_exec, py_execute },
#ifdef Py_GIL_DISABLED
					 { Py_mod_gil, Py_MOD_GIL_NOT_USED },
#endif
					 { 0, NULL } },
};

PyMODINIT_FUNC PyInit__peerlane(void);

PyMODINIT_FUNC PyInit__peerlane(void)
{
	return PyModuleDef_Init(&py_module);
}
