/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/gpu_vectors.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "support/cases.h"
#include "support/gpu.h"

size_t gpu_vector_cut(struct gpu_session *session, struct pl_transfer *transfers, size_t mean)
{
	uint64_t state = 7, at = 0;
	size_t count = 0;

	while (at < GPU_VECTOR_BYTES && count < GPU_VECTOR_ELEMENTS) {
		uint64_t length;

		state = state * 6364136223846793005u + 1442695040888963407u;
		length = 1 + (state >> 33) % (2 * mean);
		if (length > GPU_VECTOR_BYTES - at || count == GPU_VECTOR_ELEMENTS - 1)
			length = GPU_VECTOR_BYTES - at;
		transfers[count++] = (struct pl_transfer){ session->remote, at, session->buffer.region, at, length };
		at += length;
	}
	for (size_t i = count; i > 1; i--) {
		size_t other = (state = state * 6364136223846793005u + 1) % i;
		struct pl_transfer swapped = transfers[i - 1];

		transfers[i - 1] = transfers[other];
		transfers[other] = swapped;
	}
	return count;
}

struct pl_operation *gpu_vector_post(struct gpu_session *session, bool write, size_t mean)
{
	static struct pl_transfer transfers[GPU_VECTOR_ELEMENTS];
	size_t count = gpu_vector_cut(session, transfers, mean);
	struct pl_operation *operation;
	struct pl_error error;

	check_ok((write ? pl_writev : pl_readv)(session->peer, transfers, count, NULL, &operation, &error), &error);
	return operation;
}

void gpu_finish_direct(struct gpu_session *session, struct pl_operation *operation, const char *reason)
{
	struct pl_completion receipt;

	complete(&session->environment, operation, &receipt);
	check_number(receipt.route, PL_ROUTE_DIRECT);
	if (!strstr(receipt.reason, reason))
		check_text(receipt.reason, reason);
}

static const char spinning[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			       ".visible .entry spin(.param .u64 word)\n{\n"
			       "\t.reg .pred %p<2>;\n\t.reg .u32 %r<2>;\n\t.reg .u64 %d<2>;\n"
			       "\tld.param.u64 %d1, [word];\n"
			       "AGAIN:\n\tld.relaxed.sys.global.u32 %r1, [%d1];\n"
			       "\tsetp.eq.u32 %p1, %r1, 0;\n\t@%p1 bra AGAIN;\n\tret;\n}\n";

/* Kernel that fills all multiprocessors of a real GPU until the word is set. */
static struct {
	CUstream stream;
	CUfunction kernel;
	_Atomic uint32_t *word;
} spinner;

void gpu_must(CUresult result)
{
	check_number(result, CUDA_SUCCESS);
}

void gpu_enter(void)
{
	const struct cuda_driver *driver = cuda_driver_loaded();
	CUcontext context;

	gpu_must(driver->cuDevicePrimaryCtxRetain(&context, 0));
	gpu_must(driver->cuCtxPushCurrent(context));
}

void gpu_hold_prepare(void)
{
	const struct cuda_driver *driver = cuda_driver_loaded();
	CUmodule module;
	void *arguments[] = { &spinner.word };

	if (gpu_standin.hold)
		return;
	gpu_enter();
	spinner.word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	gpu_must(driver->cuMemHostRegister(spinner.word, 4096, CU_MEMHOSTREGISTER_PORTABLE));
	gpu_must(driver->cuStreamCreate(&spinner.stream, CU_STREAM_NON_BLOCKING));
	gpu_must(driver->cuModuleLoadData(&module, spinning));
	gpu_must(driver->cuModuleGetFunction(&spinner.kernel, module, "spin"));
	atomic_store(spinner.word, 1);
	gpu_must(driver->cuLaunchKernel(spinner.kernel, 1, 1, 1, 32, 1, 1, 0, spinner.stream, arguments, NULL));
	gpu_must(driver->cuStreamSynchronize(spinner.stream));
}

void gpu_hold_kernels(bool held)
{
	void *arguments[] = { &spinner.word };

	if (gpu_standin.hold) {
		gpu_standin.hold(held);
		return;
	}
	atomic_store(spinner.word, !held);
	if (held)
		gpu_must(cuda_driver_loaded()->cuLaunchKernel(spinner.kernel, 512, 1, 1, 1024, 1, 1, 0, spinner.stream,
							      arguments, NULL));
	else
		gpu_must(cuda_driver_loaded()->cuStreamSynchronize(spinner.stream));
	sleep_ms(5);
}

void gpu_agent_on_another(int fd)
{
	(void)fd;
	if (!gpu_open_on("alloc", 1))
		exit(SKIPPED);
}
