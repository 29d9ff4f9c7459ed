/* SPDX-License-Identifier: BSD-2-Clause */
/* Requirements of links between GPUs, whatever a machine or a file says. */
#ifndef PL_TESTS_FUZZ_GPU_PAIRS_H
#define PL_TESTS_FUZZ_GPU_PAIRS_H

#include "fuzz.h"

#include "topology/topology.h"

/* More pairs take too long. */
#define FUZZ_PAIRED_GPUS 12

static inline void fuzz_check_gpu_pair(const struct pl_topology *topology, size_t a, size_t b)
{
	struct pl_gpu_pair there, back;

	pl_topology_gpu_pair(topology, a, b, &there);
	pl_topology_gpu_pair(topology, b, a, &back);
	REQUIRE(there.linked == back.linked && there.class == back.class);
	REQUIRE(there.linked || (!there.links && !there.bandwidth && !there.switched));
	REQUIRE(!there.switched || (there.links && there.links == back.links && there.bandwidth == back.bandwidth));
	REQUIRE(there.links || !there.bandwidth);
}

static inline void fuzz_check_gpu_links(const struct pl_topology *topology)
{
	size_t count = PL_MIN(topology->gpu_count, (size_t)FUZZ_PAIRED_GPUS);

	for (size_t i = 0; i < topology->link_count; i++) {
		const struct pl_gpu_link *link = &topology->links[i];

		REQUIRE(link->gpu >= 0 && link->gpu < (int)topology->gpu_count);
		REQUIRE(link->peer >= -1 && link->peer < (int)topology->gpu_count);
		REQUIRE(link->peer < 0 || link->end == PL_GPU_END_GPU);
		REQUIRE(link->hops < 2 || !link->active);
	}
	for (size_t a = 0; a < count; a++)
		for (size_t b = 0; b < count; b++)
			if (a != b)
				fuzz_check_gpu_pair(topology, a, b);
}

#endif
