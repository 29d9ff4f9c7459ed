/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/frame_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/common/cli.h"

bool frame_memory_is_gpu(const char *memory)
{
	return memory && strcmp(memory, "host");
}

void frame_bytes_begin(struct frame_bytes *bytes, const char *memory)
{
	bytes->gpu = frame_memory_is_gpu(memory);
}

void *frame_bytes_buffer(struct frame_bytes *bytes, uint64_t size)
{
	if (size <= bytes->size)
		return bytes->copy;
	free(bytes->copy);
	bytes->copy = malloc(size);
	bytes->size = bytes->copy ? size : 0;
	return bytes->copy;
}

int frame_bytes_read(struct frame_bytes *bytes, const struct pl_stream_frame *frame, struct pl_frame_info *info,
		     struct pl_error *error)
{
	pl_frame_query(frame, info);
	if (!bytes->gpu || !info->length)
		return 0;
	info->data = frame_bytes_buffer(bytes, info->length);
	if (!info->data)
		return cli_fail_errno(error, -ENOMEM, "malloc", "a frame");
	return pl_frame_copy_out(frame, 0, info->data, info->length, error);
}

void frame_bytes_free(struct frame_bytes *bytes)
{
	free(bytes->copy);
	*bytes = (struct frame_bytes){ .gpu = bytes->gpu };
}
