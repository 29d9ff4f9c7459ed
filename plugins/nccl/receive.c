/* SPDX-License-Identifier: BSD-2-Clause */
/* Receives, and the test of both kinds of requests. */
#include "state.h"

static enum net_result post_receive(struct plugin_comm *comm, struct plugin_request *request)
{
	struct message message = { .type = MESSAGE_POSTED,
				   .comm = comm->remote_id,
				   .slot = request->slot,
				   .index = UINT32_MAX,
				   .size = request->size };

	if (request->memory) {
		message.index = request->memory->id;
		message.offset = (uint64_t)(request->data - request->memory->address);
		if (pl_outside(message.offset, request->size, request->memory->length))
			return NET_INVALID_USAGE;
	} else if (request->size) {
		return NET_INVALID_USAGE;
	}
	comm->next++;
	request->state = REQUEST_RUNNING;
	link_send(comm->at, &message);
	return NET_SUCCESS;
}

enum net_result plugin_receive(struct plugin_comm *comm, void *data, size_t size, struct plugin_memory *memory,
			       void **result)
{
	struct plugin_request *request;
	enum net_result rc = NET_SUCCESS;

	*result = NULL;
	if (plugin_is_of_parent())
		return NET_INVALID_USAGE;
	plugin_begin();
	request = &comm->requests[comm->next % SLOTS];
	if (comm->state == COMM_FAILED) {
		rc = comm->failure;
	} else if (comm->closed_there) {
		rc = NET_REMOTE_ERROR;
	} else if (request->state == REQUEST_FREE) {
		request->data = data;
		request->size = size;
		request->memory = memory;
		rc = post_receive(comm, request);
		if (rc == NET_SUCCESS)
			*result = request;
	}
	pthread_mutex_unlock(&plugin.lock);
	return rc;
}

/*
 * True if a send has yet to learn its result, although its comm has failed. The receiver may have had the message, and left, while
 * a copy thread of this end was still in the call that posted it. Operations of a lost peer end at once.
 */
static bool send_is_ending(const struct plugin_request *request)
{
	return request->comm->sends && request->state == REQUEST_RUNNING && request->comm->at->gone;
}

enum net_result plugin_test(struct plugin_request *request, int *done, int *size)
{
	enum net_result rc = NET_SUCCESS;

	*done = 0;
	if (plugin_is_of_parent())
		return NET_INVALID_USAGE;
	plugin_begin();
	if (request->state == REQUEST_DONE) {
		*done = 1;
		if (size)
			*size = (int)request->size;
		request->state = REQUEST_FREE;
		request->memory = NULL;
	} else if (request->comm->state == COMM_FAILED && !send_is_ending(request)) {
		rc = request->comm->failure;
	}
	pthread_mutex_unlock(&plugin.lock);
	return rc;
}
