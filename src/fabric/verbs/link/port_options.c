/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Options of a context that limit the ports in use: the index of a GID, and a P_Key. A P_Key names a partition in its
 * lower 15 bits. A port without the bit 0x8000 is a limited member: it reaches no other limited member, nor itself.
 */
#include <endian.h>
#include <stdio.h>

#include "fabric/verbs/verbs.h"

#define PARTITION 0x7fffu
#define FULL_MEMBER 0x8000u
#define HINT_GID "see the port's table in /sys/class/infiniband/DEVICE/ports/N/gids; or leave out the index (--gid-index)"
#define HINT_PKEY \
	"see the port's table in /sys/class/infiniband/DEVICE/ports/N/pkeys, which the subnet manager fills; or choose " \
	"other ports (--device)"

/* Finds the P_Key in the table of a port. Returns the obstacle, or VERBS_NO_OBSTACLE with the index. */
static enum verbs_obstacle find_pkey(const struct verbs_port *port, unsigned wanted, unsigned table, uint16_t *index)
{
	const struct verbs_library *library = port->device->state->library;
	enum verbs_obstacle obstacle = VERBS_NO_PKEY;
	__be16 pkey;

	for (unsigned i = 0; i < table; i++) {
		if (library->ibv_query_pkey(port->device->verbs, port->number, (int)i, &pkey) ||
		    (be16toh(pkey) & PARTITION) != (wanted & PARTITION))
			continue;
		*index = (uint16_t)i;
		if (be16toh(pkey) & FULL_MEMBER)
			return VERBS_NO_OBSTACLE;
		obstacle = VERBS_LIMITED_PKEY;
	}
	return obstacle;
}

enum verbs_obstacle verbs_port_apply_options(struct verbs_port *port, const struct ibv_port_attr *attributes)
{
	const struct pl_options *options = &port->device->state->context->options;
	enum verbs_obstacle obstacle = VERBS_NO_OBSTACLE;
	uint16_t index = 0;

	if (options->gid_index && !port->gid_count)
		obstacle = VERBS_NO_GID;
	else if (options->pkey)
		obstacle = find_pkey(port, options->pkey, attributes->pkey_tbl_len, &index);
	port->pkey_index = index;
	port->excluded = obstacle != VERBS_NO_OBSTACLE;
	return obstacle;
}

int verbs_exclusion_fail(const struct verbs_state *state, struct pl_error *error)
{
	const struct pl_options *options = &state->context->options;
	const char *port = state->obstacle.device;

	switch (state->obstacle.kind) {
	case VERBS_NO_GID:
		return pl_fail(error, -ENODEV, "RDMA-GID-INDEX", "ibv_query_gid", port, HINT_GID,
			       "the port has no GID of index %u", options->gid_index - PL_GID_INDEX(0));
	case VERBS_LIMITED_PKEY:
		return pl_fail(error, -ENODEV, "RDMA-PKEY-LIMITED", "ibv_query_pkey", port, HINT_PKEY,
			       "the port is only a limited member of the partition 0x%04x", options->pkey & PARTITION);
	default:
		return pl_fail(error, -ENODEV, "RDMA-PKEY", "ibv_query_pkey", port, HINT_PKEY,
			       "the port is not in the partition 0x%04x", options->pkey & PARTITION);
	}
}
