/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gpu_blocks [FROM TO [manual]]: rates of vectors of scattered blocks, the shape of a KV cache, between a GPU of this process and a GPU
 * of another process over the local fabric: by the library's kernel (vectors, and prepared ones) and by copies. Beside them a
 * loop of cuMemcpyAsync() and cuMemcpyBatchAsync() between the same GPUs within this process.
 *
 * gpu_blocks host GPU [manual [MULTIPROCESSORS]]: the same between host memory and a GPU. The host memory is the other process's, then
 * this process's: locked by the program, allocated by the library, and neither. The loop of copies uses locked memory. Checks the bytes.
 * In brackets: the vectors that the kernel copied, as the library may choose copies.
 */
#include "support.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu_ends.h"
#include "gpu_support.h"

#define ROUNDS 21u
#define BYTES ((size_t)1 << 30)
#define BLOCKS_MAX 4096u
#define DIFFERENCE 2654435761u /* odd: block i of one end goes to block i * DIFFERENCE of the other */

static struct pl_transfer transfers[BLOCKS_MAX];
static char reason[256];
static unsigned by_kernel; /* vectors of the last measurement that the kernel copied */

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
	by_kernel += strstr(reason, "kernel of the GPU") != NULL;
}

static uint64_t vector_time(struct gpu_session *session, bool write, size_t block, unsigned count)
{
	uint64_t samples[ROUNDS];
	struct pl_operation *operation;
	struct pl_error error;

	fill_transfers(session, block, count);
	by_kernel = 0;
	for (unsigned i = 0; i < ROUNDS; i++) {
		samples[i] = now_ns();
		MUST((write ? pl_writev : pl_readv)(session->peer, transfers, count, NULL, &operation, &error), &error);
		await_operation(operation);
		samples[i] = now_ns() - samples[i];
	}
	return median_of(samples);
}

static uint64_t prepared_time(struct gpu_session *session, bool write, size_t block, unsigned count)
{
	uint64_t samples[ROUNDS];
	struct pl_operation *operation;
	struct pl_vector *vector;
	struct pl_error error;

	fill_transfers(session, block, count);
	MUST(pl_vector_prepare(session->peer, write ? PL_KIND_WRITE : PL_KIND_READ, transfers, count, &vector, &error),
	     &error);
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
		       bytes / (double)prepared_time(&sessions[0], true, block, count),
		       bytes / (double)vector_time(&sessions[0], false, block, count),
		       bytes / (double)vector_time(&sessions[1], true, block, count),
		       bytes / (double)vector_time(&sessions[2], true, block, count), raw_rate(false, block, count),
		       raw_rate(true, block, count));
	}
}

/* -- host memory --------------------------------------------------------------------------------------- */

#define HOST_BYTES ((size_t)256 << 20)

/* The library's kernel, and its copies. */
struct host_shape {
	const char *name;
	struct gpu_server server;
	struct gpu_session kernel, copies;
	bool host_here, unlocked, allocated;
};

/* Replaces the session's region by host memory. */
static void use_host_region(struct gpu_session *session, const struct host_shape *shape)
{
	struct pl_error error;
	void *memory;

	if (shape->allocated) {
		MUST(pl_region_allocate(session->context, HOST_BYTES, PL_ACCESS_LOCAL, &session->region, &error),
		     &error);
		return;
	}
	memory = mmap(NULL, HOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		give_up("mmap", -ENOMEM, NULL);
	if (!shape->unlocked)
		must_cuda(raw.driver.cuMemHostRegister(memory, HOST_BYTES, CU_MEMHOSTREGISTER_PORTABLE),
			  "cuMemHostRegister");
	MUST(pl_region_register(session->context, memory, HOST_BYTES, PL_ACCESS_LOCAL, &session->region, &error),
	     &error);
}

/* Copies within this process. */
static void raw_move(CUdeviceptr to, CUdeviceptr from)
{
	must_cuda(raw.copy(to, from, HOST_BYTES, raw.stream), "cuMemcpyAsync");
	must_cuda(raw.driver.cuStreamSynchronize(raw.stream), "cuStreamSynchronize");
}

/* Writes a pattern by a vector, and reads it back by another one. */
static void check_bytes(struct gpu_session *session, uint64_t *host, size_t block, unsigned count)
{
	CUdeviceptr region = (uintptr_t)pl_region_address(session->region);
	size_t words = block * count / sizeof(*host);

	for (size_t i = 0; i < words; i++)
		host[i] = (i + block) * 0x9e3779b97f4a7c15ull;
	raw_move(region, (uintptr_t)host);
	vector_time(session, true, block, count);
	memset(host, 0, HOST_BYTES);
	raw_move(region, (uintptr_t)host);
	vector_time(session, false, block, count);
	raw_move((uintptr_t)host, region);
	for (size_t i = 0; i < words; i++)
		if (host[i] != (i + block) * 0x9e3779b97f4a7c15ull)
			give_up("check of the bytes", -EIO, NULL);
}

static void print_host_rates(struct host_shape *shape, size_t block, unsigned count)
{
	double bytes = (double)(block * count);

	printf("%s, %4u x %3zu KiB, to and from the GPU:", shape->name, count, block >> 10);
	for (unsigned out = 0; out < 2; out++) {
		bool write = shape->host_here != (out != 0);
		double kernel = bytes / (double)vector_time(&shape->kernel, write, block, count);
		CUdeviceptr swapped = raw.memory[0];

		printf(" kernel %5.2f (%u of %u)", kernel, by_kernel, ROUNDS);
		printf(", prepared %5.2f, copies %5.2f, cuMemcpyAsync %5.2f%s",
		       bytes / (double)prepared_time(&shape->kernel, write, block, count),
		       bytes / (double)vector_time(&shape->copies, write, block, count), raw_rate(false, block, count),
		       out ? "\n" : ";");
		raw.memory[0] = raw.memory[1];
		raw.memory[1] = swapped;
	}
}

static void open_host_shape(struct host_shape *shape, struct pl_options options, int gpu)
{
	struct gpu_session *sessions[2] = { &shape->kernel, &shape->copies };

	for (unsigned i = 0; i < 2; i++) {
		gpu_session_open(sessions[i], &shape->server, &options, gpu, HOST_BYTES);
		if (shape->host_here)
			use_host_region(sessions[i], shape);
		/* The library locks a mapping, and memory that it allocated, once as many bytes were copied. */
		for (unsigned k = 0; k < 3; k++)
			vector_time(sessions[i], true, HOST_BYTES / 4, 4);
		options.gpu_multiprocessors = PL_NO_GPU_KERNEL;
	}
}

static void measure_host_shape(struct host_shape *shape, uint64_t *host)
{
	static const unsigned counts[] = { 4, 16, 64, 256, 4096 };
	static const size_t blocks[] = { 4 << 10, 16 << 10, 64 << 10, 256 << 10 };

	for (unsigned k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
		for (unsigned i = 0; i < sizeof(blocks) / sizeof(blocks[0]) && blocks[i] * counts[k] <= HOST_BYTES; i++)
			print_host_rates(shape, blocks[i], counts[k]);
	check_bytes(&shape->kernel, host, 64 << 10, 4096);
	check_bytes(&shape->kernel, host, 5000, 3000);
	printf("  %s\n", reason);
	pl_close(shape->kernel.context);
	pl_close(shape->copies.context);
	gpu_server_end(&shape->server);
}

static void measure_host(int gpu, struct pl_options options)
{
	struct host_shape shapes[] = { { .name = "other's host" },
				       { .name = "own host", .host_here = true },
				       { .name = "own host, allocated", .host_here = true, .allocated = true },
				       { .name = "own host, not locked", .host_here = true, .unlocked = true } };
	const unsigned count = sizeof(shapes) / sizeof(shapes[0]);
	const int gpus[2] = { gpu, gpu };
	uint64_t *host = mmap(NULL, HOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double rates[2];

	for (unsigned i = 0; i < count; i++)
		gpu_server_start(&shapes[i].server, shapes[i].host_here ? gpu : -1, NULL, HOST_BYTES, 2);
	raw_open(gpus);
	must_cuda(raw.driver.cuMemFree(raw.memory[0]), "cuMemFree");
	if (host == MAP_FAILED)
		give_up("mmap", -ENOMEM, NULL);
	must_cuda(raw.driver.cuMemHostRegister(host, HOST_BYTES, CU_MEMHOSTREGISTER_PORTABLE), "cuMemHostRegister");
	for (unsigned i = 0; i < 2; i++) {
		raw.memory[0] = i ? raw.memory[1] : (uintptr_t)host;
		raw.memory[1] = i ? (uintptr_t)host : raw.memory[1];
		rates[i] = raw_rate(false, HOST_BYTES, 1);
	}
	raw.memory[1] = raw.memory[0];
	raw.memory[0] = (uintptr_t)host;
	printf("Vectors of scattered blocks, host memory and GPU %d, GB/s, median of %u%s; one copy of %zu MiB: "
	       "to the GPU "
	       "%.1f, from it %.1f\n",
	       gpu, ROUNDS, options.progress == PL_PROGRESS_MANUAL ? ", manual progress" : "", HOST_BYTES >> 20,
	       rates[0], rates[1]);
	for (unsigned i = 0; i < count; i++) {
		open_host_shape(&shapes[i], options, gpu);
		measure_host_shape(&shapes[i], host);
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
	if (argc > 2 && !strcmp(argv[1], "host")) {
		options.gpu_multiprocessors = argc > 4 ? (unsigned)atoi(argv[4]) : 0;
		measure_host(gpus[1], options);
		return 0;
	}
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
