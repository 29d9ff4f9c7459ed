/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers between GPU memory and host memory through a card, whose bytes are compared. */
#ifndef PL_RDMA_GPU_BENCH_H
#define PL_RDMA_GPU_BENCH_H

#include "memory/memory.h"
#include "rdma/device_memory.h"
#include "rdma/loopback_write.h"

/* Rights with which all memory is registered. */
#define RDMA_GPU_BENCH_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* Objects of one proof: the GPU's memory, and two buffers of the host, all registered. */
struct rdma_gpu_bench {
	struct rdma_loopback *loop;
	struct pl_memory *gpu;
	size_t length;
	uint8_t *near, *far;
	struct ibv_mr *near_mr, *far_mr;
	struct ibv_mr *gpu_mr; /* registered by the caller, with the loop's domain; NULL: not */
};

/* Makes the host's buffers. Returns 0, or a negative errno and the failed step (static storage). */
int rdma_gpu_bench_open(struct rdma_gpu_bench *bench, struct rdma_loopback *loop, struct pl_memory *gpu,
			const char **what);
/* Deregisters all memory, the GPU's too. */
void rdma_gpu_bench_close(struct rdma_gpu_bench *bench);

/* Returns the ranges of a transfer into the GPU's memory, or from there. */
struct rdma_span rdma_gpu_bench_span(const struct rdma_gpu_bench *bench, bool into);
/* Fills the first buffer with bytes that differ from call to call. */
void rdma_gpu_bench_fill(struct rdma_gpu_bench *bench);
/*
 * Writes between host memory and GPU memory. The GPU's own copy engine, which is independent of the card, fills or
 * reads the GPU's memory. Returns 0, or a negative errno and the failed step (static storage).
 */
int rdma_gpu_bench_verify(struct rdma_gpu_bench *bench, bool into, const char **what);

#endif
