/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: a topology file of NCCL. */
#include "gpu_pairs.h"

#include <stdio.h>

#include "topology/build.h"

static void check_xml_topology(struct pl_topology *topology)
{
	char reasons[16][PL_REASON_MAX];
	struct pl_sysroot *root;

	/* The root /proc/self/fdinfo has no devices. */
	REQUIRE(pl_sysroot_open(&root, "/proc/self/fdinfo", NULL) == 0);
	REQUIRE(topology_complete_file(topology, root) == 0);
	pl_sysroot_close(root);
	topology_nodes_finish(topology, 0);
	REQUIRE(topology_make_paths(topology) == 0);
	for (size_t i = 0; i < topology->path_count; i++)
		REQUIRE(pl_topology_reasons(topology, &topology->paths[i], reasons, 16) > 0);
	fuzz_check_gpu_links(topology);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_topology *topology = calloc(1, sizeof(*topology));
	struct pl_error error = { 0 };
	int rc;

	REQUIRE(topology);
	rc = topology_read_nccl(topology, "fuzz", (const char *)data, size, &error);
	if (rc == 0)
		check_xml_topology(topology);
	else
		REQUIRE(rc == error.code && error.id[0]);
	pl_topology_free(topology);
	return 0;
}
