/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages between two ends of the plugin. Each is a value, and up to 1,024 bytes of data: a notification of Peerlane, or in a
 * mailbox (mailbox.h). Connections ("comms") have one direction and an identifier at each end.
 */
#ifndef PLUGIN_MESSAGE_H
#define PLUGIN_MESSAGE_H

#include "base/base.h"

/* Version of these messages. Ends of different versions refuse each other. */
#define MESSAGE_VERSION 3

/*
 * Identifiers of comms have 17 bits, and a comm has 32 slots for requests. So the value of a full-sized delivery has 22
 * bits, which travel with an RDMA write.
 */
#define COMM_IDS (1u << 17)
#define SLOTS 32u

enum message_type {
	MESSAGE_HELLO = 1, /* sender of data: comm, listener, nonce */
	MESSAGE_ACCEPTED,  /* receiver: comm, its own comm as `index` */
	MESSAGE_REFUSED,   /* receiver: comm */
	MESSAGE_REGION,  /* receiver: comm, region as `index`, length as `size`, token as payload, `slot` 1: of a GPU */
	MESSAGE_DROPPED, /* receiver: comm, region as `index` */
	MESSAGE_POSTED,  /* receiver: comm, slot, region as `index`, `offset` and `size` of the buffer */
	MESSAGE_DATA,    /* sender: comm, slot, bytes as payload */
	MESSAGE_DELIVERED, /* sender: comm, slot, `size` of the bytes that were written; a value without data */
	MESSAGE_CLOSED,    /* either: comm, its own comm as `index` */
	MESSAGE_MAILBOX,   /* either, of the link: token of its inbox as payload */
	MESSAGE_MAPPED,    /* either, of the link: it can write into the other end's inbox */
	MESSAGE_SWITCHED,  /* either, of the link: the last notification; what follows lies in the inbox */
	MESSAGE_TYPE_END,
};

/* `comm` is an identifier of the end that receives the message. */
struct message {
	enum message_type type;
	uint32_t comm, index, slot;
	uint64_t offset, size; /* of a greeting: nonce, version */
	const void *payload;
	size_t length;
};

#define MESSAGE_HEADER 32
#define MESSAGE_PAYLOAD_MAX (PL_NOTIFY_DATA_MAX - MESSAGE_HEADER)

/* Writes the data of the notification, and returns their length. *value receives the value. */
size_t message_encode(const struct message *message, uint8_t data[PL_NOTIFY_DATA_MAX], uint64_t *value);
/* Returns -EPROTO for values and data that no release sends. The payload points into the data. */
int message_decode(uint64_t value, const void *data, size_t length, struct message *message);

/* `size` of a delivery that fills the slot's buffer. */
#define MESSAGE_SIZE_FULL UINT64_MAX
/* Most bytes of another delivery. */
#define MESSAGE_SIZE_MAX ((1ull << 31) - 1)

/* Returns the value of a delivery. */
uint64_t message_delivery(uint32_t comm, uint32_t slot, uint64_t size);

#endif
