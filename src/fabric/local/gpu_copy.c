/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory. The peer's memory is opened on first use, once for each GPU of this process that copies from or to it.
 * The posting thread copies small operations and waits. The home engine copies large ones in chunks, of which the GPU
 * always has a second one queued, and polls their end. The driver copies host memory that is not locked while the engine waits,
 * so its chunks are small, and have turns.
 */
#include <unistd.h>

#include "fabric/local/local.h"

/*
 * Chunk sizes in bytes, from GPU to GPU (ACROSS), and to or from the host. Chunks limit the time that a gate is held,
 * and the end of a cancelled operation. Large chunks cost less: two copies over NVLink are 2.6 us apart, even if both
 * are queued, in which the GPU would copy 1 MB.
 */
#define CHUNK_ACROSS_MAX (256u << 20)
#define CHUNK_ACROSS_MIN (64u << 20)
#define CHUNKS_ACROSS 4u
#define CHUNK_HOST (4u << 20)
/* Most devices, earlier ones included, for which the peer's memory is opened: the program may end and begin the use of a GPU often. */
#define OPENED_MAX 64u

/* Peer's memory, opened for copies from and to one device, or the processor, of this process. */
struct opened_memory {
	struct opened_memory *next;
	uint64_t from; /* device of this process's memory; 0: the processor */
	bool reached;
	struct pl_memory memory; /* opened memory, until the device is shut; used with the gate held */
	const char *reason;
};

struct local_device {
	const struct pl_allocator *allocator;
	struct local_state *state;
	const struct local_endpoint *endpoint; /* may be gone */
	bool same_process;                     /* the memory belongs to this process */
	uint64_t length;
	uint32_t ipc_handle_length;
	uint8_t ipc_handle[PL_IPC_HANDLE_MAX];
	/* Copying threads count themselves here too, because the other end controls the gate. */
	atomic_uint users;
	atomic_bool shut;        /* no new users */
	pthread_mutex_t opening; /* held while the driver opens memory, which may take long; protects opened_count */
	unsigned opened_count;
	pthread_mutex_t lock;    /* protects the members below, except reads of `opened` by users and openers */
	struct pl_ipc_fds *ipc_fds;
	struct opened_memory *_Atomic opened;
};

#define STAGED "local: through host memory and a socket, as "

static const char reason_across[] = "local: the GPU copies from one process's memory to the other's";
static const char reason_host[] =
	"local: a GPU copies between the host memory of one process and the other's GPU memory";
static const char reason_unlocked[] =
	"local: a GPU copies between the host memory of one process and the other's GPU memory, slowly, as locking the "
	"host memory would exceed the limit, see staging_bytes of pl_open";
static const char reason_refused[] = "local: a GPU copies between the host memory of one process and the other's GPU "
				     "memory, slowly, as the driver could "
				     "not lock the host memory, see ulimit -l";
static const char reason_file[] = STAGED "a file backs the host memory that the GPU's bytes come from or go to";
static const char reason_memory[] = STAGED "this process has no room to open the peer's memory for another GPU";
static const char reason_process[] =
	STAGED "the GPU does not reach the other process's host memory: the library did not allocate it, or not all of "
	       "it was granted";

/* -- the peer's memory -------------------------------------------------------------------------------- */

struct local_device *local_device_new(struct local_endpoint *endpoint, const struct local_key *key,
				      struct pl_ipc_fds *ipc_fds, uint64_t length)
{
	const struct pl_allocator *allocator = &endpoint->state->context->allocator;
	struct local_device *device = pl_zalloc(allocator, sizeof(*device));

	if (!device) {
		pl_ipc_fds_free(allocator, ipc_fds);
		return NULL;
	}
	device->allocator = allocator;
	device->ipc_fds = ipc_fds;
	device->state = endpoint->state;
	device->endpoint = endpoint;
	device->same_process = endpoint->process == getpid();
	device->length = length;
	device->ipc_handle_length = key->ipc_handle_length;
	memcpy(device->ipc_handle, key->ipc_handle, key->ipc_handle_length);
	pthread_mutex_init(&device->opening, NULL);
	pthread_mutex_init(&device->lock, NULL);
	return device;
}

void local_device_free(struct local_device *device)
{
	struct opened_memory *opened, *next;

	if (!device)
		return;
	for (opened = atomic_load(&device->opened); opened; opened = next) {
		next = opened->next;
		pl_memory_release(&opened->memory);
		pl_free(device->allocator, opened);
	}
	pl_ipc_fds_free(device->allocator, device->ipc_fds);
	pthread_mutex_destroy(&device->lock);
	pthread_mutex_destroy(&device->opening);
	pl_free(device->allocator, device);
}

/* Closes the memory of a shut device that has no users. */
static void device_close_memory(struct local_device *device)
{
	pthread_mutex_lock(&device->lock);
	if (atomic_load(&device->shut) && atomic_load(&device->users) == 0) {
		for (struct opened_memory *opened = atomic_load(&device->opened); opened; opened = opened->next)
			pl_memory_release(&opened->memory);
		if (device->ipc_fds)
			pl_ipc_fds_close(device->ipc_fds);
	}
	pthread_mutex_unlock(&device->lock);
}

void local_device_shut(struct local_device *device)
{
	atomic_store(&device->shut, true);
	device_close_memory(device);
}

/* The last user of a device that was shut meanwhile closes the memory. */
static void device_use_end(struct local_device *device)
{
	if (atomic_fetch_sub(&device->users, 1) == 1 && atomic_load(&device->shut))
		device_close_memory(device);
}

/* Starts a use that ends with device_use_end(). Returns false if the device is shut. */
static bool device_use_begin(struct local_device *device)
{
	atomic_fetch_add(&device->users, 1);
	if (!atomic_load(&device->shut))
		return true;
	device_use_end(device);
	return false;
}

/* Takes the lock: chunks of operations end on several engines, possibly after the endpoint was closed. */
void local_device_park(struct local_device *device)
{
	struct local_state *state = device->state;
	struct local_device *replaced;
	unsigned index;

	/* Memory of this process is mapped a second time, or not opened at all: it would stay allocated for nothing. */
	if (device->ipc_fds || device->same_process) {
		local_device_free(device);
		return;
	}
	pthread_mutex_lock(&state->lock);
	index = state->parked_next++ % LOCAL_PARKED;
	replaced = state->parked[index];
	state->parked[index] = device;
	pthread_mutex_unlock(&state->lock);
	local_device_free(replaced);
}

void local_device_unpark(struct local_state *state, const struct local_endpoint *endpoint)
{
	for (unsigned i = 0; i < LOCAL_PARKED; i++) {
		struct local_device *device;

		pthread_mutex_lock(&state->lock);
		device = state->parked[i];
		if (device && endpoint && device->endpoint != endpoint)
			device = NULL;
		if (device)
			state->parked[i] = NULL;
		pthread_mutex_unlock(&state->lock);
		local_device_free(device);
	}
}

static struct opened_memory *find_opened_memory(const struct local_device *device, uint64_t from)
{
	struct opened_memory *opened = atomic_load_explicit(&device->opened, memory_order_acquire);

	while (opened && opened->from != from)
		opened = opened->next;
	return opened;
}

static struct opened_memory *opened_memory_new(struct local_device *device, const struct pl_memory *beside,
					       uint64_t from)
{
	struct opened_memory *opened = pl_zalloc(device->allocator, sizeof(*opened));
	const char *why = NULL;

	if (!opened)
		return NULL;
	opened->from = from;
	opened->reason = from ? reason_across : reason_host;
	/* A shut device counts as reached: the operation then fails at its shut gate, and needs no memory. */
	if (!device_use_begin(device)) {
		opened->reached = true;
		return opened;
	}
	opened->reached =
		pl_memory_import_ipc(device->ipc_handle, device->ipc_handle_length, device->length,
				     device->same_process, beside, device->ipc_fds, &opened->memory, &why) == 0;
	if (!opened->reached)
		opened->memory.ops = NULL;
	if (why)
		opened->reason = why;
	device_use_end(device);
	return opened;
}

/* Opens the memory as a user, without `lock`: local_device_shut() does not wait for the driver. */
static struct opened_memory *device_open_memory(struct local_device *device, const struct pl_memory *beside,
						uint64_t from)
{
	struct opened_memory *opened = opened_memory_new(device, beside, from);

	if (!opened)
		return NULL;
	pthread_mutex_lock(&device->lock);
	device->opened_count++;
	opened->next = atomic_load(&device->opened);
	atomic_store_explicit(&device->opened, opened, memory_order_release);
	pthread_mutex_unlock(&device->lock);
	device_close_memory(device);
	return opened;
}

/* Returns the memory opened for copies from and to the device of `beside`; opens it on first use. NULL: no room. */
static struct opened_memory *open_memory_for(struct local_device *device, const struct pl_memory *beside)
{
	uint64_t from = pl_memory_staged(beside) ? beside->device : 0;
	struct opened_memory *opened = find_opened_memory(device, from);

	if (opened)
		return opened;
	pthread_mutex_lock(&device->opening);
	opened = find_opened_memory(device, from);
	if (!opened && device->opened_count < OPENED_MAX)
		opened = device_open_memory(device, beside, from);
	pthread_mutex_unlock(&device->opening);
	return opened;
}

struct pl_memory *local_device_memory(struct local_device *device, const struct pl_memory *beside)
{
	return &open_memory_for(device, beside)->memory;
}

bool local_device_kernel_reaches(struct local_device *device, const struct pl_memory *beside, bool written)
{
	const struct pl_memory *there = local_device_memory(device, beside);
	bool staged = pl_memory_staged(beside), reaches;
	const struct pl_memory *gpu = staged ? beside : there, *other = staged ? there : beside;

	/* The operation fails at the gate. */
	if (!device_use_begin(device))
		return false;
	reaches = there->ops && gpu->ops->gather_reaches && gpu->ops->gather_reaches(gpu, other, written && !staged);
	device_use_end(device);
	return reaches;
}

static const char *device_reason_for(const struct local_access *access, const struct pl_memory *memory, bool *reached)
{
	const struct opened_memory *opened;

	/* Fragile memory needs the socket: an access by the driver could raise a signal. */
	if (memory->fragile)
		return reason_file;
	opened = open_memory_for(access->device, memory);
	*reached = opened && opened->reached;
	return opened ? opened->reason : reason_memory;
}

bool local_device_reaches(const struct local_access *access, struct pl_memory *memory, const char **reason)
{
	bool reached = false;

	if (access->path == &local_device_path) {
		*reason = device_reason_for(access, memory, &reached);
	} else if (access->path == &local_mapped_path) {
		*reason = local_host_pin_limited(access->pin)   ? reason_unlocked
			  : local_host_pin_refused(access->pin) ? reason_refused
								: reason_host;
		reached = true;
	} else {
		*reason = reason_process;
	}
	return reached;
}

/* -- small operations: synchronous -------------------------------------------------------------------- */

static int device_copy_range(struct opened_memory *opened, const struct local_range *range)
{
	void *host = pl_memory_host_pointer(range->memory, range->offset);

	if (host)
		return range->write ? pl_memory_copy_in(&opened->memory, range->remote_offset, host, range->length)
				    : pl_memory_copy_out(&opened->memory, range->remote_offset, host, range->length);
	if (range->write)
		return pl_memory_copy_across(&opened->memory, range->remote_offset, range->memory, range->offset,
					     range->length);
	return pl_memory_copy_across(range->memory, range->offset, &opened->memory, range->remote_offset,
				     range->length);
}

static int copy_by_device(const struct local_access *access, const struct local_range *range)
{
	struct opened_memory *opened = open_memory_for(access->device, range->memory);
	int rc;

	if (!opened || !opened->reached)
		return -ENOTSUP;
	if (!device_use_begin(access->device))
		return -EFAULT;
	rc = device_copy_range(opened, range);
	device_use_end(access->device);
	return rc;
}

const struct local_path local_device_path = {
	.reason = reason_across,
	.copy = copy_by_device,
};

/* -- large operations: in chunks ---------------------------------------------------------------------- */

static struct local_work *gpu_work_of(struct pl_operation *operation)
{
	return (struct local_work *)operation->fabric;
}

static void gpu_operation_advance(struct pl_operation *operation);

int local_copy_gate_hold(const struct local_access *access, const struct pl_operation *operation,
			 struct pl_error *error)
{
	int rc = local_access_hold_gate(access, error);

	if (rc < 0 || (access->device ? device_use_begin(access->device) : local_host_pin_hold(access->pin)))
		return rc;
	local_gate_release(access->gate);
	return local_copy_fail(error, -EFAULT, operation->completion.kind == PL_KIND_WRITE);
}

void local_copy_gate_release(const struct local_access *access)
{
	if (access->device)
		device_use_end(access->device);
	else
		local_host_pin_put(access->pin);
	local_gate_release(access->gate);
}

static void gpu_chunk_copied(struct pl_copy *base, int status)
{
	struct local_gpu_copy *copy = pl_container_of(base, struct local_gpu_copy, copy);
	struct pl_operation *operation = copy->operation;
	struct local_work *work = gpu_work_of(operation);
	struct pl_error error;

	local_copy_gate_release(copy->access);
	copy->access = NULL;
	work->running--;
	if (status < 0) {
		local_copy_fail(&error, status, operation->completion.kind == PL_KIND_WRITE);
		pl_operation_fail(operation, status, &error);
	}
	if (!work->starting)
		gpu_operation_advance(operation);
}

/* True for host memory that the driver copies while the caller waits. The gate is held. */
static bool gpu_copy_blocks(const struct pl_segment *segment, uint64_t at)
{
	const struct local_access *access = segment->remote->fabric_data;
	const struct pl_memory *memory = &segment->region->memory, *remote;

	if (!access->device)
		return !local_host_pin_is_locked(access->pin);
	if (pl_memory_staged(memory))
		return false;
	remote = local_device_memory(access->device, memory);
	return !remote->ops || !remote->ops->host_is_locked ||
	       !remote->ops->host_is_locked(remote, pl_memory_host_pointer(memory, segment->offset + at),
					    PL_MIN(segment->length - at, (uint64_t)CHUNK_HOST));
}

static void start_gpu_copy(struct pl_copier *copier, struct local_gpu_copy *copy, const struct pl_chunk *chunk)
{
	uint64_t length = chunk->length;
	bool write = copy->operation->completion.kind == PL_KIND_WRITE;
	const struct local_access *access = copy->access;
	struct pl_memory *memory = &chunk->segment->region->memory;
	uint64_t here = chunk->segment->offset + chunk->at, there = chunk->segment->remote_offset + chunk->at;
	struct pl_memory *remote = access->device ? local_device_memory(access->device, memory) : NULL;

	if (!remote) {
		pl_copier_host(copier, &copy->copy, memory, here, access->base + there, length, !write);
	} else if (!pl_memory_staged(memory)) {
		pl_copier_host(copier, &copy->copy, remote, there, pl_memory_host_pointer(memory, here), length, write);
	} else if (write) {
		pl_copier_across(copier, &copy->copy,
				 &(struct pl_across){ remote, memory, there, here, length, false });
	} else {
		pl_copier_across(copier, &copy->copy, &(struct pl_across){ memory, remote, here, there, length, true });
	}
}

/* Returns false if the chunk waits for a turn. */
static bool start_gpu_chunk(struct pl_operation *operation, struct local_gpu_copy *copy)
{
	struct local_work *work = gpu_work_of(operation);
	struct pl_copier *copier = pl_context_copier(operation->context, operation->home);
	const struct pl_segment *segment = &operation->segments[work->item.segment];
	struct local_access *access = segment->remote->fabric_data;
	uint64_t most = CHUNK_HOST, left = segment->length - work->item.done;
	struct pl_chunk chunk;
	struct pl_error error;
	int rc = copier || !left ? 0 : pl_fail_memory(&error, "transfer");

	if (rc == 0 && left)
		rc = local_copy_gate_hold(access, operation, &error);
	if (rc < 0) {
		pl_operation_fail(operation, rc, &error);
		return true;
	}
	if (left && gpu_copy_blocks(segment, work->item.done)) {
		most = PL_BLOCKING_MAX;
		if (!pl_copier_may_block(copier, &work->turn, PL_MIN(left, most))) {
			local_copy_gate_release(access);
			return false;
		}
	} else if (access->device && pl_memory_staged(&segment->region->memory)) {
		most = PL_MIN(PL_MAX(operation->total / CHUNKS_ACROSS, (uint64_t)CHUNK_ACROSS_MIN),
			      (uint64_t)CHUNK_ACROSS_MAX);
	}
	pl_work_item_take_chunk(operation, most, &chunk);
	if (!left)
		return true;
	copy->operation = operation;
	copy->access = access;
	copy->copy.done = gpu_chunk_copied;
	work->running++;
	start_gpu_copy(copier, copy, &chunk);
	/* A copy that ended at once has released the gate. */
	if (copy->access)
		local_note_copy(copy->access, chunk.segment->region, chunk.length);
	return true;
}

static bool gpu_chunks_remain(struct pl_operation *operation)
{
	return gpu_work_of(operation)->item.segment < operation->segment_count && !atomic_load(&operation->status) &&
	       !atomic_load(&operation->canceled);
}

static void gpu_operation_advance(struct pl_operation *operation)
{
	struct local_work *work = gpu_work_of(operation);

	/* Prevents recursion: a copy that ends at once must not start the next one. */
	work->starting = true;
	for (unsigned i = 0; i < LOCAL_COPIES_QUEUED; i++)
		while (!work->copies[i].access && gpu_chunks_remain(operation))
			if (!start_gpu_chunk(operation, &work->copies[i]))
				break;
	work->starting = false;
	if (!work->running && pl_list_empty(&work->turn.link))
		pl_operation_pending_done(operation);
}

static bool gpu_operation_has_turn(struct pl_watch *turn)
{
	struct local_work *work = pl_container_of(turn, struct local_work, turn);

	gpu_operation_advance(pl_work_item_operation(&work->item.link));
	return true;
}

void local_device_post(struct pl_operation *operation, struct local_position from)
{
	struct local_work *work = gpu_work_of(operation);

	*work = (struct local_work){ .item = { .segment = from.segment, .done = from.done } };
	pl_list_init(&work->item.link);
	pl_watch_init(&work->turn, gpu_operation_has_turn);
	gpu_operation_advance(operation);
}
