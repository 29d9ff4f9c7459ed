/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations that this end's processor does. The posting thread does small ones at once. Engines do large ones in
 * chunks, so that a cancelled operation ends soon, from a list that all endpoints of the context share.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "fabric/local/gpu_gather.h"
#include "fabric/tcp/tcp.h"

/* Most bytes that an engine copies in one visit, so that sockets and timers get their turn. */
#define VISIT (2 * LOCAL_CHUNK)
/* Bytes of an operation that justify waking one more engine. */
#define BYTES_PER_ENGINE (4 * LOCAL_CHUNK)
/* Most engines that copy at once: more of them only share the memory's bandwidth. */
#define COPYING_ENGINES_MAX 17u

static struct local_work *local_work_of(struct pl_operation *operation)
{
	return (struct local_work *)operation->fabric;
}

static bool kind_is_write_or_read(enum pl_kind kind)
{
	return kind == PL_KIND_WRITE || kind == PL_KIND_READ;
}

static inline struct local_range range_of_segment(enum pl_kind kind, const struct pl_segment *segment, uint64_t at,
						  uint64_t length)
{
	return (struct local_range){ .memory = &segment->region->memory,
				     .offset = segment->offset + at,
				     .remote_offset = segment->remote_offset + at,
				     .length = length,
				     .write = kind == PL_KIND_WRITE };
}

static int copy_segment_range(enum pl_kind kind, const struct pl_segment *segment, uint64_t at, uint64_t length,
			      struct pl_error *error)
{
	struct local_range request = range_of_segment(kind, segment, at, length);

	return local_copy_chunk(segment->remote->fabric_data, &request, error);
}

/*
 * Copies the segment at `first`, and those behind it, before `end`, that the same system call can copy: of the same remote
 * region. Returns the index of the next segment, or a negative errno.
 */
static int copy_segment_run(const struct pl_operation *operation, unsigned first, unsigned end, struct pl_error *error)
{
	const struct pl_segment *segments = operation->segments;
	const struct local_access *access = segments[first].remote->fabric_data;
	struct local_range ranges[LOCAL_RANGES];
	unsigned next = first, count = 0;
	int rc;

	for (; next < end && count < LOCAL_RANGES && segments[next].length; next++) {
		if (segments[next].remote->fabric_data != access)
			break;
		ranges[count++] =
			range_of_segment(operation->completion.kind, &segments[next], 0, segments[next].length);
	}
	rc = local_copy_ranges(access, ranges, count, error);
	return rc < 0 ? rc : (int)next;
}

static bool segment_has_lists(const struct pl_segment *segment)
{
	const struct local_access *access = segment->remote->fabric_data;

	return access->path->copy_ranges;
}

/* A segment without bytes counts only if no other one has any: then the keys are checked. */
static inline int copy_segment(const struct pl_operation *operation, unsigned index, struct pl_error *error)
{
	const struct pl_segment *segment = &operation->segments[index];

	if (!segment->length && operation->total)
		return 0;
	return copy_segment_range(operation->completion.kind, segment, 0, segment->length, error);
}

/* Returns 0 or a negative errno. */
static int copy_segments_by_lists(const struct pl_operation *operation, struct pl_error *error)
{
	for (unsigned next = 0; next < operation->segment_count;) {
		const struct pl_segment *segment = &operation->segments[next];
		bool list = segment->length && segment_has_lists(segment);
		int rc = list ? copy_segment_run(operation, next, operation->segment_count, error)
			      : copy_segment(operation, next, error);

		if (rc < 0)
			return rc;
		next = list ? (unsigned)rc : next + 1;
	}
	return 0;
}

/* Returns 0 or a negative errno. */
static int copy_segments(const struct pl_operation *operation, struct pl_error *error)
{
	int rc = 0;

	/* One look for all: a look at each would cost too much where both ends map the memory. Vectors rarely mix paths. */
	if (operation->segment_count > 1 && segment_has_lists(operation->segments))
		return copy_segments_by_lists(operation, error);
	for (unsigned i = 0; rc == 0 && i < operation->segment_count; i++)
		rc = copy_segment(operation, i, error);
	return rc;
}

/* True if this end's processor, or a GPU, reaches both ends of a segment. Sets the reason of the route. */
static bool segment_is_reached(const struct pl_segment *segment, const char **reason)
{
	const struct local_access *access = segment->remote->fabric_data;

	*reason = access ? access->path->reason : local_socket_path.reason;
	if (!access || !access->path->copy || (segment->remote->whole_words && access->path == &local_process_path))
		return false;
	return !local_device_takes_part(segment) || local_device_reaches(access, &segment->region->memory, reason);
}

/* True if frames of ended operations may still change the peer's memory. Later operations must follow them over the lanes. */
static inline bool lanes_have_late_frames(const struct local_endpoint *endpoint)
{
	return atomic_load(&tcp_endpoint_of(endpoint->lanes)->late);
}

/* -- synchronous operations ----------------------------------------------------------------------- */

bool local_sync_try(struct pl_endpoint *base, struct pl_sync_op *sync_op)
{
	const struct pl_segment *segment = &sync_op->segment;

	/* Reports no failure: the core then calls post(), which fails again with an error. */
	if (segment->length > LOCAL_SYNC_MAX || lanes_have_late_frames(local_endpoint_of(base)) ||
	    !segment_is_reached(segment, &sync_op->route_reason))
		return false;
	if (sync_op->no_wait && segment->length && local_device_takes_part(segment))
		return false;
	if (!kind_is_write_or_read(sync_op->kind))
		return local_atomic(sync_op, NULL) == 0;
	return copy_segment_range(sync_op->kind, segment, 0, segment->length, NULL) == 0;
}

static void do_operation_sync(struct pl_operation *operation)
{
	struct pl_error error;
	int rc = copy_segments(operation, &error);

	if (rc < 0)
		pl_operation_fail(operation, rc, &error);
	pl_operation_pending_done(operation);
}

/* -- operations of the engines -------------------------------------------------------------------- */

/* Work that an engine takes at once: a chunk of a segment, or several whole segments, of which the chunk is the first. */
struct local_share {
	struct pl_chunk chunk;
	unsigned segments;
	uint64_t bytes;
};

/* True if one system call can copy the next segment, too. */
static bool share_can_grow(const struct local_share *share)
{
	const struct pl_segment *first = share->chunk.segment, *next = first + share->segments;
	const struct local_access *access = first->remote->fabric_data;

	return share->chunk.length && share->chunk.length == first->length && access->path->copy_ranges &&
	       share->segments < LOCAL_RANGES && next->length && next->remote->fabric_data == access &&
	       share->bytes + next->length <= LOCAL_CHUNK;
}

/* Takes the next share of an operation. Returns true if nothing is left. */
static bool operation_take_share(struct pl_operation *operation, struct local_share *share)
{
	bool is_last = pl_work_item_take_chunk(operation, LOCAL_CHUNK, &share->chunk);
	struct pl_chunk next;

	share->segments = 1;
	share->bytes = share->chunk.length;
	for (; !is_last && share_can_grow(share); share->segments++) {
		is_last = pl_work_item_take_chunk(operation, LOCAL_CHUNK, &next);
		share->bytes += next.length;
	}
	return is_last;
}

static int copy_share(const struct local_share *share, struct pl_error *error)
{
	const struct pl_chunk *chunk = &share->chunk;
	const struct pl_operation *operation = chunk->operation;
	unsigned first = (unsigned)(chunk->segment - operation->segments);
	int rc;

	if (share->segments > 1) {
		rc = copy_segment_run(operation, first, first + share->segments, error);
		return rc < 0 ? rc : 0;
	}
	return copy_segment_range(operation->completion.kind, chunk->segment, chunk->at, chunk->length, error);
}

/* Takes the next share, which has a pending count that keeps the operation alive. */
static bool local_worker_take_share(struct local_worker *worker, struct local_share *share)
{
	struct local_state *state = worker->state;
	struct pl_operation *operation;
	bool is_last;
	uint64_t count;

	pthread_mutex_lock(&state->lock);
	if (pl_list_empty(&state->work)) {
		worker->signaled = false;
		(void)!read(worker->source.fd, &count, sizeof(count));
		pthread_mutex_unlock(&state->lock);
		return false;
	}
	operation = pl_work_item_operation(state->work.next);
	is_last = operation_take_share(operation, share);
	if (is_last || atomic_load(&operation->status))
		pl_list_remove(state->work.next); /* the share takes over the list's pending count */
	else
		atomic_fetch_add(&operation->pending, 1);
	pthread_mutex_unlock(&state->lock);
	return true;
}

bool local_worker_ready(struct pl_source *source, uint32_t events)
{
	struct local_worker *worker = pl_container_of(source, struct local_worker, source);
	struct local_share share;
	uint64_t moved = 0;
	bool any = false;

	(void)events;
	while (moved < VISIT && local_worker_take_share(worker, &share)) {
		struct pl_operation *operation = share.chunk.operation;
		struct pl_error error;
		int rc = 0;

		if (share.bytes && !atomic_load(&operation->status))
			rc = copy_share(&share, &error);
		if (rc < 0)
			pl_operation_fail(operation, rc, &error);
		pl_operation_pending_done(operation);
		moved += share.bytes;
		any = true;
	}
	return any;
}

static int open_worker(struct local_state *state, struct local_worker *worker, struct pl_engine *engine)
{
	int rc;

	worker->state = state;
	worker->engine = engine;
	worker->source.ready = local_worker_ready;
	worker->source.pollable = true;
	worker->source.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->source.fd < 0)
		return -errno;
	rc = pl_source_add(engine, &worker->source, EPOLLIN);
	if (rc < 0)
		close(worker->source.fd);
	return rc;
}

/*
 * Creates the workers for the first large operation. After a failure those that there are stay for the next operation: to remove a
 * source needs the lock of its engine. state->lock is held.
 */
static int open_workers(struct local_state *state)
{
	const struct pl_context *context = state->context;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < context->engine_count; i++)
		if (!state->workers[i].source.engine)
			rc = open_worker(state, &state->workers[i], context->engines[i]);
	state->workers_open = rc == 0;
	return rc;
}

/* Wakes the home engine's worker, and others for large work. */
static void wake_workers(struct local_state *state, const struct pl_engine *home, uint64_t total)
{
	struct pl_context *context = state->context;
	uint64_t one = 1, count = PL_MAX(total / BYTES_PER_ENGINE, (uint64_t)1);
	unsigned first = pl_context_engine_index(context, home);

	count = PL_MIN(count, (uint64_t)COPYING_ENGINES_MAX);
	for (unsigned i = 0; i < context->engine_count && i < count; i++) {
		struct local_worker *worker = &state->workers[(first + i) % context->engine_count];

		if (!worker->signaled)
			(void)!write(worker->source.fd, &one, sizeof(one));
		worker->signaled = true;
	}
}

static void work_list_add_operation(struct local_endpoint *endpoint, struct pl_operation *operation)
{
	struct local_state *state = endpoint->state;
	struct local_work *work = local_work_of(operation);
	struct pl_error error;
	int rc = 0;

	*work = (struct local_work){ 0 };
	pthread_mutex_lock(&state->lock);
	if (!state->workers_open)
		rc = open_workers(state);
	if (rc == 0) {
		pl_list_append(&state->work, &work->item.link);
		wake_workers(state, operation->home, operation->total);
	}
	pthread_mutex_unlock(&state->lock);
	if (rc < 0) {
		pl_fail_errno(&error, rc, "SYSTEM", "eventfd", NULL);
		pl_operation_fail(operation, rc, &error);
		pl_operation_pending_done(operation);
	}
}

void local_work_sweep(struct local_endpoint *endpoint)
{
	struct local_state *state = endpoint->state;

	pl_work_list_drop_canceled(&state->work, &state->lock, endpoint->base.peer);
	pl_work_list_drop_canceled(&endpoint->direct_work, &state->lock, endpoint->base.peer);
}

static const char behind_late_frames_reason[] =
	"local: through a socket, behind bytes of an ended operation that are still under way there";

/* -- posting -------------------------------------------------------------------------------------- */

/* True if this end's processor or a GPU does the whole operation; sets operation->route_reason. */
static bool operation_is_done_locally(struct local_endpoint *endpoint, struct pl_operation *operation)
{
	bool is_local = true;

	for (unsigned i = 0; is_local && i < operation->segment_count; i = local_next_memory(operation, i)) {
		const struct pl_segment *segment = &operation->segments[i];

		/* Only this operation knows the source of a large message, so it imports the source here. */
		if (!segment->remote->fabric_data && pl_list_empty(&segment->remote->link))
			local_imported(&endpoint->base, segment->remote);
		is_local = segment_is_reached(segment, &operation->route_reason);
	}
	return is_local;
}

static bool operation_is_for_device(const struct pl_operation *operation)
{
	for (unsigned i = 0; i < operation->segment_count; i++)
		if (!local_device_takes_part(&operation->segments[i]))
			return false;
	return true;
}

/* True if the posting thread copies all, and waits for the copies. */
static bool operation_is_sync(const struct pl_operation *operation)
{
	return operation->total <= LOCAL_SYNC_MAX && !(operation->total && (operation->attributes.flags & PL_NO_WAIT) &&
						       operation_is_for_device(operation));
}

/* Does an atomic, and sets the completion. Returns as local_atomic() does. */
static int do_atomic_locally(struct pl_operation *operation, struct pl_error *error)
{
	struct pl_sync_op sync_op = { .kind = operation->completion.kind,
				      .segment = *operation->segments,
				      .operand = operation->operand,
				      .compare = operation->compare };
	int rc = local_atomic(&sync_op, error);

	operation->completion.value = sync_op.value;
	return rc;
}

/* The lanes would stage GPU memory. So the operation waits until no late frame is left, and its own path serves it then. */
static void hold_direct_operation(struct local_endpoint *endpoint, struct pl_operation *operation)
{
	struct local_work *work = local_work_of(operation);

	*work = (struct local_work){ 0 };
	pthread_mutex_lock(&endpoint->state->lock);
	pl_list_append(&endpoint->direct_work, &work->item.link);
	pthread_mutex_unlock(&endpoint->state->lock);
}

static void post_behind_late_frames(struct local_endpoint *endpoint, struct pl_operation *operation)
{
	if (operation->attributes.flags & PL_REQUIRE_DIRECT) {
		hold_direct_operation(endpoint, operation);
		return;
	}
	operation->route_reason = behind_late_frames_reason;
	pl_tcp_fabric.post(endpoint->lanes, operation);
}

void local_late_frames_placed(struct pl_peer *peer)
{
	struct local_endpoint *endpoint = local_endpoint_of(peer->endpoint);

	while (!pl_list_empty(&endpoint->direct_work) && !lanes_have_late_frames(endpoint)) {
		struct pl_operation *operation = pl_work_item_operation(endpoint->direct_work.next);

		pthread_mutex_lock(&endpoint->state->lock);
		pl_list_remove(endpoint->direct_work.next);
		pthread_mutex_unlock(&endpoint->state->lock);
		local_post(&endpoint->base, operation);
	}
}

void local_post(struct pl_endpoint *base, struct pl_operation *operation)
{
	struct local_endpoint *endpoint = local_endpoint_of(base);
	bool is_local, atomic = !kind_is_write_or_read(operation->completion.kind);
	struct pl_error error;
	int rc = -EAGAIN;

	if (lanes_have_late_frames(endpoint)) {
		post_behind_late_frames(endpoint, operation);
		return;
	}
	if (operation->vector && local_gather_post_kept(operation))
		return;
	is_local = operation_is_done_locally(endpoint, operation);
	if (is_local && atomic)
		rc = do_atomic_locally(operation, &error);
	if (!is_local && !atomic && local_owner_may_copy(endpoint, operation)) {
		local_owner_ask(endpoint, operation);
		return;
	}
	if (!is_local || (atomic && rc == -EAGAIN)) {
		operation->route_reason = is_local ? local_socket_path.reason : operation->route_reason;
		pl_tcp_fabric.post(endpoint->lanes, operation);
		return;
	}
	atomic_fetch_or(&operation->rails, 1);
	if (atomic) {
		if (rc < 0)
			pl_operation_fail(operation, rc, &error);
		pl_operation_pending_done(operation);
	} else if (local_gather_post(operation) || local_ring_post(operation)) {
		return;
	} else if (operation_is_sync(operation)) {
		do_operation_sync(operation);
	} else if (operation_is_for_device(operation)) {
		local_device_post(operation, (struct local_position){ 0 });
	} else {
		work_list_add_operation(endpoint, operation);
	}
}
