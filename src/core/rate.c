/* SPDX-License-Identifier: BSD-2-Clause */
/* Rates of peers: which one a peer has, and which fabrics and connections can keep it. */
#include "core/fabric.h"
#include "core/trust.h"

/*
 * Smallest rate of a connection that has several data sockets. With less, a socket could be read so seldom that the
 * kernel of the other end takes this end for dead (pl_socket_tune()).
 */
#define RATE_OF_SEVERAL_MIN (1u << 20)

static uint64_t find_peer_rate(const struct pl_peer *peer, const struct pl_admission *admission)
{
	if (admission && admission->rights.rate)
		return PL_MAX(admission->rights.rate, (uint64_t)PL_BUCKET_RATE_MIN);
	return peer->initiator ? 0 : peer->context->options.peers_rate;
}

void pl_peer_set_rate(struct pl_peer *peer)
{
	uint64_t rate = find_peer_rate(peer, peer->admission);

	if (!rate)
		return;
	pl_bucket_set_rate(&peer->bucket, rate, pl_now());
	peer->refusal = PL_REFUSAL_RATE;
}

bool pl_peer_fabric_limits(const struct pl_peer *peer, const struct pl_fabric_ops *fabric)
{
	return !atomic_load(&peer->bucket.rate) || fabric->limits_rate;
}

bool pl_peer_change_rate(struct pl_peer *peer, const struct pl_admission *admission)
{
	uint64_t rate = find_peer_rate(peer, admission);

	if (rate == atomic_load(&peer->bucket.rate))
		return true;
	/* Before the first hello of this end, pl_peer_set_rate() sets the rate. */
	if (!peer->endpoint)
		return true;
	if (rate && (!peer->ops->limits_rate || (peer->lanes > 1 && rate < RATE_OF_SEVERAL_MIN)))
		return false;
	/* Pauses at the old rate end soon: at most after a portion of each direction of each data socket. */
	pl_bucket_set_rate(&peer->bucket, rate, pl_now());
	return true;
}
