/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Verbs fabric: one-sided operations by an RDMA card over a reliable connection (RC). Messages of the control channel
 * make the connection (rail_handshake.c).
 *
 * An endpoint has one or more rails, each with one queue pair at a time, all on the peer's home engine. Posted work
 * stays in a rail's list until its completion. When a queue pair fails, or is failed to cancel work, the card flushes
 * the list and cancelled work ends. The remaining work is held until the other end's queue pair takes nothing any more,
 * which a new connection of the rail shows, or an answer of the peer over another rail (rail_fence.c); otherwise late
 * bytes could overwrite newer ones. Then it is posted again:
 *
 * - writes and reads can be done twice;
 *
 * - frames (core's messages) carry a sequence number, by which the receiver drops repeated ones;
 *
 * - an atomic operation whose result is unknown fails, because it must not be done twice.
 *
 * Frames travel by SEND into the shared receive queue of the engine and device. frame.ack is the number; 0 marks frames
 * of the fabric itself, which may arrive in any order. Numbered frames use one rail until it fails. A small message
 * with a small tag has no header, so that a message of one page fits its packets: the immediate data holds tag and
 * number. Waiting small frames share a SEND (pack.c).
 */
#ifndef PL_VERBS_H
#define PL_VERBS_H

#include "fabric/verbs/endpoint.h"
#include "fabric/verbs/link/look.h"
#include "fabric/verbs/memory/mr.h"
#include "fabric/verbs/rail.h"
#include "fabric/verbs/state.h"
#include "fabric/verbs/work.h"

#endif
