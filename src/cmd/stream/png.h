/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PNG files of frames.  The pixels are stored without compression: a frame is written in the time of a copy, several
 * times a second.
 */
#ifndef PL_CMD_STREAM_PNG_H
#define PL_CMD_STREAM_PNG_H

#include <stdbool.h>
#include <stddef.h>

#include <peerlane/stream.h>

/* True for grey images (two dimensions of u8 or u16) and colours (height x width x 3 of u8, or two dimensions of u8x3). */
bool png_supports(const struct pl_layout *layout);
/* Encodes a frame of such a layout.  Returns the file, which the caller frees, or NULL without memory. */
void *png_encode(const struct pl_layout *layout, const void *pixels, size_t *size);

#endif
