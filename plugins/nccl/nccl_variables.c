/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NCCL's own variables that the plugin sets in the process, unless the user has set them. NCCL reads them after the plugin's first
 * init: in releases 2.19 to 2.30 computeBuffSizes() runs after ncclNetInit().
 */
#include <stdlib.h>

#include "state.h"

/*
 * Bytes of a message of send and receive. NCCL has at most 16 of them under way between two GPUs, of 128 KiB by default. These 2 MiB
 * pass a GPU, two progress threads, this plugin and the other GPU in some 170 us, whatever the network could do. NCCL itself bounds
 * the value to an eighth of NCCL_BUFFSIZE, which is as much. Both ends must agree; the plugin refuses other releases of itself.
 */
#define CHUNK_BYTES "524288"

/* Longest distance from a GPU at which NCCL gives a device GPU memory. To NCCL an interface is always far. */
#define LEVEL "SYS"

static void set_variable(const char *name, const char *value)
{
	const char *found = getenv(name);

	if (found) {
		/* Perhaps of this plugin, for an earlier communicator. */
		plugin_info("%s=%s%s", name, found, strcmp(found, value) ? ", as you set it" : "");
		return;
	}
	/* Other threads that read the environment now would race. NCCL calls init early, while it makes a communicator. */
	setenv(name, value, 0);
	plugin_info("set %s=%s", name, value);
}

void nccl_variables_set(void)
{
	if (!plugin.cards)
		set_variable("NCCL_P2P_NET_CHUNKSIZE", CHUNK_BYTES);
	if (plugin.gpu_memory)
		set_variable("NCCL_NET_GDR_LEVEL", LEVEL);
}
