/* SPDX-License-Identifier: BSD-2-Clause */
/* Vectors between GPU memory of two processes, and kernels that cannot begin. */
#ifndef TEST_GPU_VECTORS_H
#define TEST_GPU_VECTORS_H

#include "memory/cuda/driver.h"
#include "support/gpu_session.h"

/* Bytes, and most elements, of a vector. */
#define GPU_VECTOR_BYTES ((size_t)3 << 20)
#define GPU_VECTOR_ELEMENTS 4096u

/* Fills the transfers with parts of the whole buffer in a mixed order, of different lengths. Returns their number. */
size_t gpu_vector_cut(struct gpu_session *session, struct pl_transfer *transfers, size_t mean);
/* Posts a write or read of the whole buffer by such a vector. */
struct pl_operation *gpu_vector_post(struct gpu_session *session, bool write, size_t mean);
/* Completes an operation, which has moved its bytes directly, for that reason. */
void gpu_finish_direct(struct gpu_session *session, struct pl_operation *operation, const char *reason);

/* Checks that a call of the driver succeeded. */
void gpu_must(CUresult result);
/* Makes the GPU's primary context current, for calls of the driver in the test. */
void gpu_enter(void);
/* Loads the kernel that holds others up: loading waits for kernels that run. */
void gpu_hold_prepare(void);
/* Holds kernels up, or ends that: in the stand-in, or by a kernel that fills all multiprocessors of a real GPU. */
void gpu_hold_kernels(bool held);
/* Places the agent's memory on another GPU: copies within a GPU wait for its multiprocessors too. */
void gpu_agent_on_another(int fd);

#endif
