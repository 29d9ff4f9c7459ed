/* SPDX-License-Identifier: BSD-2-Clause */
#include "profile/profile.h"

#include <stdlib.h>

const char *pl_gpu_path_name(enum pl_gpu_path way)
{
	static const char *const names[] = { "dma-buf", "peer-memory", "staged" };

	return names[way];
}

struct pl_proof *pl_profile_add(struct pl_profile *profile)
{
	struct pl_proof *proofs = realloc(profile->proofs, (profile->count + 1) * sizeof(*proofs));

	if (!proofs)
		return NULL;
	profile->proofs = proofs;
	memset(&proofs[profile->count], 0, sizeof(*proofs));
	return &proofs[profile->count++];
}

void pl_profile_free(struct pl_profile *profile)
{
	free(profile->proofs);
	*profile = (struct pl_profile){ 0 };
}

const struct pl_proof *pl_profile_choose(const struct pl_profile *profile, const char *gpu, const char *device,
					 enum pl_direction direction, const char **reason)
{
	const struct pl_proof *direct = NULL, *staged = NULL;

	for (size_t i = 0; i < profile->count; i++) {
		const struct pl_proof *proof = &profile->proofs[i];
		const struct pl_proof_leg *leg = &proof->legs[direction];

		if (!leg->proven || strcmp(proof->gpu, gpu) || strcmp(proof->device, device))
			continue;
		if (proof->way == PL_GPU_PATH_STAGED)
			staged = proof;
		else if (!direct || leg->rate > direct->legs[direction].rate)
			direct = proof;
	}
	*reason = direct ? "direct" : staged ? "no direct way is proven" : "no way is proven";
	if (!direct || !staged)
		return direct ? direct : staged;
	/*
	 * Staging must be faster by a quarter: repeated measurements differ, and a direct route saves host memory
	 * bandwidth.
	 */
	if (staged->legs[direction].rate / 5 <= direct->legs[direction].rate / 4)
		return direct;
	*reason = "staging is faster than the direct way";
	return staged;
}
