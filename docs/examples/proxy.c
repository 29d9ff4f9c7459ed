/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Takes the stream "cam0" into GPU memory, and publishes the sum of each frame's words as "sums": proxy FROM LISTEN
 * The CUDA stream waits for the frames. The kernel reads each one's status first, because frames can be lost.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>
#include <peerlane/stream.h>

static const char kernel[] =
	".version 5.0\n.target sm_50\n.address_size 64\n"
	".visible .entry sum(.param .u64 to, .param .u64 from, .param .u64 status)\n{\n"
	".reg .pred %p<4>; .reg .b32 %r<5>; .reg .b64 %d<9>;\n"
	"ld.param.u64 %d1, [to]; ld.param.u64 %d2, [from]; ld.param.u64 %d3, [status]; mov.u32 %r1, %tid.x;\n"
	"ld.volatile.u32 %r2, [%d3+8]; ld.volatile.u64 %d4, [%d3+16]; ld.volatile.u64 %d5, [%d3+24];\n"
	"setp.ne.u32 %p1, %r1, 0; @%p1 bra READY; st.u64 [%d1], %d4; st.u32 [%d1+8], %r2; st.u32 [%d1+12], 0;\n"
	"READY: bar.sync 0; setp.ne.u32 %p2, %r2, 1; @%p2 ret; mov.u32 %r3, 0; mul.wide.u32 %d6, %r1, 4;\n"
	"NEXT: add.u64 %d7, %d6, 4; setp.gt.u64 %p3, %d7, %d5; @%p3 bra DONE;\n"
	"add.u64 %d8, %d2, %d6; ld.u32 %r4, [%d8]; add.u32 %r3, %r3, %r4; add.u64 %d6, %d6, 4096; bra NEXT;\n"
	"DONE: red.add.u32 [%d1+12], %r3; ret;\n}\n";

static void check(int result, const struct pl_error *error)
{
	char text[512];

	if (result == 0)
		return;
	pl_error_format(error, text, sizeof(text));
	fprintf(stderr, "%s\n", text);
	exit(EXIT_FAILURE);
}

int main(int argc, char **argv)
{
	struct pl_subscriber_options in = { sizeof(in), .held = 4, .memory = "cuda" };
	struct pl_publisher_options out = { sizeof(out), .slot_bytes = 16, .slots = 64, .memory = "cuda" };
	struct pl_frame_options sum = { sizeof(sum), .length = 16 };
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame, *loan;
	struct pl_publisher *publisher;
	struct pl_peer *camera, *reader;
	struct pl_listener *listener;
	struct pl_context *context;
	struct pl_error error = { .message = "a call of CUDA failed" };
	CUfunction function;
	CUstream stream = NULL;
	CUcontext gpu;
	CUmodule code;

	if (argc != 3)
		return 2;
	/* A kernel that is loaded at its first launch would wait for the stream. */
	check(setenv("CUDA_MODULE_LOADING", "EAGER", 1) || cuInit(0) || cuDevicePrimaryCtxRetain(&gpu, 0) ||
		      cuCtxSetCurrent(gpu) || cuModuleLoadData(&code, kernel) ||
		      cuModuleGetFunction(&function, code, "sum") || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
	      &error);
	check(pl_open(&context, NULL, &error), &error);
	check(pl_publisher_open(context, "sums", &out, &publisher, &error), &error);
	check(pl_listen(context, argv[2], &listener, &error), &error);
	check(pl_connect(context, argv[1], UINT64_MAX, &camera, &error), &error);
	check(pl_subscriber_open(camera, "cam0", &in, UINT64_MAX, &subscriber, &error), &error);
	while (pl_subscriber_take_on(subscriber, stream, UINT64_MAX, &frame, &error) == 0) {
		struct pl_frame_info from = PL_FRAME_INFO_INIT, to = PL_FRAME_INFO_INIT;

		check(pl_publisher_loan(publisher, UINT64_MAX, &loan, &error), &error);
		check(pl_frame_query(frame, &from) || pl_frame_query(loan, &to), &error);
		check(cuLaunchKernel(function, 1, 1, 1, 1024, 1, 1, 0, stream,
				     (void *[]){ &to.data, &from.data, &from.status }, NULL),
		      &error);
		check(pl_frame_publish_on(loan, &sum, stream, &error), &error);
		check(pl_frame_release_on(frame, stream, &error), &error);
		pl_accept(listener, 0, &reader, NULL);
	}
	check(error.code == -ENODATA ? pl_publisher_end(publisher, 5000000000, &error) : error.code, &error);
	pl_close(context);
	return 0;
}
