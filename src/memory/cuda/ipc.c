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
	struct cuda_gpu *gpu; /* held by its owners */
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

uint32_t cuda_ipc_handle_check(const struct cuda_ipc_handle *ipc)
{
	struct cuda_ipc_handle checked = *ipc;

	checked.check = 0;
	return XXH32(&checked, sizeof(checked), 0);
}

/* -- the owner ---------------------------------------------------------------------------------------- */

static bool add_ipc_handle(const struct cuda_gpu *gpu, size_t length, struct cuda_ipc_handle *ipc)
{
	const struct cuda_driver *driver = gpu->driver;
	CUdeviceptr base;
	size_t size;

	if (!driver->cuIpcGetMemHandle || driver->cuMemGetAddressRange(&base, &size, ipc->address) != CUDA_SUCCESS ||
	    pl_outside(ipc->address - base, length, size) ||
	    driver->cuIpcGetMemHandle(&ipc->handle, base) != CUDA_SUCCESS)
		return false;
	ipc->method = CUDA_IPC_MEM;
	ipc->offset = ipc->address - base;
	ipc->size = size;
	return true;
}

int cuda_export_ipc(struct pl_memory *memory, size_t offset, size_t length, uint8_t bytes[PL_IPC_HANDLE_MAX],
		    struct pl_ipc_fds *fds)
{
	const struct cuda_gpu *gpu = cuda_memory_of(memory)->gpu;
	struct cuda_ipc_handle ipc = { .version = CUDA_IPC_VERSION, .address = cuda_address(memory, offset) };
	int mode;

	memcpy(ipc.pci, gpu->name, sizeof(ipc.pci));
	ipc.id = cuda_buffer_id(gpu->driver, memory->address);
	if (cuda_enter(gpu, &mode) == CUDA_SUCCESS) {
		if (!add_ipc_handle(gpu, length, &ipc) && fds && !cuda_pool_export(gpu, length, &ipc, fds) &&
		    ipc.why == CUDA_WHY_REFUSED)
			cuda_handles_export(gpu, length, &ipc, fds);
		cuda_leave(gpu, mode);
	}
	ipc.check = cuda_ipc_handle_check(&ipc);
	memcpy(bytes, &ipc, sizeof(ipc));
	return sizeof(ipc);
}

/* -- the importer ------------------------------------------------------------------------------------- */

static struct cuda_opening *find_opening(const struct cuda_gpu *gpu, const struct cuda_ipc_handle *ipc)
{
	pl_list_for_each(at, &openings.all) {
		struct cuda_opening *opening = pl_list_entry(at, struct cuda_opening, link);

		if (opening->gpu == gpu && opening->id == ipc->id &&
		    !memcmp(&opening->handle, &ipc->handle, sizeof(ipc->handle)))
			return opening;
	}
	return NULL;
}

static CUresult open_handle(const struct cuda_gpu *gpu, const struct cuda_ipc_handle *ipc, CUdeviceptr *base)
{
	int mode;
	CUresult result = cuda_enter(gpu, &mode);

	if (result != CUDA_SUCCESS)
		return result;
	result = gpu->driver->cuIpcOpenMemHandle(base, ipc->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	cuda_leave(gpu, mode);
	return result;
}

static struct cuda_opening *opening_get(struct cuda_gpu *gpu, const struct cuda_ipc_handle *ipc)
{
	struct cuda_opening *opening;

	pthread_mutex_lock(&openings.lock);
	opening = find_opening(gpu, ipc);
	if (!opening) {
		opening = calloc(1, sizeof(*opening));
		if (opening && open_handle(gpu, ipc, &opening->base) != CUDA_SUCCESS) {
			free(opening);
			opening = NULL;
		}
		if (opening) {
			opening->gpu = gpu;
			opening->handle = ipc->handle;
			opening->id = ipc->id;
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
	int mode;

	pthread_mutex_lock(&openings.lock);
	if (--opening->references == 0) {
		pl_list_remove(&opening->link);
		if (cuda_enter(opening->gpu, &mode) == CUDA_SUCCESS) {
			opening->gpu->driver->cuIpcCloseMemHandle(opening->base);
			cuda_leave(opening->gpu, mode);
		}
		free(opening);
	}
	pthread_mutex_unlock(&openings.lock);
}

/*
 * Checks the size that the other end claims: copies beyond the end may break the context. The driver of a real GPU was never asked for
 * the size of another process's pool memory: `unknown` if it tells none.
 */
static bool opened_size_fits(const struct cuda_memory *own, const struct cuda_ipc_handle *ipc, size_t length,
			     bool unknown)
{
	CUdeviceptr base;
	size_t size;
	CUresult result;
	int mode;

	if (cuda_enter(own->gpu, &mode) != CUDA_SUCCESS)
		return false;
	result = own->gpu->driver->cuMemGetAddressRange(&base, &size, own->base);
	cuda_leave(own->gpu, mode);
	return result == CUDA_SUCCESS ? !pl_outside(own->base - base + ipc->offset, length, size) : unknown;
}

static int open_ipc(const struct cuda_ipc_handle *ipc, size_t length, struct cuda_memory *own, const char **why)
{
	*why = CUDA_STAGED "the GPU's driver does not let this process open the other's memory";
	if (!own->gpu->driver->cuIpcOpenMemHandle || !own->gpu->driver->cuIpcCloseMemHandle)
		return -ENOTSUP;
	own->opening = opening_get(own->gpu, ipc);
	if (!own->opening)
		return -EACCES;
	own->base = own->opening->base;
	*why = CUDA_STAGED "the other end described more of its GPU memory than there is";
	return opened_size_fits(own, ipc, length, false) ? 0 : -EPROTO;
}

static int open_parts(const struct cuda_ipc_handle *ipc, size_t length, struct pl_ipc_fds *fds, struct cuda_memory *own,
		      const char **why)
{
	bool pool = ipc->method == CUDA_IPC_POOL;
	int rc;
	int mode;

	*why = CUDA_STAGED "the GPU's driver does not let this process open the other's memory";
	if (cuda_enter(own->gpu, &mode) != CUDA_SUCCESS)
		return -EACCES;
	rc = (pool ? cuda_pool_import : cuda_handles_import)(own->gpu, ipc, fds, &own->base, why);
	cuda_leave(own->gpu, mode);
	if (rc < 0)
		return rc;
	own->imported = pool;
	own->mapped = pool ? 0 : ipc->size;
	*why = CUDA_STAGED "the other end described more of its GPU memory than there is";
	return !pool || opened_size_fits(own, ipc, length, true) ? 0 : -EPROTO;
}

static const char *reason_of(enum cuda_ipc_handle_why why)
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

static int take_other(const struct cuda_driver *driver, const struct cuda_ipc_handle *ipc, size_t length,
		      const struct pl_memory *beside, struct pl_ipc_fds *fds, struct cuda_memory *own, const char **why)
{
	struct cuda_gpu *here = beside->ops == &pl_cuda_memory ? cuda_memory_of(beside)->gpu : NULL;

	*why = reason_of(ipc->why);
	if (ipc->method == CUDA_IPC_NONE || ipc->method > CUDA_IPC_POOL || pl_outside(ipc->offset, length, ipc->size))
		return -ENOTSUP;
	*why = CUDA_STAGED "this process uses no GPU that could copy";
	if (here)
		cuda_gpu_hold(here);
	own->gpu = here ? here : cuda_gpu_used(driver, ipc->pci);
	if (!own->gpu)
		return -ENODEV;
	own->beside = own->gpu;
	return ipc->method == CUDA_IPC_MEM ? open_ipc(ipc, length, own, why) : open_parts(ipc, length, fds, own, why);
}

/* Closes opened memory; memory of this process was not opened. */
void cuda_close_other(struct cuda_memory *own)
{
	const struct cuda_driver *driver = own->gpu->driver;
	int mode;

	if (own->opening)
		opening_put(own->opening);
	if ((!own->mapped && !own->imported) || cuda_enter(own->gpu, &mode) != CUDA_SUCCESS)
		return;
	if (own->imported)
		driver->cuMemFree(own->base);
	else
		cuda_handles_leave(driver, own->base, own->mapped);
	cuda_leave(own->gpu, mode);
}

void cuda_close_ipc_fd(struct pl_ipc_fd *part)
{
	const struct cuda_driver *driver = cuda_driver_loaded();
	int mode = cuda_relax(driver);

	if (part->type == CUDA_FD_POOL)
		driver->cuMemPoolDestroy((CUmemoryPool)(uintptr_t)part->handle);
	else
		driver->cuMemRelease(part->handle);
	cuda_unrelax(driver, mode);
}

static int decode_ipc_handle(const uint8_t *bytes, size_t length, struct cuda_ipc_handle *ipc)
{
	if (length != sizeof(*ipc))
		return -EPROTO;
	memcpy(ipc, bytes, sizeof(*ipc));
	if (ipc->version != CUDA_IPC_VERSION || ipc->check != cuda_ipc_handle_check(ipc))
		return -EPROTO;
	ipc->pci[sizeof(ipc->pci) - 1] = 0;
	return 0;
}

int cuda_import_ipc(const uint8_t *bytes, size_t handle_length, size_t length, bool own_process,
		    const struct pl_memory *beside, struct pl_ipc_fds *fds, struct pl_memory *memory, const char **why)
{
	const struct cuda_driver *driver = cuda_driver_loaded();
	struct cuda_memory *own;
	struct cuda_ipc_handle ipc;
	int rc;

	*why = CUDA_STAGED "this process has not loaded the GPU's driver";
	if (!driver || !driver->cuMemcpyDtoDAsync || !driver->cuMemcpyPeerAsync)
		return -ENODEV;
	*why = CUDA_STAGED "the other end's description of its GPU memory is not known here";
	if (decode_ipc_handle(bytes, handle_length, &ipc) < 0)
		return -EPROTO;
	own = calloc(1, sizeof(*own));
	*why = CUDA_STAGED "there is no memory";
	if (!own)
		return -ENOMEM;
	if (own_process) {
		rc = cuda_take_own(driver, &ipc, length, beside, own, why);
	} else {
		rc = take_other(driver, &ipc, length, beside, fds, own, why);
		if (rc == 0)
			*why = NULL;
	}
	if (rc < 0) {
		if (own->gpu) {
			cuda_close_other(own);
			cuda_gpu_put(own->gpu);
		}
		free(own);
		return rc;
	}
	*memory = (struct pl_memory){
		.ops = &pl_cuda_memory,
		.address = (void *)(uintptr_t)(own->base + ipc.offset),
		.length = length,
		.handle = own,
		.device = own->gpu->number,
		.node = own->gpu->node,
	};
	return 0;
}
