/* SPDX-License-Identifier: BSD-2-Clause */
/* Publishers of streams. */
#include <errno.h>

#include "stream.h"

/* Reads the options but for texts. The names are those of py_context_publish(). */
static int py_publisher_options(struct py_state *state, const char *const *names, PyObject **values,
				struct pl_publisher_options *options)
{
	uint64_t slot_bytes = 0, metadata_bytes = 0;
	int block = values[8] ? PyObject_IsTrue(values[8]) : 0;
	int needs_token = values[12] ? PyObject_IsTrue(values[12]) : 0;

	if (block < 0 || needs_token < 0 || (values[1] && py_layout_get(state, values[1], &options->layout) < 0))
		return -1;
	slot_bytes = py_layout_bytes(&options->layout);
	if (py_get_u64(values[2], names[2], &slot_bytes) < 0 ||
	    py_get_unsigned(values[3], names[3], &options->slots) < 0 ||
	    py_get_unsigned(values[4], names[4], &options->loans) < 0 ||
	    py_get_unsigned(values[5], names[5], &options->subscribers) < 0 ||
	    py_get_u64(values[6], names[6], &metadata_bytes) < 0 ||
	    py_get_ns(values[9], names[9], 0, &options->patience) < 0 ||
	    py_get_u64(values[10], names[10], &options->first) < 0)
		return -1;
	options->slot_bytes = slot_bytes;
	options->metadata_bytes = metadata_bytes;
	options->allow_block = block;
	options->needs_token = needs_token;
	return 0;
}

PyObject *py_context_publish(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD(self);
	static const char *const names[] = { "name",        "layout",         "slot_bytes",   "slots",       "loans",
					     "subscribers", "metadata_bytes", "content_type", "allow_block", "patience",
					     "first",       "memory",         "needs_token",  NULL };
	struct py_context *context = (struct py_context *)self;
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	PyObject *values[13], *owners[3] = { NULL }, *made = NULL;
	struct pl_publisher *publisher;
	struct pl_error error;
	const char *name = NULL;
	int rc;

	if (py_parse("publish", names, 1, arguments, count, keywords, values) < 0 ||
	    py_publisher_options(context->state, names, values, &options) < 0)
		return NULL;
	if (py_stream_text(values[0], names[0], &name, &owners[0]) == 0 &&
	    py_stream_text(values[7], names[7], &options.content_type, &owners[1]) == 0 &&
	    py_stream_text(values[11], names[11], &options.memory, &owners[2]) == 0 && py_context_check(context) == 0) {
		context->users++;
		Py_BEGIN_ALLOW_THREADS
			rc = pl_publisher_open(context->handle, name, &options, &publisher, &error);
		Py_END_ALLOW_THREADS
		context->users--;
		made = rc ? py_raise(context->state, &error) : py_stream_new(context, publisher, NULL, options.memory);
		if (made)
			((struct py_stream *)made)->layout = options.layout;
	}
	for (int i = 0; i < 3; i++)
		Py_XDECREF(owners[i]);
	return made;
}

/* -- calls that may wait for subscribers ------------------------------------------------------------------ */

struct py_publisher_call {
	int (*make)(struct pl_publisher *publisher, struct py_publisher_call *call, uint64_t timeout,
		    struct pl_error *error);
	struct pl_stream_frame *frame; /* of loan(): the result */
	uint64_t sequence;             /* of skip() */
	bool lost;
};

static int py_call_loan(struct pl_publisher *publisher, struct py_publisher_call *call, uint64_t timeout,
			struct pl_error *error)
{
	return pl_publisher_loan(publisher, timeout, &call->frame, error);
}

static int py_call_skip(struct pl_publisher *publisher, struct py_publisher_call *call, uint64_t timeout,
			struct pl_error *error)
{
	return call->lost ? pl_publisher_skip_lost(publisher, call->sequence, timeout, error)
			  : pl_publisher_skip(publisher, call->sequence, timeout, error);
}

static int py_call_end(struct pl_publisher *publisher, struct py_publisher_call *call, uint64_t timeout,
		       struct pl_error *error)
{
	(void)call;
	return pl_publisher_end(publisher, timeout, error);
}

/*
 * Makes the call in slices of its time. Signals are handled between them, and another thread can close the publisher. Returns
 * 0, or -1 with an exception. The caller guards the context, also while it uses the result.
 */
static int py_publisher_wait(struct py_stream *stream, struct py_publisher_call *call, uint64_t timeout)
{
	uint64_t deadline = timeout ? py_deadline(timeout) : 0;
	struct pl_error error;

	for (;;) {
		uint64_t begin = timeout ? py_clock_ns() : 0, left = deadline > begin ? deadline - begin : 0;
		uint64_t slice = left < PY_SLICE_NS ? left : PY_SLICE_NS;
		int rc;

		/* Without time, pl_publisher_end() would not tell of subscribers that have not reported. */
		slice += timeout && !slice;
		if (py_object_check(&stream->base) < 0)
			return -1;
		py_hold(&stream->base);
		Py_BEGIN_ALLOW_THREADS
			rc = call->make(stream->publisher, call, slice, &error);
		Py_END_ALLOW_THREADS
		py_unhold(&stream->base);
		if (rc == 0)
			return 0;
		/* The library ends before its time for a reason that does not pass. */
		if (left <= slice || py_clock_ns() - begin < slice) {
			stream->refused += rc == -EAGAIN;
			py_raise(stream->base.context->state, &error);
			return -1;
		}
		if (PyErr_CheckSignals() < 0)
			return -1;
	}
}

static struct py_frame *py_publisher_borrow(struct py_stream *stream, uint64_t timeout)
{
	PY_GUARD_CONTEXT_OF(stream);
	struct py_publisher_call call = { .make = py_call_loan };

	return py_publisher_wait(stream, &call, timeout) < 0
		       ? NULL
		       : (struct py_frame *)py_frame_new(stream, call.frame, true);
}

/* loan(timeout=0) */
static PyObject *py_publisher_loan(PyObject *self, PY_ARGUMENTS)
{
	static const char *const names[] = { "timeout", NULL };
	PyObject *values[1];
	uint64_t timeout;

	if (py_parse("loan", names, 0, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[0], names[0], 0, &timeout) < 0)
		return NULL;
	return (PyObject *)py_publisher_borrow((struct py_stream *)self, timeout);
}

/* Returns the length of an array or of bytes for a frame, after a comparison with its layout; NULL with an exception. */
static PyObject *py_put_length(const struct py_stream *stream, PyObject *data, PyObject *own_layout)
{
	struct pl_layout layout = stream->layout;
	PyObject *length = NULL;
	Py_buffer view;

	if ((own_layout && py_layout_get(stream->base.context->state, own_layout, &layout) < 0) ||
	    py_buffer_open(stream->base.context->state, data, &view, PyBUF_ND | PyBUF_FORMAT) < 0)
		return NULL;
	if (!layout.bits || py_array_check(stream->base.context->state, &view, &layout) == 0)
		length = PyLong_FromSsize_t(view.len);
	PyBuffer_Release(&view);
	return length;
}

/* put(data, metadata=None, captured=None, layout=None, timeout=0) */
static PyObject *py_publisher_put(PyObject *self, PY_ARGUMENTS)
{
	static const char *const names[] = { "data", "metadata", "captured", "layout", "timeout", NULL };
	PyObject *values[5], *frame, *copied, *length, *published = NULL;
	uint64_t timeout;

	if (py_parse("put", names, 1, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[4], names[4], 0, &timeout) < 0)
		return NULL;
	length = py_put_length((struct py_stream *)self, values[0], values[3]);
	frame = length ? (PyObject *)py_publisher_borrow((struct py_stream *)self, timeout) : NULL;
	copied = frame ? PyObject_CallMethod(frame, "copy_in", "O", values[0]) : NULL;
	if (copied)
		published = PyObject_CallMethod(frame, "publish", "OOOO", length, values[1] ? values[1] : Py_None,
						values[2] ? values[2] : Py_None, values[3] ? values[3] : Py_None);
	Py_XDECREF(copied);
	Py_XDECREF(length);
	/* A loan that was not published is discarded. */
	Py_XDECREF(frame);
	return published;
}

/* skip(sequence, timeout=0, lost=False) */
static PyObject *py_publisher_skip(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "sequence", "timeout", "lost", NULL };
	struct py_publisher_call call = { .make = py_call_skip };
	PyObject *values[3];
	uint64_t timeout;
	int lost;

	if (py_parse("skip", names, 1, arguments, count, keywords, values) < 0 ||
	    py_get_u64(values[0], names[0], &call.sequence) < 0 || py_get_ns(values[1], names[1], 0, &timeout) < 0 ||
	    (lost = values[2] ? PyObject_IsTrue(values[2]) : 0) < 0)
		return NULL;
	call.lost = lost;
	if (py_publisher_wait((struct py_stream *)self, &call, timeout) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* end(timeout=0) */
static PyObject *py_publisher_finish(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "timeout", NULL };
	struct py_publisher_call call = { .make = py_call_end };
	PyObject *values[1];
	uint64_t timeout;

	if (py_parse("end", names, 0, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[0], names[0], 0, &timeout) < 0)
		return NULL;
	if (py_publisher_wait((struct py_stream *)self, &call, timeout) < 0)
		return NULL;
	Py_RETURN_NONE;
}

static PyMethodDef py_publisher_methods[] = {
	STREAM_METHODS,
	{ "close", py_stream_close, METH_NOARGS,
	  "close($self)\n--\n\nEnd the stream, and close it. Subscribers lose frames that they have not read." },
	{ "loan", PY_METHOD(py_publisher_loan), PY_FAST,
	  "loan($self, timeout=0)\n--\n\n"
	  "Borrow the next slot of the ring; return its Frame, to be filled and published.\n\n"
	  "With `with`, the end of the block publishes the frame, and an exception discards it. timeout is the time to "
	  "wait for subscribers that block." },
	{ "put", PY_METHOD(py_publisher_put), PY_FAST,
	  "put($self, data, metadata=None, captured=None, layout=None, timeout=0)\n--\n\n"
	  "Copy a bytes-like object, an array or a tensor of the host into the next slot, and publish it.\n\n"
	  "The elements and the shape of an array must be those of the layout; one row of as many elements will do." },
	{ "skip", PY_METHOD(py_publisher_skip), PY_FAST,
	  "skip($self, sequence, timeout=0, lost=False)\n--\n\nContinue with a later sequence.\n\n"
	  "Subscribers count the sequences between as aborted, or with lost=True as missed." },
	{ "end", PY_METHOD(py_publisher_finish), PY_FAST,
	  "end($self, timeout=0)\n--\n\n"
	  "End the stream, and wait until all subscribers have read what they can get; not at all with 0." },
	{ "share", PY_METHOD(py_publisher_share), PY_FAST,
	  "share($self, lifetime=None)\n--\n\n"
	  "Return a token for a stream with needs_token: subscribe(token=...) presents it.\n\n"
	  "lifetime is in seconds; then the token and its subscriptions end. None: until the token is revoked." },
	{ "revoke", py_publisher_revoke, METH_O,
	  "revoke($self, token, /)\n--\n\nRevoke a token, and end the subscriptions that it admitted." },
	{ "subscribers", py_publisher_subscribers, METH_NOARGS,
	  "subscribers($self)\n--\n\nReturn a list of dictionaries of the subscribers and their accounts." },
	{ NULL, NULL, 0, NULL },
};

PyType_Spec py_publisher_spec = {
	.name = "peerlane._peerlane.Publisher",
	.basicsize = sizeof(struct py_stream),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_stream_dealloc },
				  { Py_tp_traverse, py_object_traverse },
				  { Py_tp_methods, py_publisher_methods },
				  { Py_tp_getset, py_stream_fields },
				  { Py_tp_doc, "Writer of a stream, from Context.publish()." },
				  { 0, NULL } },
};
