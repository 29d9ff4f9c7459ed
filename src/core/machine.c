/* SPDX-License-Identifier: BSD-2-Clause */
/* Topology of this machine for a context: from the file that the program named, or from the kernel. */
#include <stdlib.h>

#include "core/context.h"
#include "topology/topology.h"

static int read_machine(struct pl_context *context, const char *file, struct pl_error *error)
{
	const struct pl_topology_options options = { .nccl_file = file, .nccl_variable = secure_getenv("NCCL_TOPO_FILE") };
	struct pl_topology *machine;
	struct pl_sysroot *root;
	int rc = pl_sysroot_open(&root, NULL, error);

	if (rc < 0)
		return rc;
	rc = pl_topology_read(&machine, root, &options, error);
	pl_sysroot_close(root);
	if (rc == 0)
		atomic_store(&context->machine, machine);
	return rc;
}

int pl_machine_open(struct pl_context *context, const char *file, struct pl_error *error)
{
	if (!file)
		return 0;
	context->machine_known = true;
	/* An empty name asks for no topology. */
	return *file ? read_machine(context, file, error) : 0;
}

void pl_machine_load(struct pl_context *context)
{
	if (!context->machine_known)
		read_machine(context, NULL, NULL);
	context->machine_known = true;
}

void pl_machine_close(struct pl_context *context)
{
	pl_topology_free(atomic_load(&context->machine));
}
