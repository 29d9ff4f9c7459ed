/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions: their tokens, copies, views and ends. */
#include <errno.h>
#include <string.h>

#include "extension.h"

PyObject *py_region_new(struct py_context *context, struct pl_region *handle, PyObject *keeper, bool readonly)
{
	struct py_region *region = py_object_new(context->state->region, context);

	if (!region) {
		pl_region_deregister(handle);
		return NULL;
	}
	Py_XINCREF(keeper);
	region->handle = handle;
	region->keeper = keeper;
	region->readonly = readonly;
	region->device = pl_region_gpu(handle);
	return (PyObject *)region;
}

/* Lets the last view end the region. No peer has it any more until then. */
static void py_region_close_late(struct py_region *region)
{
	region->base.closes_late = true;
	if (region->base.closed || region->base.context->status != PY_OPEN)
		return;
	py_hold(&region->base);
	Py_BEGIN_ALLOW_THREADS
		pl_region_revoke(region->handle, NULL, 0);
	Py_END_ALLOW_THREADS
	py_unhold(&region->base);
}

/* Ends a region whose handle is gone. */
void py_region_forget(struct py_region *region, struct py_references *references)
{
	region->handle = NULL;
	references->objects[0] = region->keeper;
	region->keeper = NULL;
}

/* Gives the handle back. Returns 0, or a negative errno if the library still uses the memory. */
static int py_region_end(struct py_region *region)
{
	struct pl_region *handle = region->handle;
	struct py_context *context = region->base.context;
	int rc = 0;

	if (!handle || !py_object_quiet(&region->base))
		return 0;
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		rc = pl_region_deregister(handle);
	Py_END_ALLOW_THREADS
	context->users--;
	return rc;
}

static PyObject *py_region_deregister(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_region *region = (struct py_region *)self;
	struct py_context *context = region->base.context;
	struct py_references references = { { NULL } };
	int rc;

	(void)unused;
	py_context_cancel_noted(context);
	if (region->exports)
		return py_fail(context->state, -EBUSY, "PY-EXPORTED", "region", "memoryviews or tensors of it exist",
			       "release them before the region is deregistered");
	/* Another thread may be about to end the region: its memory is free when that call has returned. */
	while (region->base.closed && region->handle && context->status == PY_OPEN)
		py_sleep_slice();
	if (region->base.closed) {
		py_context_await_end(context);
		Py_RETURN_NONE;
	}
	rc = py_region_end(region);
	if (rc) {
		region->base.closed = false;
		return py_fail(context->state, rc, "PY-REGION-BUSY", "region", "an operation or a vector uses it",
			       "wait for the operation, or cancel it; release the vector");
	}
	py_context_await_end(context);
	py_region_forget(region, &references);
	py_references_clear(&references);
	Py_RETURN_NONE;
}

static PyObject *py_region_exit(PyObject *self, PyObject *arguments)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_region *region = (struct py_region *)self;

	/* The cause of the exception counts. Its traceback may hold the views: the last of them ends the region. */
	if (region->exports && py_exit_failed(arguments)) {
		py_region_close_late(region);
		Py_RETURN_NONE;
	}
	return py_region_deregister(self, NULL);
}

static void py_region_finish(PyObject *self)
{
	struct py_region *region = (struct py_region *)self;
	struct py_context *context = region->base.context;
	bool busy;

	busy = !region->base.closed && py_region_end(region) != 0;
	/* While the context closes, and if the region is busy all the same, the context keeps the memory. */
	if (region->keeper && context->kept && (busy || context->status == PY_CLOSING) &&
	    PyList_Append(context->kept, region->keeper) < 0) {
		PyErr_Clear();
		region->keeper = NULL;
	}
	Py_CLEAR(region->keeper);
}

static int py_region_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(((struct py_region *)self)->keeper);
	return py_object_traverse(self, visit, arg);
}

static void py_region_dealloc(PyObject *self)
{
	py_object_dealloc(self, py_region_finish);
}

/* share(offset=0, length=None, rights=None, lifetime=None) */
static PyObject *py_region_share(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "offset", "length", "rights", "lifetime", NULL };
	struct py_region *region = (struct py_region *)self;
	struct py_context *context = region->base.context;
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	PyObject *values[4], *bytes, *token;
	char content[PL_TOKEN_MAX];
	size_t size = sizeof(content);
	struct pl_error error;
	uint64_t offset = 0, length = 0;
	int rc;

	if (py_parse("share", names, 0, arguments, count, keywords, values) < 0 ||
	    py_get_u64(values[0], names[0], &offset) < 0 || py_get_u64(values[1], names[1], &length) < 0 ||
	    py_get_rights(context->state, values[2], false, &options.rights) < 0 ||
	    py_get_lifetime(values[3], &options.lifetime) < 0 || py_object_check(&region->base) < 0)
		return NULL;
	/* The library takes 0 for all bytes, and for all rights. */
	if (values[1] && length == 0)
		return py_fail(context->state, -ERANGE, "PY-RANGE", "region", "a range of 0 bytes cannot be shared",
			       "leave length out to share all bytes from the offset on");
	if (values[2] && !options.rights)
		return py_fail(context->state, -EACCES, "PY-RIGHTS", "region", "a token without rights has no use",
			       "leave rights out to share all rights of the region");
	options.offset = offset;
	options.length = length;
	py_hold(&region->base);
	Py_BEGIN_ALLOW_THREADS
		rc = pl_region_share(region->handle, &options, content, &size, &error);
	Py_END_ALLOW_THREADS
	py_unhold(&region->base);
	if (rc)
		return py_raise(context->state, &error);
	bytes = PyBytes_FromStringAndSize(content, (Py_ssize_t)size);
	token = bytes ? PyObject_CallFunctionObjArgs(context->state->token, bytes, NULL) : NULL;
	Py_XDECREF(bytes);
	return token;
}

static PyObject *py_region_revoke(PyObject *self, PyObject *token)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_region *region = (struct py_region *)self;
	PyObject *bytes;
	const char *content;
	size_t size;
	int rc;

	bytes = py_get_bytes(token, "token");
	if (!bytes)
		return NULL;
	if (py_object_check(&region->base) < 0) {
		Py_DECREF(bytes);
		return NULL;
	}
	content = PyBytes_AsString(bytes);
	size = (size_t)PyBytes_Size(bytes);
	py_hold(&region->base);
	Py_BEGIN_ALLOW_THREADS
		rc = pl_region_revoke(region->handle, content, size);
	Py_END_ALLOW_THREADS
	py_unhold(&region->base);
	Py_DECREF(bytes);
	if (rc == -ENOENT)
		return py_fail(region->base.context->state, rc, "PY-NO-GRANT", "token",
			       "the token is not one of this region, or was revoked already", "");
	if (rc)
		return py_fail(region->base.context->state, rc, "PY-NO-TOKEN", "token", "the bytes are no token", "");
	Py_RETURN_NONE;
}

/* Copies between a bytes-like object and the region's memory, of any kind. */
static PyObject *py_region_copy(struct py_region *region, PyObject *object, PyObject *at, bool in)
{
	PY_GUARD_CONTEXT_OF(region);
	struct pl_error error;
	uint64_t offset = 0;
	Py_buffer view;
	int rc;

	if (py_get_u64(at, "offset", &offset) < 0)
		return NULL;
	if (in && region->readonly)
		return py_fail(region->base.context->state, -EACCES, "PY-READONLY", "region", "the memory is read-only",
			       "register a writable object");
	if (py_buffer_open(region->base.context->state, object, &view, in ? PyBUF_SIMPLE : PyBUF_WRITABLE) < 0)
		return NULL;
	if (py_object_check(&region->base) < 0) {
		PyBuffer_Release(&view);
		return NULL;
	}
	py_hold(&region->base);
	Py_BEGIN_ALLOW_THREADS
		rc = in ? pl_region_copy_in(region->handle, offset, view.buf, (size_t)view.len, &error)
			: pl_region_copy_out(region->handle, offset, view.buf, (size_t)view.len, &error);
	Py_END_ALLOW_THREADS
	py_unhold(&region->base);
	PyBuffer_Release(&view);
	if (rc)
		return py_raise(region->base.context->state, &error);
	Py_RETURN_NONE;
}

static PyObject *py_region_copy_in(PyObject *self, PY_ARGUMENTS)
{
	static const char *const names[] = { "source", "offset", NULL };
	PyObject *values[2];

	if (py_parse("copy_in", names, 1, arguments, count, keywords, values) < 0)
		return NULL;
	return py_region_copy((struct py_region *)self, values[0], values[1], true);
}

static PyObject *py_region_copy_out(PyObject *self, PY_ARGUMENTS)
{
	static const char *const names[] = { "target", "offset", NULL };
	PyObject *values[2];

	if (py_parse("copy_out", names, 1, arguments, count, keywords, values) < 0)
		return NULL;
	return py_region_copy((struct py_region *)self, values[0], values[1], false);
}

void py_region_count(PyObject *self, int change)
{
	struct py_region *region = (struct py_region *)self;

	py_exports_count(&region->base, &region->exports, change, "deregister");
}

static int py_region_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_region *region = (struct py_region *)self;

	view->obj = NULL;
	if (py_object_check(&region->base) < 0)
		return -1;
	if (strcmp(pl_region_memory(region->handle), "host") != 0) {
		py_fail(region->base.context->state, -ENOTSUP, "PY-NO-HOST", "region",
			"the processor cannot reach memory of a GPU", "use copy_in(), copy_out(), or a tensor of it");
		return -1;
	}
	if (PyBuffer_FillInfo(view, self, pl_region_address(region->handle),
			      (Py_ssize_t)pl_region_length(region->handle), region->readonly, flags) < 0)
		return -1;
	py_region_count(self, 1);
	return 0;
}

static void py_region_releasebuffer(PyObject *self, Py_buffer *view)
{
	PY_GUARD_CONTEXT_OF(self);

	(void)view;
	py_region_count(self, -1);
}

static PyObject *py_region_length(PyObject *self, void *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_region *region = (struct py_region *)self;

	(void)unused;
	return py_object_check(&region->base) < 0 ? NULL : PyLong_FromSize_t(pl_region_length(region->handle));
}

static PyObject *py_region_address(PyObject *self, void *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_region *region = (struct py_region *)self;

	(void)unused;
	return py_object_check(&region->base) < 0 ? NULL : PyLong_FromVoidPtr(pl_region_address(region->handle));
}

static PyObject *py_region_memory(PyObject *self, void *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_region *region = (struct py_region *)self;

	(void)unused;
	return py_object_check(&region->base) < 0 ? NULL : PyUnicode_FromString(pl_region_memory(region->handle));
}

static PyObject *py_region_readonly(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct py_region *)self)->readonly);
}

static PyObject *py_region_repr(PyObject *self)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_region *region = (struct py_region *)self;

	if (region->base.closed || region->base.context->status != PY_OPEN)
		return PyUnicode_FromString("<peerlane.Region, closed>");
	return PyUnicode_FromFormat("<peerlane.Region %zu bytes, %s>", pl_region_length(region->handle),
				    pl_region_memory(region->handle));
}

/* __dlpack_device__(): type and number of the device. */
static PyObject *py_region_device(PyObject *self, PyObject *unused)
{
	int device = ((struct py_region *)self)->device;

	(void)unused;
	return Py_BuildValue("ii", device < 0 ? 1 : 2, device < 0 ? 0 : device);
}

/* Version 3 of the CUDA array interface. A region of host memory has none, as an array of NumPy. */
static PyObject *py_region_cuda_array(PyObject *self, void *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_region *region = (struct py_region *)self;

	(void)unused;
	if (py_object_check(&region->base) < 0)
		return NULL;
	if (region->device < 0)
		return PyErr_Format(PyExc_AttributeError, "the region is in host memory");
	return Py_BuildValue("{s(n)sss(KO)sisO}", "shape", (Py_ssize_t)pl_region_length(region->handle), "typestr",
			     "|u1", "data", (unsigned long long)(uintptr_t)pl_region_address(region->handle),
			     region->readonly ? Py_True : Py_False, "version", 3, "strides", Py_None);
}

static PyMethodDef py_region_methods[] = {
	{ "deregister", py_region_deregister, METH_NOARGS,
	  "deregister($self)\n--\n\n"
	  "End the region: revoke its tokens and release its memory.\n\n"
	  "Raises PY-REGION-BUSY while an operation uses it, PY-EXPORTED while memoryviews or tensors of it exist." },
	{ "__enter__", py_object_enter, METH_NOARGS, NULL },
	{ "__reduce__", py_object_reduce, METH_NOARGS, NULL },
	{ "__exit__", py_region_exit, METH_VARARGS, NULL },
	{ "share", PY_METHOD(py_region_share), PY_FAST,
	  "share($self, offset=0, length=None, rights=None, lifetime=None)\n--\n\n"
	  "Return a token for a range. The token is a secret: each peer of the context that presents it gets its "
	  "rights.\n\n"
	  "lifetime is in seconds; None: until the token is revoked." },
	{ "revoke", py_region_revoke, METH_O,
	  "revoke($self, token, /)\n--\n\nRevoke a token: afterwards no peer reads or writes through it." },
	{ "copy_in", PY_METHOD(py_region_copy_in), PY_FAST,
	  "copy_in($self, source, offset=0)\n--\n\nCopy a bytes-like object to the memory, which may be of a GPU." },
	{ "copy_out", PY_METHOD(py_region_copy_out), PY_FAST,
	  "copy_out($self, target, offset=0)\n--\n\nCopy the memory, which may be of a GPU, to a writable buffer." },
	{ "__dlpack_device__", py_region_device, METH_NOARGS, NULL },
	{ "__dlpack__", PY_METHOD(py_region_dlpack), PY_FAST, NULL },
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef py_region_fields[] = {
	{ "length", py_region_length, NULL, "bytes", NULL },
	{ "address", py_region_address, NULL, "address of the first byte", NULL },
	{ "memory", py_region_memory, NULL, "\"host\", \"cuda\" or \"dma-buf\"", NULL },
	{ "readonly", py_region_readonly, NULL, "True if nothing may be written to the memory", NULL },
	{ "__cuda_array_interface__", py_region_cuda_array, NULL, NULL, NULL },
	{ "closed", py_object_closed, NULL, "True if the region has ended", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

PyType_Spec py_region_spec = {
	.name = "peerlane.Region",
	.basicsize = sizeof(struct py_region),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_region_dealloc },
				  { Py_tp_traverse, py_region_traverse },
				  { Py_tp_methods, py_region_methods },
				  { Py_tp_getset, py_region_fields },
				  { Py_tp_repr, py_region_repr },
				  { Py_bf_getbuffer, py_region_getbuffer },
				  { Py_bf_releasebuffer, py_region_releasebuffer },
				  { Py_tp_doc,
				    "Registered memory of this process, from Context.register() or allocate()." },
				  { 0, NULL } },
};
