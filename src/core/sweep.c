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
	/* At its end a peer sends what it can of the messages that were posted before. */
	if (peer->ops->stopped && atomic_load(&peer->state) == PL_PEER_UP)
		peer->ops->stopped(peer->endpoint);
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

void pl_peer_sweep_before_end(struct pl_peer *peer)
{
	struct pl_engine *home = peer->home;

	pl_engine_run_tasks(home, NULL);
	while (atomic_load(&peer->sweep_task.queued)) {
		pl_engine_withdraw(home, &peer->sweep_task);
		pl_peer_sweep(peer);
		pl_engine_run_tasks(home, NULL);
	}
}

/* The program goes on cancelling. The engine's thread sweeps, for all operations that were stopped by then. */
void pl_peer_end_stopping_one(struct pl_peer *peer)
{
	if (stopping_ends(peer))
		pl_engine_hand_over(peer->home, &peer->sweep_task);
}
