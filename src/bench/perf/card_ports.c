/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/card_ports.h"

#include <string.h>

#include "cmd/common/events.h"

/* Adds the ports of one connection.  The text of these events is "DEVICE:PORT". */
static void add_connection_ports(struct card_ports *ports, struct pl_sysroot *root, struct pl_peer *peer)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct cli_events events;

	if (!peer || pl_peer_query(peer, &info) < 0 || strcmp(info.fabric, "verbs"))
		return;
	cli_events_read(&events, peer);
	for (int i = 0; i < events.count; i++) {
		const struct pl_event_record *record = &events.records[i];

		if (record->event == PL_EVENT_RAIL_OPENED || record->event == PL_EVENT_RAIL_REOPENED)
			card_ports_add(ports, root, record->text);
	}
}

void bench_watch_card_ports(const struct bench_endpoint *ep, struct card_watch *watch)
{
	struct card_ports ports = { .count = 0 };

	for (uint32_t i = 0; i < ep->peer_count; i++)
		add_connection_ports(&ports, watch->root, ep->peers[i].control);
	for (uint32_t i = 0; i < BENCH_CONNECTIONS_MAX; i++)
		if (ep->connections[i].additional)
			add_connection_ports(&ports, watch->root, ep->connections[i].peer);
	card_watch_begin(watch, &ports);
}
