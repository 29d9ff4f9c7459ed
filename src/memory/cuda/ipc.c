/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of another process's GPU: the IPC handle from its owner, and opening it here. The driver shares whole
 * allocations of cuMemAlloc() by handles that any process of the host may open; vmm_handle.c and pool_share.c share
 * other memory. The memory is opened in the context of the memory with which bytes are exchanged, so that this GPU's
 * copy engines reach both.
 */
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "memory/cuda/ipc_handle.h"

/* Opened allocation, used by all regions of it. */
struct cuda_opening {
	struct pl_list link;
	struct cuda_place *place; /* held by its owners */
	CUipcMemHandle handle;
	uint64_t id;
	CUdeviceptr base;
	unsigned references;
};

/* The driver opens an allocation once for each context; empty again when the regions are gone. */
static struct {
	pthread_mutex_t lock;
	struct pl_list all;
} openings = { PTHREAD_MUTEX_INITIALIZER, { &openings.all, &openings.all } };

uint32_t cuda_ticket_check(const struct cuda_ticket *ticket)
{
	struct cuda_ticket checked = *ticket;

	checked.check = 0;
	return XXH32(&checked, sizeof(checked), 0);
}

/* -- the owner ---------------------------------------------------------------------------------------- */

static bool add_ipc_handle(const struct cuda_place *place, size_t length, struct cuda_ticket *ticket)
{
	const struct cuda_driver *driver = place->driver;
	CUdeviceptr base;
	size_t size;

	if (!driver->cuIpcGetMemHandle || driver->cuMemGetAddressRange(&base, &size, ticket->address) != CUDA_SUCCESS ||
	    pl_outside(ticket->address - base, length, size) ||
	    driver->cuIpcGetMemHandle(&ticket->handle, base) != CUDA_SUCCESS)
		return false;
	ticket->way = CUDA_TICKET_IPC;
	ticket->offset = ticket->address - base;
	ticket->size = size;
	return true;
}

int cuda_export_ipc(struct pl_memory *memory, size_t offset, size_t length, uint8_t bytes[PL_IPC_HANDLE_MAX],
	       struct pl_ipc_fds *parts)
{
	const struct cuda_place *place = cuda_memory_of(memory)->place;
	struct cuda_ticket ticket = { .version = CUDA_TICKET_VERSION, .address = cuda_address(memory, offset) };

	memcpy(ticket.pci, place->name, sizeof(ticket.pci));
	ticket.id = cuda_buffer_id(place->driver, memory->address);
	if (cuda_enter(place) == CUDA_SUCCESS) {
		if (!add_ipc_handle(place, length, &ticket) && parts && !cuda_pool_offer(place, length, &ticket, parts) &&
		    ticket.why == CUDA_WHY_REFUSED)
			cuda_handles_offer(place, length, &ticket, parts);
		cuda_leave(place);
	}
	ticket.check = cuda_ticket_check(&ticket);
	memcpy(bytes, &ticket, sizeof(ticket));
	return sizeof(ticket);
}

/* -- the importer ------------------------------------------------------------------------------------- */

static struct cuda_opening *find_opening(const struct cuda_place *place, const struct cuda_ticket *ticket)
{
	pl_list_for_each(at, &openings.all) {
		struct cuda_opening *opening = pl_list_entry(at, struct cuda_opening, link);

		if (opening->place == place && opening->id == ticket->id &&
		    !memcmp(&opening->handle, &ticket->handle, sizeof(ticket->handle)))
			return opening;
	}
	return NULL;
}

static CUresult open_handle(const struct cuda_place *place, const struct cuda_ticket *ticket, CUdeviceptr *base)
{
	CUresult result = cuda_enter(place);

	if (result != CUDA_SUCCESS)
		return result;
	result = place->driver->cuIpcOpenMemHandle(base, ticket->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	cuda_leave(place);
	return result;
}

static struct cuda_opening *opening_get(struct cuda_place *place, const struct cuda_ticket *ticket)
{
	struct cuda_opening *opening;

	pthread_mutex_lock(&openings.lock);
	opening = find_opening(place, ticket);
	if (!opening) {
		opening = calloc(1, sizeof(*opening));
		if (opening && open_handle(place, ticket, &opening->base) != CUDA_SUCCESS) {
			free(opening);
			opening = NULL;
		}
		if (opening) {
			opening->place = place;
			opening->handle = ticket->handle;
			opening->id = ticket->id;
			pl_list_append(&openings.all, &opening->link);
		}
	}
	if (opening)
		opening->references++;
	pthread_mutex_unlock(&openings.lock);
	return opening;
}

static void opening_put(struct cuda_opening *opening)
{
	pthread_mutex_lock(&openings.lock);
	if (--opening->references == 0) {
		pl_list_remove(&opening->link);
		if (cuda_enter(opening->place) == CUDA_SUCCESS) {
			opening->place->driver->cuIpcCloseMemHandle(opening->base);
			cuda_leave(opening->place);
		}
		free(opening);
	}
	pthread_mutex_unlock(&openings.lock);
}

/* Memory of this process needs no handle. */
static int take_own(const struct cuda_driver *driver, const struct cuda_ticket *ticket, size_t length,
		    const struct pl_memory *beside, struct cuda_memory *own)
{
	const struct cuda_place *place;
	int rc = cuda_pointer_inspect(driver, (void *)(uintptr_t)ticket->address, length, &own->pointer, NULL);

	if (rc == 1)
		rc = cuda_place_get(driver, own->pointer.context, own->pointer.ordinal, &own->place, NULL);
	if (rc < 0)
		return rc;
	if (!own->place)
		return -EFAULT;
	place = beside->ops == &pl_cuda_memory ? cuda_memory_of(beside)->place : own->place;
	/* Without peer access, or if it is not possible, the driver copies through the host. */
	if (place->device != own->place->device && driver->cuCtxEnablePeerAccess && cuda_enter(place) == CUDA_SUCCESS) {
		driver->cuCtxEnablePeerAccess(own->place->context, 0);
		cuda_leave(place);
	}
	return 0;
}

/* Checks the size that the other end claims: copies beyond the end may break the context. */
static bool opened_size_fits(const struct cuda_memory *own, const struct cuda_ticket *ticket, size_t length)
{
	CUdeviceptr base;
	size_t size;
	CUresult result;

	if (cuda_enter(own->place) != CUDA_SUCCESS)
		return false;
	result = own->place->driver->cuMemGetAddressRange(&base, &size, own->opening->base);
	cuda_leave(own->place);
	return result == CUDA_SUCCESS && !pl_outside(own->opening->base - base + ticket->offset, length, size);
}

static int open_ipc(const struct cuda_ticket *ticket, size_t length, struct cuda_memory *own, const char **why)
{
	*why = CUDA_STAGED "the GPU's driver does not let this process open the other's memory";
	if (!own->place->driver->cuIpcOpenMemHandle || !own->place->driver->cuIpcCloseMemHandle)
		return -ENOTSUP;
	own->opening = opening_get(own->place, ticket);
	if (!own->opening)
		return -EACCES;
	own->base = own->opening->base;
	*why = CUDA_STAGED "the other end described more of its GPU memory than there is";
	return opened_size_fits(own, ticket, length) ? 0 : -EPROTO;
}

static int open_parts(const struct cuda_ticket *ticket, struct pl_ipc_fds *parts, struct cuda_memory *own,
		      const char **why)
{
	bool pool = ticket->way == CUDA_TICKET_POOL;
	int rc;

	*why = CUDA_STAGED "the GPU's driver does not let this process open the other's memory";
	if (cuda_enter(own->place) != CUDA_SUCCESS)
		return -EACCES;
	rc = (pool ? cuda_pool_take : cuda_handles_take)(own->place, ticket, parts, &own->base, why);
	cuda_leave(own->place);
	if (rc == 0) {
		own->imported = pool;
		own->mapped = pool ? 0 : ticket->size;
	}
	return rc;
}

static const char *reason_of(enum cuda_ticket_why why)
{
	switch (why) {
	case CUDA_WHY_HANDLES:
		return CUDA_STAGED "the GPU memory's handles were not created to be shared by a descriptor "
				   "(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)";
	case CUDA_WHY_POOL:
		return CUDA_STAGED "the GPU memory's pool was not created to be shared by a descriptor "
				   "(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)";
	case CUDA_WHY_MANY:
		return CUDA_STAGED "the GPU memory is mapped from more handles than can be sent for it";
	default:
		return CUDA_STAGED "the GPU's driver does not share such memory with other processes";
	}
}

static int take_other(const struct cuda_driver *driver, const struct cuda_ticket *ticket, size_t length,
		      const struct pl_memory *beside, struct pl_ipc_fds *parts, struct cuda_memory *own,
		      const char **why)
{
	const struct cuda_place *here = beside->ops == &pl_cuda_memory ? cuda_memory_of(beside)->place : NULL;

	*why = reason_of(ticket->why);
	if (ticket->way == CUDA_TICKET_NONE || ticket->way > CUDA_TICKET_POOL ||
	    pl_outside(ticket->offset, length, ticket->size))
		return -ENOTSUP;
	*why = CUDA_STAGED "this process uses no GPU that could copy";
	if (here)
		cuda_place_get(driver, here->primary ? NULL : here->context, here->ordinal, &own->place, NULL);
	else
		own->place = cuda_place_used(driver, ticket->pci);
	if (!own->place)
		return -ENODEV;
	return ticket->way == CUDA_TICKET_IPC ? open_ipc(ticket, length, own, why)
					      : open_parts(ticket, parts, own, why);
}

/* Closes opened memory; memory of this process was not opened. */
void cuda_close_other(struct cuda_memory *own)
{
	const struct cuda_driver *driver = own->place->driver;

	if (own->opening)
		opening_put(own->opening);
	if ((!own->mapped && !own->imported) || cuda_enter(own->place) != CUDA_SUCCESS)
		return;
	if (own->imported)
		driver->cuMemFree(own->base);
	else
		cuda_handles_leave(driver, own->base, own->mapped);
	cuda_leave(own->place);
}

void cuda_close_ipc_fd(struct pl_ipc_fd *part)
{
	const struct cuda_driver *driver = cuda_driver_loaded();

	if (part->type == CUDA_PART_POOL)
		driver->cuMemPoolDestroy((CUmemoryPool)(uintptr_t)part->handle);
	else
		driver->cuMemRelease(part->handle);
}

static int decode_ipc_handle(const uint8_t *bytes, size_t length, struct cuda_ticket *ticket)
{
	if (length != sizeof(*ticket))
		return -EPROTO;
	memcpy(ticket, bytes, sizeof(*ticket));
	if (ticket->version != CUDA_TICKET_VERSION || ticket->check != cuda_ticket_check(ticket))
		return -EPROTO;
	ticket->pci[sizeof(ticket->pci) - 1] = 0;
	return 0;
}

int cuda_import_ipc(const uint8_t *bytes, size_t ticket_length, size_t length, bool own_process,
	      const struct pl_memory *beside, struct pl_ipc_fds *parts, struct pl_memory *memory, const char **why)
{
	const struct cuda_driver *driver = cuda_driver_loaded();
	struct cuda_memory *own;
	struct cuda_ticket ticket;
	int rc;

	*why = CUDA_STAGED "this process has not loaded the GPU's driver";
	if (!driver || !driver->cuMemcpyDtoDAsync || !driver->cuMemcpyPeerAsync)
		return -ENODEV;
	*why = CUDA_STAGED "the other end's description of its GPU memory is not known here";
	if (decode_ipc_handle(bytes, ticket_length, &ticket) < 0)
		return -EPROTO;
	own = calloc(1, sizeof(*own));
	*why = CUDA_STAGED "there is no memory";
	if (!own)
		return -ENOMEM;
	if (own_process) {
		*why = CUDA_STAGED "the memory is not allocated any more";
		own->base = ticket.address;
		ticket.offset = 0;
		rc = take_own(driver, &ticket, length, beside, own);
	} else {
		rc = take_other(driver, &ticket, length, beside, parts, own, why);
	}
	if (rc < 0) {
		if (own->opening)
			opening_put(own->opening);
		if (own->place)
			cuda_place_put(own->place);
		free(own);
		return rc;
	}
	*memory = (struct pl_memory){
		.ops = &pl_cuda_memory,
		.address = (void *)(uintptr_t)(own->base + ticket.offset),
		.length = length,
		.handle = own,
		.device = own->place,
		.node = own->place->node,
	};
	return 0;
}
