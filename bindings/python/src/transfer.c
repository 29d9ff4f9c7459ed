/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes, reads and atomic operations. */
#include <errno.h>
#include <string.h>

#include "extension.h"

static int py_get_visible(struct py_state *state, PyObject *value, enum pl_visible *visible)
{
	static const char *const levels[] = { "default", "on-wire", "acknowledged", "placed", "gpu-visible" };

	for (unsigned i = 0; PyUnicode_Check(value) && i < sizeof(levels) / sizeof(*levels); i++) {
		if (PyUnicode_CompareWithASCIIString(value, levels[i]) == 0) {
			*visible = (enum pl_visible)i;
			return 0;
		}
	}
	py_fail(state, -EINVAL, "PY-VISIBLE", "visible", "no such level of visibility",
		"levels are \"on-wire\", \"acknowledged\", \"placed\" and \"gpu-visible\"");
	return -1;
}

/* Reads a stream of CUDA: a number, or an object of PyTorch or CuPy. */
int py_get_stream(PyObject *value, void **stream)
{
	static const char *const fields[] = { "cuda_stream", "ptr", NULL };
	PyObject *number = NULL;
	uint64_t address = 0;
	int rc;

	for (int i = 0; fields[i] && !PyLong_Check(value) && !number; i++) {
		number = PyObject_GetAttrString(value, fields[i]);
		PyErr_Clear();
	}
	rc = py_get_u64(number ? number : value, "stream", &address);
	Py_XDECREF(number);
	/* CUDA's numbers 1 and 2 are its default streams, as in DLPack. */
	*stream = (void *)(uintptr_t)address;
	return rc;
}

/* Reads `notify`: a number, or a number and bytes. */
static int py_get_notify(PyObject *value, struct py_attributes *attributes)
{
	PyObject *number = value;

	if (PyTuple_Check(value)) {
		if (PyTuple_Size(value) != 2) {
			PyErr_SetString(PyExc_TypeError, "notify must be a number, or a number and bytes");
			return -1;
		}
		number = PyTuple_GetItem(value, 0);
		attributes->notify_data = py_get_bytes(PyTuple_GetItem(value, 1), "notify");
		if (!attributes->notify_data)
			return -1;
		attributes->library.notify_data = PyBytes_AsString(attributes->notify_data);
		attributes->library.notify_length = (size_t)PyBytes_Size(attributes->notify_data);
	}
	attributes->library.flags |= PL_NOTIFY;
	return py_get_u64(number, "notify", &attributes->library.notify);
}

static int py_get_flag(PyObject *value, unsigned flag, unsigned *flags)
{
	int truth = value ? PyObject_IsTrue(value) : 0;

	*flags |= truth > 0 ? flag : 0;
	return truth < 0 ? -1 : 0;
}

/* Reads attributes, in the order of PY_ATTRIBUTE_NAMES. The caller gives `notify_data` up, also after a failure. */
int py_get_attributes(struct py_state *state, PyObject *const *values, struct py_attributes *attributes)
{
	struct pl_attributes *library = &attributes->library;

	*attributes = (struct py_attributes){ .library = PL_ATTRIBUTES_INIT };
	if ((values[0] && py_get_visible(state, values[0], &library->visible) < 0) ||
	    py_get_flag(values[1], PL_REQUIRE_DIRECT, &library->flags) < 0 ||
	    py_get_flag(values[2], PL_FENCE, &library->flags) < 0 ||
	    (values[3] && py_get_notify(values[3], attributes) < 0) ||
	    py_get_flag(values[6], PL_MORE, &library->flags) < 0)
		return -1;
	if (values[4]) {
		if (py_get_ns(values[4], "timeout", 0, &library->timeout) < 0)
			return -1;
		/* The library takes 0 for the context's. */
		library->timeout += library->timeout == 0;
	}
	if (values[5]) {
		library->flags |= PL_AFTER_STREAM;
		return py_get_stream(values[5], &library->stream);
	}
	return 0;
}

int py_use_region(struct py_context *context, PyObject *value, bool written, struct py_region **region)
{
	*region = (struct py_region *)value;
	if (Py_TYPE(value) != context->state->region) {
		PyErr_Format(PyExc_TypeError, "region must be a Region, not %R: Context.register() makes one",
			     (PyObject *)Py_TYPE(value));
		return -1;
	}
	if ((*region)->base.context != context) {
		py_fail(context->state, -EINVAL, "PY-FOREIGN", "region", "the region belongs to another context",
			"register the memory with the context of the peer");
		return -1;
	}
	if (py_object_check(&(*region)->base) < 0)
		return -1;
	if (!written || !(*region)->readonly)
		return 0;
	py_fail(context->state, -EACCES, "PY-READONLY", "region", "the memory is read-only",
		"receive and read into a writable object, such as a bytearray");
	return -1;
}

/* Reads a range of a region. Without a length it ends with the region. */
int py_get_range(PyObject *offset, PyObject *length, struct py_region *region, uint64_t *start, uint64_t *bytes)
{
	size_t size = pl_region_length(region->handle);

	*start = 0;
	if (py_get_u64(offset, "offset", start) < 0)
		return -1;
	*bytes = *start < size ? size - *start : 0;
	return py_get_u64(length, "length", bytes);
}

struct py_transfer_call {
	struct py_peer *peer;
	struct py_region *region;
	struct py_remote *remote;
	bool reads;
	struct pl_transfer transfer;
	struct py_attributes attributes;
};

static int py_post_transfer(void *argument, uint64_t user_data, struct pl_operation **operation, struct pl_error *error)
{
	struct py_transfer_call *call = argument;

	call->attributes.library.user_data = user_data;
	if (call->reads)
		return pl_read(call->peer->handle, &call->transfer, &call->attributes.library, operation, error);
	return pl_write(call->peer->handle, &call->transfer, &call->attributes.library, operation, error);
}

static PyObject *py_transfer(PyObject *self, enum py_mode mode, bool reads, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "remote",           "region", "remote_offset", "offset", "length",
					     PY_ATTRIBUTE_NAMES, NULL };
	struct py_transfer_call call = { .peer = (struct py_peer *)self, .reads = reads };
	struct py_context *context = call.peer->base.context;
	struct py_references references = { { self } };
	PyObject *values[5 + PY_ATTRIBUTE_COUNT], *result = NULL;
	uint64_t remote_offset = 0;

	if (py_parse(reads ? "read" : "write", names, 2, arguments, count, keywords, values) < 0)
		return NULL;
	if (py_get_u64(values[2], names[2], &remote_offset) == 0 &&
	    py_get_attributes(context->state, values + 5, &call.attributes) == 0 &&
	    py_use_region(context, values[1], reads, &call.region) == 0 &&
	    py_get_range(values[3], values[4], call.region, &call.transfer.offset, &call.transfer.length) == 0 &&
	    /* Last, as the arguments above may run code that closes objects. */
	    py_object_check(&call.region->base) == 0 && py_use_remote(context, values[0], &call.remote) == 0 &&
	    py_object_check(&call.peer->base) == 0) {
		call.transfer.remote = call.remote->handle;
		call.transfer.remote_offset = remote_offset;
		call.transfer.region = call.region->handle;
		py_references_set(&references, self, call.region, call.remote);
		result = py_submit(context, mode, UINT64_MAX, py_post_transfer, &call, &references);
	}
	Py_XDECREF(call.attributes.notify_data);
	return result;
}

PyObject *py_peer_write(PyObject *self, PY_ARGUMENTS)
{
	return py_transfer(self, PY_WAIT, false, arguments, count, keywords);
}

PyObject *py_peer_read(PyObject *self, PY_ARGUMENTS)
{
	return py_transfer(self, PY_WAIT, true, arguments, count, keywords);
}

PyObject *py_peer_write_start(PyObject *self, PY_ARGUMENTS)
{
	return py_transfer(self, PY_START, false, arguments, count, keywords);
}

PyObject *py_peer_read_start(PyObject *self, PY_ARGUMENTS)
{
	return py_transfer(self, PY_START, true, arguments, count, keywords);
}

struct py_atomic_call {
	struct py_peer *peer;
	bool swaps;
	struct pl_atomic atomic;
	struct py_attributes attributes;
};

static int py_post_atomic(void *argument, uint64_t user_data, struct pl_operation **operation, struct pl_error *error)
{
	struct py_atomic_call *call = argument;

	call->attributes.library.user_data = user_data;
	if (call->swaps)
		return pl_compare_swap(call->peer->handle, &call->atomic, &call->attributes.library, operation, error);
	return pl_fetch_add(call->peer->handle, &call->atomic, &call->attributes.library, operation, error);
}

/* `values`: remote, remote_offset, operands, fence, timeout. */
static PyObject *py_atomic(PyObject *self, struct py_atomic_call *call, PyObject *const *values, PyObject *fence,
			   PyObject *timeout)
{
	PY_GUARD_CONTEXT_OF(self);
	PyObject *attributes[PY_ATTRIBUTE_COUNT] = { NULL, NULL, fence, NULL, timeout, NULL, NULL };
	struct py_context *context = call->peer->base.context;
	struct py_references references = { { self } };
	struct py_remote *remote;

	if (py_get_u64(values[1], "remote_offset", &call->atomic.remote_offset) < 0 ||
	    py_get_attributes(context->state, attributes, &call->attributes) < 0 ||
	    py_use_remote(context, values[0], &remote) < 0 || py_object_check(&call->peer->base) < 0)
		return NULL;
	call->atomic.remote = remote->handle;
	py_references_set(&references, self, remote, NULL);
	return py_submit(context, PY_WAIT, UINT64_MAX, py_post_atomic, call, &references);
}

/* A negative addend wraps, as unsigned numbers do. */
static int py_get_addend(PyObject *value, uint64_t *addend)
{
	long long negative = PyLong_Check(value) ? PyLong_AsLongLong(value) : 0;

	if (negative == -1 && PyErr_Occurred())
		PyErr_Clear();
	else if (negative < 0) {
		*addend = (uint64_t)negative;
		return 0;
	}
	return py_get_u64(value, "add", addend);
}

PyObject *py_peer_fetch_add(PyObject *self, PY_ARGUMENTS)
{
	static const char *const names[] = { "remote", "remote_offset", "add", "fence", "timeout", NULL };
	struct py_atomic_call call = { .peer = (struct py_peer *)self };
	PyObject *values[5];

	if (py_parse("fetch_add", names, 3, arguments, count, keywords, values) < 0 ||
	    py_get_addend(values[2], &call.atomic.operand) < 0)
		return NULL;
	return py_atomic(self, &call, values, values[3], values[4]);
}

PyObject *py_peer_compare_swap(PyObject *self, PY_ARGUMENTS)
{
	static const char *const names[] = { "remote", "remote_offset", "compare", "swap", "fence", "timeout", NULL };
	struct py_atomic_call call = { .peer = (struct py_peer *)self, .swaps = true };
	PyObject *values[6];

	if (py_parse("compare_swap", names, 4, arguments, count, keywords, values) < 0 ||
	    py_get_u64(values[2], names[2], &call.atomic.compare) < 0 ||
	    py_get_u64(values[3], names[3], &call.atomic.operand) < 0)
		return NULL;
	return py_atomic(self, &call, values, values[4], values[5]);
}
