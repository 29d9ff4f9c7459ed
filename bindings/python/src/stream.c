/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that publishers and subscribers of streams share. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

int py_stream_text(PyObject *value, const char *name, const char **text, PyObject **owner)
{
	if (!value)
		return 0;
	*text = py_get_text(value, name, owner);
	return *text ? 0 : -1;
}

int py_get_unsigned(PyObject *value, const char *name, unsigned *number)
{
	uint64_t wide = *number;

	if (py_get_u64(value, name, &wide) < 0)
		return -1;
	if (wide > UINT_MAX) {
		PyErr_Format(PyExc_ValueError, "%s must be below 2**32", name);
		return -1;
	}
	*number = (unsigned)wide;
	return 0;
}

static int py_device_of(const char *memory)
{
	if (!memory || strncmp(memory, "cuda", 4) != 0)
		return -1;
	return memory[4] == ':' ? atoi(memory + 5) : 0;
}

PyObject *py_stream_new(struct py_context *context, struct pl_publisher *publisher, struct pl_subscriber *subscriber,
			const char *memory)
{
	PyTypeObject *type = publisher ? context->state->publisher : context->state->subscriber;
	struct py_stream *stream = py_object_new(type, context);

	if (!stream) {
		pl_publisher_close(publisher);
		pl_subscriber_close(subscriber);
		return NULL;
	}
	stream->publisher = publisher;
	stream->subscriber = subscriber;
	stream->device = py_device_of(memory);
	return (PyObject *)stream;
}

static void py_stream_end(struct py_stream *stream)
{
	struct py_context *context = stream->base.context;

	if (stream->base.closed || !py_object_quiet(&stream->base))
		return;
	context->users++;
	Py_BEGIN_ALLOW_THREADS
		pl_publisher_close(stream->publisher);
		pl_subscriber_close(stream->subscriber);
	Py_END_ALLOW_THREADS
	context->users--;
}

PyObject *py_stream_close(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_stream *stream = (struct py_stream *)self;

	(void)unused;
	if (stream->exports && !stream->base.closed)
		return py_fail(stream->base.context->state, -EBUSY, "PY-EXPORTED", "stream",
			       "arrays or memoryviews of its frames exist", "delete them before the stream is closed");
	py_stream_end(stream);
	Py_RETURN_NONE;
}

/* _close_late(): closes the stream when no arrays of its frames exist any more. Until then no call begins. */
PyObject *py_stream_close_late(PyObject *self, PyObject *unused)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_stream *stream = (struct py_stream *)self;

	(void)unused;
	stream->base.closes_late = true;
	if (!stream->exports)
		return py_stream_close(self, NULL);
	Py_RETURN_NONE;
}

PyObject *py_stream_exit(PyObject *self, PyObject *arguments)
{
	PY_GUARD_CONTEXT_OF(self);

	/* The cause of the exception counts. Its traceback may hold arrays: the last of them closes the stream. */
	if (((struct py_stream *)self)->exports && py_exit_failed(arguments))
		return py_stream_close_late(self, NULL);
	return py_stream_close(self, NULL);
}

static void py_stream_finish(PyObject *self)
{
	py_stream_end((struct py_stream *)self);
}

void py_stream_dealloc(PyObject *self)
{
	py_object_dealloc(self, py_stream_finish);
}

static PyObject *py_stream_context(PyObject *self, void *unused)
{
	PyObject *context = (PyObject *)((struct py_object *)self)->context;

	(void)unused;
	Py_INCREF(context);
	return context;
}

PyGetSetDef py_stream_fields[] = {
	{ "_context", py_stream_context, NULL, NULL, NULL },
	{ "closed", py_object_closed, NULL, "True if this end has closed the stream", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};
