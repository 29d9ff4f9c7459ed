/* SPDX-License-Identifier: BSD-2-Clause */
/* Headers of NumPy's files of arrays (.npy), versions 1 to 3: parsed as untrusted input, and written. */
#ifndef PL_CMD_STREAM_NPY_H
#define PL_CMD_STREAM_NPY_H

#include <stddef.h>

#include <peerlane/stream.h>

/* Bytes that begin each file and tell the length of its header. */
#define NPY_PREAMBLE 12
/* Longest header that is read. */
#define NPY_HEADER_MAX 65536
/* Length of a header that is written, the same for all arrays. */
#define NPY_HEADER_WRITTEN 384

/* Array of a file. */
struct npy_header {
	struct pl_layout layout; /* of the whole array */
	uint64_t offset;         /* of the first element in the file */
	uint64_t bytes;          /* of all elements */
};

/*
 * Returns the length of a header, with its preamble, from the first NPY_PREAMBLE bytes of a file; or -EINVAL.  `path`
 * is for the error only.
 */
int npy_header_length(const uint8_t *preamble, const char *path, struct pl_error *error);
/* Parses a whole header of `length` bytes.  Returns 0 or -EINVAL. */
int npy_parse(const uint8_t *bytes, size_t length, const char *path, struct npy_header *header, struct pl_error *error);

/*
 * Fills the header of an array of `frames` frames.  Returns 0; -ENOTSUP if NumPy has no type for the layout.  Lanes become
 * the last dimension.
 */
int npy_format(const struct pl_layout *frame, uint64_t frames, char header[NPY_HEADER_WRITTEN], struct pl_error *error);

#endif
