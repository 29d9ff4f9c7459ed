/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads into memory that the socket cannot reach, whose bytes come from memory that the peer's socket reaches. While some are under
 * way, lanes share small chunks, as between host memories. A copy to GPU memory costs calls of its driver, for which other threads
 * wait, so neighbouring chunks go to one slot, and the lane that receives the last of them copies them together.
 */
#include "base/cache_demote.h"
#include "fabric/tcp/landing.h"

/*
 * Chunks join while at least so many operations are under way: otherwise the copy of one chunk hides behind the reception of others.
 * Nor do they join while more than two operations wait for each lane: all lanes are busy then, and chunks are large.
 */
#define JOINING_FROM 4u
/* Chunks do not join if fewer fit into a slot. */
#define CHUNKS_FROM 4u

/* Chunks side by side of one segment. endpoint->lock protects all members until the last chunk has arrived. */
struct tcp_joint {
	struct pl_operation *operation; /* each missing chunk holds a pending count of it */
	struct pl_memory *memory;
	size_t offset;                  /* of the first byte in the memory */
	uint32_t length;                /* of all chunks, in bytes */
	unsigned missing;               /* chunks that were taken, and have not arrived */
	bool open;                      /* true if the next chunk will belong to it */
	bool dropped;                   /* true if a chunk will not arrive */
	_Atomic(struct pl_slot *) slot; /* NULL: no byte has arrived. Without the lock */
	struct tcp_lane *lane;          /* that copies */
	struct pl_copy copy;
};

bool tcp_chunks_join(const struct tcp_endpoint *endpoint, const struct pl_operation *operation, uint32_t chunk)
{
	unsigned running = endpoint->base.peer->running, lanes = atomic_load(&endpoint->lanes_up);
	bool join = operation->completion.kind == PL_KIND_READ && atomic_load(&operation->staged) && lanes > 1 &&
		    running >= JOINING_FROM && running < 2 * lanes && PL_SLOT_SIZE / chunk >= CHUNKS_FROM;

	for (unsigned i = 0; join && i < operation->segment_count; i++)
		join = !tcp_staged_by_peer(operation->segments[i].remote);
	return join;
}

struct tcp_joint *tcp_joint_add(struct tcp_joint **open, const struct pl_chunk *chunk, uint32_t most)
{
	struct pl_operation *operation = chunk->operation;
	const struct pl_segment *segment = chunk->segment;
	uint64_t left = segment->length - chunk->at - chunk->length;
	struct tcp_joint *joint = *open;

	if (!joint) {
		joint = pl_zalloc(&operation->context->allocator, sizeof(*joint));
		if (!joint)
			return NULL;
		joint->operation = operation;
		joint->memory = &segment->region->memory;
		joint->offset = segment->offset + chunk->at;
	}
	joint->length += (uint32_t)chunk->length;
	joint->missing++;
	/* The next chunk is no longer than this one. */
	joint->open = left && joint->length + PL_MIN(left, chunk->length) <= most;
	*open = joint->open ? joint : NULL;
	return joint;
}

static void joint_free(struct tcp_endpoint *endpoint, struct tcp_joint *joint)
{
	pl_slots_give(&endpoint->context->slot_pool, atomic_load(&joint->slot));
	pl_free(&endpoint->context->allocator, joint);
}

void tcp_joint_close(struct tcp_endpoint *endpoint, struct tcp_joint **open)
{
	struct tcp_joint *joint = *open;

	if (!joint)
		return;
	*open = NULL;
	joint->open = false;
	joint->dropped = true;
	if (!joint->missing)
		joint_free(endpoint, joint);
}

static void joint_copied(struct pl_copy *copy, int status)
{
	struct tcp_joint *joint = pl_container_of(copy, struct tcp_joint, copy);
	struct pl_operation *operation = joint->operation;
	struct tcp_lane *lane = joint->lane;

	lane->landing_count--;
	if (status < 0)
		tcp_fail_landing(operation);
	joint_free(lane->endpoint, joint);
	pl_operation_pending_done(operation);
}

/* Starts the copy, which holds a pending count of the operation. The caller holds another one. */
static void copy_joint(struct tcp_lane *lane, struct tcp_joint *joint)
{
	atomic_fetch_add(&joint->operation->pending, 1);
	joint->lane = lane;
	joint->copy.done = joint_copied;
	pl_list_init(&joint->copy.link);
	lane->landing_count++;
	pl_copier_start(pl_context_copier(lane->endpoint->context, lane->engine), &joint->copy, joint->memory,
			joint->offset, atomic_load(&joint->slot), joint->length, true);
}

/* Returns the place in the joint's slot of bytes with that destination in the memory. */
static uint8_t *place_of(const struct tcp_joint *joint, const uint8_t *destination)
{
	size_t at = (size_t)(destination - (const uint8_t *)joint->memory->address) - joint->offset;

	return atomic_load(&joint->slot)->bytes + at;
}

void tcp_joint_leave(struct tcp_lane *lane, struct tcp_joint *joint, bool arrived)
{
	struct tcp_endpoint *endpoint = lane->endpoint;
	bool last;

	pthread_mutex_lock(&endpoint->lock);
	joint->dropped |= !arrived;
	last = --joint->missing == 0 && !joint->open;
	pthread_mutex_unlock(&endpoint->lock);
	if (!last)
		return;
	if (joint->dropped || atomic_load(&joint->operation->canceled))
		joint_free(endpoint, joint);
	else
		copy_joint(lane, joint);
}

void tcp_joint_received(const struct tcp_request *request)
{
	/* A GPU reads lines that a core has just written, and holds alone, at half the rate of its bus. 1 MiB takes the core 100 us. */
	pl_cache_demote(place_of(request->joint, request->destination), request->length);
}

/* Moves the destination of the current frame to the joint's slot. Returns 0, or -ENOMEM: the frame is dropped. */
static int place_in_joint(struct tcp_lane *lane, struct tcp_joint *joint)
{
	const uint8_t *destination = lane->destination;
	struct pl_slot *slot = atomic_load(&joint->slot), *other = NULL;

	lane->destination = NULL;
	/* If the chunk is the last one, its lane copies. */
	if (!pl_context_copier(lane->endpoint->context, lane->engine))
		return -ENOMEM;
	if (!slot) {
		slot = tcp_take_landing_slot(lane, joint->memory);
		if (!slot)
			return -ENOMEM;
		/* Another lane may have been faster. */
		if (!atomic_compare_exchange_strong(&joint->slot, &other, slot)) {
			pl_slots_give(&lane->endpoint->context->slot_pool, slot);
			slot = other;
		}
	}
	lane->in_slot = true;
	lane->destination = place_of(joint, destination);
	return 0;
}

int tcp_land_answer(struct tcp_lane *lane, struct tcp_request *request, bool whole)
{
	if (request->joint)
		return place_in_joint(lane, request->joint);
	return tcp_land_begin(lane, request->memory, (size_t)(lane->destination - (uint8_t *)request->memory->address),
			      whole);
}
