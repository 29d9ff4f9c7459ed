/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of rails, for the peer's log. */
#include <stdio.h>

#include "fabric/verbs/verbs.h"

void verbs_note_rail_up(struct verbs_rail *rail)
{
	char text[IBV_SYSFS_NAME_MAX + 8];

	snprintf(text, sizeof(text), "%s:%u", verbs_device_name(rail->device), rail->port->number);
	pl_peer_note_rail(rail->endpoint->base.peer, rail->was_up ? PL_EVENT_RAIL_REOPENED : PL_EVENT_RAIL_OPENED,
			  rail->index, text);
	rail->was_up = true;
}

void verbs_note_rail_lost(struct verbs_rail *rail, const char *why)
{
	char text[IBV_SYSFS_NAME_MAX + 8 + 160];

	/* The end of a connection is an event of the peer. */
	if (verbs_finished(rail->endpoint))
		return;
	if (atomic_load(&rail->device->gone))
		why = "the device was removed";
	else if (verbs_port_is_down(rail))
		why = "the port is down";
	snprintf(text, sizeof(text), "%s:%u: %s", verbs_device_name(rail->device), rail->port->number, why);
	pl_peer_note_rail(rail->endpoint->base.peer, PL_EVENT_RAIL_LOST, rail->index, text);
}
