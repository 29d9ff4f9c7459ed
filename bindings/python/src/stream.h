/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams and their frames. */
#ifndef PEERLANE_PYTHON_STREAM_H
#define PEERLANE_PYTHON_STREAM_H

#include "extension.h"

#include <peerlane/stream.h>

/* Time for an answer of the other end, unless the caller gives one. */
#define PY_ANSWER_NS (30 * 1000000000ull)

/* A publisher or a subscriber. */
struct py_stream {
	struct py_object base;
	struct pl_publisher *publisher; /* NULL: a subscriber */
	struct pl_subscriber *subscriber;
	Py_ssize_t exports; /* views of its frames */
	uint64_t refused;   /* calls of a publisher that were refused; the library counts each slice of their time */
	int device;         /* number of the GPU of the frames' memory, or -1 */
	struct pl_layout layout; /* of a publisher's frames without one of their own */
};

struct py_frame {
	struct py_object base;
	struct py_stream *owner; /* strong reference */
	struct pl_stream_frame *handle;
	struct pl_frame_info info; /* of the time when the frame was made */
	bool loan;
	Py_ssize_t exports; /* views of the memory */
};

/* Takes over the handle, and gives it back to the library if it fails. */
PyObject *py_frame_new(struct py_stream *owner, struct pl_stream_frame *handle, bool loan);
int py_frame_check(struct py_frame *frame);

/* Subscribers' own memory may be written; that of frames in place belongs to the publisher. */
static inline bool py_frame_readonly(const struct py_frame *frame)
{
	return !frame->loan && frame->info.flags & PL_FRAME_IN_PLACE;
}

/* Layouts and views: frame_view.c. */
int py_layout_get(struct py_state *state, PyObject *value, struct pl_layout *layout);
PyObject *py_layout_value(struct py_state *state, const struct pl_layout *layout);
uint64_t py_layout_bytes(const struct pl_layout *layout);
/* Returns the dimensions of buffers and tensors. The lanes of vectors are the last one. */
int py_layout_shape(const struct pl_layout *layout, int64_t *shape);
/* Returns the format of an element as of the module struct; NULL: elements are given as bytes. */
const char *py_layout_format(const struct pl_layout *layout);
/* Fails if the elements of an array are others than those of a layout: frame_array.c. Plain bytes fit each layout. */
int py_array_check(struct py_state *state, const Py_buffer *view, const struct pl_layout *layout);
/* Describes the elements of a layout in a view. Returns 0, or -1 with an exception. */
int py_view_fill(const struct pl_layout *layout, const char *format, Py_buffer *view, int flags);
int py_frame_getbuffer(PyObject *self, Py_buffer *view, int flags);
void py_frame_releasebuffer(PyObject *self, Py_buffer *view);
PyObject *py_frame_dlpack(PyObject *self, PY_ARGUMENTS);
PyObject *py_frame_device(PyObject *self, PyObject *unused);

/* Properties as dictionaries: stream_info.c. */
PyObject *py_stream_info(PyObject *self, PyObject *unused);
PyObject *py_publisher_subscribers(PyObject *self, PyObject *unused);

/* Methods and fields of both: stream.c. */
#define STREAM_METHODS \
	{ "__enter__", py_object_enter, METH_NOARGS, NULL }, { "__exit__", py_stream_exit, METH_VARARGS, NULL }, \
		{ "__reduce__", py_object_reduce, METH_NOARGS, NULL }, \
	{ \
		"info", py_stream_info, METH_NOARGS, "info($self)\n--\n\nReturn a dictionary about the stream." \
	}
extern PyGetSetDef py_stream_fields[];
PyObject *py_stream_new(struct py_context *context, struct pl_publisher *publisher, struct pl_subscriber *subscriber,
			const char *memory);
PyObject *py_stream_close(PyObject *self, PyObject *unused);
PyObject *py_stream_close_late(PyObject *self, PyObject *unused);
PyObject *py_stream_exit(PyObject *self, PyObject *arguments);
void py_stream_dealloc(PyObject *self);

/* Tokens: stream_token.c. Sets the bytes of a token, which `owner` keeps; None: leaves all as it is. Returns 0 or -1. */
int py_stream_token(PyObject *value, const void **token, size_t *length, PyObject **owner);
/* The same for a call of an object, which must be open then. */
int py_open_token(struct py_object *object, PyObject *value, const void **token, size_t *length, PyObject **owner);
PyObject *py_publisher_share(PyObject *self, PY_ARGUMENTS);
PyObject *py_publisher_revoke(PyObject *self, PyObject *given);
PyObject *py_subscriber_set_token(PyObject *self, PyObject *given);

/* Reads a number below 2^32. NULL leaves `number` as it is. */
int py_get_unsigned(PyObject *value, const char *name, unsigned *number);
/* Sets a text option: `owner` keeps the text. Returns 0, or -1 with an exception. */
int py_stream_text(PyObject *value, const char *name, const char **text, PyObject **owner);

#endif
