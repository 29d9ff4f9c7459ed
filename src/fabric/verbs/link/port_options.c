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

enum verbs_obstacle verbs_pkey_find(const struct verbs_library *library, struct ibv_context *verbs, uint8_t port,
				    unsigned wanted, unsigned table, uint16_t *index)
{
	enum verbs_obstacle obstacle = VERBS_NO_PKEY;
	__be16 pkey;

	for (unsigned i = 0; i < table; i++) {
		if (library->ibv_query_pkey(verbs, port, (int)i, &pkey) ||
		    (be16toh(pkey) & PARTITION) != (wanted & PARTITION))
			continue;
		*index = (uint16_t)i;
		if (be16toh(pkey) & FULL_MEMBER)
			return VERBS_NO_OBSTACLE;
		obstacle = VERBS_LIMITED_PKEY;
	}
	return obstacle;
}

enum verbs_obstacle verbs_port_apply_options(struct verbs_port *port, const struct verbs_port_seen *seen)
{
	const bool lacks_gid = port->device->state->context->options.gid_index && !port->gid_count;
	const enum verbs_obstacle obstacle = lacks_gid ? VERBS_NO_GID : seen->pkey_obstacle;

	port->pkey_index = lacks_gid ? 0 : seen->pkey_index;
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
