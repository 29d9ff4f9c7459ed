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

void pl_peer_end_stopping(struct pl_peer *peer)
{
	if (--peer->stopping || !peer->sweep_due)
		return;
	peer->sweep_due = false;
	pl_peer_sweep(peer);
}

void pl_peer_sweep_run(struct pl_task *task)
{
	pl_peer_sweep(pl_container_of(task, struct pl_peer, sweep_task));
}

/* No thread of the program sweeps, which goes on cancelling: the engine's thread does, for all operations that were stopped by then. */
void pl_peer_end_stopping_one(struct pl_peer *peer)
{
	if (--peer->stopping || !peer->sweep_due)
		return;
	peer->sweep_due = false;
	pl_engine_hand_over(peer->home, &peer->sweep_task);
}
