/* SPDX-License-Identifier: BSD-2-Clause */
/* A control channel that takes no more messages. */
#ifndef TEST_FULL_CHANNEL_H
#define TEST_FULL_CHANNEL_H

#include "core/peer.h"

/*
 * Sends messages that change nothing until the control channel of the peer is full. The other end must not read meanwhile. The caller
 * holds the lock of the peer's home engine, or nothing else uses it.
 */
void full_channel_fill(struct pl_peer *peer);

#endif
