/* SPDX-License-Identifier: BSD-2-Clause */
/* Tensors of other libraries, by DLPack: https://dmlc.github.io/dlpack/latest/c_api.html */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

/* Structures of DLPack 1, with names of the project. */
enum py_device_type {
	PY_DEVICE_CPU = 1,
	PY_DEVICE_CUDA = 2,
};
enum py_tensor_flags {
	PY_TENSOR_READONLY = 1u << 0,
	PY_TENSOR_COPIED = 1u << 1,
	PY_TENSOR_PADDED = 1u << 2, /* types below a byte, each in a byte of its own */
};

struct py_dl_tensor {
	void *data;
	int32_t device_type, device_id;
	int32_t dimensions;
	uint8_t type_code, type_bits;
	uint16_t type_lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};

struct py_dl_unversioned {
	struct py_dl_tensor tensor;
	void *manager;
	void (*deleter)(struct py_dl_unversioned *self);
};

struct py_dl_versioned {
	uint32_t major, minor;
	void *manager;
	void (*deleter)(struct py_dl_versioned *self);
	uint64_t flags;
	struct py_dl_tensor tensor;
};

/* Tensor of another library. Its end calls the other library's deleter. */
struct py_tensor {
	PyObject_HEAD struct py_dl_versioned *versioned;
	struct py_dl_unversioned *unversioned;
};

static struct py_dl_tensor *py_tensor_get(struct py_tensor *tensor)
{
	return tensor->versioned ? &tensor->versioned->tensor : &tensor->unversioned->tensor;
}

static void py_tensor_dealloc(PyObject *self)
{
	struct py_tensor *tensor = (struct py_tensor *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject *error, *value, *trace;

	/* A deleter may run code of Python, which must not meet the exception under way. */
	PyErr_Fetch(&error, &value, &trace);
	if (tensor->versioned && tensor->versioned->deleter)
		tensor->versioned->deleter(tensor->versioned);
	if (tensor->unversioned && tensor->unversioned->deleter)
		tensor->unversioned->deleter(tensor->unversioned);
	PyErr_Restore(error, value, trace);
	PyObject_Free(self);
	Py_DECREF(type);
}

/* Takes the tensor of a capsule over. The versions of the structure have the deleter at the same place. */
PyObject *py_dlpack_take(PyObject *module, PyObject *capsule)
{
	PY_GUARD(capsule);
	struct py_state *state = PyModule_GetState(module);
	struct py_tensor *tensor = PyObject_New(struct py_tensor, state->tensor);

	if (!tensor)
		return NULL;
	tensor->versioned = NULL;
	tensor->unversioned = NULL;
	if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
		tensor->versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
		PyCapsule_SetName(capsule, "used_dltensor_versioned");
		if (tensor->versioned->major != 1)
			py_fail(state, -ENOTSUP, "PY-DLPACK", "tensor", "its version of DLPack is not 1", "");
		else if (tensor->versioned->flags & PY_TENSOR_COPIED)
			py_fail(state, -ENOTSUP, "PY-DLPACK", "tensor",
				"the library gave a copy of the tensor, not its memory", "");
	} else if (PyCapsule_IsValid(capsule, "dltensor")) {
		tensor->unversioned = PyCapsule_GetPointer(capsule, "dltensor");
		PyCapsule_SetName(capsule, "used_dltensor");
	} else {
		py_fail(state, -EINVAL, "PY-DLPACK", "tensor", "the object is no tensor of DLPack, or was used already",
			"");
	}
	if (PyErr_Occurred())
		Py_CLEAR(tensor);
	return (PyObject *)tensor;
}

/* True for memory in the order of rows, or else of columns, without gaps. Dimensions of size 1 do not matter. */
static bool py_tensor_contiguous(const struct py_dl_tensor *tensor, bool rows)
{
	int64_t expected = 1;

	for (int i = 0; tensor->strides && i < tensor->dimensions; i++) {
		int at = rows ? tensor->dimensions - 1 - i : i;

		if (tensor->shape[at] == 1)
			continue;
		if (tensor->strides[at] != expected)
			return false;
		expected *= tensor->shape[at];
	}
	return true;
}

static uint64_t py_tensor_bytes(struct py_tensor *holder)
{
	const struct py_dl_tensor *tensor = py_tensor_get(holder);
	uint64_t flags = holder->versioned ? holder->versioned->flags : 0, elements = 1;
	uint64_t bits = flags & PY_TENSOR_PADDED && tensor->type_bits < 8 ? 8 : tensor->type_bits;

	for (int i = 0; i < tensor->dimensions; i++)
		elements *= (uint64_t)tensor->shape[i];
	return (elements * bits * tensor->type_lanes + 7) / 8;
}

static PyObject *py_list_of(const int64_t *numbers, int count)
{
	PyObject *list = PyList_New(0);

	for (int i = 0; list && i < count; i++) {
		PyObject *number = PyLong_FromLongLong(numbers[i]);

		if (!number || PyList_Append(list, number) < 0)
			Py_CLEAR(list);
		Py_XDECREF(number);
	}
	return list;
}

/* describe(): (address, bytes, device's type, its number, read-only, order: "rows", "columns", "", shape, strides or None) */
static PyObject *py_tensor_describe(PyObject *self, PyObject *unused)
{
	struct py_tensor *holder = (struct py_tensor *)self;
	struct py_dl_tensor *tensor = py_tensor_get(holder);
	uint64_t flags = holder->versioned ? holder->versioned->flags : 0;
	PyObject *shape, *strides;

	(void)unused;
	shape = py_list_of(tensor->shape, tensor->dimensions);
	strides = tensor->strides ? py_list_of(tensor->strides, tensor->dimensions) : Py_BuildValue("");
	if (!shape || !strides) {
		Py_XDECREF(shape);
		Py_XDECREF(strides);
		return NULL;
	}
	return Py_BuildValue("KKiiOsNN", (unsigned long long)(uintptr_t)tensor->data + tensor->byte_offset,
			     (unsigned long long)py_tensor_bytes(holder), (int)tensor->device_type,
			     (int)tensor->device_id, flags & PY_TENSOR_READONLY ? Py_True : Py_False,
			     py_tensor_contiguous(tensor, true)    ? "rows"
			     : py_tensor_contiguous(tensor, false) ? "columns"
								   : "",
			     shape, strides);
}

/* Gives the memory of a tensor of the host, in the order of rows: source() of _memory.py has refused others. */
static int py_tensor_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	struct py_tensor *holder = (struct py_tensor *)self;
	struct py_dl_tensor *tensor = py_tensor_get(holder);
	bool readonly = holder->versioned && holder->versioned->flags & PY_TENSOR_READONLY;
	struct pl_layout layout = { tensor->type_code, tensor->type_bits, tensor->type_lanes, 0, { 0 } };
	const char *format = py_layout_format(&layout);
	char *data = tensor->data;

	view->obj = NULL;
	if (PyBuffer_FillInfo(view, self, data ? data + tensor->byte_offset : NULL, (Py_ssize_t)py_tensor_bytes(holder),
			      readonly, flags) < 0)
		return -1;
	if ((flags & PyBUF_ND) != PyBUF_ND || tensor->type_bits % 8 || tensor->dimensions > PL_LAYOUT_DIMENSIONS_MAX)
		return 0;
	layout.dimensions = (uint32_t)tensor->dimensions;
	for (int i = 0; i < tensor->dimensions; i++)
		layout.shape[i] = (uint64_t)tensor->shape[i];
	/* The buffer protocol has no letter for the other types; errors show the text. */
	if (!format)
		format = tensor->type_code == PL_ELEMENT_BFLOAT ? "bfloat16" : "of another type";
	if (py_view_fill(&layout, format, view, flags) < 0) {
		Py_CLEAR(view->obj);
		return -1;
	}
	return 0;
}

static void py_tensor_releasebuffer(PyObject *self, Py_buffer *view)
{
	(void)self;
	PyMem_Free(view->internal);
}

static PyMethodDef py_tensor_methods[] = {
	{ "describe", py_tensor_describe, METH_NOARGS, NULL },
	{ NULL, NULL, 0, NULL },
};

PyType_Spec py_tensor_spec = {
	.name = "peerlane._peerlane.Tensor",
	.basicsize = sizeof(struct py_tensor),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = (PyType_Slot[]){ { Py_tp_dealloc, py_tensor_dealloc },
				  { Py_tp_methods, py_tensor_methods },
				  { Py_bf_getbuffer, py_tensor_getbuffer },
				  { Py_bf_releasebuffer, py_tensor_releasebuffer },
				  { 0, NULL } },
};

/* Tensor that a region or a frame gives to another library. */
struct py_export {
	union {
		struct py_dl_versioned versioned;
		struct py_dl_unversioned unversioned;
	};
	PyObject *owner;
	py_export_count count;
	int64_t shape[PY_EXPORT_DIMENSIONS], strides[PY_EXPORT_DIMENSIONS];
};

/* Gives the memory back. Any thread may call it, also one that Python does not know. */
static void py_export_end(struct py_export *tensor)
{
	PyGILState_STATE held;

	if (!py_thread_enter(&held))
		return;
	{
		PY_GUARD_CONTEXT_OF(tensor->owner);
		tensor->count(tensor->owner, -1);
	}
	Py_DECREF(tensor->owner);
	free(tensor);
	py_thread_leave(held);
}

static void py_export_delete_versioned(struct py_dl_versioned *tensor)
{
	py_export_end(tensor->manager);
}

static void py_export_delete(struct py_dl_unversioned *tensor)
{
	py_export_end(tensor->manager);
}

/* Ends a capsule that no library has taken. */
static void py_export_capsule_end(PyObject *capsule)
{
	if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
		py_export_end(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
	else if (PyCapsule_IsValid(capsule, "dltensor"))
		py_export_end(PyCapsule_GetPointer(capsule, "dltensor"));
}

static void py_export_fill(struct py_export *made, struct py_dl_tensor *tensor, const struct py_export_source *source)
{
	int64_t stride = 1;

	for (int i = source->dimensions - 1; i >= 0; i--) {
		made->shape[i] = source->shape[i];
		made->strides[i] = stride;
		stride *= source->shape[i];
	}
	*tensor = (struct py_dl_tensor){
		.data = source->data,
		.device_type = source->device < 0 ? PY_DEVICE_CPU : PY_DEVICE_CUDA,
		.device_id = source->device < 0 ? 0 : source->device,
		.dimensions = source->dimensions,
		.type_code = source->code,
		.type_bits = source->bits,
		.type_lanes = 1,
		.shape = made->shape,
		.strides = made->strides,
	};
}

static PyObject *py_export_new(const struct py_export_source *source, bool versioned)
{
	struct py_export *made = calloc(1, sizeof(*made));
	PyObject *capsule;

	if (!made)
		return PyErr_NoMemory();
	py_export_fill(made, versioned ? &made->versioned.tensor : &made->unversioned.tensor, source);
	made->owner = source->owner;
	made->count = source->count;
	if (versioned) {
		made->versioned.major = 1;
		made->versioned.manager = made;
		made->versioned.deleter = py_export_delete_versioned;
		made->versioned.flags = source->readonly ? PY_TENSOR_READONLY : 0;
	} else {
		made->unversioned.manager = made;
		made->unversioned.deleter = py_export_delete;
	}
	/* No code of Python may run between the check and the count, nor may the guard be given up. */
	if (source->check(source->owner) < 0) {
		free(made);
		return NULL;
	}
	Py_INCREF(made->owner);
	made->count(made->owner, 1);
	capsule = PyCapsule_New(made, versioned ? "dltensor_versioned" : "dltensor", py_export_capsule_end);
	if (!capsule) {
		made->count(made->owner, -1);
		Py_DECREF(made->owner);
		free(made);
	}
	return capsule;
}

/* Fails if `asked`, (type, number), is another device than that of the memory. */
static int py_export_check_device(struct py_state *state, const struct py_export_source *source, PyObject *asked)
{
	const long own[2] = { source->device < 0 ? PY_DEVICE_CPU : PY_DEVICE_CUDA,
			      source->device < 0 ? 0 : source->device };

	for (int i = 0; i < 2; i++) {
		PyObject *item = PySequence_GetItem(asked, i), *number = item ? PyNumber_Long(item) : NULL;
		long given = number ? PyLong_AsLong(number) : -1;

		Py_XDECREF(number);
		Py_XDECREF(item);
		if (PyErr_Occurred())
			return -1;
		if (given == own[i])
			continue;
		py_fail(state, -ENOTSUP, "PY-DLPACK", source->name,
			"the memory is not on the device that dl_device asks for",
			"leave dl_device out, and copy the tensor");
		return -1;
	}
	return 0;
}

/* __dlpack__(stream=None, max_version=None, dl_device=None, copy=None) of an object that can give its memory now. */
PyObject *py_export_give(const struct py_export_source *source, PY_ARGUMENTS)
{
	static const char *const names[] = { "stream", "max_version", "dl_device", "copy", NULL };
	struct py_object *owner = (struct py_object *)source->owner;
	struct py_state *state = owner->context->state;
	PyObject *values[4], *major;
	bool versioned = false;

	if (py_parse("__dlpack__", names, 0, arguments, count, keywords, values) < 0)
		return NULL;
	if (values[1]) {
		major = PySequence_GetItem(values[1], 0);
		if (!major)
			return NULL;
		versioned = PyLong_AsLong(major) >= 1;
		Py_DECREF(major);
		if (PyErr_Occurred())
			return NULL;
	}
	if (values[2] && py_export_check_device(state, source, values[2]) < 0)
		return NULL;
	if (values[3] && PyObject_IsTrue(values[3]))
		return py_fail(state, -ENOTSUP, "PY-DLPACK", source->name, "the object gives its memory, not a copy",
			       "");
	if (source->readonly && !versioned)
		return py_fail(state, -ENOTSUP, "PY-READONLY", source->name,
			       "the memory is read-only, which this version of DLPack cannot say", "");
	return py_export_new(source, versioned);
}

static int py_region_check_open(PyObject *self)
{
	return py_object_check(&((struct py_region *)self)->base);
}

PyObject *py_region_dlpack(PyObject *self, PY_ARGUMENTS)
{
	PY_GUARD_CONTEXT_OF(self);
	struct py_region *region = (struct py_region *)self;
	struct py_export_source source = { .owner = self,
					   .name = "region",
					   .count = py_region_count,
					   .check = py_region_check_open,
					   .device = region->device,
					   .readonly = region->readonly,
					   .code = 1, /* unsigned integers */
					   .bits = 8,
					   .dimensions = 1 };

	if (py_object_check(&region->base) < 0)
		return NULL;
	source.data = pl_region_address(region->handle);
	source.shape[0] = (int64_t)pl_region_length(region->handle);
	return py_export_give(&source, arguments, count, keywords);
}
