/* SPDX-License-Identifier: BSD-2-Clause */
/* Subscribers of streams. */
#include <errno.h>
#include <stdio.h>

#include "stream.h"

/* Returns the position of a word in a list that ends with NULL; -1 with an exception. */
static int py_get_word(PyObject *value, const char *name, const char *const *words)
{
	char choices[128] = "";
	size_t used = 0;

	for (int i = 0; words[i] && PyUnicode_Check(value); i++)
		if (PyUnicode_CompareWithASCIIString(value, words[i]) == 0)
			return i;
	for (int i = 0; words[i] && used < sizeof(choices); i++)
		used += (size_t)snprintf(choices + used, sizeof(choices) - used, "%s\"%s\"", i ? ", " : "", words[i]);
	PyErr_Format(PyExc_ValueError, "%s must be one of %s, not %R", name, choices, value);
	return -1;
}

static int py_subscriber_options(const char *const *names, PyObject **values, struct pl_subscriber_options *options)
{
	static const char *const starts[] = { "live", "latest", "history", "sequence", NULL };
	static const char *const overflows[] = { "drop-oldest", "drop-newest", "block", NULL };
	int start = values[1] ? py_get_word(values[1], names[1], starts) : 0;
	int overflow = start >= 0 && values[3] ? py_get_word(values[3], names[3], overflows) : 0;
	int in_place = values[9] ? PyObject_IsTrue(values[9]) : 0;
	int push = values[11] ? PyObject_IsTrue(values[11]) : 0;
	uint64_t memory_bytes = 0;

	if (start < 0 || overflow < 0 || in_place < 0 || push < 0 ||
	    py_get_u64(values[2], names[2], &options->from) < 0 ||
	    py_get_unsigned(values[4], names[4], &options->queue) < 0 ||
	    py_get_unsigned(values[5], names[5], &options->held) < 0 ||
	    py_get_unsigned(values[6], names[6], &options->every) < 0 ||
	    py_get_u64(values[7], names[7], &memory_bytes) < 0)
		return -1;
	options->start = (enum pl_start)start;
	options->overflow = (enum pl_overflow)overflow;
	options->memory_bytes = memory_bytes;
	options->in_place = in_place;
	options->push = push;
	return 0;
}

PyObject *py_peer_subscribe(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "name",    "start", "position",     "overflow", "queue",
					     "held",    "every", "memory_bytes", "memory",   "in_place",
					     "timeout", "push",  "token",        NULL };
	struct py_peer *peer = (struct py_peer *)self;
	struct py_context *context = peer->base.context;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	PyObject *values[13], *owners[3] = { NULL }, *made = NULL;
	struct pl_subscriber *subscriber;
	struct pl_error error;
	const char *name = NULL;
	uint64_t timeout;
	int rc;

	if (py_parse("subscribe", names, 1, arguments, count, keywords, values) < 0 ||
	    py_subscriber_options(names, values, &options) < 0 ||
	    py_get_ns(values[10], names[10], PY_ANSWER_NS, &timeout) < 0)
		return NULL;
	if (py_stream_text(values[0], names[0], &name, &owners[0]) == 0 &&
	    py_stream_text(values[8], names[8], &options.memory, &owners[1]) == 0 &&
	    py_stream_token(values[12], &options.token, &options.token_length, &owners[2]) == 0 &&
	    py_object_check(&peer->base) == 0) {
		py_hold(&peer->base);
		Py_BEGIN_ALLOW_THREADS
			rc = pl_subscriber_open(peer->handle, name, &options, timeout, &subscriber, &error);
		Py_END_ALLOW_THREADS
		py_unhold(&peer->base);
		made = rc ? py_raise(context->state, &error)
			  : py_stream_new(context, NULL, subscriber, options.in_place ? NULL : options.memory);
	}
	for (int i = 0; i < 3; i++)
		Py_XDECREF(owners[i]);
	return made;
}

/*
 * Takes the next frame. Returns it; NULL with an exception; NULL without one if none came in time, or with *ended if the
 * stream has ended and `ended` is not NULL. Looks for signals between slices of the time.
 */
static PyObject *py_subscriber_next(struct py_stream *stream, uint64_t timeout, bool *ended)
{
	PY_GUARD_CONTEXT_OF(stream);
	struct py_state *state = stream->base.context->state;
	struct pl_stream_frame *handle;
	struct pl_error error;
	int rc;

	for (uint64_t left = timeout;;) {
		uint64_t slice = left < PY_SLICE_NS ? left : PY_SLICE_NS;

		if (py_object_check(&stream->base) < 0)
			return NULL;
		py_hold(&stream->base);
		Py_BEGIN_ALLOW_THREADS
			rc = pl_subscriber_take(stream->subscriber, &handle, 1, slice, &error);
		Py_END_ALLOW_THREADS
		py_unhold(&stream->base);
		if (rc > 0)
			return py_frame_new(stream, handle, false);
		if (rc == -ENODATA && ended) {
			*ended = true;
			return NULL;
		}
		if (rc != -EAGAIN && rc != -ETIMEDOUT)
			return py_raise(state, &error);
		if (PyErr_CheckSignals() < 0 || left == slice)
			return NULL;
		left -= left == UINT64_MAX ? 0 : slice;
	}
}

/* take(timeout=None) */
static PyObject *py_subscriber_take(PyObject *self, PY_ARGUMENTS)
{
	static const char *const names[] = { "timeout", NULL };
	PyObject *values[1], *frame;
	uint64_t timeout;

	if (py_parse("take", names, 0, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[0], names[0], UINT64_MAX, &timeout) < 0)
		return NULL;
	frame = py_subscriber_next((struct py_stream *)self, timeout, NULL);
	if (frame || PyErr_Occurred())
		return frame;
	Py_RETURN_NONE;
}

/* Ends the iteration with the stream. */
static PyObject *py_subscriber_iterate(PyObject *self)
{
	bool ended = false;

	return py_subscriber_next((struct py_stream *)self, UINT64_MAX, &ended);
}

static PyObject *py_subscriber_iterator(PyObject *self)
{
	Py_INCREF(self);
	return self;
}

static PyObject *py_subscriber_fileno(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_stream *stream = (struct py_stream *)self;
	int fd;

	(void)unused;
	if (py_object_check(&stream->base) < 0)
		return NULL;
	fd = pl_subscriber_fd(stream->subscriber);
	return fd < 0 ? py_raise_code(stream->base.context->state, fd, "fileno", "subscriber") : PyLong_FromLong(fd);
}

static PyObject *py_subscriber_pause(PyObject *self, PyObject *value)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_stream *stream = (struct py_stream *)self;
	int paused = PyObject_IsTrue(value);

	if (paused < 0 || py_object_check(&stream->base) < 0)
		return NULL;
	py_hold(&stream->base);
	Py_BEGIN_ALLOW_THREADS
		pl_subscriber_pause(stream->subscriber, paused);
	Py_END_ALLOW_THREADS
	py_unhold(&stream->base);
	Py_RETURN_NONE;
}

/* attach(peer, timeout=30) */
static PyObject *py_subscriber_attach(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	static const char *const names[] = { "peer", "timeout", NULL };
	struct py_stream *stream = (struct py_stream *)self;
	struct py_state *state = stream->base.context->state;
	struct py_peer *peer;
	struct pl_error error;
	PyObject *values[2];
	uint64_t timeout;
	int rc;

	if (py_parse("attach", names, 1, arguments, count, keywords, values) < 0 ||
	    py_get_ns(values[1], names[1], PY_ANSWER_NS, &timeout) < 0 || py_object_check(&stream->base) < 0)
		return NULL;
	peer = (struct py_peer *)values[0];
	if ((Py_TYPE(values[0]) != state->peer && Py_TYPE(values[0]) != state->async_peer) ||
	    peer->base.context != stream->base.context)
		return PyErr_Format(PyExc_TypeError, "attach() needs a peer of the subscriber's context, not %R",
				    values[0]);
	if (py_object_check(&peer->base) < 0)
		return NULL;
	py_hold(&stream->base);
	py_hold(&peer->base);
	Py_BEGIN_ALLOW_THREADS
		rc = pl_subscriber_attach(stream->subscriber, peer->handle, timeout, &error);
	Py_END_ALLOW_THREADS
	py_unhold(&peer->base);
	py_unhold(&stream->base);
	if (rc)
		return py_raise(state, &error);
	Py_RETURN_NONE;
}

static PyMethodDef py_subscriber_methods[] = {
	STREAM_METHODS,
	{ "close", py_stream_close, METH_NOARGS,
	  "close($self)\n--\n\nEnd the subscription. Frames of it must not be in use." },
	{ "_close_late", py_stream_close_late, METH_NOARGS, NULL },
	{ "take", PY_METHOD(py_subscriber_take), PY_FAST,
	  "take($self, timeout=None)\n--\n\n"
	  "Return the next Frame, or None if none has come in time. Raises peerlane.Ended after the last one." },
	{ "fileno", py_subscriber_fileno, METH_NOARGS,
	  "fileno($self)\n--\n\nReturn a descriptor that polls readable while take() has something. Do not close it." },
	{ "pause", py_subscriber_pause, METH_O,
	  "pause($self, paused, /)\n--\n\nPause the subscriber, or let it go on: a paused one fetches no frames." },
	{ "attach", PY_METHOD(py_subscriber_attach), PY_FAST,
	  "attach($self, peer, timeout=30)\n--\n\nContinue over another connection, after the loss of the first. "
	  "Blocks." },
	{ "set_token", py_subscriber_set_token, METH_O,
	  "set_token($self, token, /)\n--\n\nSet the token that the next attach() presents; None: no token." },
	{ NULL, NULL, 0, NULL },
};

PyType_Spec py_subscriber_spec = {
	.name = "peerlane._peerlane.Subscriber",
	.basicsize = sizeof(struct py_stream),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_stream_dealloc },
				  { Py_tp_traverse, py_object_traverse },
				  { Py_tp_methods, py_subscriber_methods },
				  { Py_tp_getset, py_stream_fields },
				  { Py_tp_iter, py_subscriber_iterator },
				  { Py_tp_iternext, py_subscriber_iterate },
				  { Py_tp_doc, "Reader of a stream, from Peer.subscribe(). An iterator of frames." },
				  { 0, NULL } },
};
