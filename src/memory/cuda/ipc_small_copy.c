/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small copies into the memory of a GPU that other processes use too. The driver sends small copies within its commands
 * to the GPU's compute engine, which serves one process at a time. On an H200 (driver 580) such a copy takes 5.5 us,
 * 140 us if another process copied last, and 2.3 ms while another process runs kernels. A copy engine copies rows in 7
 * us without waiting for other processes. So a copy that takes long makes the next ones rows, unless rows take as long.
 *
 * Streams that wait for words of host memory (cuStreamWaitValue64) hold the compute engine's queues of the process, 8 unless
 * CUDA_DEVICE_MAX_CONNECTIONS says otherwise. On an H100, 8 of them held up copies of 8 KiB and less from host memory, and
 * all copies within the GPU, but no rows, no copies out of the GPU, and none between GPUs.
 */
#include "memory/cuda/cuda.h"

/* Copies of this size use a copy engine by themselves; those of 16 KiB do not. Sizes in between were not measured. */
#define WITHIN_COMMANDS (32u << 10)
#define LONG (PL_NS_PER_MS / 10)
/* Time until the other method is tried again. */
#define KEPT_FOR (10 * PL_NS_PER_S)
/* Consecutive rows that were not twice as quick: a single one may have been polled late. */
#define SLOW_ROWS 4

bool cuda_needs_rows(struct cuda_gpu *gpu)
{
	uint64_t until = atomic_load_explicit(&gpu->rows_until, memory_order_relaxed);

	return atomic_load_explicit(&gpu->streams_wait, memory_order_relaxed) || (until && pl_now() < until);
}

/* The two rows begin `pitch` bytes apart. */
static CUresult copy_two_rows(const struct cuda_driver *driver, CUdeviceptr to, const void *from, size_t row,
			      size_t pitch, CUstream stream)
{
	CUmemcpy2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = from,
		.srcPitch = pitch,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = to,
		.dstPitch = pitch,
		.WidthInBytes = row,
		.Height = 2,
	};

	return driver->cuMemcpy2DAsync(&copy, stream);
}

/* The last byte of an odd length is the second row of another copy, whose first row is the first byte again. */
static bool copy_by_rows(const struct cuda_driver *driver, CUdeviceptr to, const void *from, size_t length,
			 CUstream stream)
{
	size_t row = length / 2;

	if (length < 2 || copy_two_rows(driver, to, from, row, row, stream) != CUDA_SUCCESS)
		return false;
	return length % 2 == 0 || copy_two_rows(driver, to, from, 1, length - 1, stream) == CUDA_SUCCESS;
}

CUresult cuda_begin_into(struct cuda_gpu *gpu, CUdeviceptr to, const void *from, size_t length, CUstream stream,
			 struct cuda_clock *clock)
{
	const struct cuda_driver *driver = gpu->driver;
	bool small = length < WITHIN_COMMANDS;
	bool measured = small && !atomic_load_explicit(&gpu->streams_wait, memory_order_relaxed);

	*clock = (struct cuda_clock){ .begun = measured ? pl_now() : 0, .rows = small && cuda_needs_rows(gpu) };
	if (clock->rows && copy_by_rows(driver, to, from, length, stream))
		return CUDA_SUCCESS;
	/* If rows are refused, a plain copy follows; copying some bytes twice does no harm. */
	clock->rows = false;
	return driver->cuMemcpyHtoDAsync(to, from, length, stream);
}

static void rows_ended(struct cuda_gpu *gpu, uint64_t took, uint64_t now)
{
	if (took < atomic_load_explicit(&gpu->waited, memory_order_relaxed) / 2) {
		atomic_store_explicit(&gpu->slow_rows, 0, memory_order_relaxed);
	} else if (atomic_fetch_add(&gpu->slow_rows, 1) + 1 == SLOW_ROWS) {
		atomic_store_explicit(&gpu->plain_until, now + KEPT_FOR, memory_order_relaxed);
		atomic_store_explicit(&gpu->rows_until, 0, memory_order_relaxed);
	}
}

void cuda_ended(struct cuda_gpu *gpu, struct cuda_clock clock)
{
	uint64_t now, took;

	if (!clock.begun)
		return;
	now = pl_now();
	took = now - clock.begun;
	if (clock.rows) {
		rows_ended(gpu, took, now);
	} else if (took > LONG && now >= atomic_load_explicit(&gpu->plain_until, memory_order_relaxed)) {
		atomic_store_explicit(&gpu->waited, took, memory_order_relaxed);
		atomic_store_explicit(&gpu->slow_rows, 0, memory_order_relaxed);
		atomic_store_explicit(&gpu->rows_until, now + KEPT_FOR, memory_order_relaxed);
	}
}
