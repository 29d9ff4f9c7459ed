/* SPDX-License-Identifier: BSD-2-Clause */
/* Topology of this machine for a context: from the file that the program named, or from the kernel. */
#include <stdlib.h>

#include "core/context.h"
#include "topology/topology.h"

static int read_machine(struct pl_sysroot *root, const char *file, struct pl_topology **machine, struct pl_error *error)
{
	const struct pl_topology_options options = { .nccl_file = file,
						     .nccl_variable = secure_getenv("NCCL_TOPO_FILE") };

	return pl_topology_read(machine, root, &options, error);
}

int pl_machine_open(struct pl_context *context, const char *file, struct pl_error *error)
{
	struct pl_sysroot *root;
	int rc;

	if (!file)
		return 0;
	/* An empty name asks for no topology. */
	if (!*file) {
		context->machine_known = true;
		return 0;
	}
	rc = pl_sysroot_open(&root, NULL, error);
	if (rc < 0)
		return rc;
	rc = read_machine(root, file, &context->machine_named, error);
	pl_sysroot_close(root);
	return rc;
}

void pl_machine_load(struct pl_context *context,
		     void (*complete)(struct pl_topology *machine, struct pl_sysroot *root, void *user), void *user)
{
	struct pl_topology *machine = context->machine_named;
	struct pl_sysroot *root;

	if (context->machine_known)
		return;
	context->machine_known = true;
	if (pl_sysroot_open(&root, NULL, NULL) < 0)
		return;
	if (machine || read_machine(root, NULL, &machine, NULL) == 0) {
		complete(machine, root, user);
		context->machine_named = NULL;
		atomic_store(&context->machine, machine);
	}
	pl_sysroot_close(root);
}

void pl_machine_close(struct pl_context *context)
{
	pl_topology_free(context->machine_named);
	pl_topology_free(atomic_load(&context->machine));
}
