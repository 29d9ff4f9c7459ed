/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames of streams: loans of a publisher, and frames that a subscriber took. */
#include <errno.h>

#include "stream.h"

/* Fails if the frame has ended, or its publisher or subscriber. */
int py_frame_check(struct py_frame *frame)
{
	return py_object_check(&frame->base) < 0 ? -1 : py_object_check(&frame->owner->base);
}

PyObject *py_frame_new(struct py_stream *owner, struct pl_stream_frame *handle, bool loan)
{
	struct py_frame *frame = py_object_new(owner->base.context->state->frame, owner->base.context);

	if (!frame) {
		if (loan)
			pl_frame_discard(handle);
		else
			pl_frame_release(handle);
		return NULL;
	}
	Py_INCREF((PyObject *)owner);
	frame->owner = owner;
	frame->handle = handle;
	frame->loan = loan;
	frame->info = (struct pl_frame_info)PL_FRAME_INFO_INIT;
	pl_frame_query(handle, &frame->info);
	return (PyObject *)frame;
}

/* Gives the frame back, unless its owner has ended, which ended the frame. */
static void py_frame_end(struct py_frame *frame)
{
	struct py_stream *owner = frame->owner;

	if (frame->base.closed || !py_object_quiet(&frame->base) || owner->base.closed)
		return;
	py_hold(&owner->base);
	Py_BEGIN_ALLOW_THREADS
		if (frame->loan)
			pl_frame_discard(frame->handle);
		else
			pl_frame_release(frame->handle);
	Py_END_ALLOW_THREADS
	py_unhold(&owner->base);
}

static void py_frame_finish(PyObject *self)
{
	struct py_frame *frame = (struct py_frame *)self;

	py_frame_end(frame);
	Py_CLEAR(frame->owner);
}

static int py_frame_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT((PyObject *)((struct py_frame *)self)->owner);
	return py_object_traverse(self, visit, arg);
}

static void py_frame_dealloc(PyObject *self)
{
	py_object_dealloc(self, py_frame_finish);
}

static int py_frame_refuse_exports(struct py_frame *frame)
{
	if (!frame->exports)
		return 0;
	py_fail(frame->base.context->state, -EBUSY, "PY-EXPORTED", "frame", "arrays or memoryviews of it exist",
		"delete them before the frame is published or released");
	return -1;
}

/*
 * Shuts the frame before the library takes its memory back, unless something uses the memory. No code of Python may run
 * between this check and the call of the library.
 */
static int py_frame_shut(struct py_frame *frame)
{
	if (py_frame_check(frame) < 0 || py_frame_refuse_exports(frame) < 0)
		return -1;
	if (frame->base.users) {
		py_fail(frame->base.context->state, -EBUSY, "PY-FRAME-BUSY", "frame",
			"a copy of another thread is using its memory", "wait for the end of copy_in() or copy_out()");
		return -1;
	}
	frame->base.closed = true;
	return 0;
}

/* Gives a frame back once the work so far of a CUDA stream is done. */
static PyObject *py_frame_release_on(struct py_frame *frame, PyObject *value)
{
	struct pl_error error;
	void *stream;
	int rc;

	if (frame->loan)
		return py_fail(frame->base.context->state, -EINVAL, "PY-NO-LOAN", "frame",
			       "a loan is given back without a stream", "publish it, or leave the stream out");
	if (py_get_stream(value, &stream) < 0 || py_frame_shut(frame) < 0)
		return NULL;
	py_hold(&frame->owner->base);
	Py_BEGIN_ALLOW_THREADS
		rc = pl_frame_release_on(frame->handle, stream, &error);
	Py_END_ALLOW_THREADS
	py_unhold(&frame->owner->base);
	frame->base.closed = rc == 0;
	if (rc)
		return py_raise(frame->base.context->state, &error);
	Py_RETURN_NONE;
}

/* release(stream=None): gives a frame back, or discards a loan. Waits for copies of other threads, unless on a stream. */
static PyObject *py_frame_release(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "stream", NULL };
	struct py_frame *frame = (struct py_frame *)self;
	PyObject *values[1];

	if (py_parse("release", names, 0, arguments, count, keywords, values) < 0)
		return NULL;
	if (values[0] && !frame->base.closed)
		return py_frame_release_on(frame, values[0]);
	if (!frame->base.closed && py_frame_refuse_exports(frame) < 0)
		return NULL;
	py_frame_end(frame);
	Py_RETURN_NONE;
}

static int py_frame_options(struct py_state *state, PyObject **values, struct pl_frame_options *options,
			    struct pl_layout *layout, PyObject **metadata)
{
	int truth = values[4] ? PyObject_IsTrue(values[4]) : 0;
	uint64_t length = 0;

	if (truth < 0 || py_get_u64(values[0], "length", &length) < 0 ||
	    py_get_ns(values[2], "captured", 0, &options->captured) < 0)
		return -1;
	if (values[3]) {
		if (py_layout_get(state, values[3], layout) < 0)
			return -1;
		options->layout = layout;
	}
	options->length = values[0] ? length : py_layout_bytes(layout);
	options->flags = truth ? PL_FRAME_REPLAY : 0;
	if (!values[1])
		return 0;
	*metadata = py_get_bytes(values[1], "metadata");
	if (!*metadata)
		return -1;
	options->metadata = PyBytes_AsString(*metadata);
	options->metadata_length = (size_t)PyBytes_Size(*metadata);
	return 0;
}

/* publish(length=None, metadata=None, captured=None, layout=None, replay=False, stream=None) */
static PyObject *py_frame_publish(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "length", "metadata", "captured", "layout", "replay", "stream", NULL };
	struct py_frame *frame = (struct py_frame *)self;
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_layout layout = frame->info.layout;
	PyObject *values[6], *metadata = NULL;
	struct pl_error error;
	void *stream = NULL;
	int rc;

	if (py_parse("publish", names, 0, arguments, count, keywords, values) < 0 || py_frame_check(frame) < 0)
		return NULL;
	if (!frame->loan)
		return py_fail(frame->base.context->state, -EINVAL, "PY-NO-LOAN", "frame",
			       "a frame of a subscriber cannot be published", "copy it into a loan of a publisher");
	if ((values[5] && py_get_stream(values[5], &stream) < 0) ||
	    py_frame_options(frame->base.context->state, values, &options, &layout, &metadata) < 0 ||
	    py_frame_shut(frame) < 0) {
		Py_XDECREF(metadata);
		return NULL;
	}
	/* Without a layout, all of the slot is the frame. */
	if (!values[0] && !layout.bits)
		options.length = frame->info.length;
	py_hold(&frame->owner->base);
	Py_BEGIN_ALLOW_THREADS
		rc = values[5] ? pl_frame_publish_on(frame->handle, &options, stream, &error)
			       : pl_frame_publish(frame->handle, &options, &error);
	Py_END_ALLOW_THREADS
	py_unhold(&frame->owner->base);
	Py_XDECREF(metadata);
	frame->base.closed = rc == 0;
	if (rc)
		return py_raise(frame->base.context->state, &error);
	Py_RETURN_NONE;
}

/* Copies between a buffer and the frame's memory, of any kind. */
static PyObject *py_frame_copy(struct py_frame *frame, PyObject *object, PyObject *at, bool in)
{
	PY_GUARD_CONTEXT_OF(frame);
	struct pl_error error;
	uint64_t offset = 0;
	Py_buffer view;
	int rc;

	if (py_get_u64(at, "offset", &offset) < 0 ||
	    py_buffer_open(frame->base.context->state, object, &view, in ? PyBUF_SIMPLE : PyBUF_WRITABLE) < 0)
		return NULL;
	if (py_frame_check(frame) < 0) {
		PyBuffer_Release(&view);
		return NULL;
	}
	py_hold(&frame->base);
	py_hold(&frame->owner->base);
	Py_BEGIN_ALLOW_THREADS
		rc = in ? pl_frame_copy_in(frame->handle, offset, view.buf, (size_t)view.len, &error)
			: pl_frame_copy_out(frame->handle, offset, view.buf, (size_t)view.len, &error);
	Py_END_ALLOW_THREADS
	py_unhold(&frame->owner->base);
	py_unhold(&frame->base);
	PyBuffer_Release(&view);
	if (rc)
		return py_raise(frame->base.context->state, &error);
	Py_RETURN_NONE;
}

static PyObject *py_frame_copy_in(PyObject *self, PY_ARGUMENTS)
{
	static const char *const names[] = { "source", "offset", NULL };
	PyObject *values[2];

	if (py_parse("copy_in", names, 1, arguments, count, keywords, values) < 0)
		return NULL;
	return py_frame_copy((struct py_frame *)self, values[0], values[1], true);
}

static PyObject *py_frame_copy_out(PyObject *self, PY_ARGUMENTS)
{
	static const char *const names[] = { "target", "offset", NULL };
	PyObject *values[2];

	if (py_parse("copy_out", names, 1, arguments, count, keywords, values) < 0)
		return NULL;
	return py_frame_copy((struct py_frame *)self, values[0], values[1], false);
}

static PyObject *py_frame_enter(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	(void)unused;
	if (py_frame_check((struct py_frame *)self) < 0)
		return NULL;
	Py_INCREF(self);
	return self;
}

/*
 * __exit__(kind, error, trace): gives the frame back. A loan is published, or discarded after an exception. If arrays of
 * the frame exist still, a taken frame goes back with the last of them.
 */
static PyObject *py_frame_exit(PyObject *self, PyObject *arguments)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_frame *frame = (struct py_frame *)self;
	PyObject *kind = PyTuple_GetItem(arguments, 0);

	if (!kind)
		return NULL;
	if (frame->base.closed || (frame->exports && !frame->loan))
		Py_RETURN_NONE;
	if (frame->loan && kind == Py_None)
		return PyObject_CallMethod(self, "publish", NULL);
	if (frame->exports)
		Py_RETURN_NONE;
	return py_frame_release(self, NULL, 0, NULL);
}

/* Values of a frame stay known after its end. */
enum py_frame_field {
	PY_FRAME_SEQUENCE,
	PY_FRAME_LENGTH,
	PY_FRAME_LOST,
	PY_FRAME_ABSENT,
	PY_FRAME_CAPTURED,
	PY_FRAME_PUBLISHED,
	PY_FRAME_TAKEN,
	PY_FRAME_READONLY,
	PY_FRAME_IN_RING,
	PY_FRAME_REPLAYED,
	PY_FRAME_CLOSED,
};

static PyObject *py_frame_get(PyObject *self, void *field)
{
	PY_GUARD_CONTEXT_OF(self);
	const struct py_frame *frame = (struct py_frame *)self;
	const struct pl_frame_info *info = &frame->info;

	switch ((enum py_frame_field)(uintptr_t)field) {
	case PY_FRAME_SEQUENCE:
		return py_number(info->sequence);
	case PY_FRAME_LENGTH:
		return py_number(info->length);
	case PY_FRAME_LOST:
		return py_number(info->lost_before);
	case PY_FRAME_ABSENT:
		return py_number(info->absent_before);
	case PY_FRAME_CAPTURED:
		return PyFloat_FromDouble((double)info->captured / 1e9);
	case PY_FRAME_PUBLISHED:
		return PyFloat_FromDouble((double)info->published / 1e9);
	case PY_FRAME_TAKEN:
		return PyFloat_FromDouble((double)info->taken / 1e9);
	case PY_FRAME_READONLY:
		return PyBool_FromLong(py_frame_readonly(frame));
	case PY_FRAME_IN_RING:
		return PyBool_FromLong(frame->loan || info->flags & PL_FRAME_IN_PLACE);
	case PY_FRAME_REPLAYED:
		return PyBool_FromLong(info->flags & PL_FRAME_REPLAY);
	default:
		return PyBool_FromLong(frame->base.closed || frame->owner->base.closed ||
				       frame->base.context->status != PY_OPEN);
	}
}

static PyObject *py_frame_overwritten(PyObject *self, void *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_frame *frame = (struct py_frame *)self;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;

	(void)unused;
	if (py_frame_check(frame) < 0)
		return NULL;
	pl_frame_query(frame->handle, &info);
	return PyBool_FromLong(info.flags & PL_FRAME_OVERWRITTEN);
}

static PyObject *py_frame_metadata(PyObject *self, void *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_frame *frame = (struct py_frame *)self;

	(void)unused;
	if (py_frame_check(frame) < 0)
		return NULL;
	return PyBytes_FromStringAndSize(frame->info.metadata, (Py_ssize_t)frame->info.metadata_length);
}

static PyObject *py_frame_layout(PyObject *self, void *unused)
{
	(void)unused;
	return py_layout_value(((struct py_frame *)self)->base.context->state, &((struct py_frame *)self)->info.layout);
}

static PyObject *py_frame_repr(PyObject *self)
{
	PY_GUARD_CONTEXT_OF(self);
	const struct py_frame *frame = (struct py_frame *)self;

	return PyUnicode_FromFormat("<peerlane.Frame %llu, %llu bytes%s>", (unsigned long long)frame->info.sequence,
				    (unsigned long long)frame->info.length,
				    frame->base.closed ? ", closed"
				    : frame->loan      ? ", on loan"
						       : "");
}

static PyMethodDef py_frame_methods[] = {
	{ "release", PY_METHOD(py_frame_release), PY_FAST,
	  "release($self, stream=None)\n--\n\n"
	  "Give the memory back: that of a loan unpublished. Raises PY-EXPORTED while arrays of the frame exist.\n\n"
	  "stream is a CUDA stream whose work so far uses a taken frame: the memory goes back after that work." },
	{ "copy_in", PY_METHOD(py_frame_copy_in), PY_FAST,
	  "copy_in($self, source, offset=0)\n--\n\nCopy a bytes-like object into a loan, also in memory of a GPU." },
	{ "copy_out", PY_METHOD(py_frame_copy_out), PY_FAST,
	  "copy_out($self, target, offset=0)\n--\n\nCopy the frame, also from memory of a GPU, to a writable buffer." },
	{ "publish", PY_METHOD(py_frame_publish), PY_FAST,
	  "publish($self, length=None, metadata=None, captured=None, layout=None, replay=False, stream=None)\n--\n\n"
	  "Publish a loan, which is used up. captured is the time of the data, in seconds since 1970; None: now.\n\n"
	  "length is that of the layout, or of the slot, unless given. stream is a CUDA stream whose work so far\n"
	  "fills the slot: the frame is published after that work. Raises PY-EXPORTED while arrays of the frame\n"
	  "exist, and PY-FRAME-BUSY during a copy_in() of another thread." },
	{ "__enter__", py_frame_enter, METH_NOARGS, NULL },
	{ "__exit__", py_frame_exit, METH_VARARGS, NULL },
	{ "__reduce__", py_object_reduce, METH_NOARGS, NULL },
	{ "__dlpack__", PY_METHOD(py_frame_dlpack), PY_FAST, NULL },
	{ "__dlpack_device__", py_frame_device, METH_NOARGS, NULL },
	{ NULL, NULL, 0, NULL },
};

#define FIELD(name, field, text) \
	{ \
		name, py_frame_get, NULL, text, (void *)(uintptr_t)(field) \
	}
static PyGetSetDef py_frame_fields[] = {
	FIELD("sequence", PY_FRAME_SEQUENCE, "number of the frame in its stream"),
	FIELD("length", PY_FRAME_LENGTH, "bytes; of a loan: of its slot"),
	FIELD("lost_before", PY_FRAME_LOST, "frames directly before that were not delivered"),
	FIELD("absent_before", PY_FRAME_ABSENT,
	      "frames among lost_before that were aborted or unwanted, and so not lost"),
	FIELD("captured", PY_FRAME_CAPTURED, "time of the data, seconds since 1970 by the publisher's clock"),
	FIELD("published", PY_FRAME_PUBLISHED, "time of the publication, the same"),
	FIELD("taken", PY_FRAME_TAKEN, "time of the take, seconds since 1970 by this host's clock"),
	FIELD("readonly", PY_FRAME_READONLY, "True if nothing may be written to the memory"),
	FIELD("in_ring", PY_FRAME_IN_RING, "True if the memory is in the publisher's ring"),
	FIELD("replayed", PY_FRAME_REPLAYED, "True if the frame was recorded earlier"),
	FIELD("closed", PY_FRAME_CLOSED, "True if the memory was given back"),
	{ "overwritten", py_frame_overwritten, NULL, "True if the publisher may have changed the memory after the take",
	  NULL },
	{ "metadata", py_frame_metadata, NULL, "bytes that the publisher added", NULL },
	{ "layout", py_frame_layout, NULL, "Layout of the elements, or None", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

PyType_Spec py_frame_spec = {
	.name = "peerlane._peerlane.Frame",
	.basicsize = sizeof(struct py_frame),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots =
		(PyType_Slot[]){
			{ Py_tp_dealloc, py_frame_dealloc },
			{ Py_tp_traverse, py_frame_traverse },
			{ Py_tp_methods, py_frame_methods },
			{ Py_tp_getset, py_frame_fields },
			{ Py_tp_repr, py_frame_repr },
			{ Py_bf_getbuffer, py_frame_getbuffer },
			{ Py_bf_releasebuffer, py_frame_releasebuffer },
			{ Py_tp_doc,
			  "Frame of a stream: memory that NumPy, torch.from_dlpack() and memoryview() use without "
			  "a copy." },
			{ 0, NULL } },
};
