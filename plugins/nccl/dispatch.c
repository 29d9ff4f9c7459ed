/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of the other end. Without a key any process can send them: each number is checked, and a message that does
 * not fit the state ends the connection or is dropped.
 */
#include <stdlib.h>

#include "base/ordered_copy.h"
#include "state.h"

/* Greetings that wait for one listener; NCCL accepts one connection on each. */
#define GREETINGS_MAX 64

static void refuse_greeting(struct plugin_link *link, const struct message *message)
{
	link_send(link, &(struct message){ .type = MESSAGE_REFUSED, .comm = message->comm });
}

static struct plugin_listener *listener_find(uint32_t id, uint64_t nonce)
{
	pl_list_for_each(at, &plugin.listeners) {
		struct plugin_listener *listener = pl_list_entry(at, struct plugin_listener, all);

		if (listener->id == id && listener->nonce == nonce)
			return listener;
	}
	return NULL;
}

static void handle_hello(struct plugin_link *link, const struct message *message)
{
	struct plugin_listener *listener = listener_find(message->index, message->offset);
	struct greeting *greeting;

	if (!listener || message->size != MESSAGE_VERSION || listener->greeting_count == GREETINGS_MAX) {
		refuse_greeting(link, message);
		return;
	}
	greeting = calloc(1, sizeof(*greeting));
	if (!greeting) {
		refuse_greeting(link, message);
		return;
	}
	/* This end listens for the other one: a stranger gets no memory. */
	mailbox_open(link);
	greeting->from = link;
	greeting->comm = message->comm;
	pl_list_append(&listener->greetings, &greeting->link);
	listener->greeting_count++;
}

/* The sender's comm ended before its greeting was accepted. The receiver's new comm waits for nobody. */
static void refuse_acceptance(struct plugin_link *link, const struct message *message)
{
	if (message->index < COMM_IDS)
		link_send(link,
			  &(struct message){ .type = MESSAGE_CLOSED, .comm = message->index, .index = message->comm });
}

static void handle_posted(struct plugin_link *link, struct plugin_comm *comm, const struct message *message)
{
	struct posted_receive *posted = &comm->posted[message->slot];

	if (posted->valid) {
		link_lost(link, "the other end posted two receives in one slot");
		return;
	}
	*posted = (struct posted_receive){
		.valid = true,
		.memory = message->index,
		.offset = message->offset,
		.size = message->size,
	};
}

static void handle_delivery(struct plugin_link *link, struct plugin_comm *comm, const struct message *message)
{
	struct plugin_request *request = &comm->requests[message->slot];
	size_t size = message->type == MESSAGE_DATA ? message->length : message->size;

	if (message->type == MESSAGE_DELIVERED && size == MESSAGE_SIZE_FULL)
		size = request->size;
	if (request->state != REQUEST_RUNNING || size > request->size ||
	    (message->type == MESSAGE_DATA && size && request->memory && request->memory->on_gpu)) {
		link_lost(link, "the other end sent more than was asked for");
		return;
	}
	/* A deregistered buffer may not exist any more. A GPU may look at the bytes meanwhile. */
	if (message->type == MESSAGE_DATA && request->data)
		pl_copy_ordered(request->data, message->payload, size);
	request->size = size;
	request->state = REQUEST_DONE;
	plugin.bytes_received += size;
}

static void handle_closed(struct plugin_link *link, const struct message *message)
{
	struct plugin_comm *comm = message->comm < COMM_IDS ? plugin.comms[message->comm] : NULL;

	/* The comm may have ended, and its identifier been used again. */
	if (!comm || comm->at != link || !comm->joined || comm->remote_id != message->index)
		return;
	comm->closed_there = true;
	if (comm->sends)
		return;
	/* All deliveries came before. */
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		if (comm->requests[slot].state == REQUEST_RUNNING)
			comm_fail(comm, NET_REMOTE_ERROR);
}

void message_handle(struct plugin_link *link, const struct message *message)
{
	bool from_sender = message->type == MESSAGE_DATA || message->type == MESSAGE_DELIVERED;
	struct plugin_comm *comm = comm_find(link, message->comm, !from_sender);

	if (message->type == MESSAGE_HELLO)
		handle_hello(link, message);
	else if (message->type == MESSAGE_CLOSED)
		handle_closed(link, message);
	else if (message->type >= MESSAGE_MAILBOX)
		mailbox_handle(link, message);
	else if (message->type == MESSAGE_ACCEPTED && !comm)
		refuse_acceptance(link, message);
	/* Messages to a comm that was closed meanwhile are dropped. */
	if (!comm || message->type == MESSAGE_HELLO || message->type >= MESSAGE_CLOSED)
		return;
	switch (message->type) {
	case MESSAGE_ACCEPTED:
		if (comm->state == COMM_GREETED && message->index < COMM_IDS)
			comm_join(comm, message->index);
		break;
	case MESSAGE_REFUSED:
		if (comm->state == COMM_GREETED) {
			plugin_warn(
				"%s refused a connection: it does not listen any more, lacks memory, or has another "
				"release of the plugin",
				link->address);
			comm_fail(comm, NET_REMOTE_ERROR);
		}
		break;
	case MESSAGE_REGION:
		remote_add(comm, message);
		break;
	case MESSAGE_DROPPED: {
		struct plugin_remote *remote = remote_find(comm, message->index);

		if (remote)
			remote_drop(remote);
		break;
	}
	case MESSAGE_POSTED:
		handle_posted(link, comm, message);
		break;
	default:
		handle_delivery(link, comm, message);
	}
}
