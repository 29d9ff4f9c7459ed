/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Turns of peers that connect. Each engine opens a limited number of connections at a time; further peers wait in their order.
 * A program that connects to thousands at once would otherwise keep the other ends waiting: it says hello to the last long
 * after it has connected to it, and listeners close connections that say nothing.
 */
#ifndef PL_CORE_DIAL_TURNS_H
#define PL_CORE_DIAL_TURNS_H

#include "engine/engine.h"

struct pl_peer;

/* Turns of an engine. All functions: that engine's lock is held, except pl_dial_turns_init(). */
struct pl_dial_turns {
	struct pl_engine *engine;
	struct pl_list running, waiting; /* struct pl_peer, the oldest first */
	unsigned count;                  /* of `running` */
	struct pl_task task;             /* begins turns */
	struct pl_timer timer;           /* ends the oldest turn */
};

void pl_dial_turns_init(struct pl_dial_turns *turns, struct pl_engine *engine);
/* Dials as soon as it is the peer's turn. */
void pl_dial_in_turn(struct pl_peer *peer);
/* The peer is open, or needs no turn any more. May be called again. */
void pl_dial_turn_over(struct pl_peer *peer);

#endif
