/* SPDX-License-Identifier: BSD-2-Clause */
/* Two-sided messages and notifications: sending (message.c) and matching (match.c). */
#ifndef PL_CORE_MESSAGE_H
#define PL_CORE_MESSAGE_H

#include "core/peer.h"

/* Most messages of a peer that the program has not taken yet. */
#define PL_MESSAGE_WINDOW 1024
/* Larger messages wait at the sender until the receive is posted. Bytes. */
#define PL_EAGER_MAX PL_SEND_COPY_MAX

/* Sends a send, a notification, or the end of a PL_NOTIFY write; queues it while the peer's window is closed. */
void pl_message_send(struct pl_operation *operation);
/*
 * True if a fabric may send a notification of its own with the bytes now: all earlier messages are sent, and the window
 * is open. The fabric must then send one message that counts.
 */
bool pl_message_take_turn(struct pl_peer *peer);
/* True if half of the window is free. Home. */
static inline bool pl_message_has_room(const struct pl_peer *peer)
{
	return peer->sent - peer->consumed_there < peer->window / 2;
}
/*
 * Sends waiting messages. Called when memory of the first one may be registered, when the control channel has room, or when the
 * first one has ended.
 */
void pl_message_resume(struct pl_peer *peer);
/* Handles a credit of the peer, and the end of a large send. -EPROTO: protocol violation. */
int pl_message_credited(struct pl_peer *peer, uint64_t consumed);
/* A frame that was given to message() is dropped unsent. If it was a message, the window has room for another. */
void pl_message_dropped(struct pl_peer *peer, uint8_t type);
int pl_message_finished(struct pl_peer *peer, uint32_t cookie, uint64_t status);
/* Reports the result of a large message to its sender. */
void pl_message_finish(struct pl_peer *peer, uint32_t cookie, enum pl_wire_status status);
/*
 * True if the operation receives a message that has arrived, or fetches it: it can be stopped no more. Otherwise marks its fetch as
 * stopped, if it has one. Home.
 */
bool pl_message_has_arrived(struct pl_operation *operation);
/* Counts a message that the program took. Returns true if the peer should get a credit. Any thread. */
static inline bool pl_message_consumed(struct pl_peer *peer)
{
	uint64_t consumed = atomic_fetch_add(&peer->consumed, 1) + 1;

	return consumed - atomic_load(&peer->consumed_told) >= PL_MESSAGE_WINDOW / 4;
}
void pl_message_credit_run(struct pl_task *task);

void pl_message_credit(struct pl_peer *peer);

/* Reason for staging small messages from or to memory that the processor cannot reach. */
extern const char pl_message_staging_reason[];

/* Submission of pl_receive(). */
void pl_receive_run(struct pl_task *task);
/*
 * Handles a message or notification of the fabric. `payload` is valid during the call only. -EPROTO: protocol
 * violation.
 */
int pl_message_arrived(struct pl_peer *peer, const struct pl_frame *frame, const void *payload);
/* Initialises the peer's lists of messages. */
void pl_messages_init(struct pl_peer *peer);
/* Frees messages that arrived and were never received. */
void pl_messages_init(struct pl_peer *peer);
void pl_messages_drop(struct pl_peer *peer);

#endif
