/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: the beginning of a .npy file, as `peerlane publish --from` reads it. */
#include "fuzz.h"

#include <string.h>

#include "cmd/stream/npy.h"
#include "stream/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct npy_header header, again;
	struct pl_error error = { 0 };
	char text[NPY_HEADER_WRITTEN];
	struct pl_layout frame;
	int length;

	if (size < NPY_PREAMBLE) {
		REQUIRE(npy_parse(data, size, "input", &header, &error) == -EINVAL && error.message[0]);
		return 0;
	}
	length = npy_header_length(data, "input", &error);
	if (length < 0 || (size_t)length > size) {
		REQUIRE(length > 0 || !strcmp(error.id, "NPY-HEADER"));
		return 0;
	}
	REQUIRE(length >= NPY_PREAMBLE && length <= NPY_HEADER_MAX);
	if (npy_parse(data, (size_t)length, "input", &header, &error) < 0) {
		REQUIRE(error.code == -EINVAL && error.message[0] && error.hint[0]);
		return 0;
	}
	REQUIRE(pl_layout_valid(&header.layout) && header.offset == (uint64_t)length && header.bytes > 0);
	REQUIRE(header.bytes == pl_layout_bytes(&header.layout));
	/* An array of frames is written as it was read. */
	if (header.layout.dimensions == 0)
		return 0;
	frame = header.layout;
	memmove(frame.shape, frame.shape + 1, sizeof(frame.shape) - sizeof(frame.shape[0]));
	frame.shape[--frame.dimensions] = 0;
	if (npy_format(&frame, header.layout.shape[0], text, &error) < 0)
		return 0;
	REQUIRE(npy_parse((const uint8_t *)text, sizeof(text), "text", &again, &error) == 0);
	REQUIRE(!memcmp(&again.layout, &header.layout, sizeof(again.layout)) && again.offset == sizeof(text));
	return 0;
}
