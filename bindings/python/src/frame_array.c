/* SPDX-License-Identifier: BSD-2-Clause */
/* Arrays that a publisher copies into frames. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "stream.h"

#define TEXT_MAX 80

/* Elements of an array, by the format of the module struct. */
struct py_elements {
	const char *name; /* without the bits; NULL: a layout has no such elements */
	uint8_t code;
	bool swapped; /* the most significant byte comes first */
};

static const struct py_kind {
	const char *letters, *name;
	uint8_t code;
} py_kinds[] = {
	{ "bhilqn", "int", PL_ELEMENT_INT },      { "BHILQNc", "uint", PL_ELEMENT_UINT },
	{ "efdg", "float", PL_ELEMENT_FLOAT },    { "", "bfloat", PL_ELEMENT_BFLOAT },
	{ "FDG", "complex", PL_ELEMENT_COMPLEX }, { "?", "bool", PL_ELEMENT_BOOL },
};

static struct py_elements py_elements_of(const Py_buffer *view)
{
	struct py_elements elements = { .name = NULL };
	const char *format = view->format && *view->format ? view->format : "B";

	/* Hosts of the library have the least significant byte first. */
	if (strchr("@=<>!", *format)) {
		elements.swapped = strchr(">!", *format) && view->itemsize > 1;
		format++;
	}
	if (*format == 'Z') {
		format++;
		elements.code = PL_ELEMENT_COMPLEX;
	}
	for (size_t i = 0; i < sizeof(py_kinds) / sizeof(*py_kinds) && strlen(format) == 1; i++) {
		if (!strchr(py_kinds[i].letters, *format))
			continue;
		elements.code = elements.code ? elements.code : py_kinds[i].code;
		elements.name = elements.code == PL_ELEMENT_COMPLEX ? "complex" : py_kinds[i].name;
		break;
	}
	return elements;
}

static const char *py_kind_name(unsigned code)
{
	for (size_t i = 0; i < sizeof(py_kinds) / sizeof(*py_kinds); i++)
		if (py_kinds[i].code == code)
			return py_kinds[i].name;
	return "element";
}

/* Writes a type and a shape: "float32 2x6". Without bits, `name` is the whole type. */
static void py_elements_text(char *text, const char *name, unsigned bits, const int64_t *shape, int dimensions)
{
	int used = snprintf(text, TEXT_MAX, "%.40s", name);

	if (bits)
		used += snprintf(text + used, (size_t)(TEXT_MAX - used), "%u", bits);

	for (int i = 0; i < dimensions && used < TEXT_MAX; i++)
		used += snprintf(text + used, (size_t)(TEXT_MAX - used), "%c%lld", i ? 'x' : ' ', (long long)shape[i]);
}

/* True if the shape is that of the layout, or one row of as many elements. */
static bool py_shape_fits(const Py_buffer *view, const int64_t *shape, int dimensions)
{
	int64_t elements = 1;

	for (int i = 0; i < dimensions; i++)
		elements *= shape[i];
	if (view->ndim == 1 && view->shape[0] == elements)
		return true;
	for (int i = 0; i < dimensions && view->ndim == dimensions; i++)
		if (view->shape[i] != shape[i])
			return false;
	return view->ndim == dimensions;
}

static int py_array_refuse(struct py_state *state, const Py_buffer *view, const struct py_elements *elements,
			   const struct pl_layout *layout, const int64_t *shape, int dimensions)
{
	char array[TEXT_MAX], wanted[TEXT_MAX], message[3 * TEXT_MAX];
	int64_t own[PL_LAYOUT_DIMENSIONS_MAX + 1] = { 0 };
	int own_dimensions = view->ndim > PL_LAYOUT_DIMENSIONS_MAX ? PL_LAYOUT_DIMENSIONS_MAX : view->ndim;
	unsigned bits = elements->name && elements->code != PL_ELEMENT_BOOL ? (unsigned)view->itemsize * 8 : 0;

	for (int i = 0; i < own_dimensions; i++)
		own[i] = view->shape[i];
	py_elements_text(array, elements->name ? elements->name : view->format, bits, own, own_dimensions);
	py_elements_text(wanted, py_kind_name(layout->code), layout->code == PL_ELEMENT_BOOL ? 0 : layout->bits, shape,
			 dimensions);
	snprintf(message, sizeof(message), "the array is %s%s, the stream has %s",
		 elements->swapped ? "big-endian " : "", array, wanted);
	py_fail(state, -EINVAL, "PY-LAYOUT", "frame", message,
		"convert it with astype() or reshape(), or give layout=Layout.of(array); bytes of a view are taken as "
		"they are");
	return -1;
}

int py_array_check(struct py_state *state, const Py_buffer *view, const struct pl_layout *layout)
{
	const struct py_elements elements = py_elements_of(view);
	int64_t shape[PL_LAYOUT_DIMENSIONS_MAX + 1];
	int dimensions = py_layout_shape(layout, shape);

	/* Bytes may be of any layout; so may any array, of a layout whose elements no array has. */
	if ((view->itemsize == 1 && elements.code == PL_ELEMENT_UINT && view->ndim <= 1) || !py_layout_format(layout))
		return 0;
	if (elements.name && !elements.swapped && elements.code == layout->code && view->itemsize * 8 == layout->bits &&
	    py_shape_fits(view, shape, dimensions))
		return 0;
	return py_array_refuse(state, view, &elements, layout, shape, dimensions);
}
