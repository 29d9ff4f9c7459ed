/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations and messages become work requests. */
#include "fabric/verbs/data/flush.h"
#include "fabric/verbs/data/request.h"
#include "fabric/verbs/memory/near.h"

/* Time to wait for an operation that was announced with PL_MORE. */
#define PATIENCE (1 * PL_NS_PER_MS)
/* With many requests posted, further ones wait until there are this many. */
#define TOGETHER 16

static const char reason_locked[] = "verbs, through registered buffers: more memory would be locked than this process "
				    "may (see ulimit -l, and rdma.max of the cgroup)";
static const char reason_refused[] =
	"verbs, through registered buffers: the device's driver does not register the region's memory";

static const char reason_near[] =
	"verbs: the network cards nearest to the memory at both ends read and write the region themselves";
static const char reason_far[] =
	"verbs: a network card reads and writes the region itself, from afar, as the nearest ones are not connected";

struct verbs_work *verbs_work_allocate(const struct verbs_endpoint *endpoint)
{
	struct verbs_work *work = pl_alloc(&endpoint->state->context->allocator, sizeof(*work));

	if (work)
		verbs_work_clear(work);
	return work;
}

struct verbs_work *verbs_work_new(struct verbs_endpoint *endpoint, enum verbs_work_kind kind,
				  struct pl_operation *operation)
{
	struct verbs_work *work = verbs_work_take(endpoint, kind, operation);

	if (work && operation)
		atomic_fetch_add(&operation->pending, 1);
	return work;
}

bool verbs_work_skip(struct verbs_work *work)
{
	const uint32_t number = work->frame.ack;

	if (!work->notify && !work->gathered)
		return false;
	if (work->buffer)
		verbs_buffer_put(work->buffer);
	work->kind = VERBS_FRAME;
	/* The number of the frame stays in use. */
	work->counted |= work->built;
	work->notify = work->staged = work->gathered = work->built = work->bare = false;
	work->operation = NULL;
	work->buffer = NULL;
	work->region = NULL;
	work->target = NULL;
	work->payload = NULL;
	work->length = 0;
	work->frame = (struct pl_frame){ .type = PL_FRAME_SKIP, .ack = number };
	return true;
}

bool verbs_work_outlives(const struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	/* A frame of NOTIFY for a write waits once its bytes are there. A large message cannot be read any more. */
	return work->kind == VERBS_FRAME &&
	       (work->frame.type == PL_FRAME_EAGER || work->frame.type == PL_FRAME_NOTIFY) &&
	       verbs_is_leaving(endpoint);
}

void verbs_work_cut(struct verbs_endpoint *endpoint, struct verbs_work *work, uint32_t length)
{
	struct verbs_work *rest = verbs_work_new(endpoint, work->kind, work->operation);

	/* The last work keeps its length. */
	if (!rest)
		return;
	rest->length = work->length - length;
	rest->staged = work->staged;
	rest->region = work->region;
	rest->offset = work->offset + length;
	rest->lkey = work->lkey;
	rest->lkey_device = work->lkey_device;
	rest->target = work->target;
	rest->choice = work->choice;
	rest->lkey_only = work->lkey_only;
	rest->remote = work->remote + length;
	rest->framed = work->framed;
	rest->suspect = work->suspect;
	endpoint->suspects += work->suspect;
	if (work->notify) {
		rest->notify = true;
		rest->counted = work->counted;
		rest->frame = work->frame;
		work->notify = work->counted = false;
	}
	work->length = length;
	pl_list_append(work->link.next, &rest->link);
}

/*
 * Posts waiting work, unless so much is posted that a completion will come and post it: fewer lists mean fewer calls of
 * the driver and fewer completions. With `more` it waits for the next operation.
 */
static void flush_soon(struct verbs_endpoint *endpoint, bool more, bool small)
{
	if (more && endpoint->waiting_count < VERBS_LIST - 1) {
		endpoint->waiting_count++;
		endpoint->listing = true;
		if (pl_list_empty(&endpoint->patience.link))
			pl_timer_set(endpoint->base.peer->home, &endpoint->patience, pl_now() + PATIENCE);
		return;
	}
	if (endpoint->listing || !endpoint->latest || !verbs_is_busy(endpoint->latest, small) ||
	    ++endpoint->waiting_count >= (small ? VERBS_PACK : TOGETHER))
		verbs_flush(endpoint);
}

void verbs_flush_soon(struct verbs_endpoint *endpoint)
{
	flush_soon(endpoint, false, false);
}

/* Access of cards to local bytes, as the device has it that the rails for them use first. */
struct local {
	bool staged;
	uint8_t choice;
	uint32_t lkey, chunk;
	const struct verbs_device *device; /* device of the lkey; NULL: found later */
};

bool verbs_is_advised(const struct verbs_device *device, struct pl_operation *operation,
		      const struct pl_segment *segment, bool written, const char **refusal)
{
	const struct verbs_advised *advised;

	if (!segment->length || !pl_memory_staged(&segment->region->memory))
		return true;
	advised = verbs_local_advice(device, segment->region, written);
	*refusal = advised->reason;
	if (advised->staged)
		return operation->attributes.flags & PL_REQUIRE_DIRECT;
	operation->route_reason = advised->reason;
	return true;
}

void verbs_explain_rail(const struct verbs_rail *rail, const struct verbs_work *work)
{
	struct pl_operation *operation = work->operation;
	bool near = rail->endpoint->choices[work->choice].rails & 1u << rail->index;

	if (operation && (!operation->route_reason || operation->route_reason == reason_near))
		operation->route_reason = near ? reason_near : reason_far;
}

/* Returns 0, or -EINPROGRESS while a thread registers the memory. */
static int find_local(struct verbs_endpoint *endpoint, struct pl_operation *operation, const struct pl_segment *segment,
		      const struct verbs_remote_key *target, struct local *local)
{
	uint8_t choice = verbs_choose(endpoint, segment->length ? verbs_near(endpoint->state, segment->region) : 0,
				      target->near);
	struct verbs_device *device = verbs_device_of(endpoint, choice);
	bool written = operation->completion.kind == PL_KIND_READ;
	const char *refusal = NULL;
	int rc = 0;

	*local = (struct local){ .choice = choice, .chunk = VERBS_CHUNK };
	if (segment->length)
		rc = verbs_local_key(endpoint->state, device, segment->region, written, &local->lkey);
	if (rc == -EINPROGRESS)
		return rc;
	/* Another rail's device may exist, or the device exists again when it is needed. */
	if (rc == -ENODEV)
		return 0;
	if (rc == 0 && verbs_is_advised(device, operation, segment, written, &refusal)) {
		local->device = device;
		return 0;
	}
	if (rc < 0)
		refusal = verbs_local_refusal(endpoint->state, device, segment->region);
	if (!refusal)
		refusal = rc == -ENOMEM ? reason_locked : reason_refused;
	atomic_store(&operation->staged_reason, refusal);
	local->staged = true;
	local->chunk = VERBS_STAGE;
	return 0;
}

static void fill_chunk(struct verbs_work *work, const struct pl_segment *segment, struct verbs_remote_key *target,
		       const struct local *local, uint64_t at, uint32_t length)
{
	work->target = target;
	work->remote = target->address + segment->remote_offset + at;
	work->length = length;
	work->staged = local->staged;
	work->choice = local->choice;
	work->region = segment->region;
	work->offset = segment->offset + at;
	work->lkey = local->lkey;
	work->lkey_device = local->device;
}

static int add_chunk(struct verbs_endpoint *endpoint, struct pl_list *before, struct pl_operation *operation,
		     const struct pl_segment *segment, struct verbs_remote_key *target, const struct local *local,
		     uint64_t at, uint32_t length)
{
	struct verbs_work *work = verbs_work_new(endpoint, verbs_kind_of(operation), operation);

	if (!work)
		return -ENOMEM;
	fill_chunk(work, segment, target, local, at, length);
	pl_list_append(before, &work->link);
	return 0;
}

static void fail_transfer(struct pl_operation *operation, enum pl_wire_status status)
{
	struct pl_error error;

	pl_wire_fail(&error, status, "post", NULL);
	pl_operation_fail(operation, error.code, &error);
}

/* Position in an operation whose first chunks are work already. */
struct position {
	unsigned segment;
	uint64_t at;   /* bytes of that segment */
	unsigned most; /* chunks to add now */
};

/* Adds the next chunks of a segment before `before`. */
static int add_segment(struct verbs_endpoint *endpoint, struct pl_list *before, struct pl_operation *operation,
		       struct position *position)
{
	const struct pl_segment *segment = &operation->segments[position->segment];
	struct verbs_remote_key *target = verbs_remote_key_of(segment->remote, endpoint);
	struct pl_error error;
	struct local local;
	int rc;

	if (!target)
		return -ENOMEM;
	if (segment->length == 0 && operation->total)
		return 0;
	if (!verbs_obtainable(endpoint, target)) {
		fail_transfer(operation, PL_WIRE_UNKNOWN_KEY);
		return 0;
	}
	rc = find_local(endpoint, operation, segment, target, &local);
	if (rc < 0)
		return rc;
	if (local.staged && (operation->attributes.flags & PL_REQUIRE_DIRECT)) {
		pl_fail(&error, -ENOTSUP, "NOT-DIRECT", "ibv_reg_mr", NULL,
			"use other memory, or do without PL_REQUIRE_DIRECT", "%s",
			atomic_load(&operation->staged_reason));
		pl_operation_fail(operation, -ENOTSUP, &error);
		return 0;
	}
	do {
		uint32_t length = (uint32_t)PL_MIN(segment->length - position->at, (uint64_t)local.chunk);

		rc = add_chunk(endpoint, before, operation, segment, target, &local, position->at, length);
		position->at += length;
		position->most--;
	} while (rc == 0 && position->at < segment->length && position->most);
	return rc;
}

/*
 * Adds the next chunks of an operation before `before`. Returns 1 if chunks are left, 0, -ENOMEM, or -EINPROGRESS if the
 * others must wait until their memory is registered.
 */
static int add_segments(struct verbs_endpoint *endpoint, struct pl_list *before, struct pl_operation *operation,
			struct position *position)
{
	int rc = 0;

	while (rc == 0 && position->segment < operation->segment_count && !atomic_load(&operation->status)) {
		if (position->most == 0)
			return 1;
		rc = add_segment(endpoint, before, operation, position);
		if (rc == -EINPROGRESS)
			return rc;
		if (position->at < operation->segments[position->segment].length && position->most == 0)
			continue;
		position->segment++;
		position->at = 0;
	}
	return rc;
}

/* Work that stands for the chunks that are left, so that an operation of many chunks needs memory for few. */
static int add_rest(struct verbs_endpoint *endpoint, struct pl_list *list, struct pl_operation *operation,
		    const struct position *position)
{
	struct verbs_work *work = verbs_work_new(endpoint, verbs_kind_of(operation), operation);

	if (!work)
		return -ENOMEM;
	work->rest = true;
	work->segment = position->segment;
	work->offset = position->at;
	pl_list_append(list, &work->link);
	return 0;
}

void verbs_work_expand(struct verbs_endpoint *endpoint, struct verbs_work *rest)
{
	struct position position = { .segment = rest->segment, .at = rest->offset, .most = VERBS_LIST };
	struct pl_operation *operation = rest->operation;
	struct pl_error error;
	int rc = add_segments(endpoint, &rest->link, operation, &position);

	rest->segment = position.segment;
	rest->offset = position.at;
	if (rc > 0)
		return;
	if (rc == -EINPROGRESS) {
		pl_list_remove(&rest->link);
		pl_list_append(&endpoint->registering, &rest->link);
		verbs_await_registration(endpoint);
		return;
	}
	if (rc < 0) {
		pl_fail_memory(&error, "post");
		pl_operation_fail(operation, rc, &error);
	}
	pl_list_remove(&rest->link);
	verbs_work_free(endpoint, rest);
	pl_operation_pending_done(operation);
}

int verbs_post_back(struct verbs_endpoint *endpoint, struct pl_operation *operation, const struct pl_segment *segment)
{
	struct verbs_remote_key *target = verbs_remote_key_of(segment->remote, endpoint);
	struct verbs_work *work = target ? verbs_work_new(endpoint, VERBS_READ, operation) : NULL;

	if (!work)
		return -ENOMEM;
	work->back = true;
	work->target = target;
	work->choice = verbs_choose(endpoint, segment->region ? verbs_near(endpoint->state, segment->region) : 0,
				    target->near);
	work->length = (uint32_t)PL_MIN(segment->length, sizeof(uint64_t));
	work->remote = target->address + segment->remote_offset + segment->length - work->length;
	pl_list_append(&endpoint->waiting, &work->link);
	flush_soon(endpoint, false, false);
	return 0;
}

/* True if the devices of all rails lack atomics. Fails the operation then. */
static bool atomics_are_missing(const struct verbs_endpoint *endpoint, struct pl_operation *operation)
{
	struct pl_error error;

	if (verbs_rails_with_atomics(endpoint))
		return false;
	pl_fail(&error, -ENOTSUP, "RDMA-NO-ATOMICS", "post", verbs_device_name(endpoint->rails[0].device),
		"use the fabric tcp, or a card with atomics, see atomic_cap in: ibv_devinfo -v",
		"the card has no atomic operations");
	pl_operation_fail(operation, error.code, &error);
	return true;
}

static int add_atomic(struct verbs_endpoint *endpoint, struct pl_operation *operation)
{
	const struct pl_segment *segment = operation->segments;
	struct verbs_remote_key *target = verbs_remote_key_of(segment->remote, endpoint);
	struct verbs_work *work;
	uint64_t address;

	if (!target)
		return -ENOMEM;
	if (atomics_are_missing(endpoint, operation))
		return 0;
	address = target->address + segment->remote_offset;
	if (!verbs_obtainable(endpoint, target) || address % 8) {
		fail_transfer(operation, address % 8 ? PL_WIRE_MISALIGNED : PL_WIRE_UNKNOWN_KEY);
		return 0;
	}
	work = verbs_work_new(endpoint, VERBS_ATOMIC, operation);
	if (!work)
		return -ENOMEM;
	work->target = target;
	work->choice = verbs_choose(endpoint, 0, target->near);
	work->remote = address;
	pl_list_append(&endpoint->waiting, &work->link);
	return 0;
}

void verbs_post_parts(struct verbs_endpoint *endpoint, struct pl_operation *operation)
{
	bool transfer = operation->completion.kind == PL_KIND_WRITE || operation->completion.kind == PL_KIND_READ;
	bool more = operation->attributes.flags & PL_MORE;
	struct position position = { .most = VERBS_LIST };
	bool later = false;
	struct pl_error error;
	int rc;

	if (transfer)
		rc = add_segments(endpoint, &endpoint->waiting, operation, &position);
	else
		rc = add_atomic(endpoint, operation);
	if (rc == -EINPROGRESS) {
		later = true;
		verbs_await_registration(endpoint);
		rc = add_rest(endpoint, &endpoint->registering, operation, &position);
	} else if (rc > 0) {
		later = true;
		rc = add_rest(endpoint, &endpoint->waiting, operation, &position);
	}
	/*
	 * A read that flushes, or a notification, goes behind the chunks in `waiting`. It would overtake chunks that are
	 * not there yet: they rest, wait for their registration, or are copied first. Then it follows the completion.
	 */
	later |= atomic_load(&operation->staged_reason) != NULL;
	if (rc == 0 && transfer && !later)
		rc = verbs_read_behind(endpoint, operation);
	if (rc == 0 && transfer && !later)
		rc = verbs_notify_behind(endpoint, operation);
	if (rc < 0) {
		pl_fail_memory(&error, "post");
		pl_operation_fail(operation, rc, &error);
	}
	/* Ends the pending count that the operation had. */
	pl_operation_pending_done(operation);
	flush_soon(endpoint, more, false);
}

void verbs_message_wait(struct verbs_endpoint *endpoint, struct verbs_work *work, struct pl_operation *operation)
{
	uint32_t length = work->frame.length;

	if (operation && !work->gathered) {
		work->operation = operation;
		atomic_fetch_add(&operation->pending, 1);
	}
	if (length <= sizeof(work->copy) && !work->gathered) {
		if (length && work->payload)
			memcpy(work->copy, work->payload, length);
		work->payload = work->copy;
	}
	pl_list_append(&endpoint->waiting, &work->link);
	flush_soon(endpoint, operation && (operation->attributes.flags & PL_MORE), verbs_is_small(endpoint, work));
}

struct verbs_work *verbs_work_only(struct verbs_rail *rail, enum verbs_work_kind kind)
{
	struct verbs_work *work = verbs_work_new(rail->endpoint, kind, NULL);

	if (work)
		work->only = rail;
	return work;
}

void verbs_message_first(struct verbs_endpoint *endpoint, const struct pl_frame *frame)
{
	struct verbs_work *work = verbs_work_new(endpoint, VERBS_FRAME, NULL);

	/* Without memory the next failure, or a deadline, asks or answers again. */
	if (!work)
		return;
	work->frame = *frame;
	pl_list_prepend(&endpoint->again, &work->link);
}
