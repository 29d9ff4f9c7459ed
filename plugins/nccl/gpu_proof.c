/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Proof that a card reads and writes GPU memory. NCCL has no other choice for a card that promises this and fails, so
 * only transfers whose bytes were compared count.
 */
#include "state.h"

#ifdef PL_HAVE_VERBS

#include <stdio.h>

#include "rdma/gpu_bench.h"

#define PROOF_BYTES ((size_t)64 << 10)

/* Registers the memory as the fabric does. Returns NET_POINTER_... flags; 0 with the reason. */
static int register_gpu(struct rdma_gpu_bench *bench, const char **reason)
{
	const struct rdma_domain *domain = &bench->loop->domain;
	const struct rdma_range range = { bench->gpu, 0, bench->length, (uintptr_t)bench->gpu->address };

	if (verbs_reg_dmabuf(domain, bench->gpu, 0, bench->length, RDMA_GPU_BENCH_ACCESS, &bench->gpu_mr, reason) == 0)
		return NET_POINTER_CUDA | NET_POINTER_DMABUF;
	if (verbs_reg_memory(domain, &range, RDMA_GPU_BENCH_ACCESS, false, &bench->gpu_mr, reason) == 0)
		return NET_POINTER_CUDA;
	return 0;
}

static int prove_gpu_memory(struct rdma_loopback *loop, struct pl_memory *memory, const char **reason)
{
	struct rdma_gpu_bench bench;
	int pointers;

	if (rdma_gpu_bench_open(&bench, loop, memory, reason) < 0)
		return 0;
	pointers = register_gpu(&bench, reason);
	if (pointers &&
	    (rdma_gpu_bench_verify(&bench, true, reason) < 0 || rdma_gpu_bench_verify(&bench, false, reason) < 0))
		pointers = 0;
	rdma_gpu_bench_close(&bench);
	return pointers;
}

static int prove_gpu(const struct verbs_library *library, struct ibv_device *card, int number)
{
	struct rdma_loopback loop;
	struct pl_memory memory;
	struct pl_error error;
	const char *reason = "";
	int pointers = 0;
	char kind[16];

	snprintf(kind, sizeof(kind), "cuda:%d", number);
	if (pl_memory_allocate(&memory, kind, PROOF_BYTES, &error) < 0) {
		plugin_warn_error("cannot look at the GPU", &error);
		return 0;
	}
	if (rdma_loopback_open(&loop, library, card, &reason) == 0) {
		pointers = prove_gpu_memory(&loop, &memory, &reason);
		rdma_loopback_close(&loop);
	}
	pl_memory_release(&memory);
	if (!pointers)
		plugin_info("%s does not reach the memory of GPU %d: %s", library->ibv_get_device_name(card), number,
			    reason);
	return pointers;
}

int gpus_prove(const struct verbs_library *library, struct ibv_device *card)
{
	int gpus[GPUS_MAX], count = gpus_used(gpus, GPUS_MAX);
	int pointers = NET_POINTER_CUDA | NET_POINTER_DMABUF;

	for (int i = 0; i < count && pointers; i++)
		pointers &= prove_gpu(library, card, gpus[i]);
	return count ? pointers : 0;
}

#endif
