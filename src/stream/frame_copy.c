/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies between host memory and a frame, in any kind of memory. */
#include "stream/frame.h"

#include "memory/memory.h"
#include "stream/publisher.h"
#include "stream/subscriber.h"

static struct pl_memory *frame_memory(const struct pl_stream_frame *frame)
{
	return frame->publisher ? &frame->publisher->payload->memory : &frame->subscriber->memory.payloads->memory;
}

/* Returns 0, or -ERANGE for bytes outside of the frame, or the reason why it has none. */
static int check_copy(const struct pl_stream_frame *frame, uint64_t offset, uint64_t length, const char *call,
		      struct pl_error *error)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;

	pl_frame_query(frame, &info);
	if (info.status && pl_promise_result(frame) != PL_TAKE_FRAME)
		return pl_fail(error, -EAGAIN, "FRAME-NOT-THERE", call, NULL,
			       "wait for the stream, then look at the status",
			       "a CUDA stream waits for the frame, or no frame has come");
	if (pl_outside(offset, length, info.length))
		return pl_fail(error, -ERANGE, "FRAME-RANGE", call, NULL, "stay within the frame",
			       "%llu bytes at %llu of a frame of %llu", (unsigned long long)length,
			       (unsigned long long)offset, (unsigned long long)info.length);
	return 0;
}

static int copy_frame(const struct pl_stream_frame *frame, uint64_t offset, void *bytes, size_t length, bool into,
		      const char *call, struct pl_error *error)
{
	struct pl_memory *memory = frame_memory(frame);
	int rc = check_copy(frame, offset, length, call, error);

	if (rc < 0 || length == 0)
		return rc;
	if (memory->ops == &pl_host_memory) {
		/* A frame in place lies in the publisher's ring, not in this memory. */
		char *data = (char *)frame->data + offset;

		memcpy(into ? data : bytes, into ? bytes : data, length);
		return 0;
	}
	offset += (uint64_t)((char *)frame->data - (char *)memory->address);
	rc = into ? pl_memory_copy_in(memory, offset, bytes, length)
		  : pl_memory_copy_out(memory, offset, bytes, length);
	if (rc < 0)
		return pl_fail(error, rc, into ? "MEMORY-UNWRITABLE" : "MEMORY-UNREADABLE", call, NULL,
			       "see whether the GPU still works: nvidia-smi", "the frame's memory cannot be %s",
			       into ? "written" : "read");
	return 0;
}

int pl_frame_copy_in(struct pl_stream_frame *frame, uint64_t offset, const void *from, size_t length,
		     struct pl_error *error)
{
	if (!frame->publisher || frame->state != PL_FRAME_LOANED)
		return pl_fail(error, -EINVAL, "FRAME-FOREIGN", "pl_frame_copy_in", NULL,
			       "copy into a frame of pl_publisher_loan()", "the frame is not on loan");
	return copy_frame(frame, offset, (void *)from, length, true, "pl_frame_copy_in", error);
}

int pl_frame_copy_out(const struct pl_stream_frame *frame, uint64_t offset, void *to, size_t length,
		      struct pl_error *error)
{
	return copy_frame(frame, offset, to, length, false, "pl_frame_copy_out", error);
}
