/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of the connection manager: delivered at once, or late, twice, or after the kernel repeats them. */
#include <stdlib.h>
#include <string.h>

#include "card/cm.h"

#define LATE_MOST (20 * CARD_MILLISECOND)

static void deliver_request(const struct cm_message *message)
{
	struct cm_id *listener = cm_listener(&message->address), *id;
	struct cm_message reject = { .kind = CM_REJECT, .to = message->from, .status = CM_NO_SERVICE };

	if (!listener) {
		cm_send(&reject);
		return;
	}
	/* The kernel drops the second copy of a request. */
	if (cm_asked(message->from))
		return;
	id = cm_new(listener->base.channel, NULL);
	id->peer = message->from;
	id->state = CM_ASKED;
	id->peer_qp = message->qp_num;
	id->base.route.addr.addr = listener->base.route.addr.addr;
	cm_attach(id);
	cm_report(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, message, listener);
}

static void deliver_reply(struct cm_id *id, const struct cm_message *message)
{
	struct cm_message reject = { .kind = CM_REJECT, .to = message->from, .status = CM_STALE };

	if (!id) {
		cm_send(&reject);
		return;
	}
	if (id->state != CM_REQUESTED)
		return;
	id->peer = message->from;
	id->state = CM_ANSWERED;
	cm_report(id, RDMA_CM_EVENT_ESTABLISHED, 0, message, NULL);
}

static void deliver_disconnect(struct cm_id *id, const struct cm_message *message)
{
	struct cm_message answer = { .kind = CM_DISCONNECTED, .to = message->from };

	cm_send(&answer);
	if (id->disconnected)
		return;
	id->disconnected = true;
	cm_report(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, NULL);
}

static void cm_deliver(const struct cm_message *message)
{
	struct cm_id *id = cm_find(message->to);

	if (message->kind == CM_REQUEST) {
		deliver_request(message);
	} else if (message->kind == CM_REPLY) {
		deliver_reply(id, message);
	} else if (!id) {
		return;
	} else if (message->kind == CM_READY && id->state == CM_ACCEPTED) {
		id->state = CM_UP;
		cm_report(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, NULL);
	} else if (message->kind == CM_REJECT && (id->state == CM_REQUESTED || id->state == CM_ACCEPTED)) {
		id->state = CM_OVER;
		cm_report(id, RDMA_CM_EVENT_REJECTED, message->status, NULL, NULL);
	} else if (message->kind == CM_DISCONNECT) {
		deliver_disconnect(id, message);
	} else if (message->kind == CM_DISCONNECTED && !id->disconnected) {
		id->disconnected = true;
		cm_report(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, NULL);
	}
}

static void deliver_later(void *argument)
{
	struct cm_message *message = argument;
	const struct cm_id *from = cm_find(message->from);

	/* The kernel repeats messages of an id that exists. */
	if (!message->repeated || from)
		cm_deliver(message);
	free(message);
}

static void send_later(const struct cm_message *message, uint64_t delay, bool repeated)
{
	struct cm_message *copy = malloc(sizeof(*copy));

	if (!copy)
		abort();
	*copy = *message;
	copy->repeated = repeated;
	card_after(delay, deliver_later, copy);
}

void cm_send(const struct cm_message *message)
{
	if (message->kind <= CM_READY && card_happens(CARD_CM_LOST)) {
		send_later(message, CM_REPEAT, true);
		return;
	}
	if (card_happens(CARD_CM_DOUBLED))
		send_later(message, card_random(LATE_MOST), false);
	if (card_happens(CARD_CM_LATE))
		send_later(message, card_random(LATE_MOST), false);
	else
		cm_deliver(message);
}

void cm_tell(struct cm_id *from, enum cm_kind kind, int status)
{
	struct cm_message message = { .kind = kind, .from = from->number, .to = from->peer, .status = status };

	cm_send(&message);
}
