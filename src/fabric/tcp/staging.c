/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Staging of GPU memory, which the socket cannot reach. Outwards, a piece waits for a slot, is copied into the slot,
 * and is then queued in the order of the pieces. Inwards, the lane reads a frame into a slot, and starts the copy to
 * GPU memory. The frame counts as placed after the copy. Meanwhile the lane reads the next frame.
 */
#include "fabric/tcp/landing.h"

/* Largest frame, in bytes, that is copied at once if all its bytes have arrived. */
#define COPY_AT_ONCE_MAX (16u << 10)

/* Frame that is copied from a slot to its destination, or waits behind one. */
struct tcp_landing {
	struct pl_list link;
	struct pl_copy copy;
	struct tcp_lane *lane;
	struct pl_slot *slot;
	struct pl_key *key;             /* WRITE */
	struct pl_operation *operation; /* DATA: holds a pending count of it */
	struct pl_memory *memory;
	size_t offset;
	uint32_t length;
	uint32_t sequence; /* WRITE: its number among the counted frames */
	enum pl_wire_status refusal;
	bool finished;
};

static struct pl_copier *lane_copier(const struct tcp_lane *lane)
{
	return pl_context_copier(lane->endpoint->context, lane->engine);
}

static struct pl_slots *pool_of(const struct tcp_lane *lane)
{
	return &lane->endpoint->context->slot_pool;
}

static void fail_staged_operation(struct pl_operation *operation, const char *id, const char *fact)
{
	struct pl_error error;

	pl_fail(&error, -EFAULT, id, "copy", NULL,
		"keep the memory allocated, and its context alive, while it is registered", "%s", fact);
	pl_operation_fail(operation, -EFAULT, &error);
}

/* -- outwards ------------------------------------------------------------------------------------- */

void tcp_piece_return_slot(struct tcp_lane *lane, struct tcp_piece *piece)
{
	if (!piece->slot)
		return;
	pl_slots_give(pool_of(lane), piece->slot);
	piece->slot = NULL;
	lane->slots--;
}

/* Turns a DATA answer into a refusal. */
static void refuse_staged_data(struct tcp_lane *lane, struct tcp_piece *piece, enum pl_wire_status status)
{
	tcp_piece_return_slot(lane, piece);
	pl_key_release(piece->key);
	piece->key = NULL;
	piece->payload = NULL;
	piece->length = 0;
	piece->frame = (struct pl_frame){
		.type = PL_FRAME_FAIL, .flags = PL_FRAME_READ, .cookie = piece->frame.cookie, .offset = status
	};
	tcp_lane_queue_piece(lane, piece);
}

static void drop_staged_write(struct tcp_lane *lane, struct tcp_piece *piece, int failure)
{
	struct pl_operation *operation = piece->operation;

	if (failure)
		fail_staged_operation(operation, "MEMORY-UNREADABLE", "the region's memory cannot be copied");
	tcp_piece_free(lane, piece);
	pl_operation_pending_done(operation);
}

static void piece_staged(struct tcp_lane *lane, struct tcp_piece *piece)
{
	pl_list_remove(&piece->link);
	if (piece->frame.type == PL_FRAME_DATA && piece->failure)
		refuse_staged_data(lane, piece, PL_WIRE_MEMORY);
	else if (piece->operation && (piece->failure || atomic_load(&piece->operation->canceled)))
		drop_staged_write(lane, piece, piece->failure);
	else
		tcp_lane_queue_piece(lane, piece);
}

static void piece_copied_to_slot(struct pl_copy *copy, int status)
{
	struct tcp_piece *piece = pl_container_of(copy, struct tcp_piece, staging.copy);
	struct tcp_lane *lane = piece->staging.lane;

	piece->ready = true;
	lane->staging -= piece->length;
	piece->failure = status;
	while (!pl_list_empty(&lane->copying)) {
		struct tcp_piece *first = pl_list_first(&lane->copying, struct tcp_piece, link);

		if (!first->ready)
			break;
		piece_staged(lane, first);
	}
	/* The function that starts copies sends the pieces that are ready. */
	if (!lane->starting_copies)
		tcp_lane_flush(lane);
}

/*
 * Returns a slot. A lane that uses some waits for them if no others are locked: a copy of ordinary memory would hold its engine up.
 * Sets *wait then.
 */
static struct pl_slot *take_lane_slot(struct tcp_lane *lane, const struct pl_memory *memory, unsigned used, bool *wait)
{
	struct pl_slot *slot = used ? pl_slots_take_more(pool_of(lane), memory) : pl_slots_take(pool_of(lane), memory);

	*wait = used && !slot;
	return slot;
}

/* Returns 1 if the first waiting piece has gone, 0 if it waits for a slot of the lane, or a negative errno. */
static int start_first_copy(struct tcp_lane *lane)
{
	struct tcp_piece *piece = pl_list_first(&lane->waiting, struct tcp_piece, link);
	struct pl_copier *copier;
	bool wait = false;

	if (piece->key && atomic_load(&piece->key->revoked)) {
		pl_list_remove(&piece->link);
		lane->staging -= piece->length;
		refuse_staged_data(lane, piece, PL_WIRE_UNKNOWN_KEY);
		return 1;
	}
	copier = lane_copier(lane);
	piece->slot = copier ? take_lane_slot(lane, piece->staging.memory, lane->slots, &wait) : NULL;
	if (!piece->slot)
		return wait ? 0 : -ENOMEM;
	lane->slots++;
	piece->payload = piece->slot->bytes;
	pl_list_remove(&piece->link);
	pl_list_append(&lane->copying, &piece->link);
	pl_copier_start(copier, &piece->staging.copy, piece->staging.memory, piece->staging.offset, piece->slot,
			piece->length, false);
	return 1;
}

void tcp_lane_start_copies(struct tcp_lane *lane)
{
	if (lane->starting_copies)
		return;
	lane->starting_copies = true;
	while (lane->state == TCP_LANE_UP && !pl_list_empty(&lane->waiting) && lane->slots < TCP_SLOTS) {
		int rc = start_first_copy(lane);

		if (rc < 0)
			tcp_lane_fail(lane, rc);
		if (rc <= 0)
			break;
	}
	lane->starting_copies = false;
}

void tcp_lane_finish_copies(struct tcp_lane *lane)
{
	if (!pl_list_empty(&lane->copying))
		pl_copier_finish(lane_copier(lane), false);
}

void tcp_piece_stage(struct tcp_lane *lane, struct tcp_piece *piece, struct pl_memory *memory, size_t offset)
{
	int rc;

	if (piece->length <= sizeof(piece->copy)) {
		/* Copies small payloads now, which costs less than a later visit. */
		rc = pl_memory_copy_out(memory, offset, piece->copy, piece->length);
		piece->payload = piece->copy;
		piece->failure = rc;
		piece_staged(lane, piece);
		return;
	}
	piece->staging.lane = lane;
	piece->staging.memory = memory;
	piece->staging.offset = offset;
	piece->staging.copy.done = piece_copied_to_slot;
	pl_list_init(&piece->staging.copy.link);
	piece->ready = false;
	piece->failure = 0;
	pl_list_append(&lane->waiting, &piece->link);
	lane->staging += piece->length;
	tcp_lane_start_copies(lane);
}

void tcp_lane_sweep_staging(struct tcp_lane *lane, bool all)
{
	bool flushing = lane->flushing, starting = lane->starting_copies;

	/* Waits for running copies, which use the region's memory. */
	if (all && (!pl_list_empty(&lane->copying) || lane->landing_count))
		pl_copier_drain(lane_copier(lane));
	/* An operation that completes here may post, also a write that it fenced: neither may start copies of the pieces walked here. */
	lane->flushing = lane->starting_copies = true;
	pl_list_for_each_safe(at, next, &lane->waiting) {
		struct tcp_piece *piece = pl_list_entry(at, struct tcp_piece, link);
		struct pl_operation *operation = piece->operation;

		if (!all && !(operation && atomic_load(&operation->canceled)))
			continue;
		lane->staging -= piece->length;
		tcp_piece_free(lane, piece);
		if (operation)
			pl_operation_pending_done(operation);
	}
	lane->flushing = flushing;
	lane->starting_copies = starting;
}

/* -- inwards -------------------------------------------------------------------------------------- */

static struct tcp_landing *landing_new(struct tcp_lane *lane)
{
	struct tcp_landing *landing = pl_zalloc(lane->engine->allocator, sizeof(*landing));

	if (landing) {
		landing->lane = lane;
		pl_list_init(&landing->link);
	}
	return landing;
}

static void landing_free(struct tcp_landing *landing)
{
	struct tcp_lane *lane = landing->lane;

	pl_list_remove(&landing->link);
	pl_slots_give(pool_of(lane), landing->slot);
	pl_key_release(landing->key);
	pl_free(lane->engine->allocator, landing);
}

/* Frees finished landings in order, because one number acknowledges all counted frames up to it. */
static void place_landings_in_order(struct tcp_lane *lane)
{
	while (!pl_list_empty(&lane->landings)) {
		struct tcp_landing *first = pl_list_first(&lane->landings, struct tcp_landing, link);
		enum pl_wire_status refusal = first->refusal;

		if (!first->finished) {
			lane->placed = first->sequence - 1;
			return;
		}
		lane->placed = first->sequence;
		landing_free(first);
		if (refusal != PL_WIRE_OK && tcp_lane_refuse_request(lane, PL_FRAME_WRITE, lane->placed, refusal) < 0)
			tcp_lane_fail(lane, -ENOMEM);
	}
	lane->placed = lane->received;
}

void tcp_lane_count_received(struct tcp_lane *lane, enum pl_wire_status refusal)
{
	struct tcp_landing *behind;

	lane->received++;
	if (pl_list_empty(&lane->landings)) {
		lane->placed = lane->received;
		if (refusal != PL_WIRE_OK && tcp_lane_refuse_request(lane, PL_FRAME_WRITE, lane->placed, refusal) < 0)
			tcp_lane_fail(lane, -ENOMEM);
		return;
	}
	if (refusal == PL_WIRE_OK)
		return;
	behind = landing_new(lane);
	if (!behind) {
		tcp_lane_fail(lane, -ENOMEM);
		return;
	}
	behind->sequence = lane->received;
	behind->refusal = refusal;
	behind->finished = true;
	pl_list_append(&lane->landings, &behind->link);
}

static const char staged_by_peer_reason[] =
	"tcp has no direct path to the peer's GPU memory: the bytes go through host memory there";

bool tcp_note_transfer_staging(struct pl_operation *operation)
{
	for (unsigned i = 0; i < operation->segment_count; i++) {
		const struct pl_segment *segment = &operation->segments[i];

		if (segment->region && pl_memory_staged(&segment->region->memory))
			pl_operation_staged(operation, segment->length,
					    operation->route_reason ? operation->route_reason
								    : pl_tcp_fabric.staging_reason);
		else if (tcp_staged_by_peer(segment->remote))
			pl_operation_staged(operation, segment->length,
					    operation->route_reason ? operation->route_reason : staged_by_peer_reason);
	}
	if (!(operation->attributes.flags & PL_REQUIRE_DIRECT) || !atomic_load(&operation->staged))
		return true;
	pl_operation_not_direct(operation, atomic_load(&operation->staged_reason));
	return false;
}

void tcp_fail_landing(struct pl_operation *operation)
{
	fail_staged_operation(operation, "MEMORY-UNWRITABLE", "the region's memory cannot be copied to");
}

static void landing_copied(struct pl_copy *copy, int status)
{
	struct tcp_landing *landing = pl_container_of(copy, struct tcp_landing, copy);
	struct pl_operation *operation = landing->operation;
	struct tcp_lane *lane = landing->lane;

	lane->landing_count--;
	if (operation) {
		if (status < 0)
			tcp_fail_landing(operation);
		landing_free(landing);
		pl_operation_pending_done(operation);
		return;
	}
	landing->finished = true;
	if (status < 0)
		landing->refusal = PL_WIRE_MEMORY;
	place_landings_in_order(lane);
	/*
	 * While receiving, frames received together are acknowledged together. Otherwise this call must send: refusals that
	 * were queued just now, and then the acknowledgement of frames behind the refused ones, which refusals do not carry.
	 */
	if (lane->state == TCP_LANE_UP && !lane->receiving) {
		tcp_lane_flush(lane);
		tcp_lane_ack(lane);
	}
}

void tcp_lane_finish_landings(struct tcp_lane *lane)
{
	/* A look costs more than it gains while frames are small. */
	if (lane->landing_count && lane->current.length >= TCP_CHUNK_MIN)
		pl_copier_finish(lane_copier(lane), true);
}

struct pl_slot *tcp_take_landing_slot(struct tcp_lane *lane, const struct pl_memory *memory)
{
	struct pl_copier *copier = lane_copier(lane);
	struct pl_slot *slot;
	bool wait;

	if (!copier)
		return NULL;
	while (lane->landing_count >= TCP_SLOTS)
		pl_copier_wait_one(copier, true);
	while (!(slot = take_lane_slot(lane, memory, lane->landing_count, &wait)) && wait)
		pl_copier_wait_one(copier, true);
	return slot;
}

int tcp_land_begin(struct tcp_lane *lane, struct pl_memory *memory, size_t offset, bool whole)
{
	struct tcp_landing *landing;

	lane->destination = (uint8_t *)memory->address + offset;
	if (whole && lane->remaining <= COPY_AT_ONCE_MAX)
		return 0;
	lane->destination = NULL;
	landing = landing_new(lane);
	if (!landing)
		return -ENOMEM;
	landing->slot = tcp_take_landing_slot(lane, memory);
	if (!landing->slot) {
		landing_free(landing);
		return -ENOMEM;
	}
	landing->memory = memory;
	landing->offset = offset;
	landing->length = lane->remaining;
	lane->landing = landing;
	lane->in_slot = true;
	lane->destination = landing->slot->bytes;
	return 0;
}

bool tcp_land_end(struct tcp_lane *lane, struct pl_key *key, struct pl_operation *operation)
{
	struct tcp_landing *landing = lane->landing;

	lane->landing = NULL;
	if (!landing)
		return false;
	if (!lane->destination) {
		/* A revoked key or a cancelled operation forbids the copy. */
		landing_free(landing);
		return false;
	}
	landing->key = key;
	landing->operation = operation;
	landing->copy.done = landing_copied;
	pl_list_init(&landing->copy.link);
	if (operation) {
		atomic_fetch_add(&operation->pending, 1);
	} else {
		landing->sequence = ++lane->received;
		pl_list_append(&lane->landings, &landing->link);
	}
	lane->landing_count++;
	pl_copier_start(lane_copier(lane), &landing->copy, landing->memory, landing->offset, landing->slot,
			landing->length, true);
	return true;
}

void tcp_land_drop(struct tcp_lane *lane)
{
	if (lane->landing)
		landing_free(lane->landing);
	lane->landing = NULL;
	while (!pl_list_empty(&lane->landings))
		landing_free(pl_list_first(&lane->landings, struct tcp_landing, link));
}
