/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/layout_text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/cli.h"
#include "stream/ring.h"

/* Kinds of elements by their prefix.  "bf" stands before its end, so a prefix is compared up to the first digit. */
static const struct element_kind {
	const char *prefix;
	uint8_t code, bits[6]; /* allowed numbers of bits, 0 after the last; none: 1 to 64 */
} kinds[] = {
	{ "u", PL_ELEMENT_UINT, { 0 } },
	{ "i", PL_ELEMENT_INT, { 0 } },
	{ "f", PL_ELEMENT_FLOAT, { 8, 16, 32, 64, 128 } },
	{ "bf", PL_ELEMENT_BFLOAT, { 16 } },
	{ "c", PL_ELEMENT_COMPLEX, { 32, 64, 128 } },
};

/* Parses digits up to a character that is none, and moves *text there. */
static int parse_digits(const char **text, uint64_t least, uint64_t most, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	errno = 0;
	*value = strtoull(*text, &end, 10);
	if (errno || *value < least || *value > most)
		return -EINVAL;
	*text = end;
	return 0;
}

static bool element_kind_allows(const struct element_kind *kind, uint64_t bits)
{
	if (!kind->bits[0])
		return bits <= 64;
	for (size_t i = 0; i < CLI_ARRAY_SIZE(kind->bits) && kind->bits[i]; i++)
		if (kind->bits[i] == bits)
			return true;
	return false;
}

/* Parses the lanes behind a type: nothing, or "x3". */
static int parse_lanes(const char *text, struct pl_layout *layout)
{
	uint64_t lanes = 1;

	if (*text == 'x') {
		text++;
		if (parse_digits(&text, 1, UINT16_MAX, &lanes) < 0)
			return -EINVAL;
	}
	layout->lanes = (uint16_t)lanes;
	return *text ? -EINVAL : 0;
}

int stream_dtype_parse(const char *text, struct pl_layout *layout)
{
	uint64_t bits;

	if (!strncmp(text, "bool", 4)) {
		layout->code = PL_ELEMENT_BOOL;
		layout->bits = 8;
		return parse_lanes(text + 4, layout);
	}
	for (size_t i = 0; i < CLI_ARRAY_SIZE(kinds); i++) {
		size_t length = strlen(kinds[i].prefix);
		const char *at = text + length;

		if (strncmp(text, kinds[i].prefix, length) || parse_digits(&at, 1, 128, &bits) < 0)
			continue;
		if (!element_kind_allows(&kinds[i], bits))
			return -EINVAL;
		layout->code = kinds[i].code;
		layout->bits = (uint8_t)bits;
		return parse_lanes(at, layout);
	}
	return -EINVAL;
}

int stream_shape_parse(const char *text, struct pl_layout *layout)
{
	memset(layout->shape, 0, sizeof(layout->shape));
	layout->dimensions = 0;
	if (!strcmp(text, "scalar"))
		return 0;
	for (;;) {
		if (layout->dimensions == PL_LAYOUT_DIMENSIONS_MAX ||
		    parse_digits(&text, 1, UINT64_MAX, &layout->shape[layout->dimensions]) < 0)
			return -EINVAL;
		layout->dimensions++;
		if (!*text)
			return 0;
		if (*text++ != 'x')
			return -EINVAL;
	}
}

int stream_layout_parse(const char *dtype, const char *shape, struct pl_layout *layout)
{
	*layout = (struct pl_layout){ 0 };
	if (stream_dtype_parse(dtype, layout) < 0 || stream_shape_parse(shape, layout) < 0)
		return -EINVAL;
	return pl_layout_bytes(layout) > STREAM_FRAME_MAX ? -E2BIG : 0;
}

const char *stream_dtype_format(char buffer[STREAM_DTYPE_MAX], const struct pl_layout *layout)
{
	const char *prefix = "?";
	int length;

	if (!layout->bits)
		return strcpy(buffer, "-");
	for (size_t i = 0; i < CLI_ARRAY_SIZE(kinds); i++)
		if (kinds[i].code == layout->code)
			prefix = kinds[i].prefix;
	if (layout->code == PL_ELEMENT_BOOL && layout->bits == 8)
		length = snprintf(buffer, STREAM_DTYPE_MAX, "bool");
	else
		length = snprintf(buffer, STREAM_DTYPE_MAX, "%s%u", layout->code == PL_ELEMENT_BOOL ? "bool" : prefix,
				  layout->bits);
	if (layout->lanes != 1)
		snprintf(buffer + length, STREAM_DTYPE_MAX - (size_t)length, "x%u", layout->lanes);
	return buffer;
}

const char *stream_shape_format(char buffer[STREAM_SHAPE_MAX], const struct pl_layout *layout)
{
	size_t at = 0;

	if (!layout->bits)
		return strcpy(buffer, "-");
	if (!layout->dimensions)
		return strcpy(buffer, "scalar");
	for (unsigned i = 0; i < layout->dimensions && i < PL_LAYOUT_DIMENSIONS_MAX; i++)
		at += (size_t)snprintf(buffer + at, STREAM_SHAPE_MAX - at, "%s%llu", i ? "x" : "",
				       (unsigned long long)layout->shape[i]);
	return buffer;
}
