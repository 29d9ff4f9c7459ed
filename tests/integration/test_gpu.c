/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory: kinds of pointers, routes and their reasons, the limit of locked memory, and refusals of the driver.
 * Uses the stand-in for the driver, or a real driver for tests that need no failure.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/cuda/cuda.h"
#include "support/cases.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/pair.h"

#define LARGE ((size_t)24 << 20)

static const struct setting setting = {
	.name = "gpu",
	.fabric = "tcp",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_THREAD,
	.lanes = 2,
};

static void begin(const char *kind)
{
	if (!gpu_open(kind))
		exit(SKIPPED);
	gpu_standin_find();
}

static void begin_with_standin(void)
{
	begin("alloc");
	gpu_standin_need();
}

/* The driver ends cudaMemset() and the like on this memory before the call returns. */
static void check_ordered(const void *memory)
{
	CUresult (*get)(void *, int, CUdeviceptr);
	unsigned ordered = 0;

	gpu_driver_find(&get, "cuPointerGetAttribute");
	check_number(get(&ordered, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (uintptr_t)memory), CUDA_SUCCESS);
	check_number(ordered, 1);
}

/* -- kinds of pointers -------------------------------------------------------------------------------- */

static void kind_of_pointer(void *kind)
{
	enum { SIZE = 5 << 20 };
	struct pl_context *context;
	struct pl_region *region;
	struct pl_error error;
	uint8_t *memory;
	void *host;

	begin(kind);
	context = context_open(&setting);
	memory = gpu_allocate(SIZE);
	host = malloc(64);
	check_ok(pl_region_register(context, memory, SIZE, PL_ACCESS_ALL, &region, &error), &error);
	check_text(pl_region_memory(region), "cuda");
	check_number(pl_region_gpu(region), 0);
	check(pl_region_address(region) == memory);
	if (strcmp(kind, "alloc") == 0)
		check_ordered(memory);
	check_number(pl_region_deregister(region), 0);
	/* Registers from the middle of one allocation to the middle of the adjacent one. */
	check_ok(pl_region_register(context, memory + 4097, SIZE - 8191, PL_ACCESS_ALL, &region, &error), &error);
	check_number(pl_region_deregister(region), 0);
	check_status(pl_region_register(context, memory + 1, (size_t)1 << 40, 0, &region, &error), -EFAULT, &error);
	check_text(error.id, "MEMORY-UNMAPPED");
	gpu_free(memory);
	check_ok(pl_region_register(context, host, 64, 0, &region, &error), &error);
	check_text(pl_region_memory(region), "host");
	check_number(pl_region_gpu(region), -1);
	free(host);
	pl_close(context);
}

/* Other threads, and sanitizers, may map memory of their own where the freed memory was. */
static void freed_pointer(void *unused)
{
	enum { ATTEMPTS = 100 };
	struct pl_context *context;
	struct pl_region *region;
	struct pl_error error;
	void *memory;
	int rc = 0;

	(void)unused;
	begin_with_standin();
	context = context_open(&setting);
	for (unsigned i = 0; i < ATTEMPTS && rc == 0; i++) {
		memory = gpu_allocate(4096);
		gpu_free(memory);
		rc = pl_region_register(context, memory, 4096, 0, &region, &error);
		if (rc == 0) {
			check_text(pl_region_memory(region), "host");
			check_number(msync(memory, 4096, MS_ASYNC), 0);
			check_number(pl_region_deregister(region), 0);
		}
	}
	check_status(rc, -EFAULT, &error);
	check_text(error.id, "MEMORY-UNMAPPED");
	pl_close(context);
}

static void managed_pointer(void *unused)
{
	struct pl_context *context;
	struct pl_region *region;
	struct cuda_gpu *gpu;
	struct pl_error error;
	CUresult (*managed)(CUdeviceptr * address, size_t length, unsigned flags);
	CUdeviceptr address;
	int mode;

	(void)unused;
	begin("alloc");
	gpu_driver_find(&managed, "cuMemAllocManaged");
	context = context_open(&setting);
	check_ok(cuda_gpu_get(cuda_driver_loaded(), NULL, 0, &gpu, &error), &error);
	check_number(cuda_enter(gpu, &mode), CUDA_SUCCESS);
	check_number(managed(&address, 4096, 1), CUDA_SUCCESS);
	cuda_leave(gpu, mode);
	check_status(pl_region_register(context, (void *)(uintptr_t)address, 4096, 0, &region, &error), -ENOTSUP,
		     &error);
	check_text(error.id, "GPU-MANAGED");
	gpu->driver->cuMemFree(address);
	cuda_gpu_put(gpu);
	pl_close(context);
}

static void allocated_here(void *unused)
{
	uint8_t bytes[100], back[100];
	struct pl_context *context;
	struct pl_region *region;
	struct pl_error error;

	(void)unused;
	begin("alloc");
	context = context_open(&setting);
	check_ok(pl_region_allocate_in(context, "cuda:0", 1000, PL_ACCESS_ALL, &region, &error), &error);
	check_text(pl_region_memory(region), "cuda");
	check_ordered(pl_region_address(region));
	memset(bytes, 1, sizeof(bytes));
	check_ok(pl_region_copy_out(region, 900, back, 100, &error), &error);
	value_check(back, 100, 0);
	check_ok(pl_region_copy_in(region, 900, bytes, 100, &error), &error);
	check_ok(pl_region_copy_out(region, 900, back, 100, &error), &error);
	value_check(back, 100, 1);
	check_status(pl_region_copy_in(region, 901, bytes, 100, &error), -ERANGE, &error);
	check_status(pl_region_copy_out(region, SIZE_MAX, bytes, 2, &error), -ERANGE, &error);
	check_number(pl_region_deregister(region), 0);
	check_status(pl_region_allocate_in(context, "cuda:99", 1000, 0, &region, &error), -ENODEV, &error);
	check_text(error.id, "GPU-NONE");
	check_status(pl_region_allocate_in(context, "cuda:", 1000, 0, &region, &error), -EINVAL, &error);
	check_status(pl_region_allocate_in(context, "host:1", 1000, 0, &region, &error), -EINVAL, &error);
	check_status(pl_region_allocate_in(context, "cuda:18446744073709551616", 1, 0, &region, &error), -EINVAL,
		     &error);
	check_status(pl_region_allocate_in(context, "", 1000, 0, &region, &error), -EINVAL, &error);
	check_text(error.id, "MEMORY-KIND");
	pl_close(context);
}

/* Checks the range's offset in its dma-buf. */
static void dmabuf(void *kind)
{
	struct pl_context *context;
	struct pl_memory memory;
	struct pl_error error;
	uint64_t skew = 99;
	struct stat status;
	uint8_t *address;
	int fd;

	begin(kind);
	context = context_open(&setting);
	address = gpu_allocate(1 << 20);
	check_ok(pl_memory_attach(&memory, address + 5000, 100000, &error), &error);
	fd = memory.ops->export_dmabuf(&memory, 3, 9000, &skew);
	check_number(fd < 0 ? fd : 0, 0);
	check_number((skew - ((uintptr_t)address + 5003)) % 4096, 0);
	check_number(fstat(fd, &status), 0);
	check(status.st_size >= 12288);
	close(fd);
	pl_memory_release(&memory);
	gpu_free(address);
	pl_close(context);
}

/* -- routes ------------------------------------------------------------------------------------------- */

static void check_staged(const struct pl_completion *receipt, uint64_t bytes)
{
	check_number(receipt->status, 0);
	check_number(receipt->route, PL_ROUTE_STAGED);
	check_number(receipt->bytes, bytes);
	check_number(receipt->bytes_staged, bytes);
	check_number((receipt->bytes - receipt->bytes_staged), 0);
	check(strstr(receipt->reason, "GPU"));
}

static struct pl_completion message(struct scenario_environment *environment, struct buffer *from, struct buffer *to,
				    size_t length, struct pl_completion *sent)
{
	struct pl_operation *sending, *receiving;
	struct pl_completion received;
	struct pl_error error;

	check_ok(pl_receive(environment->far_peer, 1, UINT64_MAX, &(struct pl_buffer){ to->region, 0, length }, NULL,
			    &receiving, &error),
		 &error);
	check_ok(pl_send(environment->near_peer, 1, &(struct pl_buffer){ from->region, 0, length }, NULL, &sending,
			 &error),
		 &error);
	complete(environment, sending, sent);
	complete(environment, receiving, &received);
	return received;
}

static void receipts(void *unused)
{
	struct scenario_environment environment;
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct buffer near, far, host;
	struct pl_remote *remote;
	struct pl_operation *operation;
	struct pl_completion receipt, sent;
	struct pl_error error;

	(void)unused;
	begin("alloc");
	environment_open(&environment, &setting);
	direct.flags = PL_REQUIRE_DIRECT;
	buffer_open(&near, environment.near, LARGE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, LARGE, PL_ACCESS_ALL);
	gpu_kind = NULL;
	buffer_open(&host, environment.near, LARGE, PL_ACCESS_LOCAL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, LARGE }, NULL,
			  &operation, &error),
		 &error);
	complete(&environment, operation, &receipt);
	check_staged(&receipt, LARGE);
	/* Only the peer's memory is on a GPU. */
	check_ok(pl_read(environment.near_peer, &(struct pl_transfer){ remote, 0, host.region, 0, LARGE }, NULL,
			 &operation, &error),
		 &error);
	complete(&environment, operation, &receipt);
	check_staged(&receipt, LARGE);
	check_ok(pl_read(environment.near_peer, &(struct pl_transfer){ remote, 0, host.region, 0, 100 }, &direct,
			 &operation, &error),
		 &error);
	fail_with(&environment, operation, -ENOTSUP);
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, 8 }, &direct,
			  &operation, &error),
		 &error);
	check_number(await(&environment, operation, &receipt, &error), -ENOTSUP);
	check_text(error.id, "NOT-DIRECT");
	check_ok(pl_send(environment.near_peer, 9, &(struct pl_buffer){ near.region, 0, 100 }, &direct, &operation,
			 &error),
		 &error);
	fail_with(&environment, operation, -ENOTSUP);
	check_ok(pl_send(environment.near_peer, 9, &(struct pl_buffer){ near.region, 0, LARGE }, &direct, &operation,
			 &error),
		 &error);
	fail_with(&environment, operation, -ENOTSUP);
	receipt = message(&environment, &near, &far, 100, &sent);
	check_staged(&receipt, 100);
	check_staged(&sent, 100);
	receipt = message(&environment, &near, &far, LARGE, &sent);
	check_staged(&receipt, LARGE);
	check_staged(&sent, LARGE);
	pl_remote_release(remote);
	gpu_kind = "alloc";
	buffer_close(&near);
	buffer_close(&far);
	buffer_close(&host);
	environment_close(&environment);
}

/* -- the driver refuses ------------------------------------------------------------------------------- */

/* Closes the pair. No host memory stays locked. */
static void pair_close_all(struct pair *pair)
{
	pair_close(pair);
	check_number(gpu_standin.pinned(), 0);
}

static int transfer(struct pair *pair, bool write, size_t length, struct pl_error *error)
{
	struct pl_peer *peer = pair->environment.near_peer;
	struct pl_operation *operation;
	int rc;

	if (write)
		rc = pl_write(peer, &(struct pl_transfer){ pair->remote, 0, pair->near.region, 0, length }, NULL,
			      &operation, error);
	else
		rc = pl_read(peer, &(struct pl_transfer){ pair->remote, 0, pair->near.region, 0, length }, NULL,
			     &operation, error);
	check_ok(rc, error);
	return await(&pair->environment, operation, NULL, error);
}

static void check_all_moves(struct pair *pair, uint64_t seed)
{
	struct pl_error error;

	pattern_fill(pair->near.bytes, LARGE, seed, 0);
	check_ok(transfer(pair, true, LARGE, &error), &error);
	pattern_check(pair->far.bytes, LARGE, seed, 0);
	bytes_set(pair->near.bytes, POISON, LARGE);
	check_ok(transfer(pair, false, LARGE, &error), &error);
	pattern_check(pair->near.bytes, LARGE, seed, 0);
}

static void no_locked_memory(void *unused)
{
	struct pair pair;

	(void)unused;
	begin_with_standin();
	gpu_standin.fail("cuMemHostRegister", 0, UINT32_MAX, CUDA_ERROR_OUT_OF_MEMORY);
	pair_open(&pair, &setting, LARGE);
	check_all_moves(&pair, 1);
	check_number(gpu_standin.pinned(), 0);
	pair_close_all(&pair);
}

static void slow_copies(void *unused)
{
	struct pair pair;

	(void)unused;
	begin_with_standin();
	pair_open(&pair, &setting, LARGE);
	gpu_standin.delay(3000);
	check_all_moves(&pair, 2);
	check(gpu_standin.pinned() > 0 && gpu_standin.pinned() <= (size_t)256 << 20);
	gpu_standin.delay(0);
	check_number(gpu_standin.depth(), 0);
	pair_close_all(&pair);
}

/* A bulk write of one chunk while all slots of the first lane wait for copies of the GPU: the other lanes carry it. */
static void bulk_beside_copies(void *unused)
{
	enum { READS = 10, SMALL = 8 << 10, BULK = 100 << 10 };
	struct pl_operation *reads[READS], *write;
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	begin_with_standin();
	pair_open(&pair, &setting, LARGE);
	gpu_kind = NULL;
	buffer_open(&near, pair.environment.near, 2 * BULK, PL_ACCESS_ALL);
	buffer_open(&far, pair.environment.far, BULK, PL_ACCESS_LOCAL);
	remote = share(&pair.environment, near.region, pair.environment.far_peer, NULL);
	check_all_moves(&pair, 4); /* opens all lanes */
	settle(&pair.environment, 200);
	pattern_fill(far.bytes, BULK, 5, 0);
	gpu_standin.delay(100000);
	for (size_t i = 0; i < READS; i++)
		check_ok(pl_read(pair.environment.near_peer,
				 &(struct pl_transfer){ pair.remote, 0, near.region, BULK + i * SMALL, SMALL }, NULL,
				 &reads[i], &error),
			 &error);
	settle(&pair.environment, 150); /* the answer to the first read has sent the others */
	check_ok(pl_write(pair.environment.far_peer, &(struct pl_transfer){ remote, 0, far.region, 0, BULK }, NULL, &write,
			  &error),
		 &error);
	complete(&pair.environment, write, NULL);
	pattern_check(near.bytes, BULK, 5, 0);
	for (size_t i = 0; i < READS; i++)
		complete(&pair.environment, reads[i], NULL);
	gpu_standin.delay(0);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	gpu_kind = "alloc";
	pair_close_all(&pair);
}

/* Checks the staging memory: `limit` bytes are locked, some of them were in use, and none are after the transfers. */
static void check_staging(struct pl_context *context, size_t limit)
{
	struct pl_staging_info info = PL_STAGING_INFO_INIT;
	struct pl_error error;

	check_ok(pl_staging_query(context, &info, &error), &error);
	check_number(info.limit, limit);
	check_number(info.locked, limit);
	check_number(info.in_use, 0);
	check(info.in_use_max > 0 && info.in_use_max <= limit);
	info.size--;
	check_status(pl_staging_query(context, &info, &error), -EINVAL, &error);
	check_text(error.id, "OPTION");
}

static void bounded(void *unused)
{
	struct pl_options options = setting_options(&setting);
	struct scenario_environment environment = { .setting = &setting };
	struct pair pair;

	(void)unused;
	begin_with_standin();
	options.staging_bytes = (size_t)8 << 20;
	environment.near = context_open_with(&options);
	environment.far = context_open_with(&options);
	drive(&environment, environment.near);
	drive(&environment, environment.far);
	environment.listener = listener_open(&setting, environment.far, environment.address);
	connect_pair(&environment, environment.near, environment.listener, &environment.near_peer,
		     &environment.far_peer);
	pair.environment = environment;
	buffer_open(&pair.near, environment.near, LARGE, PL_ACCESS_LOCAL);
	buffer_open(&pair.far, environment.far, LARGE, PL_ACCESS_ALL);
	pair.remote = share(&environment, pair.far.region, environment.near_peer, NULL);
	gpu_standin.delay(500);
	check_all_moves(&pair, 3);
	check_number(gpu_standin.pinned(), 2 * options.staging_bytes);
	check_staging(environment.near, options.staging_bytes);
	check_staging(environment.far, options.staging_bytes);
	gpu_standin.delay(0);
	pair_close_all(&pair);
}

static void failing_copies(void *unused)
{
	struct pl_error error;
	struct pair pair;
	int status;

	(void)unused;
	begin_with_standin();
	pair_open(&pair, &setting, LARGE);
	check_all_moves(&pair, 4);
	for (unsigned i = 0; i < 8; i++) {
		gpu_standin.fail("copy", i, 1, 700);
		status = transfer(&pair, i % 2, LARGE, &error);
		check_status(status, -EFAULT, &error);
		/* Copies in flight must end before the next transfer starts. */
		gpu_standin.fail("copy", 0, 0, 0);
	}
	gpu_standin.fail("cuMemcpyDtoHAsync", 2, 1, 700);
	check_status(transfer(&pair, true, LARGE, &error), -EFAULT, &error);
	check_text(error.id, "MEMORY-UNREADABLE");
	gpu_standin.fail("cuCtxPushCurrent", 5, UINT32_MAX, 201);
	check_status(transfer(&pair, true, LARGE, &error), -EFAULT, &error);
	gpu_standin.fail("cuCtxPushCurrent", 0, 0, 0);
	check_all_moves(&pair, 5);
	pair_close_all(&pair);
}

/* Frees registered memory: a transfer fails with a named error, and other regions still work. */
static void freed_while_registered(void *unused)
{
	struct pl_error error;
	struct pair pair;
	uint8_t *again;

	(void)unused;
	begin_with_standin();
	pair_open(&pair, &setting, LARGE);
	mirror_remove(pair.near.memory);
	gpu_free(pair.near.device);
	check_status(transfer(&pair, true, LARGE, &error), -EFAULT, &error);
	check_text(error.id, "MEMORY-UNREADABLE");
	check_status(transfer(&pair, false, LARGE, &error), -EFAULT, &error);
	check_text(error.id, "MEMORY-UNWRITABLE");
	check_status(transfer(&pair, true, 8, &error), -EFAULT, &error);
	check_number(pl_region_deregister(pair.near.region), 0);
	free(pair.near.memory);
	buffer_open(&pair.near, pair.environment.near, LARGE, PL_ACCESS_LOCAL);
	check_all_moves(&pair, 6);
	again = pair.far.device;
	mirror_remove(pair.far.memory);
	gpu_free(again);
	check_status(transfer(&pair, true, LARGE, &error), -EFAULT, &error);
	check_status(transfer(&pair, false, LARGE, &error), -EFAULT, &error);
	pair.far.device = NULL;
	pair_close_all(&pair);
}

/* Destroys the program's own CUDA context while its memory is registered. */
static void context_gone(void *unused)
{
	struct scenario_environment environment;
	CUresult (*create)(CUcontext * context, unsigned flags, CUdevice device);
	CUresult (*destroy)(CUcontext context);
	const struct cuda_driver *library;
	struct pl_operation *operation;
	struct pl_region *region;
	struct pl_remote *remote;
	struct pl_error error;
	struct buffer far;
	CUcontext own, popped;
	CUdeviceptr address;

	(void)unused;
	begin_with_standin();
	gpu_driver_find(&create, "cuCtxCreate_v2");
	gpu_driver_find(&destroy, "cuCtxDestroy_v2");
	environment_open(&environment, &setting);
	library = cuda_driver_loaded();
	check_number(create(&own, 0, 1), CUDA_SUCCESS);
	check_number(library->cuMemAlloc(&address, LARGE), CUDA_SUCCESS);
	check_number(library->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
	buffer_open(&far, environment.far, LARGE, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check_ok(pl_region_register(environment.near, (void *)(uintptr_t)address, LARGE, 0, &region, &error), &error);
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, region, 0, LARGE }, NULL, &operation,
			  &error),
		 &error);
	complete(&environment, operation, NULL);
	check_number(destroy(own), CUDA_SUCCESS);
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, region, 0, LARGE }, NULL, &operation,
			  &error),
		 &error);
	fail_with(&environment, operation, -EFAULT);
	check_number(pl_region_deregister(region), 0);
	pl_remote_release(remote);
	buffer_close(&far);
	environment_close(&environment);
	check_number(gpu_standin.depth(), 0);
}

static const struct test_case cases[] = {
	{ "alloc", kind_of_pointer, "alloc", 20 },
	{ "pool", kind_of_pointer, "pool", 20 },
	{ "mapped", kind_of_pointer, "mapped", 20 },
	{ "freed-pointer", freed_pointer, NULL, 20 },
	{ "managed", managed_pointer, NULL, 20 },
	{ "allocated-here", allocated_here, NULL, 20 },
	{ "dmabuf-alloc", dmabuf, "alloc", 20 },
	{ "dmabuf-pool", dmabuf, "pool", 20 },
	{ "dmabuf-mapped", dmabuf, "mapped", 20 },
	{ "receipts", receipts, NULL, 20 },
	{ "no-locked-memory", no_locked_memory, NULL, 20 },
	{ "slow-copies", slow_copies, NULL, 20 },
	{ "bulk-beside-copies", bulk_beside_copies, NULL, 20 },
	{ "bounded", bounded, NULL, 20 },
	{ "failing-copies", failing_copies, NULL, 20 },
	{ "freed-while-registered", freed_while_registered, NULL, 20 },
	{ "context-gone", context_gone, NULL, 20 },
};

int main(void)
{
	return cases_run("gpu", cases, sizeof(cases) / sizeof(cases[0]));
}
