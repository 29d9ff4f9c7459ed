/* SPDX-License-Identifier: BSD-2-Clause */
/* Opening of further lanes, once operations are large enough. */
#include "fabric/tcp/tcp.h"

/* Returns the sockets of the peer with all lanes that this end asks for. */
static unsigned tcp_sockets_at_most(struct tcp_endpoint *endpoint)
{
	return tcp_sockets(tcp_lanes_most(&endpoint->base));
}

/* Opens all lanes, or asks the initiator to do so. */
static void tcp_open_lanes(struct tcp_endpoint *endpoint)
{
	struct pl_peer *peer = endpoint->base.peer;
	struct pl_control message = { .type = PL_CONTROL_LANES };

	if (!atomic_load(&endpoint->lanes_wanted))
		atomic_store(&endpoint->lanes_wanted, tcp_limit_lanes(endpoint, peer->lanes));
	message.lanes = atomic_load(&endpoint->lanes_wanted);
	if (peer->initiator) {
		tcp_widen(&endpoint->base, message.lanes);
	} else if (endpoint->lanes_requested < tcp_sockets_at_most(endpoint) &&
		   !pl_channel_left_out(pl_channel_send(&peer->channel, &message))) {
		/* Otherwise the next large operation asks. */
		endpoint->lanes_requested = tcp_sockets_at_most(endpoint);
	}
}

void tcp_widen_for(struct tcp_endpoint *endpoint, uint64_t total)
{
	if (total < TCP_SPREAD_FROM || endpoint->lanes_requested >= tcp_sockets_at_most(endpoint))
		return;
	endpoint->bulk += total;
	if (total >= TCP_WIDEN_FROM || endpoint->bulk >= TCP_WIDEN_AFTER)
		tcp_open_lanes(endpoint);
}

unsigned tcp_prepare(struct pl_endpoint *base, struct pl_region *region)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(base);

	if (region->memory.length <= TCP_SMALL_MAX)
		return 0;
	if (endpoint->lanes_requested < tcp_sockets_at_most(endpoint))
		tcp_open_lanes(endpoint);
	return tcp_lanes_most(base);
}
