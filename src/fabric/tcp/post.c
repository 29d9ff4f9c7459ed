/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Division of operations into frames. Small writes go to lane 0 at once. All others go to the endpoint's work lists,
 * from which each lane takes a chunk when it has room.
 */
#include <endian.h>
#include <limits.h>

#include "core/bulk_sender.h"
#include "fabric/tcp/landing.h"
#include "fabric/tcp/lane_share.h"
#include "fabric/tcp/read_ahead.h"

/* Chunk that a lane has taken. */
struct tcp_taken {
	struct pl_chunk chunk;
	struct tcp_joint *joint; /* NULL: it goes to its memory alone */
};

/* Returns the id of a remote key; 0 if the owner gave fewer bytes, behind which are those of other keys, or of freed memory. */
static uint64_t remote_key_id(const struct pl_remote *remote)
{
	uint64_t id;

	if (remote->key_length < sizeof(id))
		return 0;
	memcpy(&id, remote->key, sizeof(id));
	return le64toh(id);
}

/* Returns the id of a chunk's remote key. */
static uint64_t tcp_chunk_key(const struct tcp_work *work, const struct pl_segment *segment)
{
	return work->whole ? work->key : remote_key_id(segment->remote);
}

static bool tcp_segment_trails(const struct tcp_work *work, const struct pl_segment *segment)
{
	return !work->is_atomic && segment->remote->trailing;
}

/* True if a chunk is read with a trailing word. */
static bool tcp_chunk_trails(const struct tcp_work *work, const struct pl_segment *segment)
{
	return work->whole ? work->trails : tcp_segment_trails(work, segment);
}

static void fail_post_operation(struct pl_operation *operation, int code)
{
	struct pl_error error;

	pl_fail_memory(&error, "post");
	pl_operation_fail(operation, code, &error);
}

/* Queues a WRITE, with a pending count of the operation. */
static int tcp_lane_queue_write(struct tcp_lane *lane, const struct pl_chunk *chunk, uint64_t key)
{
	struct pl_operation *operation = chunk->operation;
	const struct pl_segment *segment = chunk->segment;
	uint32_t length = (uint32_t)chunk->length;
	uint64_t at = chunk->at;
	struct pl_frame frame = {
		.type = PL_FRAME_WRITE, .length = length, .key = key, .offset = segment->remote_offset + at
	};
	struct pl_memory *memory = &segment->region->memory;
	struct tcp_piece *piece = tcp_piece_new(lane, &frame);

	if (!piece)
		return -ENOMEM;
	piece->operation = operation;
	piece->fragile = memory->fragile;
	piece->length = length;
	atomic_fetch_add(&operation->pending, 1);
	atomic_fetch_or(&operation->rails, 1u << lane->index);
	if (length && pl_memory_staged(memory)) {
		tcp_piece_stage(lane, piece, memory, segment->offset + at);
		return 0;
	}
	piece->payload = pl_memory_host_pointer(memory, segment->offset + at);
	tcp_lane_queue_piece(lane, piece);
	return 0;
}

static int tcp_lane_queue_request(struct tcp_lane *lane, struct tcp_taken *taken)
{
	struct pl_operation *operation = taken->chunk.operation;
	const struct pl_segment *segment = taken->chunk.segment;
	uint32_t length = (uint32_t)taken->chunk.length;
	uint64_t at = taken->chunk.at;
	const struct tcp_work *work = tcp_work_of(operation);
	bool atomic = work->is_atomic, trailing = tcp_chunk_trails(work, segment);
	struct pl_frame frame = { .type = atomic ? PL_FRAME_ATOMIC : PL_FRAME_READ,
				  .length = length,
				  .key = tcp_chunk_key(work, segment),
				  .offset = segment->remote_offset + at };
	uint8_t *destination = NULL;
	struct tcp_request *request;
	struct tcp_piece *piece;

	/* An atomic's value needs no access to the memory. */
	if (!atomic)
		destination = (uint8_t *)segment->region->memory.address + segment->offset + at;
	if (trailing)
		frame.flags = PL_READ_TRAILING;
	piece = tcp_piece_new(lane, &frame);
	request = piece ? tcp_request_new(lane, &piece->frame.cookie) : NULL;
	if (!request) {
		if (piece)
			tcp_piece_free(lane, piece);
		return -ENOMEM;
	}
	if (atomic) {
		uint64_t words[2] = { htole64(operation->operand), htole64(operation->compare) };

		memcpy(piece->copy, words, sizeof(words));
		piece->payload = piece->copy;
		piece->length = piece->frame.length = sizeof(words);
		piece->frame.flags = operation->completion.kind == PL_KIND_FETCH_ADD ? PL_ATOMIC_ADD : PL_ATOMIC_SWAP;
	}
	request->operation = operation;
	request->atomic = atomic;
	request->fetch = work->is_fetch;
	request->trailing = trailing;
	request->destination = destination;
	request->memory = atomic ? NULL : &segment->region->memory;
	request->length = atomic ? 0 : length;
	request->joint = taken->joint;
	taken->joint = NULL;
	tcp_lane_count_requested(lane, request->length);
	if (tcp_lane_times_requests(lane))
		tcp_flight_add(&lane->flight, 0, piece->frame.cookie, lane->engine);
	atomic_fetch_add(&operation->pending, 1);
	atomic_fetch_or(&operation->rails, 1u << lane->index);
	tcp_lane_queue_piece(lane, piece);
	return 0;
}

/* True for lane 0 if others carry the bulk data. */
static bool tcp_lane_leaves_bulk(const struct tcp_lane *lane)
{
	return lane->index == 0 && atomic_load(&lane->endpoint->lanes_up) > 2;
}

/* Returns the operation whose chunk the lane takes next; NULL: none. The caller holds endpoint->lock. */
static struct pl_operation *tcp_lane_next_work(struct tcp_lane *lane, bool bulk)
{
	struct tcp_endpoint *endpoint = lane->endpoint;

	if (lane->index == 0 && !pl_list_empty(&endpoint->small_work))
		return pl_work_item_operation(endpoint->small_work.next);
	if (bulk && !pl_list_empty(&endpoint->work))
		return pl_work_item_operation(endpoint->work.next);
	return NULL;
}

/* Returns the joint of a chunk; NULL: none. A cancelled operation opens none: nothing would close it. */
static struct tcp_joint *tcp_joint_of(struct tcp_work *work, const struct pl_chunk *chunk)
{
	if (!work->joint_max || chunk->length == chunk->segment->length || atomic_load(&chunk->operation->canceled) ||
	    !pl_memory_staged(&chunk->segment->region->memory))
		return NULL;
	return tcp_joint_add(&work->joint, chunk, work->joint_max);
}

/* Takes the next chunk of an operation; of the only chunk just its length. The caller holds endpoint->lock. */
static void tcp_take_chunk(struct tcp_endpoint *endpoint, struct pl_operation *operation, struct tcp_taken *taken)
{
	struct tcp_work *work = tcp_work_of(operation);
	struct pl_chunk *chunk = &taken->chunk;
	bool last = work->whole;

	taken->joint = NULL;
	if (work->whole) {
		*chunk = (struct pl_chunk){ .operation = operation, .segment = work->segment, .length = work->total };
	} else {
		last = pl_work_item_take_chunk(operation, work->chunk, chunk);
		taken->joint = tcp_joint_of(work, chunk);
	}
	if (last) {
		pl_list_remove(&work->item.link);
		tcp_joint_close(endpoint, &work->joint);
	} else {
		atomic_fetch_add(&operation->pending, 1); /* while the chunk is being queued */
	}
	if (pl_list_empty(&endpoint->work))
		endpoint->waiting = 0;
	else if (!work->small)
		endpoint->waiting -= PL_MIN(chunk->length, endpoint->waiting);
}

/*
 * Takes at most `most` chunks, within the lane's share, and as many staged ones as it has slots. Several small ones have one look
 * at the list. Returns their number. The list's pending count keeps operations alive.
 */
static unsigned tcp_lane_take_batch(struct tcp_lane *lane, bool bulk, unsigned most, struct tcp_taken *chunks)
{
	struct tcp_endpoint *endpoint = lane->endpoint;
	uint64_t queued = (uint64_t)lane->queued + lane->staging, taken = PL_MAX(queued, lane->requested);
	unsigned count = 0;

	pthread_mutex_lock(&endpoint->lock);
	if (pl_list_empty(&endpoint->small_work) && pl_list_empty(&endpoint->work))
		atomic_store(&endpoint->any_work, false);
	if (atomic_load(&endpoint->any_small) && pl_list_empty(&endpoint->small_work))
		atomic_store(&endpoint->any_small, false);
	/*
	 * Since the look without the lock, an operation may have ended without this lane, with late frames on others, and the
	 * program may have posted work that must not overtake them. This look sees the frames if it sees that work.
	 */
	if (atomic_load(&endpoint->late))
		most = 0;
	while (count < most) {
		struct pl_operation *operation = tcp_lane_next_work(lane, bulk);
		const struct tcp_work *work = operation ? tcp_work_of(operation) : NULL;

		if (!work || queued >= tcp_lane_backlog(endpoint, work->staged) ||
		    tcp_lane_has_share(lane, work, taken) || (lane->slots + count >= TCP_SLOTS && work->staged) ||
		    tcp_lane_flight_is_full(lane, work, queued))
			break;
		tcp_take_chunk(endpoint, operation, &chunks[count]);
		taken += chunks[count].chunk.length;
		queued += work->is_write ? chunks[count].chunk.length : 0;
		count++;
	}
	pthread_mutex_unlock(&endpoint->lock);
	return count;
}

/* Returns the chunks that the lane may take at once; 0: it has no room. tcp_lane_take_batch() looks at limits that need the lock. */
static unsigned tcp_lane_room(const struct tcp_lane *lane)
{
	if (lane->state != TCP_LANE_UP ||
	    lane->queued >= (lane->slots ? TCP_LANE_STAGED_BACKLOG_MAX : TCP_LANE_BACKLOG) ||
	    lane->requested >= TCP_LANE_READ_AHEAD || lane->slots >= TCP_SLOTS || !pl_list_empty(&lane->waiting))
		return 0;
	return PL_MIN(TCP_REQUESTS_MAX - lane->request_count, TCP_BATCH);
}

static void tcp_lane_queue_chunk(struct tcp_lane *lane, struct tcp_taken *taken)
{
	const struct pl_chunk *chunk = &taken->chunk;
	struct pl_operation *operation = chunk->operation;
	const struct tcp_work *work = tcp_work_of(operation);
	int rc = 0;

	if (atomic_load(&operation->status))
		; /* a failed operation: its other chunks are not sent */
	else if (!work->is_write)
		rc = tcp_lane_queue_request(lane, taken);
	else if (chunk->length || work->total == 0)
		rc = tcp_lane_queue_write(lane, chunk, tcp_chunk_key(work, chunk->segment));
	if (rc == 0 && work->takes_turn && operation->has_turn && !atomic_load(&operation->status))
		rc = tcp_queue_notification(lane, operation, 1, work->messages);
	if (rc < 0)
		fail_post_operation(operation, rc);
	if (taken->joint)
		tcp_joint_leave(lane, taken->joint, false);
	pl_operation_pending_done(operation);
}

/* Gives the lane at most `most` chunks. Not inline: its array would cost lanes without work instructions, too. */
__attribute__((noinline)) static void tcp_lane_take_listed(struct tcp_lane *lane, bool bulk, unsigned most)
{
	struct tcp_taken chunks[TCP_BATCH];
	unsigned wanted, count;

	do {
		wanted = PL_MIN(tcp_lane_room(lane), most);
		count = wanted ? tcp_lane_take_batch(lane, bulk, wanted, chunks) : 0;
		most -= count;
		for (unsigned i = 0; i < count; i++)
			tcp_lane_queue_chunk(lane, &chunks[i]);
		/* Chunks of failed operations, and of copies that failed at once, are gone now. */
	} while (count && tcp_has_work(lane->endpoint));
}

static void tcp_lane_take_chunks(struct tcp_lane *lane, bool bulk, unsigned most)
{
	if (tcp_has_work(lane->endpoint) && (bulk || atomic_load(&lane->endpoint->any_small)))
		tcp_lane_take_listed(lane, bulk, most);
}

void tcp_lane_take_work(struct tcp_lane *lane)
{
	if (lane->flight.full)
		tcp_lane_look_for_room(lane);
	tcp_lane_take_chunks(lane, !tcp_lane_leaves_bulk(lane), UINT_MAX);
}

/* Closes the joints of cancelled operations, which the list drops. They open no others. */
static void tcp_close_joints(struct tcp_endpoint *endpoint)
{
	pthread_mutex_lock(&endpoint->lock);
	pl_list_for_each(at, &endpoint->work) {
		struct pl_operation *operation = pl_work_item_operation(at);

		if (atomic_load(&operation->canceled))
			tcp_joint_close(endpoint, &tcp_work_of(operation)->joint);
	}
	pthread_mutex_unlock(&endpoint->lock);
}

void tcp_work_sweep(struct tcp_endpoint *endpoint)
{
	tcp_close_joints(endpoint);
	pl_work_list_drop_canceled(&endpoint->gathered, &endpoint->lock, endpoint->base.peer);
	pl_work_list_drop_canceled(&endpoint->work, &endpoint->lock, endpoint->base.peer);
	pl_work_list_drop_canceled(&endpoint->small_work, &endpoint->lock, endpoint->base.peer);
}

static void tcp_post_small_write(struct tcp_lane *lane, struct pl_operation *operation)
{
	uint32_t count = 0;
	int rc = 0;

	tcp_take_turn_behind(lane->endpoint, operation);
	for (unsigned i = 0; rc == 0 && i < operation->segment_count; i++) {
		const struct pl_segment *segment = &operation->segments[i];
		const struct pl_chunk chunk = { operation, segment, 0, segment->length };

		if (segment->length == 0 && (count || operation->total))
			continue;
		rc = tcp_lane_queue_write(lane, &chunk, remote_key_id(segment->remote));
		count++;
	}
	if (rc == 0 && operation->has_turn)
		rc = tcp_queue_notification(lane, operation, count, 0);
	if (rc < 0)
		fail_post_operation(operation, rc);
	pl_operation_pending_done(operation);
	tcp_lane_push(lane);
}

/*
 * Returns the size of an operation's chunks. `staged`: each of them costs calls of the GPU's driver. While other operations are under
 * way, which occupy lanes, too, such chunks are larger.
 */
static uint32_t tcp_chunk_size(const struct tcp_endpoint *endpoint, const struct pl_operation *operation, bool staged)
{
	unsigned lanes = PL_MAX(atomic_load(&endpoint->lanes_up), 1u);
	uint64_t share = operation->total / (4 * lanes);

	if (staged)
		share = PL_MAX(share, PL_MIN(operation->total, (uint64_t)TCP_CHUNK_MAX * 2 * lanes) *
					      endpoint->base.peer->running / (2 * lanes));
	share = PL_MIN(PL_MAX(share, TCP_CHUNK_MIN), (uint64_t)TCP_CHUNK_MAX);
	return (uint32_t)((share + 127) & ~127ull);
}

/* Returns the limit of a lane's share in bytes, so that several lanes work on one operation. */
static uint32_t tcp_lane_share_max(const struct tcp_endpoint *endpoint, uint64_t total, uint32_t chunk)
{
	unsigned lanes = atomic_load(&endpoint->lanes_up);

	if (lanes < 2)
		return TCP_LANE_READ_AHEAD;
	return (uint32_t)PL_MIN(PL_MAX(2 * total / lanes, 4ull * chunk), (uint64_t)TCP_LANE_READ_AHEAD);
}

/* Decides on the chunks of an operation. */
static void tcp_divide_operation(const struct tcp_endpoint *endpoint, struct pl_operation *operation)
{
	struct tcp_work *work = tcp_work_of(operation);

	work->chunk = tcp_chunk_size(endpoint, operation, false);
	if (tcp_chunks_join(endpoint, operation, work->chunk))
		work->joint_max = PL_SLOT_SIZE;
	else if (work->staged)
		work->chunk = tcp_chunk_size(endpoint, operation, true);
	work->lane_share_max = tcp_lane_share_max(endpoint, operation->total, work->chunk);
	work->whole = operation->segment_count == 1 && operation->total <= work->chunk;
	if (!work->whole)
		return;
	work->segment = operation->segments;
	work->key = remote_key_id(work->segment->remote);
	work->trails = tcp_segment_trails(work, work->segment);
}

static uint64_t tcp_chunks_at_most(const struct pl_operation *operation, uint32_t chunk)
{
	return (operation->total + chunk - 1) / chunk + operation->segment_count - 1;
}

/* True if an operation is under way that a further one need not wait for, or lane 0 has no room for its first chunk. */
static bool tcp_is_busy(const struct tcp_endpoint *endpoint)
{
	const struct tcp_lane *lane = endpoint->lanes[0];

	/* What other threads write comes last. */
	return !pl_list_empty(&endpoint->gathered) || tcp_lane_is_under_way(lane) || !pl_list_empty(&lane->queue) ||
	       !tcp_lane_room(lane) || atomic_load(&endpoint->bulk_lanes) & ~atomic_load(&endpoint->hungry);
}

/* True if the operation goes over lane 0: it is small, and the calling thread sends it without delay for others. */
static bool tcp_is_small(const struct tcp_endpoint *endpoint, const struct pl_operation *operation, bool busy)
{
	if (operation->total < TCP_SPREAD_FROM)
		return true;
	if (operation->total > TCP_SMALL_MAX)
		return false;
	return atomic_load(&endpoint->lanes_up) < 2 || !(busy || pl_bulk_sender_is_occupied(endpoint->context));
}

void tcp_post(struct pl_endpoint *base, struct pl_operation *operation)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(base);
	struct tcp_work *work = tcp_work_of(operation);
	struct tcp_lane *lane = endpoint->lanes[0];
	bool busy = tcp_is_busy(endpoint), small;
	uint64_t chunks;

	if (!tcp_note_transfer_staging(operation)) {
		pl_operation_pending_done(operation);
		return;
	}
	tcp_widen_for(endpoint, operation->total);
	small = tcp_is_small(endpoint, operation, busy);
	if (small && operation->completion.kind == PL_KIND_WRITE && !atomic_load(&endpoint->late)) {
		tcp_post_small_write(lane, operation);
		return;
	}
	*work = (struct tcp_work){
		.small = small,
		.staged = atomic_load(&operation->staged),
		.is_write = operation->completion.kind == PL_KIND_WRITE,
		.is_atomic = operation->completion.kind > PL_KIND_READ,
		.is_fetch = operation->parent != NULL,
		.total = operation->total,
	};
	tcp_divide_operation(endpoint, operation);
	/* Data of one chunk has one lane. It may wait long, and the rest of the window is for messages. */
	work->takes_turn = work->whole && pl_message_has_room(base->peer) && tcp_take_turn_behind(endpoint, operation);
	if (work->takes_turn)
		work->messages = endpoint->messages;
	/* If nothing is under way, the first chunk needs no other thread. A calling thread that is occupied leaves it to others. */
	busy |= !small && operation->total <= TCP_SMALL_MAX;
	chunks = tcp_chunks_at_most(operation, work->chunk) - !busy;
	if (!small && operation->total <= TCP_SMALL_MAX && tcp_lane_leaves_bulk(lane) &&
	    tcp_gather_work(endpoint, &work->item.link, operation->total, chunks))
		return;
	if (small)
		tcp_list_small_work(endpoint, &work->item.link);
	else
		tcp_list_work(endpoint, &work->item.link, operation->total, chunks);
	if (!small && !busy)
		tcp_lane_take_chunks(lane, true, tcp_lane_leaves_bulk(lane) ? 1 : UINT_MAX);
	else
		tcp_lane_take_work(lane);
	tcp_lane_push(lane);
}
