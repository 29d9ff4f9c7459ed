/* SPDX-License-Identifier: BSD-2-Clause */
/* Remote regions, and sets of them. */
#include <errno.h>
#include <stdio.h>

#include "extension.h"

PyObject *py_remote_new(struct py_context *context, struct pl_remote *handle, PyObject *owner, bool in_set)
{
	struct py_remote *remote = py_object_new(context->state->remote, context);

	if (!remote) {
		if (!in_set)
			pl_remote_release(handle);
		return NULL;
	}
	Py_INCREF(owner);
	remote->handle = handle;
	remote->owner = owner;
	remote->in_set = in_set;
	return (PyObject *)remote;
}

PyObject *py_remote_set_new(struct py_context *context, struct pl_remote_set *handle, PyObject *peer)
{
	struct py_remote_set *set = py_object_new(context->state->remote_set, context);

	if (!set) {
		pl_remote_set_release(handle);
		return NULL;
	}
	Py_INCREF(peer);
	set->handle = handle;
	set->peer = peer;
	return (PyObject *)set;
}

static void py_remote_end(struct py_remote *remote)
{
	struct py_context *context = remote->base.context;

	if (remote->base.closed || !remote->handle || !py_object_quiet(&remote->base) || remote->in_set)
		return;
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		pl_remote_release(remote->handle);
	Py_END_ALLOW_THREADS
	context->users--;
}

static PyObject *py_remote_release(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	(void)unused;
	py_remote_end((struct py_remote *)self);
	Py_RETURN_NONE;
}

static void py_remote_finish(PyObject *self)
{
	struct py_remote *remote = (struct py_remote *)self;

	py_remote_end(remote);
	Py_CLEAR(remote->owner);
}

static int py_remote_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(((struct py_remote *)self)->owner);
	return py_object_traverse(self, visit, arg);
}

static void py_remote_dealloc(PyObject *self)
{
	py_object_dealloc(self, py_remote_finish);
}

static PyObject *py_remote_exit(PyObject *self, PyObject *arguments)
{
	return py_remote_release(self, arguments);
}

/* A remote region of a set ends with the set. */
static int py_remote_check(struct py_remote *remote)
{
	if (remote->in_set && py_object_check((struct py_object *)remote->owner) < 0)
		return -1;
	return py_object_check(&remote->base);
}

int py_use_remote(struct py_context *context, PyObject *value, struct py_remote **remote)
{
	*remote = (struct py_remote *)value;
	if (Py_TYPE(value) != context->state->remote) {
		PyErr_Format(PyExc_TypeError, "remote must be a Remote, not %R", (PyObject *)Py_TYPE(value));
		return -1;
	}
	if ((*remote)->base.context == context)
		return py_remote_check(*remote);
	py_fail(context->state, -EINVAL, "PY-FOREIGN", "remote", "the remote region belongs to another context",
		"import the token through this peer");
	return -1;
}

static PyObject *py_remote_length(PyObject *self, void *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_remote *remote = (struct py_remote *)self;

	(void)unused;
	return py_remote_check(remote) < 0 ? NULL : PyLong_FromSize_t(pl_remote_length(remote->handle));
}

static PyObject *py_remote_rights(PyObject *self, void *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_remote *remote = (struct py_remote *)self;

	(void)unused;
	return py_remote_check(remote) < 0 ? NULL : py_rights_text(pl_remote_rights(remote->handle));
}

static PyObject *py_remote_repr(PyObject *self)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_remote *remote = (struct py_remote *)self;
	PyObject *rights, *text;

	if (py_remote_check(remote) < 0) {
		PyErr_Clear();
		return PyUnicode_FromString("<peerlane.Remote, closed>");
	}
	rights = py_rights_text(pl_remote_rights(remote->handle));
	text = rights ? PyUnicode_FromFormat("<peerlane.Remote %zu bytes, %R>", pl_remote_length(remote->handle),
					     rights)
		      : NULL;
	Py_XDECREF(rights);
	return text;
}

static PyMethodDef py_remote_methods[] = {
	{ "release", py_remote_release, METH_NOARGS,
	  "release($self)\n--\n\nGive the remote region up. Running operations continue." },
	{ "__enter__", py_object_enter, METH_NOARGS, NULL },
	{ "__reduce__", py_object_reduce, METH_NOARGS, NULL },
	{ "__exit__", py_remote_exit, METH_VARARGS, NULL },
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef py_remote_fields[] = {
	{ "length", py_remote_length, NULL, "bytes", NULL },
	{ "rights", py_remote_rights, NULL, "rights, for example \"rw\"", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

PyType_Spec py_remote_spec = {
	.name = "peerlane.Remote",
	.basicsize = sizeof(struct py_remote),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_remote_dealloc },
				  { Py_tp_traverse, py_remote_traverse },
				  { Py_tp_repr, py_remote_repr },
				  { Py_tp_methods, py_remote_methods },
				  { Py_tp_getset, py_remote_fields },
				  { Py_tp_doc, "Region that a peer shared with this process, from Peer.import_()." },
				  { 0, NULL } },
};

static void py_remote_set_end(struct py_remote_set *set)
{
	struct py_context *context = set->base.context;

	if (set->base.closed || !set->handle || !py_object_quiet(&set->base))
		return;
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		pl_remote_set_release(set->handle);
	Py_END_ALLOW_THREADS
	context->users--;
}

static PyObject *py_remote_set_release(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	(void)unused;
	py_remote_set_end((struct py_remote_set *)self);
	Py_RETURN_NONE;
}

static PyObject *py_remote_set_exit(PyObject *self, PyObject *arguments)
{
	return py_remote_set_release(self, arguments);
}

static void py_remote_set_finish(PyObject *self)
{
	struct py_remote_set *set = (struct py_remote_set *)self;

	py_remote_set_end(set);
	Py_CLEAR(set->peer);
}

static int py_remote_set_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(((struct py_remote_set *)self)->peer);
	return py_object_traverse(self, visit, arg);
}

static void py_remote_set_dealloc(PyObject *self)
{
	py_object_dealloc(self, py_remote_set_finish);
}

static Py_ssize_t py_remote_set_count(PyObject *self)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_remote_set *set = (struct py_remote_set *)self;

	return py_object_check(&set->base) < 0 ? -1 : (Py_ssize_t)pl_remote_set_count(set->handle);
}

static PyObject *py_remote_set_item(PyObject *self, Py_ssize_t index)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_remote_set *set = (struct py_remote_set *)self;
	struct pl_remote *remote;

	if (py_object_check(&set->base) < 0)
		return NULL;
	remote = index < 0 ? NULL : pl_remote_set_get(set->handle, (size_t)index);
	if (!remote)
		return PyErr_Format(PyExc_IndexError, "the set has no region %zd", index);
	return py_remote_new(set->base.context, remote, self, true);
}

static PyObject *py_remote_set_find(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "address", "length", NULL };
	struct py_remote_set *set = (struct py_remote_set *)self;
	uint64_t address = 0, length = 0, offset;
	struct pl_remote *handle;
	PyObject *values[2], *remote;
	char text[40];
	int rc;

	if (py_parse("find", names, 2, arguments, count, keywords, values) < 0 ||
	    py_get_u64(values[0], names[0], &address) < 0 || py_get_u64(values[1], names[1], &length) < 0 ||
	    py_object_check(&set->base) < 0)
		return NULL;
	rc = pl_remote_set_find(set->handle, address, length, &handle, &offset);
	snprintf(text, sizeof(text), "%#llx", (unsigned long long)address);
	if (rc)
		return py_fail(set->base.context->state, rc, "PY-NO-REGION", text, "no region of the set has the range",
			       "");
	remote = py_remote_new(set->base.context, handle, self, true);
	return remote ? Py_BuildValue("NK", remote, (unsigned long long)offset) : NULL;
}

static PyMethodDef py_remote_set_methods[] = {
	{ "release", py_remote_set_release, METH_NOARGS,
	  "release($self)\n--\n\nGive up the set and its remote regions. Running operations continue." },
	{ "find", PY_METHOD(py_remote_set_find), PY_FAST,
	  "find($self, address, length)\n--\n\n"
	  "Return the remote region with a range, and its offset there, by the address in the owner's process." },
	{ "__enter__", py_object_enter, METH_NOARGS, NULL },
	{ "__reduce__", py_object_reduce, METH_NOARGS, NULL },
	{ "__exit__", py_remote_set_exit, METH_VARARGS, NULL },
	{ NULL, NULL, 0, NULL },
};

PyType_Spec py_remote_set_spec = {
	.name = "peerlane.RemoteSet",
	.basicsize = sizeof(struct py_remote_set),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_remote_set_dealloc },
				  { Py_tp_traverse, py_remote_set_traverse },
				  { Py_tp_methods, py_remote_set_methods },
				  { Py_sq_length, py_remote_set_count },
				  { Py_sq_item, py_remote_set_item },
				  { Py_tp_doc, "Remote regions that a peer shared together, from Peer.import_all()." },
				  { 0, NULL } },
};
