/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Layouts of frames as text: a type of elements, such as "u16", "f32", "bf16", "c64" (complex), "bool", or with vector
 * lanes "u8x3"; and a shape, such as "2048x2048", or "scalar" for one element.
 */
#ifndef PL_CMD_STREAM_LAYOUT_TEXT_H
#define PL_CMD_STREAM_LAYOUT_TEXT_H

#include <peerlane/stream.h>

/* Bytes of the longest texts, with their NUL. */
#define STREAM_DTYPE_MAX 24
#define STREAM_SHAPE_MAX (PL_LAYOUT_DIMENSIONS_MAX * 21)
/* Most bytes of a frame. */
#define STREAM_FRAME_MAX (1ull << 40)
/* Types, for help and errors. */
#define STREAM_DTYPES "u8, i16, f32, bf16, c64 or bool"

/*
 * Parses a type: fills code, bits and lanes, and leaves the shape.  Integers have 1 to 64 bits, floats 8, 16, 32, 64 or
 * 128, bf 16, complex numbers 32, 64 or 128, in lanes of 1 to 65535.  Returns 0 or -EINVAL.
 */
int stream_dtype_parse(const char *text, struct pl_layout *layout);
/* Parses a shape of up to PL_LAYOUT_DIMENSIONS_MAX dimensions, each at least 1.  Returns 0 or -EINVAL. */
int stream_shape_parse(const char *text, struct pl_layout *layout);
/*
 * Parses both.  Returns 0; -EINVAL for a wrong text, which leaves *layout undefined; -E2BIG if a frame has more than
 * STREAM_FRAME_MAX bytes.
 */
int stream_layout_parse(const char *dtype, const char *shape, struct pl_layout *layout);

/* Formats a type; "-" without a layout.  Both return buffer. */
const char *stream_dtype_format(char buffer[STREAM_DTYPE_MAX], const struct pl_layout *layout);
/* Formats a shape; "scalar" without dimensions, "-" without a layout. */
const char *stream_shape_format(char buffer[STREAM_SHAPE_MAX], const struct pl_layout *layout);

#endif
