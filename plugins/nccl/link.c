/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections between processes. A process has at most one that it began, and one that it accepted, for each interface
 * of another process. All comms share them. With GPU memory, each GPU of a process has one to the process itself.
 */
#include <stdio.h>
#include <stdlib.h>

#include "peer_closers.h"
#include "state.h"

/* Most peers that are closed together. */
#define CLOSE_BATCH 1024

static struct plugin_link *link_new(struct plugin_device *device, enum link_state state)
{
	struct plugin_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->device = device;
	link->state = state;
	pl_list_init(&link->comms);
	pl_list_append(&plugin.links, &link->link);
	return link;
}

static void link_free(struct plugin_link *link)
{
	plugin.lost_links -= link->state == LINK_LOST;
	pl_list_remove(&link->link);
	free(link);
}

static bool link_begin_connecting(struct plugin_link *link)
{
	struct pl_error error;

	if (pl_connect_start(link->device->context, link->address, 0, user_data(link, USER_LINK), NULL, &error) < 0) {
		plugin_warn_error("cannot connect", &error);
		return false;
	}
	link->device->used = true;
	link->connecting = true;
	return true;
}

struct plugin_link *link_find_or_connect(struct plugin_device *device, const uint8_t id[ID_LENGTH], const char *address)
{
	/* The processor does not reach GPU memory, so devices that promise it connect to their own process, too. */
	bool own = !memcmp(id, plugin.id, ID_LENGTH) && !plugin.cards, self = own && !plugin.gpu_memory;
	/* The ranks of a process do not wait for each other's copies. */
	int gpu = own && plugin.gpu_memory ? gpu_current() : -1;
	struct plugin_link *link;

	pl_list_for_each(at, &plugin.links) {
		link = pl_list_entry(at, struct plugin_link, link);
		if (!link->incoming && link->state != LINK_LOST && link->self == self &&
		    (self || (link->device == device && link->gpu == gpu && !memcmp(link->id, id, ID_LENGTH) &&
			      !strcmp(link->address, address))))
			return link;
	}
	link = link_new(device, self ? LINK_UP : LINK_CONNECTING);
	if (!link)
		return NULL;
	link->self = self;
	link->gpu = gpu;
	memcpy(link->id, id, ID_LENGTH);
	snprintf(link->address, sizeof(link->address), "%s", self ? "this process" : address);
	if (!self && !link_begin_connecting(link)) {
		link_free(link);
		return NULL;
	}
	return link;
}

/* A connection is up. Its events carry the link. */
static void link_use_peer(struct plugin_link *link, struct pl_peer *peer)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	link->peer = peer;
	link->state = LINK_UP;
	pl_peer_set_user_data(peer, user_data(link, USER_LINK));
	pl_peer_query(peer, &info);
	link->local = !strcmp(info.fabric, "local");
	if (link->incoming)
		snprintf(link->address, sizeof(link->address), "%s", info.address);
	plugin_info("%s %s: fabric %s, %u lanes, %s", link->incoming ? "accepted" : "connected to", link->address,
		    info.fabric, info.lanes,
		    info.encrypted       ? "encrypted"
		    : info.authenticated ? "authenticated"
					 : "not authenticated");
	if (!info.connected)
		link_lost(link, "the connection ended at once");
}

void link_log_events(struct plugin_link *link)
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	struct pl_event_record record;

	if (!link->peer)
		return;
	query.after = link->events;
	while (pl_peer_events(link->peer, &query, &record, 1) == 1) {
		if (record.event == PL_EVENT_LIMIT_REACHED)
			plugin_warn("%s: %s", link->address, record.text);
		if (record.event != PL_EVENT_PATH_CHOSEN || !strcmp(record.text, link->path))
			continue;
		memcpy(link->path, record.text, sizeof(link->path));
		plugin_info("%s: path %s", link->address, link->path);
	}
	link->events = query.after;
}

void link_connected(struct plugin_link *link, const struct pl_completion *completion)
{
	struct pl_error error;

	link->connecting = false;
	if (pl_completion_error(link->device->context, completion, &error) == 0) {
		link_use_peer(link, completion->peer);
		return;
	}
	plugin_warn_error("cannot connect", &error);
	link_lost(link, error.message);
}

void link_accepted(struct plugin_device *device, const struct pl_completion *completion)
{
	struct plugin_link *link;

	if (completion->status == -ECANCELED)
		return;
	/* Events of the peer come behind the accept, so they find the link. */
	link = completion->status == 0 ? link_new(device, LINK_UP) : NULL;
	if (link) {
		link->incoming = true;
		link_use_peer(link, completion->peer);
	}
	device_accept(device);
}

/* True if the end of the connection is a failure: the other end has not closed all comms before. */
static bool link_is_needed(const struct plugin_link *link)
{
	pl_list_for_each(at, &link->comms)
		if (!pl_list_entry(at, struct plugin_comm, link)->closed_there)
			return true;
	return false;
}

void link_lost(struct plugin_link *link, const char *reason)
{
	if (link->state == LINK_LOST)
		return;
	link->state = LINK_LOST;
	plugin.lost_links++;
	link_log_events(link);
	if (link_is_needed(link))
		plugin_warn("lost %s: %s", link->address, reason);
	else
		plugin_info("%s: %s", link->address, reason);
	pl_list_for_each(at, &link->comms)
		comm_fail(pl_list_entry(at, struct plugin_comm, link), NET_REMOTE_ERROR);
	pl_list_for_each(at, &plugin.listeners) {
		struct plugin_listener *listener = pl_list_entry(at, struct plugin_listener, all);

		pl_list_for_each(waiting, &listener->greetings) {
			struct greeting *greeting = pl_list_entry(waiting, struct greeting, link);

			if (greeting->from == link)
				greeting->from = NULL;
		}
	}
}

void links_reap(void)
{
	if (!plugin.lost_links)
		return;
	pl_list_for_each_safe(at, next, &plugin.links) {
		struct plugin_link *link = pl_list_entry(at, struct plugin_link, link);

		if (link->state != LINK_LOST || link->running || link->connecting)
			continue;
		if (link->peer) {
			mailbox_close(link);
			pl_peer_close(link->peer);
			link->peer = NULL;
		}
		if (pl_list_empty(&link->comms))
			link_free(link);
	}
}

void links_close_peers(void)
{
	struct pl_peer *peers[CLOSE_BATCH];
	unsigned count = 0;

	pl_list_for_each(at, &plugin.links) {
		struct plugin_link *link = pl_list_entry(at, struct plugin_link, link);

		if (!link->peer)
			continue;
		mailbox_close(link);
		if (count == CLOSE_BATCH) {
			peers_close(peers, count);
			count = 0;
		}
		peers[count++] = link->peer;
		link->peer = NULL;
	}
	peers_close(peers, count);
}

/* A write of a few bytes to mapped memory is done at once; the time is for an end that must not wait for ever. */
#define WRITE_TIME PL_NS_PER_S

int link_write_now(struct plugin_link *link, const struct pl_transfer *transfer)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	int rc;

	attributes.timeout = WRITE_TIME;
	rc = pl_write(link->peer, transfer, &attributes, &operation, NULL);
	if (rc < 0)
		return rc;
	rc = pl_test(operation, NULL, NULL);
	if (rc != -EINPROGRESS)
		return rc;
	pl_cancel(operation);
	return pl_wait(operation, UINT64_MAX, NULL, NULL);
}

void links_free(void)
{
	while (!pl_list_empty(&plugin.links))
		link_free(pl_list_first(&plugin.links, struct plugin_link, link));
}

void link_send(struct plugin_link *link, const struct message *message)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint8_t data[PL_NOTIFY_DATA_MAX];
	struct pl_error error;
	uint64_t value;
	size_t length;
	int rc;

	if (link->self) {
		message_handle(link, message);
		return;
	}
	if (link->state != LINK_UP)
		return;
	if (message->type == MESSAGE_DELIVERED) {
		value = message_delivery(message->comm, message->slot, message->size);
		length = 0;
	} else {
		length = message_encode(message, data, &value);
	}
	if (mailbox_send(link, value, data, length) || link->state != LINK_UP)
		return;
	attributes.timeout = UINT64_MAX;
	attributes.user_data = user_data(NULL, USER_NOTIFICATION);
	rc = pl_notify(link->peer, value, data, length, &attributes, NULL, &error);
	/* The event of a loss comes behind the messages that the other end sent before, which must not be dropped. */
	if (rc == 0)
		plugin.notifications++;
	else if (rc != -ENOTCONN && rc != -ECONNRESET)
		link_lost(link, error.message);
}
