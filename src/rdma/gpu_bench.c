/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdma/gpu_bench.h"

#include <stdlib.h>

void rdma_gpu_bench_close(struct rdma_gpu_bench *bench)
{
	if (bench->near_mr)
		bench->loop->domain.library->ibv_dereg_mr(bench->near_mr);
	if (bench->far_mr)
		bench->loop->domain.library->ibv_dereg_mr(bench->far_mr);
	if (bench->gpu_mr)
		bench->loop->domain.library->ibv_dereg_mr(bench->gpu_mr);
	free(bench->near);
	free(bench->far);
}

int rdma_gpu_bench_open(struct rdma_gpu_bench *bench, struct rdma_loopback *loop, struct pl_memory *gpu,
			const char **what)
{
	size_t length = gpu->length;
	int rc = 0;

	*bench = (struct rdma_gpu_bench){ .loop = loop, .gpu = gpu, .length = length };
	/* An earlier bench of the memory may have registered it by Data Direct. */
	__atomic_store_n(&gpu->data_direct, false, __ATOMIC_RELAXED);
	bench->near = malloc(length);
	bench->far = malloc(length);
	*what = "memory of the host";
	if (!bench->near || !bench->far)
		rc = -ENOMEM;
	*what = rc ? *what : "ibv_reg_mr";
	if (rc == 0)
		rc = verbs_reg_mr(loop->domain.library, loop->domain.pd, bench->near, length, RDMA_GPU_BENCH_ACCESS,
				  &bench->near_mr);
	if (rc == 0)
		rc = verbs_reg_mr(loop->domain.library, loop->domain.pd, bench->far, length, RDMA_GPU_BENCH_ACCESS,
				  &bench->far_mr);
	if (rc < 0)
		rdma_gpu_bench_close(bench);
	return rc;
}

/* Bytes of an earlier proof must not pass. */
void rdma_gpu_bench_fill(struct rdma_gpu_bench *bench)
{
	uint64_t state = pl_now() * 0x9e3779b97f4a7c15u + 1;

	for (size_t i = 0; i < bench->length; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		bench->near[i] = (uint8_t)state;
	}
}

struct rdma_span rdma_gpu_bench_span(const struct rdma_gpu_bench *bench, bool into)
{
	struct rdma_span to_gpu = { bench->near_mr, bench->gpu_mr, (uintptr_t)bench->near,
				    (uintptr_t)bench->gpu->address, (uint32_t)bench->length };
	struct rdma_span from_gpu = { bench->gpu_mr, bench->far_mr, (uintptr_t)bench->gpu->address,
				      (uintptr_t)bench->far, (uint32_t)bench->length };

	return into ? to_gpu : from_gpu;
}

/* Reads one byte back by the card, which pushes the writes before it. */
static int push_writes(struct rdma_gpu_bench *bench, struct ibv_mr *mr, const void *address, const char **what)
{
	const struct rdma_span back = { mr, bench->near_mr, (uintptr_t)address, (uintptr_t)bench->near, 1 };
	uint8_t first = bench->near[0];
	int64_t took = rdma_loopback_read(bench->loop, &back, what);

	/* The byte that was read shows only what the card sees. */
	bench->near[0] = first;
	return (int)PL_MIN(took, 0);
}

/* Makes the card's writes visible to the GPU, by the driver or by a read of the card. */
static int make_visible(struct rdma_gpu_bench *bench, const char **what)
{
	if (pl_memory_order(bench->gpu) == PL_ORDER_READ)
		return push_writes(bench, bench->gpu_mr, bench->gpu->address, what);
	*what = "making it visible to the GPU";
	return pl_memory_flush(bench->gpu);
}

int rdma_gpu_bench_verify(struct rdma_gpu_bench *bench, bool into, const char **what)
{
	struct rdma_span span = rdma_gpu_bench_span(bench, into);
	int64_t took;
	int rc = 0;

	rdma_gpu_bench_fill(bench);
	memset(bench->far, 0, bench->length);
	*what = "the GPU's copy engine";
	rc = pl_memory_copy_in(bench->gpu, 0, into ? bench->far : bench->near, bench->length);
	if (rc < 0)
		return rc;
	took = rdma_loopback_write(bench->loop, &span, 1, what);
	if (took < 0)
		return (int)took;
	if (into) {
		rc = make_visible(bench, what);
		*what = rc < 0 ? *what : "the GPU's copy engine";
		if (rc == 0)
			rc = pl_memory_copy_out(bench->gpu, 0, bench->far, bench->length);
	} else {
		/* The acknowledgement of a write says nothing about memory. */
		rc = push_writes(bench, bench->far_mr, bench->far, what);
	}
	if (rc == 0 && memcmp(bench->near, bench->far, bench->length)) {
		*what = "other bytes arrived than were sent";
		return -EILSEQ;
	}
	return rc;
}
