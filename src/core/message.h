/* SPDX-License-Identifier: BSD-2-Clause */
/* Two-sided messages and notifications: sending (message.c) and matching (match.c). */
#ifndef PL_CORE_MESSAGE_H
#define PL_CORE_MESSAGE_H

#include "core/peer.h"

/* Messages a peer may have sent that the program here has not taken yet. */
#define PL_MESSAGE_WINDOW 1024
/* Larger messages wait at the sender until the receive is posted. */
#define PL_EAGER_MAX PL_SEND_COPY_MAX

/* Sends, or holds until the peer's window opens: a send, a notification, or the end of a PL_NOTIFY write. */
void pl_message_send(struct pl_operation *operation);
/*
 * A fabric has a notification of its own to send, with the bytes that it tells of: true if that may be now, as all before
 * it are sent and the window is open.  Then something that counts must be sent.
 */
bool pl_message_take_turn(struct pl_peer *peer);
/* The peer took some of our messages; the peer fetched, or refused, a large one. -EPROTO: violation. */
int pl_message_credited(struct pl_peer *peer, uint64_t consumed);
/* A frame of this type was given to message(), and not a byte of it goes: if it is a message, another one may. */
void pl_message_dropped(struct pl_peer *peer, uint8_t type);
int pl_message_finished(struct pl_peer *peer, uint32_t cookie, uint64_t status);
/* Tells the sender of a large message how it ended here. */
void pl_message_finish(struct pl_peer *peer, uint32_t cookie, enum pl_wire_status status);
/* One was taken by the program; returns whether the peer should be told. Any thread. */
static inline bool pl_message_consumed(struct pl_peer *peer)
{
	uint64_t consumed = atomic_fetch_add(&peer->consumed, 1) + 1;

	return consumed - atomic_load(&peer->consumed_told) >= PL_MESSAGE_WINDOW / 4;
}
void pl_message_credit_run(struct pl_task *task);

void pl_message_credit(struct pl_peer *peer);

/* Why small messages from or to memory that the processor does not reach are staged. */
extern const char pl_message_staging_reason[];

/* pl_receive()'s submission. */
void pl_receive_run(struct pl_task *task);
/* A message or notification arrived over the fabric; payload is valid during the call only. -EPROTO: violation. */
int pl_message_arrived(struct pl_peer *peer, const struct pl_frame *frame, const void *payload);
/* Forgets what arrived and nobody took. */
void pl_messages_drop(struct pl_peer *peer);

#endif
