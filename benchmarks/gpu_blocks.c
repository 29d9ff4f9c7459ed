/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gpu_blocks [FROM TO [manual]]: rates of vectors of scattered blocks, the shape of a KV cache, between a GPU of this process and a GPU
 * of another process over the local fabric: by the library's kernel (vectors, and prepared ones) and by copies. Beside them a
 * loop of cuMemcpyAsync() and cuMemcpyBatchAsync() between the same GPUs within this process.
 */
#include "support.h"

#include <dlfcn.h>
#include <string.h>

#include "gpu_ends.h"
#include "gpu_support.h"

#define ROUNDS 21u
#define BYTES ((size_t)1 << 30)
#define BLOCKS_MAX 4096u
#define DIFFERENCE 2654435761u /* odd: block i of one end goes to block i * DIFFERENCE of the other */

static struct pl_transfer transfers[BLOCKS_MAX];
static char reason[256];

static uint64_t median_of(uint64_t *samples)
{
	sort_times(samples, ROUNDS);
	return samples[ROUNDS / 2];
}

static size_t other_block(size_t i, unsigned count)
{
	return i * DIFFERENCE % count;
}

static void fill_transfers(struct gpu_session *session, size_t block, unsigned count)
{
	for (size_t i = 0; i < count; i++)
		transfers[i] = (struct pl_transfer){ session->remote, other_block(i, count) * block, session->region,
						     i * block, block };
}

static void await_operation(struct pl_operation *operation)
{
	struct pl_completion receipt;
	struct pl_error error;

	MUST(pl_wait(operation, UINT64_MAX, &receipt, &error), &error);
	snprintf(reason, sizeof(reason), "%s", receipt.reason);
}

static uint64_t vector_time(struct gpu_session *session, bool write, size_t block, unsigned count)
{
	uint64_t samples[ROUNDS];
	struct pl_operation *operation;
	struct pl_error error;

	fill_transfers(session, block, count);
	for (unsigned i = 0; i < ROUNDS; i++) {
		samples[i] = now_ns();
		MUST((write ? pl_writev : pl_readv)(session->peer, transfers, count, NULL, &operation, &error), &error);
		await_operation(operation);
		samples[i] = now_ns() - samples[i];
	}
	return median_of(samples);
}

static uint64_t prepared_time(struct gpu_session *session, size_t block, unsigned count)
{
	uint64_t samples[ROUNDS];
	struct pl_operation *operation;
	struct pl_vector *vector;
	struct pl_error error;

	fill_transfers(session, block, count);
	MUST(pl_vector_prepare(session->peer, PL_KIND_WRITE, transfers, count, &vector, &error), &error);
	for (unsigned i = 0; i < ROUNDS; i++) {
		samples[i] = now_ns();
		MUST(pl_vector_post(vector, 0, 0, NULL, &operation, &error), &error);
		await_operation(operation);
		samples[i] = now_ns() - samples[i];
	}
	pl_vector_free(vector);
	return median_of(samples);
}

/* -- the driver itself -------------------------------------------------------------------------------- */

static struct {
	struct cuda_driver driver;
	CUdeviceptr memory[2];
	CUstream stream;
	CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
} raw;

static void raw_open(const int gpus[2])
{
	CUcontext contexts[2], popped;
	struct pl_error error;
	CUdevice device;

	MUST(cuda_driver_open("libcuda.so.1", RTLD_NOW, &raw.driver, &error), &error);
	find_driver_function("cuMemcpyAsync", &raw.copy);
	must_cuda(raw.driver.cuInit(0), "cuInit");
	for (int i = 1; i >= 0; i--) {
		must_cuda(raw.driver.cuDeviceGet(&device, gpus[i]), "cuDeviceGet");
		must_cuda(raw.driver.cuDevicePrimaryCtxRetain(&contexts[i], device), "cuDevicePrimaryCtxRetain");
		must_cuda(raw.driver.cuCtxPushCurrent(contexts[i]), "cuCtxPushCurrent");
		must_cuda(raw.driver.cuMemAlloc(&raw.memory[i], BYTES), "cuMemAlloc");
		if (i)
			must_cuda(raw.driver.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
	}
	if (contexts[0] != contexts[1])
		raw.driver.cuCtxEnablePeerAccess(contexts[1], 0);
	must_cuda(raw.driver.cuStreamCreate(&raw.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

static void raw_begin(bool batch, size_t block, unsigned count)
{
	CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
	static CUdeviceptr to[BLOCKS_MAX], from[BLOCKS_MAX];
	static size_t lengths[BLOCKS_MAX];
	size_t first = 0;

	for (size_t i = 0; i < count; i++) {
		to[i] = raw.memory[1] + other_block(i, count) * block;
		from[i] = raw.memory[0] + i * block;
		lengths[i] = block;
		if (!batch)
			must_cuda(raw.copy(to[i], from[i], block, raw.stream), "cuMemcpyAsync");
	}
	if (batch)
		must_cuda(raw.driver.cuMemcpyBatchAsync(to, from, lengths, count, &attributes, &first, 1, raw.stream),
			  "cuMemcpyBatchAsync");
}

static double raw_rate(bool batch, size_t block, unsigned count)
{
	uint64_t samples[ROUNDS];

	if (batch && !raw.driver.cuMemcpyBatchAsync)
		return 0;
	for (unsigned i = 0; i < ROUNDS; i++) {
		samples[i] = now_ns();
		raw_begin(batch, block, count);
		must_cuda(raw.driver.cuStreamSynchronize(raw.stream), "cuStreamSynchronize");
		samples[i] = now_ns() - samples[i];
	}
	return (double)(block * count) / (double)median_of(samples);
}

/* -- figures ------------------------------------------------------------------------------------------- */

static void print_rates(struct gpu_session sessions[3], unsigned count)
{
	static const size_t blocks[] = { 4 << 10, 16 << 10, 64 << 10, 256 << 10 };

	for (unsigned i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		size_t block = blocks[i];
		double bytes = (double)(block * count);

		printf("%5u x %3zu KiB: write %6.1f, prepared %6.1f, read %6.1f; 32 multiprocessors %6.1f; copies "
		       "%6.1f; "
		       "cuMemcpyAsync %6.1f, cuMemcpyBatchAsync %6.1f\n",
		       count, block >> 10, bytes / (double)vector_time(&sessions[0], true, block, count),
		       bytes / (double)prepared_time(&sessions[0], block, count),
		       bytes / (double)vector_time(&sessions[0], false, block, count),
		       bytes / (double)vector_time(&sessions[1], true, block, count),
		       bytes / (double)vector_time(&sessions[2], true, block, count), raw_rate(false, block, count),
		       raw_rate(true, block, count));
	}
}

int main(int argc, char **argv)
{
	static const unsigned multiprocessors[3] = { 0, 32, PL_NO_GPU_KERNEL }, counts[] = { 16, 64, 256, 4096 };
	int gpus[2] = { argc > 2 ? atoi(argv[1]) : 0, argc > 2 ? atoi(argv[2]) : 1 };
	struct pl_options options = PL_OPTIONS_INIT;
	struct gpu_session sessions[3];
	struct gpu_server server;

	if (argc > 3 && !strcmp(argv[3], "manual"))
		options.progress = PL_PROGRESS_MANUAL;
	setvbuf(stdout, NULL, _IOLBF, 0);
	gpu_server_start(&server, gpus[1], NULL, BYTES, 3);
	raw_open(gpus);
	for (unsigned i = 0; i < 3; i++) {
		options.gpu_multiprocessors = multiprocessors[i];
		gpu_session_open(&sessions[i], &server, &options, gpus[0], BYTES);
	}
	printf("Vectors of scattered blocks, GPU %d to GPU %d of another process, GB/s, median of %u%s\n", gpus[0],
	       gpus[1], ROUNDS, options.progress == PL_PROGRESS_MANUAL ? ", manual progress" : "");
	for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		print_rates(sessions, counts[i]);
	vector_time(&sessions[0], true, 16 << 10, 256);
	printf("  %s\n", reason);
	for (unsigned i = 0; i < 3; i++)
		pl_close(sessions[i].context);
	gpu_server_end(&server);
	return 0;
}
