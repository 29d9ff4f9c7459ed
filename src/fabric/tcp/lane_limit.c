/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limit of lanes by default. A context whose program set no number asks for, and accepts, more than TCP_LANES_OF_OTHERS lanes
 * with at most TCP_WIDE_PEERS peers: many peers share the threads, and a process with all lanes of each would soon lack
 * descriptors for further peers. Each of these peers has a place, which it keeps until it is lost or closed. An acceptor that
 * asks for more lanes gets them, and takes a place, too.
 */
#include <limits.h>

#include "fabric/tcp/tcp.h"

/* Takes a place unless the endpoint has one, if fewer than `most` are taken. Returns false if it has none then. */
static bool take_place(struct tcp_endpoint *endpoint, unsigned most)
{
	struct pl_context *context = endpoint->context;
	bool wide;

	if (!context->lanes_by_default)
		return true;
	pthread_mutex_lock(&endpoint->lock);
	if (!endpoint->wide && atomic_load(&endpoint->base.peer->state) != PL_PEER_LOST) {
		endpoint->wide = atomic_fetch_add(&context->wide_peers, 1) < most;
		if (!endpoint->wide)
			atomic_fetch_sub(&context->wide_peers, 1);
	}
	wide = endpoint->wide;
	pthread_mutex_unlock(&endpoint->lock);
	return wide;
}

bool tcp_take_wide_place(struct tcp_endpoint *endpoint)
{
	return take_place(endpoint, TCP_WIDE_PEERS);
}

void tcp_count_wide_peer(struct tcp_endpoint *endpoint)
{
	take_place(endpoint, UINT_MAX);
}

static void drop_wide_place(struct tcp_endpoint *endpoint)
{
	if (endpoint->wide)
		atomic_fetch_sub(&endpoint->context->wide_peers, 1);
	endpoint->wide = false;
}

void tcp_give_wide_place(struct tcp_endpoint *endpoint)
{
	pthread_mutex_lock(&endpoint->lock);
	drop_wide_place(endpoint);
	pthread_mutex_unlock(&endpoint->lock);
}

unsigned tcp_limit_lanes(struct tcp_endpoint *endpoint, unsigned lanes)
{
	return lanes <= TCP_LANES_OF_OTHERS || tcp_take_wide_place(endpoint) ? lanes : TCP_LANES_OF_OTHERS;
}

bool tcp_refuses_lane(struct tcp_endpoint *endpoint, unsigned index, struct pl_stream *stream)
{
	uint8_t bytes[PL_LANE_WELCOME];
	struct iovec vector = { .iov_base = bytes, .iov_len = sizeof(bytes) };

	if (index < tcp_sockets(TCP_LANES_OF_OTHERS) || tcp_take_wide_place(endpoint))
		return false;
	/* The socket is new, and has room. Initiators of earlier releases try such lanes again, with growing pauses. */
	pl_lane_welcome_encode(PL_WIRE_BUSY, bytes);
	pl_stream_write(stream, &vector, 1);
	pl_stream_close(stream);
	return true;
}

bool tcp_lanes_refused(struct tcp_endpoint *endpoint)
{
	bool news;

	pthread_mutex_lock(&endpoint->lock);
	news = atomic_exchange(&endpoint->lanes_wanted, TCP_LANES_OF_OTHERS) != TCP_LANES_OF_OTHERS;
	drop_wide_place(endpoint);
	pthread_mutex_unlock(&endpoint->lock);
	return news;
}

unsigned tcp_lanes_most(struct pl_endpoint *base)
{
	unsigned wanted = atomic_load(&tcp_endpoint_of(base)->lanes_wanted);

	return wanted ? wanted : base->peer->lanes;
}
