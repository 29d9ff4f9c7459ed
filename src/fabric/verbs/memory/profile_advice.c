/* SPDX-License-Identifier: BSD-2-Clause */
/* Advice of a profile of routes for GPU memory and a device: the path to try first, and memory to stage at once. */
#include <stdio.h>

#include "fabric/verbs/memory/near.h"
#include "fabric/verbs/verbs.h"

static const char *const direct[PL_GPU_PATH_STAGED] = {
	[PL_GPU_PATH_DMABUF] =
		"verbs: the network card reads and writes the GPU's memory itself, by dma-buf, from profile",
	[PL_GPU_PATH_ADDRESS] =
		"verbs: the network card reads and writes the GPU's memory itself, by peer memory, from profile",
};

static const char staged[] = "verbs, through registered buffers, from profile: that is faster than the direct way, or "
			     "no direct way was proven";

static bool identify_gpu(const char *firmware, const struct pl_memory *memory, struct pl_proof *here)
{
	struct pl_gpu_info gpu = PL_GPU_INFO_INIT;
	int number = memory->ops->number ? memory->ops->number(memory) : -1;

	if (number < 0 || pl_gpu_query((unsigned)number, &gpu, NULL) < 0)
		return false;
	snprintf(here->gpu, sizeof(here->gpu), "%s", gpu.pci);
	snprintf(here->model, sizeof(here->model), "%s", gpu.name);
	snprintf(here->driver, sizeof(here->driver), "CUDA %d", gpu.driver);
	snprintf(here->firmware, sizeof(here->firmware), "%.63s", firmware);
	return true;
}

void verbs_advise(struct verbs_state *state, const struct verbs_device *device, const struct pl_memory *memory,
		  struct verbs_advice *advice)
{
	const struct pl_profile *profile = pl_routes_get(state->context);
	struct pl_proof here = { .way = PL_GPU_PATH_DMABUF };

	*advice = (struct verbs_advice){ .first = PL_GPU_PATH_DMABUF };
	if (!profile || !device->verbs || !identify_gpu(device->attributes.fw_ver, memory, &here))
		return;
	snprintf(here.device, sizeof(here.device), "%s", state->library->ibv_get_device_name(device->verbs->device));
	for (enum pl_direction direction = 0; direction < PL_DIRECTION_COUNT; direction++) {
		struct verbs_advised *advised = &advice->directions[direction];
		const struct pl_proof *chosen = pl_profile_advise(profile, &here, direction, &advised->reason);

		if (!chosen)
			continue;
		advised->staged = chosen->way == PL_GPU_PATH_STAGED;
		advised->reason = advised->staged ? staged : direct[chosen->way];
		if (!advised->staged)
			advice->first = chosen->way;
	}
}

void verbs_measure(struct verbs_state *state, const struct verbs_port *port, const struct pl_memory *memory,
		   struct verbs_measured *measured)
{
	const struct pl_profile *profile = pl_routes_get(state->context);
	struct pl_proof here = { .way = PL_GPU_PATH_DMABUF };
	const char *reason;

	*measured = (struct verbs_measured){ .direct = false };
	if (!profile || !identify_gpu(port->firmware, memory, &here))
		return;
	snprintf(here.device, sizeof(here.device), "%s", port->name);
	*measured = (struct verbs_measured){ .direct = true, .rate = UINT64_MAX };
	for (enum pl_direction direction = 0; direction < PL_DIRECTION_COUNT; direction++) {
		const struct pl_proof *chosen = pl_profile_advise(profile, &here, direction, &reason);

		measured->direct &= chosen && chosen->way != PL_GPU_PATH_STAGED;
		measured->rate = PL_MIN(measured->rate, chosen ? chosen->legs[direction].rate : 0);
	}
}
