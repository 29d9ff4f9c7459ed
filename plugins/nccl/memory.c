/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of both ends. The receiver shares each registration with its sender at once, so that the import is done when
 * the first message comes.
 */
#include <stdlib.h>
#include <time.h>

#include "state.h"

/* Most regions of one comm. NCCL registers a buffer for each protocol. */
#define REMOTES_MAX 4096

/* -- this end ------------------------------------------------------------------------------------- */

static void memory_free(struct plugin_memory *memory)
{
	/* No operation of this end uses it any more; the call revokes the other end's access before it returns. */
	if (memory->region && pl_region_deregister(memory->region) < 0)
		plugin_warn("memory at %p is still in use", (void *)memory->address);
	pl_list_remove(&memory->link);
	free(memory);
}

/* Tells the other end of a registration. Returns 0 or a negative errno. */
static int memory_share(struct plugin_comm *comm, struct plugin_memory *memory)
{
	struct message message = {
		.type = MESSAGE_REGION,
		.comm = comm->remote_id,
		.index = memory->id,
		.slot = memory->on_gpu,
		.size = memory->length,
	};
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	if (comm->at->self) {
		message.offset = (uint64_t)(uintptr_t)memory->address;
	} else if (pl_region_share(memory->region, NULL, token, &length, &error) < 0) {
		plugin_warn_error("cannot share memory", &error);
		return error.code;
	} else {
		message.payload = token;
		message.length = length;
	}
	link_send(comm->at, &message);
	return 0;
}

/* A peer may read the memory of a GPU, because such a read flushes the writes before it. */
static unsigned memory_access(const struct plugin_comm *comm, const struct plugin_memory *memory)
{
	if (comm->sends)
		return PL_ACCESS_LOCAL;
	return memory->on_gpu ? PL_ACCESS_WRITE | PL_ACCESS_READ : PL_ACCESS_WRITE;
}

static int memory_register(struct plugin_comm *comm, struct plugin_memory *memory, const struct pl_dmabuf *dmabuf,
			   struct pl_error *error)
{
	struct pl_context *context = comm->at->device->context;
	unsigned access = memory_access(comm, memory);

	if (dmabuf)
		return pl_region_register_dmabuf(context, dmabuf, access, &memory->region, error);
	return pl_region_register(context, memory->address, memory->length, access, &memory->region, error);
}

static struct plugin_memory *memory_new(struct plugin_comm *comm, void *data, size_t size, bool on_gpu,
					const struct pl_dmabuf *dmabuf)
{
	struct plugin_memory *memory = calloc(1, sizeof(*memory));
	struct pl_error error;

	if (!memory)
		return NULL;
	memory->address = data;
	memory->length = size;
	memory->on_gpu = on_gpu;
	memory->id = comm->next_memory++;
	if (!comm->at->self && memory_register(comm, memory, dmabuf, &error) < 0) {
		plugin_warn_error("cannot register memory", &error);
		free(memory);
		return NULL;
	}
	pl_list_append(&comm->memory, &memory->link);
	return memory;
}

/* True if the device has proven that it reaches this kind of memory. */
static bool memory_is_reached(const struct plugin_device *device, int type, const struct pl_dmabuf *dmabuf)
{
	if (type != NET_POINTER_HOST && type != NET_POINTER_CUDA)
		return false;
	return device->pointers & type && (!dmabuf || device->pointers & NET_POINTER_DMABUF);
}

/*
 * Registers the memory with the card, or opens the GPU's queues, now, so that no message waits for that. Gives up the
 * lock meanwhile, because the registration of much memory takes long; the peer stays.
 */
static void memory_prepare(struct plugin_comm *comm, struct plugin_memory *memory)
{
	struct plugin_link *link = comm->at;

	if ((!plugin.cards && !memory->on_gpu) || link->state != LINK_UP)
		return;
	link->running++;
	pthread_mutex_unlock(&plugin.lock);
	/* A refusal shows in the first message. */
	pl_region_prepare(link->peer, memory->region, NULL);
	plugin_lock();
	link->running--;
}

/* Returns the bit of the memory's GPU in plugin_remote.opened; memory of the host has one, too. */
static uint64_t memory_opened_bit(const struct plugin_memory *memory)
{
	return 1ull << ((unsigned)(pl_region_gpu(memory->region) + 1) % 64);
}

/* True if a first message from the memory would open the remote, which takes long. */
static bool remote_is_unopened(const struct plugin_remote *remote, const struct plugin_memory *memory)
{
	return remote->on_gpu && remote->remote && !remote->dropped && !memory->ending &&
	       !(remote->opened & memory_opened_bit(memory));
}

/* Ends the use of a remote by a thread that opened it. */
static void remote_end_use(struct plugin_remote *remote)
{
	remote->opening--;
	if (--remote->running == 0 && remote->dropped)
		remote_drop(remote);
}

/*
 * Opens the receiver's GPU memory for the GPU of this memory now, by a write without bytes: else the first message would
 * do that, while NCCL's kernels run. Gives the lock up meanwhile, because a driver may take long, or hang. A failure
 * shows in the first message.
 */
static void remote_open(struct plugin_remote *remote, struct plugin_memory *memory)
{
	struct plugin_link *link = remote->comm->at;

	remote->opened |= memory_opened_bit(memory);
	remote->running++;
	remote->opening++;
	memory->opening++;
	link->running++;
	pthread_mutex_unlock(&plugin.lock);
	link_write_now(link, &(struct pl_transfer){ .remote = remote->remote, .region = memory->region });
	plugin_lock();
	link->running--;
	memory->opening--;
	remote_end_use(remote);
}

static struct plugin_remote *find_unopened_remote(const struct plugin_comm *comm, const struct plugin_memory *memory)
{
	pl_list_for_each(at, &comm->remotes) {
		struct plugin_remote *remote = pl_list_entry(at, struct plugin_remote, link);

		if (remote_is_unopened(remote, memory))
			return remote;
	}
	return NULL;
}

/* Opens the remotes of a comm for new memory. */
static void remotes_open_for(struct plugin_comm *comm, struct plugin_memory *memory)
{
	struct plugin_remote *remote;

	while (comm->at->local && comm->at->state == LINK_UP && (remote = find_unopened_remote(comm, memory)))
		remote_open(remote, memory);
}

/* Returns memory for which the remote is not open. The comm may have ended. */
static struct plugin_memory *find_unopened_memory(const struct plugin_remote *remote)
{
	const struct plugin_comm *comm = remote->comm;

	if (!comm || comm->at->state != LINK_UP)
		return NULL;
	pl_list_for_each(at, &comm->memory) {
		struct plugin_memory *memory = pl_list_entry(at, struct plugin_memory, link);

		if (remote_is_unopened(remote, memory))
			return memory;
	}
	return NULL;
}

void remotes_open(void)
{
	while (!pl_list_empty(&plugin.unopened)) {
		struct plugin_remote *remote = pl_list_first(&plugin.unopened, struct plugin_remote, unopened);
		struct plugin_memory *memory;

		pl_list_remove(&remote->unopened);
		remote->running++;
		while ((memory = find_unopened_memory(remote)))
			remote_open(remote, memory);
		remote_end_use(remote);
	}
}

enum net_result plugin_memory_register(struct plugin_comm *comm, void *data, size_t size, int type,
				       const struct pl_dmabuf *dmabuf, void **result)
{
	struct plugin_memory *memory;

	*result = NULL;
	if (plugin_is_of_parent())
		return NET_INVALID_USAGE;
	if (!data || !size || !memory_is_reached(comm->at->device, type, dmabuf))
		return NET_INVALID_ARGUMENT;
	plugin_lock();
	memory = memory_new(comm, data, size, type == NET_POINTER_CUDA, dmabuf);
	if (memory)
		memory_prepare(comm, memory);
	if (memory && !comm->sends && memory_share(comm, memory) < 0) {
		memory_free(memory);
		memory = NULL;
	}
	if (memory && comm->sends)
		remotes_open_for(comm, memory);
	*result = memory;
	pthread_mutex_unlock(&plugin.lock);
	return memory ? NET_SUCCESS : NET_SYSTEM_ERROR;
}

/* Receives into the memory cannot happen any more. */
static void receives_forget(struct plugin_comm *comm, const struct plugin_memory *memory)
{
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		struct plugin_request *request = &comm->requests[slot];

		if (request->state == REQUEST_RUNNING && request->memory == memory) {
			request->memory = NULL;
			request->data = NULL;
		}
	}
}

/* Copies of this process end before its memory does. Over a connection the fabric revokes the other end's access. */
static void memory_revoke_in_process(struct plugin_comm *comm, const struct plugin_memory *memory)
{
	struct plugin_comm *sender = comm_find(comm->at, comm->remote_id, true);
	struct plugin_remote *remote = sender ? remote_find(sender, memory->id) : NULL;

	if (remote)
		sends_cancel(sender, NULL, remote);
}

/* Waits for threads that open remotes for the memory. Gives the lock up meanwhile. */
static void memory_wait_opened(struct plugin_memory *memory)
{
	memory->ending = true;
	while (memory->opening) {
		pthread_mutex_unlock(&plugin.lock);
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
		plugin_lock();
	}
}

void memory_end(struct plugin_comm *comm, struct plugin_memory *memory)
{
	if (comm->sends) {
		memory_wait_opened(memory);
		sends_cancel(comm, memory, NULL);
	} else {
		receives_forget(comm, memory);
		if (comm->at->self)
			memory_revoke_in_process(comm, memory);
		if (comm->state == COMM_READY)
			link_send(comm->at, &(struct message){ .type = MESSAGE_DROPPED,
							       .comm = comm->remote_id,
							       .index = memory->id });
	}
	memory_free(memory);
}

enum net_result plugin_memory_deregister(struct plugin_comm *comm, struct plugin_memory *memory)
{
	if (!memory || plugin_is_of_parent())
		return NET_SUCCESS;
	plugin_begin_end();
	memory_end(comm, memory);
	pthread_mutex_unlock(&plugin.lock);
	return NET_SUCCESS;
}

/* -- the other end -------------------------------------------------------------------------------- */

struct plugin_remote *remote_find(const struct plugin_comm *comm, uint32_t id)
{
	pl_list_for_each(at, &comm->remotes) {
		struct plugin_remote *remote = pl_list_entry(at, struct plugin_remote, link);

		if (remote->id == id && !remote->dropped)
			return remote;
	}
	return NULL;
}

static void remote_free(struct plugin_remote *remote)
{
	if (remote->comm)
		remote->comm->remote_count--;
	pl_list_remove(&remote->link);
	pl_list_remove(&remote->unopened);
	pl_remote_release(remote->remote);
	free(remote);
}

void remote_add(struct plugin_comm *comm, const struct message *message)
{
	bool known = remote_find(comm, message->index), full = comm->remote_count == REMOTES_MAX;
	struct plugin_remote *remote = known || full ? NULL : calloc(1, sizeof(*remote));
	struct pl_error error;

	if (!remote) {
		if (full)
			plugin_warn("a connection fails: its receiver has registered more than %d buffers for it",
				    REMOTES_MAX);
		else
			plugin_warn("a connection fails: %s",
				    known ? "its receiver registered a buffer twice" : "no memory");
		comm_fail(comm, NET_INTERNAL_ERROR);
		return;
	}
	remote->comm = comm;
	remote->id = message->index;
	remote->length = message->size;
	remote->on_gpu = message->slot;
	pl_list_init(&remote->unopened);
	pl_list_append(&comm->remotes, &remote->link);
	comm->remote_count++;
	if (comm->at->self) {
		remote->address = (uint8_t *)(uintptr_t)message->offset;
		return;
	}
	if (pl_remote_import_start(comm->at->peer, message->payload, message->length, user_data(remote, USER_REMOTE),
				   NULL, &error) == 0) {
		plugin.imports++;
		return;
	}
	plugin_warn_error("cannot use the receiver's memory", &error);
	comm_fail(comm, NET_REMOTE_ERROR);
	remote_free(remote);
}

void remote_imported(struct plugin_remote *remote, const struct pl_completion *completion)
{
	plugin.imports--;
	if (completion->status == 0 && remote->comm && remote->comm->at->peer)
		link_log_events(remote->comm->at);
	if (completion->status == 0) {
		remote->remote = completion->remote;
		remote->length = pl_remote_length(remote->remote);
		if (remote->dropped || !remote->comm) {
			remote_free(remote);
			return;
		}
		if (remote->comm->at->local && remote->on_gpu) {
			pl_list_append(&plugin.unopened, &remote->unopened);
			remote->opening++;
		}
		return;
	}
	if (!remote->comm || remote->dropped || remote->comm->state == COMM_FAILED) {
		remote_free(remote);
		return;
	}
	/* The receiver may have deregistered the memory already, and its message about that comes later. */
	pl_completion_error(remote->comm->at->device->context, completion, &remote->failure);
	plugin_info("cannot import the receiver's memory: %s", remote->failure.message);
}

void remote_drop(struct plugin_remote *remote)
{
	remote->dropped = true;
	/* Imports and requests free it at their end. */
	if (!remote->running && (remote->remote || remote->address || remote->failure.code))
		remote_free(remote);
}
