/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gpu_peer [FROM TO [MIB [mapped|pool]]]: rates of writes from a GPU of this process to a GPU of another process, over
 * the local fabric.  Compares them with cuMemcpyPeerAsync() between the same GPUs within this process.  FROM and TO
 * (default: 0 and 1) may be equal; MIB is 1024 by default.  The other process's memory is of cuMemAlloc(), mapped from
 * handles, or from a pool.
 */
#include "support.h"

#include <dlfcn.h>

#include "gpu_ends.h"
#include "gpu_support.h"

#define LARGE_ROUNDS 40u
#define SMALL_ROUNDS 5000u
#define WARM 10u
#define HANDLE ((size_t)32 << 20)

static size_t largest;
static char reason[256]; /* of the last transfer's route */

static uint64_t percentile_of(uint64_t *samples, unsigned count, double share)
{
	sort_times(samples, count);
	return samples[(unsigned)(share * (count - 1))];
}

static void open_driver(struct cuda_driver *driver, int gpu)
{
	struct pl_error error;
	CUcontext context;
	CUdevice device;

	MUST(cuda_driver_open("libcuda.so.1", RTLD_NOW, driver, &error), &error);
	must_cuda(driver->cuInit(0), "cuInit");
	must_cuda(driver->cuDeviceGet(&device, gpu), "cuDeviceGet");
	must_cuda(driver->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
	must_cuda(driver->cuCtxPushCurrent(context), "cuCtxPushCurrent");
}

/* Maps handles that can be shared into one range of at least `largest` bytes. */
static void *map_handles(int gpu)
{
	CUmemAllocationProp properties = { .type = 1,
					   .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, gpu } };
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, gpu }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, uint64_t);
	size_t size = (largest + HANDLE - 1) / HANDLE * HANDLE;
	CUmemGenericAllocationHandle handle;
	struct cuda_driver driver;
	CUdeviceptr address;

	find_driver_function("cuMemCreate", &create);
	open_driver(&driver, gpu);
	must_cuda(driver.cuMemAddressReserve(&address, size, 0, 0, 0), "cuMemAddressReserve");
	for (size_t done = 0; done < size; done += HANDLE) {
		must_cuda(create(&handle, HANDLE, &properties, 0), "cuMemCreate");
		must_cuda(driver.cuMemMap(address + done, HANDLE, 0, handle, 0), "cuMemMap");
		must_cuda(driver.cuMemRelease(handle), "cuMemRelease");
	}
	must_cuda(driver.cuMemSetAccess(address, size, &access, 1), "cuMemSetAccess");
	return (void *)(uintptr_t)address;
}

/* Allocates memory from a pool that can be shared. */
static void *allocate_from_pool(int gpu)
{
	/* CUmemPoolProps begins like the properties of a handle. */
	union {
		CUmemAllocationProp properties;
		char space[256];
	} of = { .properties = { .type = 1,
				 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, gpu } } };
	CUresult (*create)(CUmemoryPool *, const void *);
	CUresult (*allocate)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
	struct cuda_driver driver;
	CUdeviceptr address;
	CUmemoryPool pool;

	find_driver_function("cuMemPoolCreate", &create);
	find_driver_function("cuMemAllocFromPoolAsync", &allocate);
	open_driver(&driver, gpu);
	must_cuda(create(&pool, &of), "cuMemPoolCreate");
	must_cuda(allocate(&address, largest, pool, NULL), "cuMemAllocFromPoolAsync");
	must_cuda(driver.cuStreamSynchronize(NULL), "cuStreamSynchronize");
	return (void *)(uintptr_t)address;
}

/* Kinds of memory and their description; NULL: the library allocates it. */
static const struct kind {
	const char *name, *description;
	void *(*allocate)(int gpu);
} kinds[] = {
	{ "alloc", "", NULL },
	{ "mapped", ", mapped from handles", map_handles },
	{ "pool", ", from a pool", allocate_from_pool },
};

static const struct kind *find_kind(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(name, kinds[i].name))
			return &kinds[i];
	fprintf(stderr, "%s: no such kind of memory\n", name);
	exit(2);
}

static uint64_t transfer_once(struct gpu_session *session, bool write, size_t length)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;
	uint64_t start = now_ns();

	if (write)
		MUST(pl_write(session->peer, &(struct pl_transfer){ session->remote, 0, session->region, 0, length },
			      NULL, &operation, &error),
		     &error);
	else
		MUST(pl_read(session->peer, &(struct pl_transfer){ session->remote, 0, session->region, 0, length },
			     NULL, &operation, &error),
		     &error);
	MUST(pl_wait(operation, UINT64_MAX, &receipt, &error), &error);
	start = now_ns() - start;
	snprintf(reason, sizeof(reason), "%s", receipt.reason);
	return start;
}

static uint64_t median_time(struct gpu_session *session, bool write, size_t length, unsigned rounds)
{
	uint64_t samples[SMALL_ROUNDS];

	for (unsigned i = 0; i < WARM; i++)
		transfer_once(session, write, length);
	for (unsigned i = 0; i < rounds; i++)
		samples[i] = transfer_once(session, write, length);
	return percentile_of(samples, rounds, 0.5);
}

/* -- the driver itself -------------------------------------------------------------------------------- */

struct driver_copy {
	struct cuda_driver driver;
	CUcontext contexts[2];
	CUdeviceptr memory[2];
	CUstream stream;
};

static void driver_copy_open(struct driver_copy *driver_copy, const int gpus[2])
{
	struct pl_error error;
	CUcontext popped;
	CUdevice device;

	MUST(cuda_driver_open("libcuda.so.1", RTLD_NOW, &driver_copy->driver, &error), &error);
	must_cuda(driver_copy->driver.cuInit(0), "cuInit");
	for (int i = 1; i >= 0; i--) {
		must_cuda(driver_copy->driver.cuDeviceGet(&device, gpus[i]), "cuDeviceGet");
		must_cuda(driver_copy->driver.cuDevicePrimaryCtxRetain(&driver_copy->contexts[i], device),
			  "cuDevicePrimaryCtxRetain");
		must_cuda(driver_copy->driver.cuCtxPushCurrent(driver_copy->contexts[i]), "cuCtxPushCurrent");
		must_cuda(driver_copy->driver.cuMemAlloc(&driver_copy->memory[i], largest), "cuMemAlloc");
		if (i)
			must_cuda(driver_copy->driver.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
	}
	if (driver_copy->contexts[0] != driver_copy->contexts[1])
		driver_copy->driver.cuCtxEnablePeerAccess(driver_copy->contexts[1], 0);
	must_cuda(driver_copy->driver.cuStreamCreate(&driver_copy->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

static uint64_t driver_median_time(struct driver_copy *driver_copy, size_t length, unsigned rounds)
{
	uint64_t samples[SMALL_ROUNDS];

	for (unsigned i = 0; i < rounds + WARM; i++) {
		uint64_t start = now_ns();

		must_cuda(driver_copy->driver.cuMemcpyPeerAsync(driver_copy->memory[1], driver_copy->contexts[1],
								driver_copy->memory[0], driver_copy->contexts[0],
								length, driver_copy->stream),
			  "cuMemcpyPeerAsync");
		must_cuda(driver_copy->driver.cuStreamSynchronize(driver_copy->stream), "cuStreamSynchronize");
		samples[i < WARM ? 0 : i - WARM] = now_ns() - start;
	}
	return percentile_of(samples, rounds, 0.5);
}

static double gigabytes_per_second(size_t length, uint64_t time)
{
	return (double)length / (double)time;
}

static void print_rates(struct gpu_session *session, struct driver_copy *driver_copy, const char *how)
{
	static const size_t sizes[] = { 64 << 10, 1 << 20, 16 << 20 };
	uint64_t samples[SMALL_ROUNDS];
	double own = gigabytes_per_second(largest, median_time(session, true, largest, LARGE_ROUNDS));
	double driver = gigabytes_per_second(largest, driver_median_time(driver_copy, largest, LARGE_ROUNDS));

	printf("%s: write %zu MiB %.1f GB/s, cuMemcpyPeerAsync %.1f, ratio %.3f; read %.1f GB/s\n", how, largest >> 20,
	       own, driver, own / driver,
	       gigabytes_per_second(largest, median_time(session, false, largest, LARGE_ROUNDS)));
	printf("  %s\n", reason);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= largest; i++)
		printf("%s: write %zu KiB, one at a time %.2f GB/s, cuMemcpyPeerAsync %.2f\n", how, sizes[i] >> 10,
		       gigabytes_per_second(sizes[i], median_time(session, true, sizes[i], 500)),
		       gigabytes_per_second(sizes[i], driver_median_time(driver_copy, sizes[i], 500)));
	for (unsigned i = 0; i < WARM; i++)
		transfer_once(session, true, 8);
	for (unsigned i = 0; i < SMALL_ROUNDS; i++)
		samples[i] = transfer_once(session, true, 8);
	printf("%s: write 8 bytes p50 %.2f us, p99 %.2f us; cuMemcpyPeerAsync and cuStreamSynchronize p50 %.2f us\n",
	       how, (double)percentile_of(samples, SMALL_ROUNDS, 0.5) / 1e3,
	       (double)percentile_of(samples, SMALL_ROUNDS, 0.99) / 1e3,
	       (double)driver_median_time(driver_copy, 8, SMALL_ROUNDS) / 1e3);
}

int main(int argc, char **argv)
{
	const struct kind *of = find_kind(argc > 4 ? argv[4] : "alloc");
	int gpus[2] = { argc > 2 ? atoi(argv[1]) : 0, argc > 2 ? atoi(argv[2]) : 1 };
	struct pl_options options = PL_OPTIONS_INIT;
	struct gpu_session session;
	struct gpu_server server_info;
	struct driver_copy driver_copy;

	largest = (size_t)(argc > 3 ? atoi(argv[3]) : 1024) << 20;
	setvbuf(stdout, NULL, _IOLBF, 0);
	gpu_server_start(&server_info, gpus[1], of->allocate, largest, 2);
	driver_copy_open(&driver_copy, gpus);
	printf("GPU %d to GPU %d of another process%s\n", gpus[0], gpus[1], of->description);
	options.progress = PL_PROGRESS_MANUAL;
	gpu_session_open(&session, &server_info, &options, gpus[0], largest);
	print_rates(&session, &driver_copy, "manual progress");
	pl_close(session.context);
	options.progress = PL_PROGRESS_THREAD;
	gpu_session_open(&session, &server_info, &options, gpus[0], largest);
	print_rates(&session, &driver_copy, "threads");
	pl_close(session.context);
	gpu_server_end(&server_info);
	return 0;
}
