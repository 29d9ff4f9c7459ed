/* SPDX-License-Identifier: BSD-2-Clause */
#include "diag/routes/prove.h"

#ifdef PL_HAVE_VERBS

#include <stdio.h>
#include <stdlib.h>

#include "rdma/data_direct.h"
#include "rdma/gpu_bench.h"

#define WRITES_MIN 4
#define WRITES_MAX 1024
#define MEASURE (50 * 1000000) /* shortest time of a measurement, in nanoseconds */

static void proof_refuse(struct pl_proof_leg *leg, const char *what, int rc)
{
	leg->proven = false;
	leg->rate = 0;
	if (rc == 0)
		snprintf(leg->reason, sizeof(leg->reason), "%s", what);
	else
		snprintf(leg->reason, sizeof(leg->reason), "%s: %s", what, strerrordesc_np(-rc));
}

/* Repeats the writes until they took long enough for a rate. */
static int proof_measure_rate(struct rdma_gpu_bench *bench, const struct rdma_span *span, uint64_t *rate,
			      const char **what)
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

static void prove_direct(struct rdma_gpu_bench *bench, enum pl_direction direction, struct pl_proof_leg *leg)
{
	struct rdma_span span = rdma_gpu_bench_span(bench, direction == PL_INTO_GPU);
	const char *what = "";
	int rc = rdma_gpu_bench_verify(bench, direction == PL_INTO_GPU, &what);

	if (rc == 0)
		rc = proof_measure_rate(bench, &span, &leg->rate, &what);
	leg->proven = rc == 0;
	if (rc < 0)
		proof_refuse(leg, what, rc);
	else
		snprintf(leg->reason, sizeof(leg->reason), "bytes verified");
}

/* Both halves run together, piece by piece: the slower one counts. */
static void prove_staged(struct rdma_gpu_bench *bench, enum pl_direction direction, struct pl_proof_leg *leg)
{
	struct rdma_span span = { bench->near_mr, bench->far_mr, (uintptr_t)bench->near, (uintptr_t)bench->far,
				  (uint32_t)bench->length };
	bool into = direction == PL_INTO_GPU;
	const char *what = "the GPU's copy engine";
	uint64_t wire = 0, begin, copy;
	int rc;

	rdma_gpu_bench_fill(bench);
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

static int reg(struct rdma_gpu_bench *bench, enum pl_gpu_path way, const char **what)
{
	const struct rdma_domain *domain = &bench->loop->domain;
	int rc;

	if (way == PL_GPU_PATH_DMABUF)
		return verbs_reg_dmabuf(domain, bench->gpu, 0, bench->length, RDMA_GPU_BENCH_ACCESS, &bench->gpu_mr,
					what);
	rc = verbs_reg_mr(domain->library, domain->pd, bench->gpu->address, bench->length, RDMA_GPU_BENCH_ACCESS,
			  &bench->gpu_mr);
	*what = rc == -EFAULT ? "no peer memory module is loaded" : "the device's driver refuses";
	return rc;
}

static void tell_data_direct(struct pl_proof_leg *leg)
{
	size_t used = strlen(leg->reason);

	snprintf(leg->reason + used, sizeof(leg->reason) - used, "; by Data Direct");
}

static void prove_way(struct rdma_gpu_bench *bench, struct pl_proof *proof)
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
		if (rc == 0 && leg->proven && what == rdma_data_direct_reason)
			tell_data_direct(leg);
	}
}

/* Uses a queue pair for each path: a failed one cannot be used again. */
static void tell_firmware(struct pl_proof *proof, struct rdma_loopback *loop)
{
	struct ibv_device_attr attributes;

	if (!loop->domain.library->ibv_query_device(loop->context, &attributes))
		snprintf(proof->firmware, sizeof(proof->firmware), "%.63s", attributes.fw_ver);
}

static int prove_with(struct pl_profile *profile, const struct verbs_library *library, struct ibv_device *device,
		      const struct pl_gpu_info *gpu, struct pl_memory *memory)
{
	for (enum pl_gpu_path way = 0; way < PL_GPU_PATH_COUNT; way++) {
		struct pl_proof *proof = pl_profile_add(profile);
		struct rdma_loopback loop;
		struct rdma_gpu_bench bench;
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
			rc = rdma_gpu_bench_open(&bench, &loop, memory, &what);
			if (rc == 0) {
				prove_way(&bench, proof);
				rdma_gpu_bench_close(&bench);
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
