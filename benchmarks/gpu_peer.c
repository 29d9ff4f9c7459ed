/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gpu_peer [FROM TO [MIB [mapped|pool]]]: writes from a GPU of this process to one of another process, over the local
 * fabric, and next to them cuMemcpyPeerAsync() between the same GPUs within this process; 0 and 1 unless told, which may
 * be equal, and 1024 MiB.  The other process's memory is cuMemAlloc()'s, mapped from handles, or of a pool.
 */
#include "support.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/cuda/driver.h"

#define LARGE_ROUNDS 40u
#define SMALL_ROUNDS 5000u
#define WARM 10u
#define HANDLE ((size_t)32 << 20)

struct told {
	char address[96];
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
};

static size_t largest;

static int compare(const void *a, const void *b)
{
	const uint64_t *one = a, *other = b;

	return *one < *other ? -1 : *one > *other;
}

static uint64_t at_share(uint64_t *samples, unsigned count, double share)
{
	qsort(samples, count, sizeof(*samples), compare);
	return samples[(unsigned)(share * (count - 1))];
}

static struct pl_context *open_context(enum pl_progress progress)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	options.progress = progress;
	MUST(pl_open(&context, &options, &error), &error);
	return context;
}

static void need(CUresult result, const char *call)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "%s: %d\n", call, result);
		exit(1);
	}
}

/* A function that the library does not use.  The driver stays loaded. */
static void find(const char *name, void *function)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *found = library ? dlsym(library, name) : NULL;

	if (!found) {
		fprintf(stderr, "%s: the driver has none\n", name);
		exit(1);
	}
	memcpy(function, &found, sizeof(found));
}

static void open_driver(struct cuda_driver *driver, int gpu)
{
	struct pl_error error;
	CUcontext context;
	CUdevice device;

	MUST(cuda_driver_open("libcuda.so.1", RTLD_NOW, driver, &error), &error);
	need(driver->cuInit(0), "cuInit");
	need(driver->cuDeviceGet(&device, gpu), "cuDeviceGet");
	need(driver->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
	need(driver->cuCtxPushCurrent(context), "cuCtxPushCurrent");
}

/* As much as is asked for, side by side, of handles that can be shared. */
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

	find("cuMemCreate", &create);
	open_driver(&driver, gpu);
	need(driver.cuMemAddressReserve(&address, size, 0, 0, 0), "cuMemAddressReserve");
	for (size_t done = 0; done < size; done += HANDLE) {
		need(create(&handle, HANDLE, &properties, 0), "cuMemCreate");
		need(driver.cuMemMap(address + done, HANDLE, 0, handle, 0), "cuMemMap");
		need(driver.cuMemRelease(handle), "cuMemRelease");
	}
	need(driver.cuMemSetAccess(address, size, &access, 1), "cuMemSetAccess");
	return (void *)(uintptr_t)address;
}

/* Of a pool that can be shared. */
static void *take_from_pool(int gpu)
{
	/* The beginning of CUmemPoolProps is that of a handle's properties. */
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

	find("cuMemPoolCreate", &create);
	find("cuMemAllocFromPoolAsync", &allocate);
	open_driver(&driver, gpu);
	need(create(&pool, &of), "cuMemPoolCreate");
	need(allocate(&address, largest, pool, NULL), "cuMemAllocFromPoolAsync");
	need(driver.cuStreamSynchronize(NULL), "cuStreamSynchronize");
	return (void *)(uintptr_t)address;
}

/* The kinds of memory, in words; the first is the library's own. */
static const struct kind {
	const char *name, *told;
	void *(*allocate)(int gpu);
} kinds[] = {
	{ "alloc", "", NULL },
	{ "mapped", ", mapped from handles", map_handles },
	{ "pool", ", of a pool", take_from_pool },
};

static const struct kind *kind_of(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(name, kinds[i].name))
			return &kinds[i];
	fprintf(stderr, "%s: no such kind of memory\n", name);
	exit(2);
}

/* The other process: has memory, and takes connections. */
static void serve(int fd, int gpu, const struct kind *of)
{
	struct told told = { .token_length = PL_TOKEN_MAX };
	struct pl_context *context = open_context(PL_PROGRESS_THREAD);
	struct pl_listener *listener;
	struct pl_region *region;
	struct pl_error error;
	struct pl_peer *peer;
	char device[24];
	char byte;

	snprintf(device, sizeof(device), "cuda:%d", gpu);
	if (of->allocate)
		MUST(pl_region_register(context, of->allocate(gpu), largest, PL_ACCESS_ALL, &region, &error), &error);
	else
		MUST(pl_region_allocate_in(context, device, largest, PL_ACCESS_ALL, &region, &error), &error);
	MUST(pl_listen(context, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, told.address, sizeof(told.address));
	MUST(pl_region_share(region, NULL, told.token, &told.token_length, &error), &error);
	put(fd, &told, sizeof(told));
	for (unsigned i = 0; i < 2; i++)
		MUST(pl_accept(listener, 60 * NS_PER_S, &peer, &error), &error);
	get(fd, &byte, 1);
	pl_close(context);
	exit(0);
}

struct session {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct pl_region *region;
	char reason[256];
};

static void session_open(struct session *session, const struct told *told, enum pl_progress progress, int gpu)
{
	struct pl_error error;
	char kind[24];

	session->context = open_context(progress);
	snprintf(kind, sizeof(kind), "cuda:%d", gpu);
	MUST(pl_region_allocate_in(session->context, kind, largest, PL_ACCESS_LOCAL, &session->region, &error), &error);
	MUST(pl_connect(session->context, told->address, 60 * NS_PER_S, &session->peer, &error), &error);
	MUST(pl_remote_import(session->peer, told->token, told->token_length, 60 * NS_PER_S, &session->remote, &error),
	     &error);
}

static uint64_t move(struct session *session, bool write, size_t length)
{
	struct pl_operation *operation;
	struct pl_receipt receipt;
	struct pl_error error;
	uint64_t start = now_ns();

	if (write)
		MUST(pl_write(session->peer, session->remote, 0, session->region, 0, length, NULL, &operation, &error),
		     &error);
	else
		MUST(pl_read(session->peer, session->remote, 0, session->region, 0, length, NULL, &operation, &error),
		     &error);
	MUST(pl_wait(operation, UINT64_MAX, &receipt, &error), &error);
	start = now_ns() - start;
	snprintf(session->reason, sizeof(session->reason), "%s", receipt.reason);
	return start;
}

static uint64_t middle(struct session *session, bool write, size_t length, unsigned rounds)
{
	uint64_t samples[SMALL_ROUNDS];

	for (unsigned i = 0; i < WARM; i++)
		move(session, write, length);
	for (unsigned i = 0; i < rounds; i++)
		samples[i] = move(session, write, length);
	return at_share(samples, rounds, 0.5);
}

/* -- the driver itself -------------------------------------------------------------------------------- */

struct raw {
	struct cuda_driver driver;
	CUcontext contexts[2];
	CUdeviceptr memory[2];
	CUstream stream;
};

static void raw_open(struct raw *raw, const int gpus[2])
{
	struct pl_error error;
	CUcontext popped;
	CUdevice device;

	MUST(cuda_driver_open("libcuda.so.1", RTLD_NOW, &raw->driver, &error), &error);
	need(raw->driver.cuInit(0), "cuInit");
	for (int i = 1; i >= 0; i--) {
		need(raw->driver.cuDeviceGet(&device, gpus[i]), "cuDeviceGet");
		need(raw->driver.cuDevicePrimaryCtxRetain(&raw->contexts[i], device), "cuDevicePrimaryCtxRetain");
		need(raw->driver.cuCtxPushCurrent(raw->contexts[i]), "cuCtxPushCurrent");
		need(raw->driver.cuMemAlloc(&raw->memory[i], largest), "cuMemAlloc");
		if (i)
			need(raw->driver.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
	}
	if (raw->contexts[0] != raw->contexts[1])
		raw->driver.cuCtxEnablePeerAccess(raw->contexts[1], 0);
	need(raw->driver.cuStreamCreate(&raw->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

static uint64_t raw_middle(struct raw *raw, size_t length, unsigned rounds)
{
	uint64_t samples[SMALL_ROUNDS];

	for (unsigned i = 0; i < rounds + WARM; i++) {
		uint64_t start = now_ns();

		need(raw->driver.cuMemcpyPeerAsync(raw->memory[1], raw->contexts[1], raw->memory[0], raw->contexts[0],
						   length, raw->stream),
		     "cuMemcpyPeerAsync");
		need(raw->driver.cuStreamSynchronize(raw->stream), "cuStreamSynchronize");
		samples[i < WARM ? 0 : i - WARM] = now_ns() - start;
	}
	return at_share(samples, rounds, 0.5);
}

/* -- */

static double rate(size_t length, uint64_t time)
{
	return (double)length / (double)time;
}

static void report(struct session *session, struct raw *raw, const char *how)
{
	static const size_t sizes[] = { 64 << 10, 1 << 20, 16 << 20 };
	uint64_t samples[SMALL_ROUNDS];
	double own = rate(largest, middle(session, true, largest, LARGE_ROUNDS));
	double driver = rate(largest, raw_middle(raw, largest, LARGE_ROUNDS));

	printf("%s: write %zu MiB %.1f GB/s, cuMemcpyPeerAsync %.1f, ratio %.3f; read %.1f GB/s\n", how, largest >> 20,
	       own, driver, own / driver, rate(largest, middle(session, false, largest, LARGE_ROUNDS)));
	printf("  %s\n", session->reason);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= largest; i++)
		printf("%s: write %zu KiB, one at a time %.2f GB/s, cuMemcpyPeerAsync %.2f\n", how, sizes[i] >> 10,
		       rate(sizes[i], middle(session, true, sizes[i], 500)),
		       rate(sizes[i], raw_middle(raw, sizes[i], 500)));
	for (unsigned i = 0; i < WARM; i++)
		move(session, true, 8);
	for (unsigned i = 0; i < SMALL_ROUNDS; i++)
		samples[i] = move(session, true, 8);
	printf("%s: write 8 bytes p50 %.2f us, p99 %.2f us; cuMemcpyPeerAsync and cuStreamSynchronize p50 %.2f us\n",
	       how, (double)at_share(samples, SMALL_ROUNDS, 0.5) / 1e3,
	       (double)at_share(samples, SMALL_ROUNDS, 0.99) / 1e3, (double)raw_middle(raw, 8, SMALL_ROUNDS) / 1e3);
}

int main(int argc, char **argv)
{
	const struct kind *of = kind_of(argc > 4 ? argv[4] : "alloc");
	int gpus[2] = { argc > 2 ? atoi(argv[1]) : 0, argc > 2 ? atoi(argv[2]) : 1 }, pair[2];
	struct session session;
	struct told told;
	struct raw raw;
	pid_t child;

	largest = (size_t)(argc > 3 ? atoi(argv[3]) : 1024) << 20;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	child = fork();
	/* Each has one end only, so that it learns when the other one is gone. */
	close(pair[child != 0]);
	if (child == 0)
		serve(pair[1], gpus[1], of);
	get(pair[0], &told, sizeof(told));
	raw_open(&raw, gpus);
	printf("GPU %d to GPU %d of another process%s\n", gpus[0], gpus[1], of->told);
	session_open(&session, &told, PL_PROGRESS_MANUAL, gpus[0]);
	report(&session, &raw, "manual progress");
	pl_close(session.context);
	session_open(&session, &told, PL_PROGRESS_THREAD, gpus[0]);
	report(&session, &raw, "threads");
	pl_close(session.context);
	put(pair[0], "", 1);
	waitpid(child, NULL, 0);
	return 0;
}
