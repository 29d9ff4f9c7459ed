/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mailbox of a link between processes of one host: messages lie in memory that both map, so that they need no system call, no
 * engine and no wake-up. Each end owns an inbox, into which the other end writes:
 *
 *   0     u64: messages that the other end has taken from this end's messages
 *   64    slots of MAILBOX_SLOT bytes: u64 sequence, u64 value, u32 length, u32 0, data
 *
 * An end that can write says so (MESSAGE_MAPPED). Once both said so, an end says that its messages are numbered from now on
 * (MESSAGE_SWITCHED): message n, from 1 on, lies in slot (n - 1) % MAILBOX_SLOTS with the sequence n, which is written last. If no
 * slot is free, or the inbox cannot be written any more, message n is a notification. No message overtakes another one, because
 * the receiver takes message n + 1 after message n. If the write of a sequence does not end in time, message n may be in its slot, so
 * the connection is lost.
 */
#ifndef PLUGIN_MAILBOX_H
#define PLUGIN_MAILBOX_H

#include "base/base.h"
#include "message.h"

struct plugin_link;
struct mailbox;

/* Offers a mailbox to the other end, if that was not done. Without memory the link goes on by notifications. */
void mailbox_open(struct plugin_link *link);
/* The peer is closed afterwards; accepts a link without mailbox. */
void mailbox_close(struct plugin_link *link);
/* Handles MESSAGE_MAILBOX, MESSAGE_MAPPED and MESSAGE_SWITCHED. */
void mailbox_handle(struct plugin_link *link, const struct message *message);
void mailbox_imported(struct mailbox *mailbox, const struct pl_completion *completion);
/* Sends a message. Returns false if it must be sent as a notification. */
bool mailbox_send(struct plugin_link *link, uint64_t value, const void *data, size_t length);
/* Takes messages of one link, as many as an inbox has slots at most. */
void mailbox_poll(struct mailbox *mailbox);
/* The connection was lost: takes all messages that came before, also if the notification about the change did not arrive. */
void mailbox_take_last(struct mailbox *mailbox);
/* A notification comes, which follows all messages in the inbox. */
void mailbox_follow(struct mailbox *mailbox);
/* The same for all links. */
void mailboxes_poll(void);

#endif
