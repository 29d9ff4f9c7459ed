/* SPDX-License-Identifier: BSD-2-Clause */
/* Layouts, and views of frames by the buffer protocol and by DLPack. */
#include <errno.h>

#include "stream.h"

/* Reads a peerlane.Layout. Returns 0, or -1 with an exception. */
int py_layout_get(struct py_state *state, PyObject *value, struct pl_layout *layout)
{
	PyObject *parts = PyObject_GetAttrString(value, "_parts");
	uint64_t numbers[3 + PL_LAYOUT_DIMENSIONS_MAX] = { 0 };
	Py_ssize_t count = parts ? PyTuple_Size(parts) : -1;

	if (!parts && PyErr_ExceptionMatches(PyExc_AttributeError)) {
		PyErr_Clear();
		py_fail(state, -EINVAL, "PY-LAYOUT", "layout", "the object is no Layout",
			"give pl.Layout(shape, dtype), or pl.Layout.of(array) for frames like an array");
		return -1;
	}
	if (count > 3 + PL_LAYOUT_DIMENSIONS_MAX) {
		PyErr_Format(PyExc_ValueError, "a layout has at most %d dimensions", PL_LAYOUT_DIMENSIONS_MAX);
		count = -1;
	}
	for (Py_ssize_t i = 0; i < count; i++)
		if (py_get_u64(PyTuple_GetItem(parts, i), "layout", &numbers[i]) < 0)
			count = -1;
	Py_XDECREF(parts);
	if (count < 3)
		return -1;
	*layout = (struct pl_layout){
		(uint8_t)numbers[0], (uint8_t)numbers[1], (uint16_t)numbers[2], (uint32_t)(count - 3), { 0 }
	};
	for (Py_ssize_t i = 3; i < count; i++)
		layout->shape[i - 3] = numbers[i];
	return 0;
}

/* Returns a peerlane.Layout, or None. */
PyObject *py_layout_value(struct py_state *state, const struct pl_layout *layout)
{
	PyObject *shape, *made;

	if (!layout->bits)
		return Py_BuildValue("");
	shape = PyList_New(0);
	for (uint32_t i = 0; shape && i < layout->dimensions; i++) {
		PyObject *number = py_number(layout->shape[i]);

		if (!number || PyList_Append(shape, number) < 0)
			Py_CLEAR(shape);
		Py_XDECREF(number);
	}
	if (!shape)
		return NULL;
	made = PyObject_CallMethod(state->layout, "_of", "iiiO", layout->code, layout->bits, layout->lanes, shape);
	Py_DECREF(shape);
	return made;
}

int py_layout_shape(const struct pl_layout *layout, int64_t *shape)
{
	int dimensions = (int)layout->dimensions;

	for (int i = 0; i < dimensions; i++)
		shape[i] = (int64_t)layout->shape[i];
	if (layout->lanes > 1)
		shape[dimensions++] = layout->lanes;
	return dimensions;
}

/* Returns the bytes of a layout, whose elements may begin within bytes; 0 for none. */
uint64_t py_layout_bytes(const struct pl_layout *layout)
{
	uint64_t bits = (uint64_t)layout->bits * layout->lanes;

	for (uint32_t i = 0; i < layout->dimensions; i++)
		bits *= layout->shape[i];
	return bits / 8 + (bits % 8 != 0);
}

const char *py_layout_format(const struct pl_layout *layout)
{
	static const struct {
		uint8_t code, bits;
		const char *format;
	} formats[] = {
		{ PL_ELEMENT_INT, 8, "b" },        { PL_ELEMENT_INT, 16, "h" },   { PL_ELEMENT_INT, 32, "i" },
		{ PL_ELEMENT_INT, 64, "q" },       { PL_ELEMENT_UINT, 8, "B" },   { PL_ELEMENT_UINT, 16, "H" },
		{ PL_ELEMENT_UINT, 32, "I" },      { PL_ELEMENT_UINT, 64, "Q" },  { PL_ELEMENT_FLOAT, 16, "e" },
		{ PL_ELEMENT_FLOAT, 32, "f" },     { PL_ELEMENT_FLOAT, 64, "d" }, { PL_ELEMENT_COMPLEX, 64, "Zf" },
		{ PL_ELEMENT_COMPLEX, 128, "Zd" }, { PL_ELEMENT_BOOL, 8, "?" },
	};

	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
		if (formats[i].code == layout->code && formats[i].bits == layout->bits)
			return formats[i].format;
	return NULL;
}

/* True if the frame's bytes are the elements of its layout. Elements that are no whole bytes are given as bytes. */
static bool py_frame_has_layout(const struct py_frame *frame)
{
	uint64_t bytes = py_layout_bytes(&frame->info.layout);

	return bytes && frame->info.layout.bits % 8 == 0 &&
	       (frame->loan ? bytes <= frame->info.length : bytes == frame->info.length);
}

static void py_frame_count(PyObject *self, int change)
{
	struct py_frame *frame = (struct py_frame *)self;

	frame->exports += change;
	py_exports_count(&frame->owner->base, &frame->owner->exports, change, "close");
}

/* Shape and strides of a view, in its `internal`. */
struct py_view {
	Py_ssize_t shape[PL_LAYOUT_DIMENSIONS_MAX + 1], strides[PL_LAYOUT_DIMENSIONS_MAX + 1];
};

int py_view_fill(const struct pl_layout *layout, const char *format, Py_buffer *view, int flags)
{
	int64_t shape[PL_LAYOUT_DIMENSIONS_MAX + 1];
	struct py_view *extra = PyMem_Calloc(1, sizeof(*extra));
	Py_ssize_t stride = layout->bits / 8;

	if (!extra) {
		PyErr_NoMemory();
		return -1;
	}
	view->ndim = py_layout_shape(layout, shape);
	for (int i = view->ndim - 1; i >= 0; i--) {
		extra->shape[i] = (Py_ssize_t)shape[i];
		extra->strides[i] = stride;
		stride *= extra->shape[i];
	}
	view->internal = extra;
	view->len = stride;
	view->itemsize = layout->bits / 8;
	view->format = (flags & PyBUF_FORMAT) == PyBUF_FORMAT ? (char *)format : NULL;
	view->shape = extra->shape;
	view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? extra->strides : NULL;
	return 0;
}

int py_frame_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_frame *frame = (struct py_frame *)self;

	view->obj = NULL;
	if (py_frame_check(frame) < 0)
		return -1;
	if (frame->owner->device >= 0) {
		py_fail(frame->base.context->state, -ENOTSUP, "PY-NO-HOST", "frame",
			"the processor cannot reach memory of a GPU", "use copy_in(), copy_out(), or a tensor of it");
		return -1;
	}
	if (PyBuffer_FillInfo(view, self, frame->info.data, (Py_ssize_t)frame->info.length, py_frame_readonly(frame),
			      flags) < 0)
		return -1;
	if ((flags & PyBUF_ND) == PyBUF_ND && py_frame_has_layout(frame) && py_layout_format(&frame->info.layout) &&
	    py_view_fill(&frame->info.layout, py_layout_format(&frame->info.layout), view, flags) < 0) {
		Py_CLEAR(view->obj);
		return -1;
	}
	py_frame_count(self, 1);
	return 0;
}

void py_frame_releasebuffer(PyObject *self, Py_buffer *view)
{
	PY_GUARD_CONTEXT_OF(self);

	PyMem_Free(view->internal);
	py_frame_count(self, -1);
}

static int py_frame_check_open(PyObject *self)
{
	return py_frame_check((struct py_frame *)self);
}

/* __dlpack__(stream=None, max_version=None, dl_device=None, copy=None) */
PyObject *py_frame_dlpack(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_frame *frame = (struct py_frame *)self;
	const struct pl_layout *layout = &frame->info.layout;
	struct py_export_source source = { .owner = self,
					   .name = "frame",
					   .count = py_frame_count,
					   .check = py_frame_check_open,
					   .data = frame->info.data,
					   .device = frame->owner->device,
					   .readonly = py_frame_readonly(frame),
					   .code = PL_ELEMENT_UINT,
					   .bits = 8,
					   .dimensions = 1,
					   .shape = { (int64_t)frame->info.length } };

	if (py_frame_check(frame) < 0)
		return NULL;
	if (py_frame_has_layout(frame)) {
		source.code = layout->code;
		source.bits = layout->bits;
		source.dimensions = py_layout_shape(layout, source.shape);
	}
	return py_export_give(&source, arguments, count, keywords);
}

PyObject *py_frame_device(PyObject *self, PyObject *unused)
{
	int device = ((struct py_frame *)self)->owner->device;

	(void)unused;
	return Py_BuildValue("ii", device < 0 ? 1 : 2, device < 0 ? 0 : device);
}
