/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Vectors between GPUs, and between a GPU and locked host memory of the other process: a kernel, or several, copy all segments
 * (memory/cuda/gather.c). What a withdrawn kernel had is done by copies, as is the rest of its operation.
 */
#include "fabric/local/gpu_gather.h"

/* Fewest segments, and largest mean segment in bytes, for which a kernel is faster than a copy for each segment. */
#define SEGMENTS_MIN 4u
#define SEGMENT_MEAN (1u << 20)
/*
 * The same if host memory takes part. The bus limits the rate, and a copy engine reaches it with shorter segments. A thread may see
 * the end of a kernel later than that of a few copies. A kernel gets fewer bytes at a time, because gates are held meanwhile.
 */
#define HOST_SEGMENTS_MIN 8u
#define HOST_SEGMENT_MEAN (512u << 10)
#define HOST_RUN_BYTES (256u << 20)
/* Pieces into which segments are cut, so that each block gets several of them. */
#define PIECE_MIN 4096u
#define PIECE_MAX 65536u
#define PIECES_EACH 4u
/* Most pieces in one gather. */
#define PIECES_MAX 32768u
/* Fewest pieces of a first run that is shorter than the rest. */
#define FIRST_MIN 256u

static const char reason_gather[] = "local: a kernel of the GPU copies from one process's memory to the other's";

static struct local_gathering *gathering_of(struct pl_operation *operation)
{
	return (struct local_gathering *)operation->fabric;
}

/* -- whether a kernel can do it ------------------------------------------------------------------------ */

struct local_ends local_ends_of(const struct pl_region *region, const struct pl_remote *remote)
{
	const struct local_access *access = remote->fabric_data;
	const struct pl_memory *memory = &region->memory, *opened;
	bool staged = pl_memory_staged(memory);

	if (!access->device)
		return (struct local_ends){ memory, (uintptr_t)memory->address, (uintptr_t)access->base, true };
	opened = local_device_memory(access->device, memory);
	return (struct local_ends){ staged ? memory : opened, (uintptr_t)memory->address, (uintptr_t)opened->address,
				    !staged };
}

bool local_kernel_reaches(const struct pl_region *region, const struct pl_remote *remote, enum pl_kind kind)
{
	const struct local_access *access = remote->fabric_data;
	const struct pl_memory *memory = &region->memory;
	const struct pl_memory mapping = { .ops = &pl_host_memory, .address = access->base, .length = access->mapped };

	if (access->path == &local_device_path)
		return local_device_kernel_reaches(access->device, memory, kind == PL_KIND_READ);
	/* The library locked a mapping to which operations may write for writes: see host_pin.c. */
	return access->path == &local_mapped_path && memory->ops->gather_reaches &&
	       local_host_pin_is_locked(access->pin) && memory->ops->gather_reaches(memory, &mapping, false);
}

/* True if a kernel suits all segments. Sets whether host memory takes part. */
static bool suits(const struct pl_operation *operation, bool *host)
{
	const struct pl_segment *segments = operation->segments;
	uint64_t mean = operation->total / PL_MAX(operation->segment_count, 1u);
	uint64_t device = 0;

	*host = false;
	if (operation->segment_count < SEGMENTS_MIN ||
	    operation->context->options.gpu_multiprocessors == PL_NO_GPU_KERNEL || mean > SEGMENT_MEAN ||
	    !segments[0].region)
		return false;
	for (unsigned i = 0; i < operation->segment_count; i = local_next_memory(operation, i)) {
		struct local_ends ends;

		if (!local_kernel_reaches(segments[i].region, segments[i].remote, operation->completion.kind))
			return false;
		ends = local_ends_of(segments[i].region, segments[i].remote);
		if (i == 0)
			device = ends.gpu->device;
		if (ends.gpu->device != device)
			return false;
		*host |= ends.host;
	}
	return !*host || (operation->segment_count >= HOST_SEGMENTS_MIN && mean <= HOST_SEGMENT_MEAN);
}

/* Multiprocessors that the operation's kernels use at most. */
static unsigned multiprocessors_of(const struct pl_operation *operation)
{
	unsigned most = operation->context->options.gpu_multiprocessors;

	return local_gathering_of(operation)->host ? PL_MIN(most, LOCAL_HOST_MULTIPROCESSORS) : most;
}

/* -- one gather ---------------------------------------------------------------------------------------- */

int local_kernel_gate_hold(const struct local_access *access, const struct pl_operation *operation,
			   struct pl_error *error)
{
	int rc = local_copy_gate_hold(access, operation, error);

	if (rc < 0 || access->device || local_host_pin_is_locked(access->pin))
		return rc;
	local_copy_gate_release(access);
	return local_copy_fail(error, -EFAULT, operation->completion.kind == PL_KIND_WRITE);
}

unsigned local_gather_hold_gates(const struct pl_operation *operation, unsigned begin, unsigned end, bool hold,
				 struct pl_error *error)
{
	for (unsigned i = begin; i < end; i = local_next_memory(operation, i)) {
		const struct local_access *access = operation->segments[i].remote->fabric_data;

		if (i > begin && !pl_segment_changes_remote(operation->segments, i))
			continue;
		if (!hold)
			local_copy_gate_release(access);
		else if (local_kernel_gate_hold(access, operation, error) < 0)
			return i;
	}
	return end;
}

static struct local_ends ends_of_segment(const struct pl_segment *segment)
{
	return local_ends_of(segment->region, segment->remote);
}

uint64_t local_gather_piece_size(const struct pl_operation *operation)
{
	uint64_t size = PIECE_MIN, fair = operation->total / (multiprocessors_of(operation) * PIECES_EACH);

	while (size < fair && size < PIECE_MAX)
		size *= 2;
	return size;
}

unsigned local_gather_fill(struct pl_operation *operation, struct pl_gather_range *ranges, unsigned room, uint64_t size,
			   uint64_t most, uint64_t *bytes)
{
	struct pl_work_item *item = &gathering_of(operation)->item;
	struct local_ends ends = ends_of_segment(&operation->segments[item->segment]);
	bool write = operation->completion.kind == PL_KIND_WRITE;
	struct pl_chunk chunk;
	uint64_t sum = 0;
	unsigned count = 0;

	while (item->segment < operation->segment_count && count < room && sum < most) {
		uint64_t here, there;

		if (item->done == 0 && !operation->one_memory && local_segment_changes_memory(operation, item->segment))
			ends = ends_of_segment(&operation->segments[item->segment]);
		pl_work_item_take_chunk(operation, PL_MIN(size, most - sum), &chunk);
		if (!chunk.length)
			continue;
		here = ends.here + chunk.segment->offset + chunk.at;
		there = ends.there + chunk.segment->remote_offset + chunk.at;
		ranges[count++] = (struct pl_gather_range){
			.to = write ? there : here,
			.from = write ? here : there,
			.length = chunk.length,
		};
		sum += chunk.length;
	}
	*bytes += sum;
	return count;
}

static void fill_run(struct pl_operation *operation, struct local_gather_run *run, uint64_t size)
{
	const struct local_gathering *gathering = gathering_of(operation);
	const struct pl_work_item *item = &gathering->item;
	struct pl_gather *gather = run->copy.gather;

	run->begin = item->segment;
	run->done = item->done;
	gather->count = local_gather_fill(operation, gather->ranges, gather->room, size,
					  gathering->host ? HOST_RUN_BYTES : UINT64_MAX, &gather->bytes);
	run->end = item->segment + (item->done > 0);
}

/* -- the operation ------------------------------------------------------------------------------------- */

static void gathering_advance(struct pl_operation *operation);

/* Leaves the rest of the operation to copies, from the earliest such position on. */
static void use_copies(struct local_gathering *gathering, unsigned segment, uint64_t done)
{
	struct local_position *again = &gathering->again;

	if (!gathering->copies || segment < again->segment || (segment == again->segment && done < again->done))
		*again = (struct local_position){ segment, done };
	gathering->copies = true;
}

static void run_ended(struct pl_copy *base, int status)
{
	struct pl_gather_copy *copy = pl_container_of(base, struct pl_gather_copy, copy);
	struct local_gather_run *run = pl_container_of(copy, struct local_gather_run, copy);
	struct local_gathering *gathering = pl_container_of(run - base->sequence, struct local_gathering, runs);
	struct pl_operation *operation = pl_work_item_operation(&gathering->item.link);
	struct pl_error error;

	if (gathering->kept)
		local_kept_release_gates(operation);
	else
		local_gather_hold_gates(operation, run->begin, run->end, false, NULL);
	copy->gather = NULL;
	if (status == -ECANCELED) {
		use_copies(gathering, run->begin, run->done);
	} else if (status < 0) {
		local_copy_fail(&error, status, operation->completion.kind == PL_KIND_WRITE);
		pl_operation_fail(operation, status, &error);
	}
	if (!gathering->starting)
		gathering_advance(operation);
}

/*
 * Most pieces of the next run. The first one is short, so that its kernel runs while the rest of the list is written. Of a long vector
 * with host memory, a run takes room for its part of the bytes.
 */
static unsigned pieces_of_run(const struct pl_operation *operation, const struct pl_work_item *item, uint64_t size)
{
	uint64_t pieces = operation->segment_count - item->segment + operation->total / size;

	if (item->segment == 0 && item->done == 0 && pieces >= 4 * FIRST_MIN)
		pieces /= 4;
	if (local_gathering_of(operation)->host && operation->total > HOST_RUN_BYTES)
		pieces = pieces * HOST_RUN_BYTES / operation->total + 1;
	return (unsigned)PL_MIN(pieces, (uint64_t)PIECES_MAX);
}

/* Starts a kernel for the kept list, or leaves all segments to copies. */
static void start_kept_run(struct pl_operation *operation, struct local_gather_run *run, struct pl_copier *copier)
{
	struct local_gathering *gathering = gathering_of(operation);
	struct pl_error error;
	int rc;

	run->begin = 0;
	run->done = 0;
	gathering->item.segment = operation->segment_count;
	if (copier)
		pl_copier_prepare(copier, local_gather_gpu(operation));
	run->copy.gather = copier ? local_kept_take(operation) : NULL;
	if (!run->copy.gather) {
		use_copies(gathering, 0, 0);
		return;
	}
	rc = local_kept_hold_gates(operation, &error);
	if (rc == 0) {
		pl_copier_gather(copier, &run->copy, multiprocessors_of(operation));
		return;
	}
	pl_operation_fail(operation, rc, &error);
	run->copy.gather->ops->gather_give(run->copy.gather);
	run->copy.gather = NULL;
}

/* True if a kernel still reaches all memory of a run: the program may unlock or free memory between two kernels. */
static bool run_is_reached(const struct pl_operation *operation, const struct local_gather_run *run)
{
	const struct pl_segment *segments = operation->segments;

	/* The post of the operation looked. */
	if (run->begin == 0 && run->done == 0)
		return true;
	for (unsigned i = run->begin; i < run->end; i = local_next_memory(operation, i))
		if (!local_kernel_reaches(segments[i].region, segments[i].remote, operation->completion.kind))
			return false;
	return true;
}

/* Starts a kernel for the next segments, or leaves them to copies. The caller uses the memory of the GPU. */
static void start_listed_run(struct pl_operation *operation, struct local_gather_run *run, struct pl_copier *copier,
			     const struct pl_memory *gpu)
{
	struct local_gathering *gathering = gathering_of(operation);
	const struct pl_work_item *item = &gathering->item;
	uint64_t size = local_gather_piece_size(operation);
	struct pl_error error;
	unsigned held;
	bool reached;

	/* Copies that replace a kernel must not wait, as the creation of their queue may. */
	if (copier)
		pl_copier_prepare(copier, gpu);
	run->copy.gather = copier ? gpu->ops->gather_take(gpu, pieces_of_run(operation, item, size)) : NULL;
	if (!run->copy.gather) {
		use_copies(gathering, item->segment, item->done);
		return;
	}
	fill_run(operation, run, size);
	reached = run_is_reached(operation, run);
	if (!reached)
		use_copies(gathering, run->begin, run->done);
	held = reached ? local_gather_hold_gates(operation, run->begin, run->end, true, &error) : run->begin;
	if (held == run->end && run->copy.gather->count) {
		pl_copier_gather(copier, &run->copy, multiprocessors_of(operation));
		return;
	}
	if (reached && held < run->end)
		pl_operation_fail(operation, error.code, &error);
	local_gather_hold_gates(operation, run->begin, held, false, NULL);
	gpu->ops->gather_give(run->copy.gather);
	run->copy.gather = NULL;
}

/*
 * Starts a kernel for the next segments, or leaves them to copies. The GPU's memory may be the peer's, and be closed between two
 * kernels: that of the next segment is used, with its gate held.
 */
static void start_run(struct pl_operation *operation, struct local_gather_run *run)
{
	struct local_gathering *gathering = gathering_of(operation);
	const struct pl_segment *next = &operation->segments[gathering->item.segment];
	const struct local_access *access = next->remote->fabric_data;
	struct pl_copier *copier = pl_context_copier(operation->context, operation->home);
	struct pl_error error;
	int rc;

	if (gathering->kept) {
		start_kept_run(operation, run, copier);
		return;
	}
	rc = local_kernel_gate_hold(access, operation, &error);
	if (rc < 0) {
		pl_operation_fail(operation, rc, &error);
		return;
	}
	start_listed_run(operation, run, copier, ends_of_segment(next).gpu);
	local_copy_gate_release(access);
}

static bool ranges_remain(struct pl_operation *operation)
{
	const struct local_gathering *gathering = gathering_of(operation);

	return !gathering->copies && gathering->item.segment < operation->segment_count &&
	       !atomic_load(&operation->status) && !atomic_load(&operation->canceled);
}

static bool kernels_run(const struct local_gathering *gathering)
{
	for (unsigned i = 0; i < LOCAL_COPIES_QUEUED; i++)
		if (gathering->runs[i].copy.gather)
			return true;
	return false;
}

static void gathering_advance(struct pl_operation *operation)
{
	struct local_gathering *gathering = gathering_of(operation);

	gathering->starting = true;
	for (unsigned i = 0; i < LOCAL_COPIES_QUEUED; i++)
		while (!gathering->runs[i].copy.gather && ranges_remain(operation))
			start_run(operation, &gathering->runs[i]);
	gathering->starting = false;
	if (kernels_run(gathering))
		return;
	if (gathering->copies) {
		operation->route_reason = gathering->reason_of_copies;
		local_device_post(operation, gathering->again);
	} else {
		pl_operation_pending_done(operation);
	}
}

static void gathering_begin(struct pl_operation *operation, bool kept, bool host, const char *reason_of_copies)
{
	struct local_gathering *gathering = gathering_of(operation);

	*gathering = (struct local_gathering){ .reason_of_copies = reason_of_copies, .kept = kept, .host = host };
	for (unsigned i = 0; i < LOCAL_COPIES_QUEUED; i++)
		gathering->runs[i].copy.copy = (struct pl_copy){ .sequence = i, .done = run_ended };
	pl_list_init(&gathering->item.link);
	operation->route_reason = reason_gather;
	gathering_advance(operation);
}

bool local_gather_post(struct pl_operation *operation)
{
	const char *reason = operation->route_reason;
	bool kept, host;

	if (!suits(operation, &host))
		return false;
	/* The list depends on it. */
	gathering_of(operation)->host = host;
	kept = operation->vector && local_kept_make(operation);
	gathering_begin(operation, kept, host, reason);
	return true;
}

bool local_gather_post_kept(struct pl_operation *operation)
{
	const char *reason;

	if (!local_kept_is_valid(operation->vector, &reason))
		return false;
	atomic_fetch_or(&operation->rails, 1);
	gathering_begin(operation, true, local_kept_has_host(operation->vector), reason);
	return true;
}
