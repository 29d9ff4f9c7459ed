/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/npy.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "cmd/common/cli.h"
#include "cmd/stream/layout_text.h"
#include "stream/ring.h"

#define NPY_MAGIC "\x93NUMPY"
#define NPY_MAGIC_LENGTH 6
/* Remedies of arrays in another order, of other elements, and of files that are none. */
#define NPY_ORDER "save it again: numpy.save(FILE, numpy.ascontiguousarray(a, a.dtype.newbyteorder('<')))"
#define NPY_ELEMENTS "convert it to a type such as float32 first: numpy.save(FILE, a.astype('<f4'))"
#define NPY_FILE "give a file that numpy.save() wrote, or raw bytes under a name that does not end in .npy"

/* Types of elements that both NumPy and streams have.  NumPy's longer floats depend on the processor. */
static const struct {
	uint8_t code;
	char letter, sizes[5]; /* in bytes */
} types[] = {
	{ PL_ELEMENT_INT, 'i', { 1, 2, 4, 8, 0 } }, { PL_ELEMENT_UINT, 'u', { 1, 2, 4, 8, 0 } },
	{ PL_ELEMENT_FLOAT, 'f', { 2, 4, 8, 0 } },  { PL_ELEMENT_COMPLEX, 'c', { 8, 16, 0 } },
	{ PL_ELEMENT_BOOL, 'b', { 1, 0 } },
};

/* Rest of the text of a header: the literal of a dict of Python. */
struct npy_text {
	const char *at, *end;
};

/* Members of the dict that were found. */
struct npy_members {
	bool descr, order, shape;
};

static int fail_npy(struct pl_error *error, const char *path, const char *hint, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static int fail_npy(struct pl_error *error, const char *path, const char *hint, const char *format, ...)
{
	char text[160];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return cli_fail(error, -EINVAL, "NPY-HEADER", path, hint, "%s", text);
}

/* -- preamble ---------------------------------------------------------------------------------------- */

static unsigned npy_fixed_length(const uint8_t *preamble)
{
	return preamble[6] == 1 ? 10 : NPY_PREAMBLE;
}

int npy_header_length(const uint8_t *preamble, const char *path, struct pl_error *error)
{
	uint64_t length;

	if (memcmp(preamble, NPY_MAGIC, NPY_MAGIC_LENGTH))
		return fail_npy(error, path, NPY_FILE, "the file does not begin as a .npy file");
	if (preamble[6] < 1 || preamble[6] > 3 || preamble[7] != 0)
		return fail_npy(error, path, NPY_FILE, "version %u.%u of the format is unknown", preamble[6],
				preamble[7]);
	length = (uint64_t)preamble[8] | (uint64_t)preamble[9] << 8;
	if (preamble[6] > 1)
		length |= (uint64_t)preamble[10] << 16 | (uint64_t)preamble[11] << 24;
	length += npy_fixed_length(preamble);
	if (length < NPY_PREAMBLE || length > NPY_HEADER_MAX)
		return fail_npy(error, path, NPY_FILE, "the header claims to have %llu bytes",
				(unsigned long long)length);
	return (int)length;
}

/* -- literal of the dict ----------------------------------------------------------------------------- */

static void npy_skip_spaces(struct npy_text *text)
{
	while (text->at < text->end &&
	       (*text->at == ' ' || *text->at == '\t' || *text->at == '\n' || *text->at == '\r'))
		text->at++;
}

/* Skips spaces and the character, if it is next. */
static bool npy_accept(struct npy_text *text, char character)
{
	npy_skip_spaces(text);
	if (text->at == text->end || *text->at != character)
		return false;
	text->at++;
	return true;
}

static bool npy_accept_word(struct npy_text *text, const char *word)
{
	size_t length = strlen(word);

	npy_skip_spaces(text);
	if ((size_t)(text->end - text->at) < length || memcmp(text->at, word, length))
		return false;
	text->at += length;
	return true;
}

/* Copies a string without escapes.  Returns -EINVAL for a longer one, or none. */
static int npy_take_string(struct npy_text *text, char *buffer, size_t size)
{
	char quote;
	size_t length = 0;

	npy_skip_spaces(text);
	if (text->at == text->end || (*text->at != '\'' && *text->at != '"'))
		return -EINVAL;
	quote = *text->at++;
	while (text->at < text->end && *text->at != quote) {
		if (length + 1 == size || !isprint((unsigned char)*text->at) || *text->at == '\\')
			return -EINVAL;
		buffer[length++] = *text->at++;
	}
	if (text->at == text->end)
		return -EINVAL;
	text->at++;
	buffer[length] = '\0';
	return 0;
}

/* Takes a decimal number, with the L that Python 2 appended. */
static int npy_take_number(struct npy_text *text, uint64_t *number)
{
	const char *begin;

	npy_skip_spaces(text);
	begin = text->at;
	*number = 0;
	for (; text->at < text->end && isdigit((unsigned char)*text->at); text->at++)
		if (__builtin_mul_overflow(*number, 10u, number) ||
		    __builtin_add_overflow(*number, (unsigned)(*text->at - '0'), number))
			return -EINVAL;
	if (text->at == begin)
		return -EINVAL;
	if (text->at < text->end && *text->at == 'L')
		text->at++;
	return 0;
}

static int npy_take_shape(struct npy_text *text, const char *path, struct pl_layout *layout, struct pl_error *error)
{
	if (!npy_accept(text, '('))
		return fail_npy(error, path, NPY_FILE, "the shape is no tuple of numbers");
	layout->dimensions = 0;
	while (!npy_accept(text, ')')) {
		if (layout->dimensions == PL_LAYOUT_DIMENSIONS_MAX)
			return fail_npy(error, path, "save a part of it", "the array has more than %d dimensions",
					PL_LAYOUT_DIMENSIONS_MAX);
		if (npy_take_number(text, &layout->shape[layout->dimensions++]) < 0)
			return fail_npy(error, path, NPY_FILE, "the shape is no tuple of numbers");
		if (!npy_accept(text, ',') && (text->at == text->end || *text->at != ')'))
			return fail_npy(error, path, NPY_FILE, "the shape is no tuple of numbers");
	}
	return 0;
}

/* Translates a type such as "<u2" or "|b1". */
static int npy_translate_descr(const char *descr, const char *path, struct pl_layout *layout, struct pl_error *error)
{
	struct npy_text number = { descr + 2, descr + strlen(descr) };
	uint64_t size;

	if (strlen(descr) < 3 || !strchr("<>|=", descr[0]) || npy_take_number(&number, &size) < 0 ||
	    number.at != number.end || size < 1 || size > 16)
		return fail_npy(error, path, NPY_ELEMENTS, "the elements have the type '%s', which is no number",
				descr);
	if (descr[0] == '>' && size > 1)
		return fail_npy(error, path, NPY_ORDER, "the elements are big-endian ('%s')", descr);
	for (size_t i = 0; i < CLI_ARRAY_SIZE(types); i++) {
		if (types[i].letter != descr[1] || !strchr(types[i].sizes, (int)size))
			continue;
		layout->code = types[i].code;
		layout->bits = (uint8_t)(size * 8);
		layout->lanes = 1;
		return 0;
	}
	return fail_npy(error, path, NPY_ELEMENTS, "the elements have the type '%s', which is not supported", descr);
}

static int npy_take_member(struct npy_text *text, const char *path, struct npy_members *members,
			   struct pl_layout *layout, struct pl_error *error)
{
	char key[16], descr[16];

	if (npy_take_string(text, key, sizeof(key)) < 0 || !npy_accept(text, ':'))
		return fail_npy(error, path, NPY_FILE, "the header is no dict of Python");
	if (!strcmp(key, "descr") && !members->descr) {
		members->descr = true;
		if (npy_take_string(text, descr, sizeof(descr)) < 0)
			return fail_npy(error, path, NPY_ELEMENTS, "the elements have a structured type");
		return npy_translate_descr(descr, path, layout, error);
	}
	if (!strcmp(key, "fortran_order") && !members->order) {
		members->order = true;
		if (npy_accept_word(text, "True"))
			return fail_npy(error, path, NPY_ORDER, "the array is in Fortran's order");
		return npy_accept_word(text, "False") ? 0
						      : fail_npy(error, path, NPY_FILE, "fortran_order is no boolean");
	}
	if (!strcmp(key, "shape") && !members->shape) {
		members->shape = true;
		return npy_take_shape(text, path, layout, error);
	}
	return fail_npy(error, path, NPY_FILE, "the member '%s' of the header is unknown, or there twice", key);
}

int npy_parse(const uint8_t *bytes, size_t length, const char *path, struct npy_header *header, struct pl_error *error)
{
	struct npy_members members = { false, false, false };
	struct npy_text text;
	int rc;

	*header = (struct npy_header){ .offset = length };
	rc = length < NPY_PREAMBLE ? -EINVAL : npy_header_length(bytes, path, error);
	if (rc >= 0 && (size_t)rc != length)
		rc = -EINVAL;
	if (rc < 0)
		return length < NPY_PREAMBLE ? fail_npy(error, path, NPY_FILE, "the file ends within its header") : rc;
	text = (struct npy_text){ (const char *)bytes + npy_fixed_length(bytes), (const char *)bytes + length };
	if (!npy_accept(&text, '{'))
		return fail_npy(error, path, NPY_FILE, "the header is no dict of Python");
	while (!npy_accept(&text, '}')) {
		rc = npy_take_member(&text, path, &members, &header->layout, error);
		if (rc < 0)
			return rc;
		if (!npy_accept(&text, ',') && (text.at == text.end || *text.at != '}'))
			return fail_npy(error, path, NPY_FILE, "the header is no dict of Python");
	}
	npy_skip_spaces(&text);
	if (text.at != text.end || !members.descr || !members.order || !members.shape)
		return fail_npy(error, path, NPY_FILE, "the header lacks a member, or text follows it");
	header->bytes = pl_layout_bytes(&header->layout);
	if (header->bytes == 0)
		return fail_npy(error, path, "give an array with at least one element", "the array is empty");
	return header->bytes > INT64_MAX - NPY_HEADER_MAX
		       ? fail_npy(error, path, "save a part of it", "the array is too large")
		       : 0;
}

/* -- written headers ---------------------------------------------------------------------------------- */

/* Fills the descr of a layout.  Returns false if NumPy has none. */
static bool npy_format_descr(const struct pl_layout *layout, char descr[8])
{
	for (size_t i = 0; layout->bits % 8 == 0 && i < CLI_ARRAY_SIZE(types); i++) {
		if (types[i].code != layout->code || !strchr(types[i].sizes, layout->bits / 8))
			continue;
		snprintf(descr, 8, "%c%c%u", layout->bits == 8 ? '|' : '<', types[i].letter, layout->bits / 8u);
		return true;
	}
	return false;
}

int npy_format(const struct pl_layout *frame, uint64_t frames, char header[NPY_HEADER_WRITTEN], struct pl_error *error)
{
	char descr[8], type[STREAM_DTYPE_MAX];
	size_t at = 10, size = NPY_HEADER_WRITTEN;

	if (!frame->bits || !npy_format_descr(frame, descr))
		return cli_fail(error, -ENOTSUP, "NPY-TYPE", frame->bits ? stream_dtype_format(type, frame) : NULL,
				"write raw bytes with --to, into a file whose name does not end in .npy",
				frame->bits ? "NumPy has no type for these elements"
					    : "the frames have no type and shape");
	memset(header, ' ', size);
	memcpy(header, NPY_MAGIC "\x01\0", 8);
	header[8] = (char)((size - 10) & 0xff);
	header[9] = (char)((size - 10) >> 8);
	at += (size_t)snprintf(header + at, size - at, "{'descr': '%s', 'fortran_order': False, 'shape': (%llu,", descr,
			       (unsigned long long)frames);
	for (unsigned i = 0; i < frame->dimensions; i++)
		at += (size_t)snprintf(header + at, size - at, " %llu,", (unsigned long long)frame->shape[i]);
	if (frame->lanes > 1)
		at += (size_t)snprintf(header + at, size - at, " %u,", frame->lanes);
	at += (size_t)snprintf(header + at, size - at, "), }");
	header[at] = ' ';
	header[size - 1] = '\n';
	return 0;
}
