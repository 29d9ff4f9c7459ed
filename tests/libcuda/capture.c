/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Capture of a CUDA graph by a thread that the test does not have. It lasts as long as the process if STANDIN_CAPTURE is set.
 * Meanwhile a thread whose mode is GLOBAL, as it is at first, must not call functions that the capture does not see. NVIDIA
 * names allocations and queries of events, not all others; here all calls of the library that make, wait, copy or map are
 * refused. With STANDIN_CAPTURE=engines the first thread may make them, for tests whose own calls do not change the mode.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcuda/standin.h"

enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };

static __thread int capture_mode;

bool standin_spoils(void)
{
	const char *capture = getenv("STANDIN_CAPTURE");

	return capture && capture_mode == MODE_GLOBAL && (strcmp(capture, "engines") || gettid() != getpid());
}

API CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = capture_mode;

	if (*mode < MODE_GLOBAL || *mode > MODE_RELAXED)
		return INVALID_VALUE;
	capture_mode = *mode;
	*mode = before;
	return SUCCESS;
}
