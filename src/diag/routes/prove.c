/* SPDX-License-Identifier: BSD-2-Clause */
#include "diag/routes/prove.h"

#ifdef PL_HAVE_VERBS

#include <stdio.h>
#include <stdlib.h>

#include "rdma/device_memory.h"
#include "rdma/loopback_write.h"

#define WRITES_MIN 4
#define WRITES_MAX 1024
#define MEASURE (50 * 1000000) /* shortest time of a measurement, in nanoseconds */

/* Objects of one proof: the GPU's memory, and two buffers of the host, all registered. */
struct bench {
	struct rdma_loopback *loop;
	struct pl_memory *gpu;
	size_t length;
	uint8_t *near, *far;
	struct ibv_mr *near_mr, *far_mr, *gpu_mr;
};

static void proof_refuse(struct pl_proof_leg *leg, const char *what, int rc)
{
	leg->proven = false;
	leg->rate = 0;
	if (rc == 0)
		snprintf(leg->reason, sizeof(leg->reason), "%s", what);
	else
		snprintf(leg->reason, sizeof(leg->reason), "%s: %s", what, strerrordesc_np(-rc));
}

/* Fills bytes that differ from proof to proof, so that bytes of an earlier one do not pass. */
static void pattern(uint8_t *bytes, size_t length, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;

	for (size_t i = 0; i < length; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		bytes[i] = (uint8_t)state;
	}
}

/* Repeats the writes until they took long enough for a rate. */
static int proof_measure_rate(struct bench *bench, const struct rdma_span *span, uint64_t *rate, const char **what)
{
	unsigned count = WRITES_MIN;
	int64_t took;

	for (;;) {
		took = rdma_loopback_write(bench->loop, span, count, what);
		if (took < 0)
			return (int)took;
		if (took >= MEASURE || count >= WRITES_MAX)
			break;
		count *= 4;
	}
	*rate = (uint64_t)((double)span->length * count / (double)took * 1e9);
	return 0;
}

static struct rdma_span span_of(const struct bench *bench, enum pl_direction direction)
{
	struct rdma_span into = { bench->near_mr, bench->gpu_mr, (uintptr_t)bench->near, (uintptr_t)bench->gpu->address,
				  (uint32_t)bench->length };
	struct rdma_span from = { bench->gpu_mr, bench->far_mr, (uintptr_t)bench->gpu->address, (uintptr_t)bench->far,
				  (uint32_t)bench->length };

	return direction == PL_INTO_GPU ? into : from;
}

/* Makes the card's writes visible to the GPU, by the driver or by a read of the card. */
static int make_visible(struct bench *bench, const char **what)
{
	const struct rdma_span back = { bench->gpu_mr, bench->near_mr, (uintptr_t)bench->gpu->address,
					(uintptr_t)bench->near, 1 };
	uint8_t first = bench->near[0];
	int64_t took;

	if (pl_memory_order(bench->gpu) != PL_ORDER_READ) {
		*what = "making it visible to the GPU";
		return pl_memory_flush(bench->gpu);
	}
	took = rdma_loopback_read(bench->loop, &back, what);
	/* The byte that was read shows only what the card sees. */
	bench->near[0] = first;
	return (int)PL_MIN(took, 0);
}

/*
 * Writes between host memory and GPU memory. The GPU's own copy engine, which is independent of the card, fills or
 * reads the GPU's memory.
 */
static int verify(struct bench *bench, enum pl_direction direction, const char **what)
{
	struct rdma_span span = span_of(bench, direction);
	int64_t took;
	int rc = 0;

	pattern(bench->near, bench->length, pl_now());
	memset(bench->far, 0, bench->length);
	*what = "the GPU's copy engine";
	rc = pl_memory_copy_in(bench->gpu, 0, direction == PL_INTO_GPU ? bench->far : bench->near, bench->length);
	if (rc < 0)
		return rc;
	took = rdma_loopback_write(bench->loop, &span, 1, what);
	if (took < 0)
		return (int)took;
	if (direction == PL_INTO_GPU) {
		rc = make_visible(bench, what);
		*what = rc < 0 ? *what : "the GPU's copy engine";
		if (rc == 0)
			rc = pl_memory_copy_out(bench->gpu, 0, bench->far, bench->length);
	}
	if (rc == 0 && memcmp(bench->near, bench->far, bench->length)) {
		*what = "other bytes arrived than were sent";
		return -EILSEQ;
	}
	return rc;
}

static void prove_direct(struct bench *bench, enum pl_direction direction, struct pl_proof_leg *leg)
{
	struct rdma_span span = span_of(bench, direction);
	const char *what = "";
	int rc = verify(bench, direction, &what);

	if (rc == 0)
		rc = proof_measure_rate(bench, &span, &leg->rate, &what);
	leg->proven = rc == 0;
	if (rc < 0)
		proof_refuse(leg, what, rc);
	else
		snprintf(leg->reason, sizeof(leg->reason), "bytes verified");
}

/* Both halves run together, piece by piece: the slower one counts. */
static void prove_staged(struct bench *bench, enum pl_direction direction, struct pl_proof_leg *leg)
{
	struct rdma_span span = { bench->near_mr, bench->far_mr, (uintptr_t)bench->near, (uintptr_t)bench->far,
				  (uint32_t)bench->length };
	bool into = direction == PL_INTO_GPU;
	const char *what = "the GPU's copy engine";
	uint64_t wire = 0, begin, copy;
	int rc;

	pattern(bench->near, bench->length, pl_now());
	memset(bench->far, 0, bench->length);
	rc = (int)PL_MIN(rdma_loopback_write(bench->loop, &span, 1, &what), 0);
	if (rc == 0)
		rc = pl_memory_copy_in(bench->gpu, 0, bench->far, bench->length);
	memset(bench->far, 0, bench->length);
	if (rc == 0)
		rc = pl_memory_copy_out(bench->gpu, 0, bench->far, bench->length);
	if (rc == 0 && memcmp(bench->near, bench->far, bench->length)) {
		proof_refuse(leg, "other bytes arrived than were sent", 0);
		return;
	}
	begin = pl_now();
	if (rc == 0)
		rc = into ? pl_memory_copy_in(bench->gpu, 0, bench->far, bench->length)
			  : pl_memory_copy_out(bench->gpu, 0, bench->far, bench->length);
	copy = (uint64_t)((double)bench->length / (double)PL_MAX(pl_now() - begin, 1) * 1e9);
	if (rc == 0)
		rc = proof_measure_rate(bench, &span, &wire, &what);
	if (rc < 0) {
		proof_refuse(leg, what, rc);
		return;
	}
	leg->proven = true;
	leg->rate = PL_MIN(wire, copy);
	snprintf(leg->reason, sizeof(leg->reason), "bytes verified; %s is the slower half",
		 copy < wire ? "the GPU's copy" : "the card");
}

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static int reg(struct bench *bench, enum pl_gpu_path way, const char **what)
{
	const struct verbs_library *library = bench->loop->library;
	int rc;

	if (way == PL_GPU_PATH_DMABUF)
		return verbs_reg_dmabuf(library, bench->loop->pd, bench->gpu, 0, bench->length, ACCESS, &bench->gpu_mr,
					what);
	rc = verbs_reg_mr(library, bench->loop->pd, bench->gpu->address, bench->length, ACCESS, &bench->gpu_mr);
	*what = rc == -EFAULT ? "no peer memory module is loaded" : "the device's driver refuses";
	return rc;
}

static void prove_way(struct bench *bench, struct pl_proof *proof)
{
	const char *what = "";
	int rc = proof->way == PL_GPU_PATH_STAGED ? 0 : reg(bench, proof->way, &what);

	for (int direction = 0; direction < PL_DIRECTION_COUNT; direction++) {
		struct pl_proof_leg *leg = &proof->legs[direction];

		if (rc < 0)
			proof_refuse(leg, what, rc);
		else if (proof->way == PL_GPU_PATH_STAGED)
			prove_staged(bench, direction, leg);
		else
			prove_direct(bench, direction, leg);
	}
	if (rc == 0 && proof->way != PL_GPU_PATH_STAGED)
		bench->loop->library->ibv_dereg_mr(bench->gpu_mr);
}

static void close_bench(struct bench *bench)
{
	if (bench->near_mr)
		bench->loop->library->ibv_dereg_mr(bench->near_mr);
	if (bench->far_mr)
		bench->loop->library->ibv_dereg_mr(bench->far_mr);
	free(bench->near);
	free(bench->far);
}

static int open_bench(struct bench *bench, struct rdma_loopback *loop, struct pl_memory *gpu, size_t length,
		      const char **what)
{
	int rc = 0;

	*bench = (struct bench){ .loop = loop, .gpu = gpu, .length = length };
	bench->near = malloc(length);
	bench->far = malloc(length);
	*what = "memory of the host";
	if (!bench->near || !bench->far)
		rc = -ENOMEM;
	*what = rc ? *what : "ibv_reg_mr";
	if (rc == 0)
		rc = verbs_reg_mr(loop->library, loop->pd, bench->near, length, ACCESS, &bench->near_mr);
	if (rc == 0)
		rc = verbs_reg_mr(loop->library, loop->pd, bench->far, length, ACCESS, &bench->far_mr);
	if (rc < 0)
		close_bench(bench);
	return rc;
}

/* Uses a queue pair for each path: a failed one cannot be used again. */
static void tell_firmware(struct pl_proof *proof, struct rdma_loopback *loop)
{
	struct ibv_device_attr attributes;

	if (!loop->library->ibv_query_device(loop->context, &attributes))
		snprintf(proof->firmware, sizeof(proof->firmware), "%.63s", attributes.fw_ver);
}

static int prove_with(struct pl_profile *profile, const struct verbs_library *library, struct ibv_device *device,
		      const struct pl_gpu_info *gpu, struct pl_memory *memory)
{
	for (enum pl_gpu_path way = 0; way < PL_GPU_PATH_COUNT; way++) {
		struct pl_proof *proof = pl_profile_add(profile);
		struct rdma_loopback loop;
		struct bench bench;
		const char *what;
		int rc;

		if (!proof)
			return -ENOMEM;
		snprintf(proof->gpu, sizeof(proof->gpu), "%s", gpu->pci);
		snprintf(proof->model, sizeof(proof->model), "%s", gpu->name);
		snprintf(proof->device, sizeof(proof->device), "%s", library->ibv_get_device_name(device));
		snprintf(proof->driver, sizeof(proof->driver), "CUDA %d", gpu->driver);
		proof->way = way;
		rc = rdma_loopback_open(&loop, library, device, &what);
		if (rc == 0) {
			tell_firmware(proof, &loop);
			rc = open_bench(&bench, &loop, memory, memory->length, &what);
			if (rc == 0) {
				prove_way(&bench, proof);
				close_bench(&bench);
			}
			rdma_loopback_close(&loop);
		}
		for (int i = 0; rc < 0 && i < PL_DIRECTION_COUNT; i++)
			proof_refuse(&proof->legs[i], what, rc);
	}
	return 0;
}

static int prove_gpu(struct pl_profile *profile, const struct verbs_library *library, struct ibv_device **devices,
		     const char *wanted, unsigned number, const struct pl_gpu_info *gpu, size_t length,
		     struct pl_error *error)
{
	struct pl_memory memory;
	char kind[16];
	int rc;

	snprintf(kind, sizeof(kind), "cuda:%u", number);
	rc = pl_memory_allocate(&memory, kind, length, error);
	if (rc < 0)
		return rc;
	for (size_t i = 0; rc == 0 && devices[i]; i++)
		if (!wanted || !strcmp(library->ibv_get_device_name(devices[i]), wanted))
			rc = prove_with(profile, library, devices[i], gpu, &memory);
	pl_memory_release(&memory);
	return rc < 0 ? pl_fail_memory(error, "pl_profile_prove") : 0;
}

static int prove_all(struct pl_profile *profile, const struct verbs_library *library, struct ibv_device **devices,
		     const char *wanted, size_t length, struct pl_error *error)
{
	struct pl_gpu_info gpu = PL_GPU_INFO_INIT;
	unsigned number = 0;
	int rc = 0;

	for (; rc == 0 && pl_gpu_query(number, &gpu, error) == 0; number++)
		rc = prove_gpu(profile, library, devices, wanted, number, &gpu, length, error);
	if (number == 0)
		return -ENODEV;
	if (rc == 0 && !profile->count)
		return pl_fail(error, -ENODEV, "RDMA-NO-DEVICE", "ibv_get_device_list", wanted,
			       "see what `peerlane check` says of the cards",
			       wanted ? "there is no such RDMA device" : "there is no RDMA device");
	return rc;
}

int pl_profile_prove(struct pl_profile *profile, const char *device, size_t length, struct pl_error *error)
{
	const struct verbs_library *library = verbs_library_get(error);
	struct ibv_device **devices;
	int rc;

	*profile = (struct pl_profile){ 0 };
	pl_profile_machine(profile->machine);
	if (!library)
		return -ELIBACC;
	devices = library->ibv_get_device_list(NULL);
	if (!devices)
		return pl_fail(error, -ENODEV, "RDMA-NO-DEVICE", "ibv_get_device_list", NULL,
			       "see what `peerlane check` says of the cards", "%s",
			       errno == ENOSYS ? "the kernel has no RDMA devices" : strerrordesc_np(errno));
	rc = prove_all(profile, library, devices, device, length, error);
	library->ibv_free_device_list(devices);
	if (rc < 0)
		pl_profile_free(profile);
	return rc;
}

#else

int pl_profile_prove(struct pl_profile *profile, const char *device, size_t length, struct pl_error *error)
{
	(void)length;
	*profile = (struct pl_profile){ 0 };
	return pl_fail(error, -ENOTSUP, "RDMA-NO-LIBRARY", "dlopen", device, "build with the headers of libibverbs",
		       "this build is without libibverbs");
}

#endif
