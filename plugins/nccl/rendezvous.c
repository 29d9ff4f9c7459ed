/* SPDX-License-Identifier: BSD-2-Clause */
/* Listening, connecting and accepting, in the steps in which NCCL calls: none of them waits. */
#include <stdlib.h>

#include "state.h"

/* Address of a listener, which NCCL carries to the sender. The sender's calls get the same memory each time. */
struct handle {
	char magic[8];
	uint8_t id[ID_LENGTH]; /* of the process */
	uint64_t nonce;
	char address[64];
	uint32_t listener;
	/* Written by the sender: its comm plus 1, and the nonce of that comm. */
	uint32_t comm;
	uint64_t comm_nonce;
};
_Static_assert(sizeof(struct handle) <= NET_HANDLE_SIZE, "NCCL carries 128 bytes");

/* The last character is the version of this structure. */
static const char magic[8] = { 'P', 'e', 'e', 'r', 'l', 'a', 'n', '1' };

static struct plugin_owner *owner_or_forever(struct plugin_owner *owner)
{
	return owner ? owner : &plugin.forever;
}

/* -- listening ------------------------------------------------------------------------------------ */

static struct plugin_listener *listener_new(struct plugin_owner *owner)
{
	struct plugin_listener *listener = calloc(1, sizeof(*listener));

	if (!listener || pl_random(&listener->nonce, sizeof(listener->nonce)) < 0) {
		free(listener);
		return NULL;
	}
	listener->owner = owner;
	listener->id = plugin.next_listener++;
	pl_list_init(&listener->greetings);
	pl_list_append(&plugin.listeners, &listener->all);
	pl_list_append(&owner->listeners, &listener->link);
	return listener;
}

enum net_result plugin_listen(struct plugin_owner *owner, int device, void *data, void **result)
{
	struct plugin_listener *listener = NULL;
	struct handle handle = { 0 };

	*result = NULL;
	if (plugin_is_of_parent())
		return NET_INVALID_USAGE;
	if (device < 0 || device >= plugin.device_count)
		return NET_INVALID_ARGUMENT;
	memset(data, 0, NET_HANDLE_SIZE);
	plugin_lock();
	plugin.reopened = false;
	if (device_listen(&plugin.devices[device]))
		listener = listener_new(owner_or_forever(owner));
	if (listener) {
		memcpy(handle.magic, magic, sizeof(magic));
		memcpy(handle.id, plugin.id, ID_LENGTH);
		handle.nonce = listener->nonce;
		handle.listener = listener->id;
		strncpy(handle.address, plugin.devices[device].bound, sizeof(handle.address) - 1);
		memcpy(data, &handle, sizeof(handle));
	}
	*result = listener;
	pthread_mutex_unlock(&plugin.lock);
	return listener ? NET_SUCCESS : NET_SYSTEM_ERROR;
}

static void greeting_refuse(const struct greeting *greeting)
{
	link_send(greeting->from, &(struct message){ .type = MESSAGE_REFUSED, .comm = greeting->comm });
}

static void greeting_free(struct plugin_listener *listener, struct greeting *greeting)
{
	pl_list_remove(&greeting->link);
	listener->greeting_count--;
	free(greeting);
}

void listener_free(struct plugin_listener *listener)
{
	while (!pl_list_empty(&listener->greetings)) {
		struct greeting *greeting = pl_list_first(&listener->greetings, struct greeting, link);

		if (greeting->from)
			greeting_refuse(greeting);
		greeting_free(listener, greeting);
	}
	pl_list_remove(&listener->link);
	pl_list_remove(&listener->all);
	free(listener);
}

enum net_result plugin_listener_close(struct plugin_listener *listener)
{
	if (!listener || plugin_is_of_parent())
		return NET_SUCCESS;
	plugin_lock();
	listener_free(listener);
	pthread_mutex_unlock(&plugin.lock);
	return NET_SUCCESS;
}

/* -- accepting ------------------------------------------------------------------------------------ */

/* Answers the first greeting whose sender is still there; *result is NULL if there is none. */
static enum net_result accept_greeting(struct plugin_listener *listener, struct plugin_comm **result)
{
	enum net_result rc = NET_SUCCESS;
	struct plugin_comm *comm = NULL;

	while (!comm && rc == NET_SUCCESS && !pl_list_empty(&listener->greetings)) {
		struct greeting *greeting = pl_list_first(&listener->greetings, struct greeting, link);

		if (greeting->from)
			comm = comm_new(listener->owner, greeting->from, false);
		if (comm) {
			comm_join(comm, greeting->comm);
			link_send(comm->at, &(struct message){ .type = MESSAGE_ACCEPTED,
							       .comm = comm->remote_id,
							       .index = comm->id });
		} else if (greeting->from) {
			greeting_refuse(greeting);
			rc = NET_SYSTEM_ERROR;
		}
		greeting_free(listener, greeting);
	}
	*result = comm;
	return rc;
}

static bool accept_took_too_long(struct plugin_listener *listener)
{
	uint64_t now = pl_now();

	if (!listener->first_accept)
		listener->first_accept = now;
	return now - listener->first_accept > plugin.settings.accept_timeout;
}

enum net_result plugin_accept(struct plugin_listener *listener, void **comm)
{
	struct plugin_comm *accepted;
	enum net_result rc;

	*comm = NULL;
	if (plugin_is_of_parent())
		return NET_INVALID_USAGE;
	plugin_begin();
	rc = accept_greeting(listener, &accepted);
	*comm = accepted;
	if (accepted) {
		listener->first_accept = 0;
	} else if (rc == NET_SUCCESS && accept_took_too_long(listener)) {
		plugin_warn("no sender connected within %llu s: see that all ranks load this plugin "
			    "(PEERLANE_ACCEPT_TIMEOUT)",
			    (unsigned long long)(plugin.settings.accept_timeout / PL_NS_PER_S));
		rc = NET_REMOTE_ERROR;
	}
	pthread_mutex_unlock(&plugin.lock);
	return rc;
}

/* -- connecting ----------------------------------------------------------------------------------- */

/* Numeric addresses only: a name would be looked up, which can block. */
static bool handle_is_valid(const struct handle *handle)
{
	return !memcmp(handle->magic, magic, sizeof(magic)) && memchr(handle->address, '\0', sizeof(handle->address)) &&
	       handle->address[strspn(handle->address, "0123456789abcdefABCDEF.:[]")] == '\0';
}

/* Returns the pending comm that an earlier call left in the handle. */
static struct plugin_comm *handle_comm(const struct handle *handle)
{
	uint32_t id = handle->comm - 1;
	struct plugin_comm *comm = handle->comm && id < COMM_IDS ? plugin.comms[id] : NULL;

	return comm && comm->sends && comm->nonce && comm->nonce == handle->comm_nonce ? comm : NULL;
}

static struct plugin_comm *begin_connection(struct plugin_owner *owner, struct plugin_device *device,
					    struct handle *handle)
{
	struct plugin_link *link = link_find_or_connect(device, handle->id, handle->address);
	struct plugin_comm *comm = link ? comm_new(owner, link, true) : NULL;

	if (!comm)
		return NULL;
	do {
		if (pl_random(&comm->nonce, sizeof(comm->nonce)) < 0) {
			comm_free(comm);
			return NULL;
		}
	} while (!comm->nonce);
	comm->begun = pl_now();
	handle->comm = comm->id + 1;
	handle->comm_nonce = comm->nonce;
	return comm;
}

/* Goes on with a connection. Returns NET_SUCCESS while it is pending, too. */
static enum net_result continue_connection(struct plugin_comm *comm, const struct handle *handle)
{
	if (comm->state == COMM_NEW && comm->at->state == LINK_LOST)
		comm_fail(comm, NET_REMOTE_ERROR);
	if (comm->state == COMM_NEW && comm->at->state == LINK_UP) {
		comm->state = COMM_GREETED;
		link_send(comm->at, &(struct message){ .type = MESSAGE_HELLO,
						       .comm = comm->id,
						       .index = handle->listener,
						       .offset = handle->nonce,
						       .size = MESSAGE_VERSION });
		/* Behind the greeting, which makes the other end open its own. */
		mailbox_open(comm->at);
	}
	if (comm->state == COMM_GREETED && pl_now() - comm->begun > plugin.settings.accept_timeout) {
		plugin_warn("the receiver accepted no connection within %llu s (PEERLANE_ACCEPT_TIMEOUT)",
			    (unsigned long long)(plugin.settings.accept_timeout / PL_NS_PER_S));
		comm_fail(comm, NET_REMOTE_ERROR);
	}
	return comm->state == COMM_FAILED ? comm->failure : NET_SUCCESS;
}

enum net_result plugin_connect(struct plugin_owner *owner, int device, void *data, void **result)
{
	enum net_result rc = NET_SYSTEM_ERROR;
	struct plugin_comm *comm;
	struct handle handle;

	*result = NULL;
	if (plugin_is_of_parent())
		return NET_INVALID_USAGE;
	memcpy(&handle, data, sizeof(handle));
	if (device < 0 || device >= plugin.device_count)
		return NET_INVALID_ARGUMENT;
	if (!handle_is_valid(&handle)) {
		plugin_warn("the receiver does not use this release of the plugin: install the same on all hosts");
		return NET_INVALID_USAGE;
	}
	plugin_begin();
	plugin.reopened = false;
	comm = handle_comm(&handle);
	if (!comm)
		comm = begin_connection(owner_or_forever(owner), &plugin.devices[device], &handle);
	if (comm) {
		rc = continue_connection(comm, &handle);
		if (rc != NET_SUCCESS) {
			plugin_warn("cannot connect to %s", handle.address);
			comm_free(comm);
		} else if (comm->state == COMM_READY) {
			*result = comm;
		}
		if (rc != NET_SUCCESS || *result) {
			if (*result)
				comm->nonce = 0;
			handle.comm = 0;
			handle.comm_nonce = 0;
		}
	}
	memcpy(data, &handle, sizeof(handle));
	pthread_mutex_unlock(&plugin.lock);
	return rc;
}
