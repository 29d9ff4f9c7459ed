/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef NCCL_PEER_CLOSERS_H
#define NCCL_PEER_CLOSERS_H

#include <stdatomic.h>

#include <peerlane/peerlane.h>

/*
 * Closes peers, 64 at the same time: each close may wait 500 ms for messages that cannot be sent. They may belong to several
 * contexts. Returns once all are closed.
 */
void peers_close(struct pl_peer *const *peers, unsigned count);

#endif
