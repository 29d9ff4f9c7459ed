/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection manager of the stand-in card: ids, channels and the messages between ids. */
#ifndef CARD_CM_H
#define CARD_CM_H

#include "card/card.h"

/* Private data of requests and replies. Events have all of it, padded with zeros. */
#define CM_REQUEST_DATA 56
#define CM_REPLY_DATA 196
/* Reasons of a rejection: no listener, a stale connection, the consumer's. */
#define CM_NO_SERVICE 8
#define CM_STALE 10
#define CM_CONSUMER 28
/* Time after which the kernel repeats a message without an answer. */
#define CM_REPEAT (4300 * CARD_MILLISECOND)

enum cm_kind { CM_REQUEST, CM_REPLY, CM_READY, CM_REJECT, CM_DISCONNECT, CM_DISCONNECTED };

enum cm_state { CM_IDLE, CM_LISTENING, CM_REQUESTED, CM_ASKED, CM_ACCEPTED, CM_ANSWERED, CM_UP, CM_OVER };

struct cm_event {
	struct rdma_cm_event base;
	struct cm_event *next;
	uint32_t qp_num; /* of a reply */
	uint8_t data[CM_REPLY_DATA];
};

struct cm_channel {
	struct rdma_event_channel base;
	struct cm_event *first, **last;
};

struct cm_id {
	struct rdma_cm_id base;
	struct cm_id *next;
	uint64_t number, peer; /* 0: none */
	enum cm_state state;
	uint16_t port;
	bool disconnected;
	uint32_t peer_qp;
	unsigned unacknowledged;
};

struct cm_message {
	enum cm_kind kind;
	uint64_t from, to;
	struct sockaddr_storage address; /* of a request */
	uint32_t qp_num;
	int status;
	uint8_t depth;
	uint8_t data[CM_REPLY_DATA];
	bool repeated;
};

/* cm_id.c */
struct cm_id *cm_find(uint64_t number);
struct cm_id *cm_listener(const struct sockaddr_storage *address);
struct cm_id *cm_new(struct rdma_event_channel *channel, void *context);
/* True if an id answers the request of this number. */
bool cm_asked(uint64_t number);
void cm_attach(struct cm_id *id);
/* Adds an event; NULL for no message. */
void cm_report(struct cm_id *id, enum rdma_cm_event_type type, int status, const struct cm_message *message,
	       struct cm_id *listener);

/* cm_message.c */
void cm_send(const struct cm_message *message);
/* Sends a message without data. */
void cm_tell(struct cm_id *from, enum cm_kind kind, int status);

#endif
