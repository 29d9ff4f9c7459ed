/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends. The receiver posts a buffer first, and the sender writes to it: small messages within a notification, others
 * by the fabric, in pieces if this process's threads copy them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/ordered_copy.h"
#include "state.h"

/* Bytes of a piece, a multiple of the 128 bytes that NCCL's LL128 protocol must not see torn. */
#define PIECE ((size_t)256 << 10)
/* Larger messages go to the copy threads. */
#define INLINE_COPY_MAX ((size_t)16 << 10)
/* Messages up to this size may be of the protocols LL and LL128, whose flags a GPU reads meanwhile. */
#define ORDERED_COPY_MAX ((size_t)600 << 10)

/* -- pieces, on any thread ------------------------------------------------------------------------ */

/* The other end is this process. */
static void copy_in_process(uint8_t *to, const uint8_t *from, size_t length, bool ordered)
{
	if (ordered)
		pl_copy_ordered(to, from, length);
	else
		memcpy(to, from, length);
}

/* A piece has two users, its operation and the call that posts it: either may end first. */
static void pieces_end(struct plugin_request *request, unsigned users, int status)
{
	int none = 0;

	if (status < 0)
		atomic_compare_exchange_strong(&request->status, &none, status);
	if (atomic_fetch_sub(&request->pending, users) == users)
		copy_threads_finish(&plugin.copy_threads, &request->job);
}

void request_piece_done(struct plugin_request *request, int status)
{
	pieces_end(request, 1, status);
}

/* Logs the reason of the first failure, which makes the comm fail. */
static void request_log_failure(struct plugin_comm *comm, const struct pl_completion *completion)
{
	char action[sizeof(comm->at->address) + 32];
	struct pl_error error;

	if (comm->state == COMM_FAILED || completion->status == -ECANCELED)
		return;
	pl_completion_error(comm->at->device->context, completion, &error);
	snprintf(action, sizeof(action), "a write to %s failed", comm->at->address);
	plugin_warn_error(action, &error);
	comm_fail(comm, NET_REMOTE_ERROR);
}

void request_piece_completed(struct plugin_request *request, const struct pl_completion *completion)
{
	struct plugin_link *link = request->comm->at;

	if (completion->status < 0)
		request_log_failure(request->comm, completion);
	if (completion->status == 0 && request->by_gpu && !link->gpu_path_told) {
		link->gpu_path_told = true;
		plugin_info("%s: GPU memory: %s", link->address, completion->reason);
	}
	if (completion->status == 0 && completion->route == PL_ROUTE_STAGED && plugin.cards && !link->staged) {
		link->staged = true;
		plugin_warn("messages to %s are copied first: %s", link->address, completion->reason);
	}
	request_piece_done(request, completion->status);
}

static uint64_t delivered_size(const struct plugin_request *request)
{
	return request->size == request->buffer_size ? MESSAGE_SIZE_FULL : request->size;
}

void request_write_piece(struct plugin_request *request, size_t piece)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	size_t offset = piece * request->piece;
	size_t length = PL_MIN(request->piece, request->size - offset);
	struct pl_transfer transfer = { 0 };
	int rc;

	if (request->comm->at->self) {
		copy_in_process(request->remote->address + request->offset + offset, request->data + offset, length,
				request->size <= ORDERED_COPY_MAX);
		pieces_end(request, 2, 0);
		return;
	}
	transfer.remote = request->remote->remote;
	transfer.remote_offset = request->offset + offset;
	transfer.region = request->memory->region;
	transfer.offset = (uint64_t)(request->data - request->memory->address) + offset;
	transfer.length = length;
	attributes.timeout = UINT64_MAX;
	attributes.user_data = user_data(request, USER_REQUEST);
	/* Several copies of a GPU are under way. */
	attributes.flags = PL_NO_WAIT;
	if (request->notifies) {
		attributes.flags |= PL_NOTIFY;
		/* A card that proved GPU memory must not stage it: NCCL would choose another path. */
		if (plugin.cards && request->memory->on_gpu)
			attributes.flags |= PL_REQUIRE_DIRECT;
		attributes.notify = message_delivery(request->comm->remote_id, request->slot, delivered_size(request));
	}
	rc = pl_write(request->comm->at->peer, &transfer, &attributes, NULL, NULL);
	pieces_end(request, rc < 0 ? 2 : 1, rc);
}

/* -- requests ------------------------------------------------------------------------------------- */

void request_finish(struct plugin_request *request)
{
	struct plugin_comm *comm = request->comm;
	struct plugin_remote *remote = request->remote;
	int status = atomic_load(&request->status);

	comm->at->running--;
	atomic_fetch_sub(&plugin.gpu_copies, request->by_gpu);
	/* The comm has the failure, which plugin_test() returns. */
	request->state = status < 0 ? REQUEST_FREE : REQUEST_DONE;
	if (status < 0) {
		if (comm->state != COMM_FAILED && status != -ECANCELED)
			plugin_warn("a write to %s failed: %s", comm->at->address, strerror(-status));
		comm_fail(comm, NET_REMOTE_ERROR);
	} else {
		plugin.bytes_sent += request->size;
		if (!request->notifies && comm->state == COMM_READY)
			link_send(comm->at, &(struct message){ .type = MESSAGE_DELIVERED,
							       .comm = comm->remote_id,
							       .slot = request->slot,
							       .size = delivered_size(request) });
	}
	request->memory = NULL;
	request->remote = NULL;
	if (--remote->running == 0 && remote->dropped)
		remote_drop(remote);
}

static bool request_uses(const struct plugin_request *request, const struct plugin_memory *memory,
			 const struct plugin_remote *remote)
{
	return request->state == REQUEST_RUNNING && (!memory || request->memory == memory) &&
	       (!remote || request->remote == remote);
}

static void request_cancel(struct plugin_request *request)
{
	unsigned left = (unsigned)copy_threads_withdraw(&plugin.copy_threads, &request->job);

	if (left)
		pieces_end(request, 2 * left, -ECANCELED);
	if (!request->comm->at->self)
		pl_cancel_posted(request->comm->at->device->context, user_data(request, USER_REQUEST));
}

/* Cancelled operations end soon: local work alone bounds the time. */
void sends_cancel(struct plugin_comm *comm, const struct plugin_memory *memory, const struct plugin_remote *remote)
{
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		struct plugin_request *request = &comm->requests[slot];

		while (request_uses(request, memory, remote)) {
			request_cancel(request);
			plugin_progress();
			if (request_uses(request, memory, remote))
				nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
		}
	}
}

/* The message travels within a notification. */
static void send_small(struct plugin_comm *comm, struct plugin_request *request)
{
	struct message message = { .type = MESSAGE_DATA,
				   .comm = comm->remote_id,
				   .slot = request->slot,
				   .payload = request->data,
				   .length = request->size };

	request->state = REQUEST_DONE;
	request->memory = NULL;
	plugin.bytes_sent += request->size;
	link_send(comm->at, &message);
}

static void send_large(struct plugin_comm *comm, struct plugin_request *request, struct plugin_remote *remote)
{
	bool local = comm->at->self || comm->at->local;
	/* Cards, the sockets' threads and GPUs take a request of any size at once. */
	bool copies = local && !request->memory->on_gpu && !remote->on_gpu;
	size_t pieces;

	request->remote = remote;
	request->piece = copies ? PIECE : request->size;
	request->notifies = !local;
	request->by_gpu = local && !copies;
	pieces = (request->size + request->piece - 1) / request->piece;
	atomic_store(&request->pending, 2 * (unsigned)pieces);
	atomic_store(&request->status, 0);
	request->state = REQUEST_RUNNING;
	remote->running++;
	comm->at->running++;
	atomic_fetch_add(&plugin.gpu_copies, request->by_gpu);
	if (request->size > INLINE_COPY_MAX && copies) {
		copy_threads_add(&plugin.copy_threads, &request->job, pieces);
		return;
	}
	request->job.next = request->job.pieces = pieces;
	/* The driver's calls take long. The running request keeps all that they use, as it does for copy threads. */
	if (request->by_gpu)
		pthread_mutex_unlock(&plugin.lock);
	request_write_piece(request, 0);
	if (request->by_gpu)
		plugin_lock();
	plugin_progress();
}

/* True if the message travels within a notification, which both ends' processors copy. */
static bool message_is_small(const struct plugin_comm *comm, const struct plugin_request *request,
			     const struct posted_receive *posted)
{
	const struct plugin_remote *remote;

	if (request->size > MESSAGE_PAYLOAD_MAX || request->size == 0)
		return request->size == 0;
	remote = remote_find(comm, posted->memory);
	return !(request->memory && request->memory->on_gpu) && !(remote && remote->on_gpu);
}

/* Fills the request, and sends. Returns NET_SUCCESS with request->state REQUEST_FREE if the caller must try again. */
static enum net_result send_posted(struct plugin_comm *comm, struct plugin_request *request,
				   struct posted_receive *posted)
{
	struct plugin_remote *remote = NULL;
	bool small;

	if (request->size > posted->size) {
		plugin_warn("a message of %zu bytes is larger than its receive of %llu bytes", request->size,
			    (unsigned long long)posted->size);
		return NET_INVALID_USAGE;
	}
	small = message_is_small(comm, request, posted);
	if (!small) {
		if (!request->memory || pl_outside((uint64_t)(request->data - request->memory->address), request->size,
						   request->memory->length))
			return NET_INVALID_USAGE;
		remote = remote_find(comm, posted->memory);
		if (remote && remote->failure.code) {
			plugin_warn_error("cannot use the receiver's memory", &remote->failure);
			return NET_REMOTE_ERROR;
		}
		if (!remote || (!remote->remote && !remote->address))
			return comm->closed_there ? NET_REMOTE_ERROR : NET_SUCCESS;
		if (remote->opening)
			return NET_SUCCESS;
		if (pl_outside(posted->offset, request->size, remote->length))
			return NET_REMOTE_ERROR;
	}
	request->offset = posted->offset;
	request->buffer_size = posted->size;
	posted->valid = false;
	comm->next++;
	if (!small)
		send_large(comm, request, remote);
	else
		send_small(comm, request);
	return NET_SUCCESS;
}

enum net_result plugin_send(struct plugin_comm *comm, void *data, size_t size, struct plugin_memory *memory,
			    void **result)
{
	struct plugin_request *request;
	struct posted_receive *posted;
	enum net_result rc = NET_SUCCESS;

	*result = NULL;
	if (plugin_is_of_parent())
		return NET_INVALID_USAGE;
	if (size > MESSAGE_SIZE_MAX)
		return NET_INVALID_ARGUMENT;
	plugin_begin();
	request = &comm->requests[comm->next % SLOTS];
	posted = &comm->posted[comm->next % SLOTS];
	if (comm->state == COMM_FAILED) {
		rc = comm->failure;
	} else if (request->state == REQUEST_FREE && posted->valid) {
		request->data = data;
		request->size = size;
		request->memory = memory;
		rc = send_posted(comm, request, posted);
		if (request->state != REQUEST_FREE)
			*result = request;
	} else if (!posted->valid && comm->closed_there) {
		rc = NET_REMOTE_ERROR;
	}
	if (rc != NET_SUCCESS)
		comm_fail(comm, rc);
	pthread_mutex_unlock(&plugin.lock);
	return rc;
}
