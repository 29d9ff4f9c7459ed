/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of NCCL: lists of memory and requests, on a shared link. */
#include <stdlib.h>

#include "state.h"

/* Returns an identifier that no comm has, and that was not used for long; COMM_IDS: there is none. */
static uint32_t find_unused_id(void)
{
	for (uint32_t tries = 0; tries < COMM_IDS; tries++) {
		uint32_t id = plugin.next_comm++ % COMM_IDS;

		if (!plugin.comms[id])
			return id;
	}
	return COMM_IDS;
}

struct plugin_comm *comm_new(struct plugin_owner *owner, struct plugin_link *link, bool sends)
{
	struct plugin_comm *comm = calloc(1, sizeof(*comm));
	uint32_t id = find_unused_id();

	if (!comm || id == COMM_IDS) {
		plugin_warn(comm ? "too many connections" : "no memory");
		free(comm);
		return NULL;
	}
	comm->id = id;
	comm->at = link;
	comm->sends = sends;
	pl_list_init(&comm->memory);
	pl_list_init(&comm->remotes);
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		struct plugin_request *request = &comm->requests[slot];

		request->comm = comm;
		request->slot = slot;
		pl_list_init(&request->job.link);
	}
	plugin.comms[id] = comm;
	pl_list_append(&link->comms, &comm->link);
	pl_list_append(&owner->comms, &comm->owned);
	return comm;
}

struct plugin_comm *comm_find(const struct plugin_link *link, uint32_t id, bool sends)
{
	struct plugin_comm *comm = id < COMM_IDS ? plugin.comms[id] : NULL;

	return comm && comm->at == link && comm->sends == sends ? comm : NULL;
}

void comm_join(struct plugin_comm *comm, uint32_t remote_id)
{
	comm->remote_id = remote_id;
	comm->state = COMM_READY;
	comm->joined = true;
}

void comm_fail(struct plugin_comm *comm, enum net_result result)
{
	if (comm->state == COMM_FAILED)
		return;
	comm->state = COMM_FAILED;
	comm->failure = result;
}

void comm_free(struct plugin_comm *comm)
{
	if (comm->sends)
		sends_cancel(comm, NULL, NULL);
	while (!pl_list_empty(&comm->memory))
		memory_end(comm, pl_list_first(&comm->memory, struct plugin_memory, link));
	/* Nothing more will come: the other end's receives would wait for ever. */
	if (comm->joined)
		link_send(comm->at,
			  &(struct message){ .type = MESSAGE_CLOSED, .comm = comm->remote_id, .index = comm->id });
	pl_list_for_each_safe(at, next, &comm->remotes)
		remote_drop(pl_list_entry(at, struct plugin_remote, link));
	/* Imports that still run. */
	pl_list_for_each_safe(at, next, &comm->remotes) {
		pl_list_entry(at, struct plugin_remote, link)->comm = NULL;
		pl_list_remove(at);
	}
	link_log_events(comm->at);
	plugin.comms[comm->id] = NULL;
	pl_list_remove(&comm->link);
	pl_list_remove(&comm->owned);
	free(comm);
}

enum net_result plugin_comm_close(struct plugin_comm *comm)
{
	if (!comm || plugin_is_of_parent())
		return NET_SUCCESS;
	plugin_begin_end();
	comm_free(comm);
	links_reap();
	pthread_mutex_unlock(&plugin.lock);
	return NET_SUCCESS;
}
