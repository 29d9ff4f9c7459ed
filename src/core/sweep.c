/* SPDX-License-Identifier: BSD-2-Clause */
/* Sweeps, in which the fabric of a peer drops the operations that were stopped. Each looks through all work of the peer. */
#include "core/fabric.h"

void pl_peer_sweep(struct pl_peer *peer)
{
	/*
	 * Another thread closes the endpoint, of which parts are gone already. It has stopped all operations before, and the
	 * rest of each is a chunk that an engine is copying.
	 */
	if (peer->dead)
		return;
	if (peer->stopping)
		peer->sweep_due = true;
	else
		peer->ops->sweep(peer->endpoint);
}

void pl_peer_begin_stopping(struct pl_peer *peer)
{
	peer->stopping++;
}

/* Returns true if the last one of these calls ends, and the fabric has operations that were stopped. */
static bool stopping_ends(struct pl_peer *peer)
{
	if (--peer->stopping || !peer->sweep_due)
		return false;
	peer->sweep_due = false;
	return true;
}

void pl_peer_end_stopping(struct pl_peer *peer)
{
	if (stopping_ends(peer))
		pl_peer_sweep(peer);
}

void pl_peer_sweep_run(struct pl_task *task)
{
	pl_peer_sweep(pl_container_of(task, struct pl_peer, sweep_task));
}

/* The program goes on cancelling. The engine's thread sweeps, for all operations that were stopped by then. */
void pl_peer_end_stopping_one(struct pl_peer *peer)
{
	if (stopping_ends(peer))
		pl_engine_hand_over(peer->home, &peer->sweep_task);
}
