/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Vectors between a GPU and host memory of this process that is not locked. A kernel cannot touch this memory, and the driver copies
 * each block of it while the caller waits. So the bytes go through locked memory of the library, in pieces: the processor copies
 * between the host memory and a piece, and a kernel between the piece and the GPU. The kernel of one piece runs while the processor
 * copies another one. The pieces are few and small, so that they stay in the processor's cache. Copies do the rest of the operation
 * if a kernel was withdrawn.
 */
#include "fabric/local/gpu_gather.h"

/* Fewest segments, and largest mean segment in bytes, for which a kernel is faster than a copy for each segment. */
#define SEGMENTS_MIN 8u
#define SEGMENT_MEAN (1u << 20)
/* Bytes of a piece. The start of a kernel takes the processor less than a tenth of the time in which it copies a piece. */
#define PIECE_BYTES (512u << 10)
/* Most bytes of a range: a piece has ranges for all blocks of its kernel. */
#define RANGE_BYTES (16u << 10)
/* Most ranges of a piece. */
#define RANGES_MAX 4096u
/* The kernel copies words of 16 bytes if both addresses have the same remainder. */
#define ALIGNMENT 16u
#define SLOTS 2u
#define PIECES_OF_SLOT (PL_SLOT_SIZE / PIECE_BYTES)
#define PIECES (SLOTS * PIECES_OF_SLOT)

static const char reason_ring[] = "local: a kernel of the GPU copies, through locked memory of the library";
static const char reason_no_slot[] =
	"local: a GPU copies between the host memory of one process and the other's GPU memory, slowly, as the library "
	"could lock no memory to copy through, see staging_bytes of pl_open and ulimit -l";

/* FULL: the kernel of a read has ended, and the processor has not copied the bytes yet. */
enum piece_state { PIECE_EMPTY, PIECE_RUNS, PIECE_FULL };

struct piece {
	struct pl_gather_copy copy; /* copy.sequence: index of the piece */
	uint8_t *bytes;
	enum piece_state state;
	struct local_position from; /* of its first byte */
	unsigned end;               /* the segment after the last one that it touches */
	unsigned ranges;
	uint64_t length;
};

/* State of an operation. */
struct ring {
	struct pl_operation *operation;
	struct pl_watch turn; /* waits for a turn to copy */
	struct pl_slot *slots[SLOTS];
	struct piece pieces[PIECES];
	unsigned piece_count;
	struct local_position next;   /* of the first byte without a piece */
	struct local_position again;  /* copies do the rest from here on, if `copies` */
	const char *reason_of_copies; /* reason of the route then */
	bool copies;                  /* a kernel was withdrawn, or there is no room for one */
	bool starting;                /* prevents recursion */
};

static bool is_write(const struct ring *ring)
{
	return ring->operation->completion.kind == PL_KIND_WRITE;
}

static bool has_failed(const struct ring *ring)
{
	return atomic_load(&ring->operation->status) || atomic_load(&ring->operation->canceled);
}

/* -- whether the ring can do it ------------------------------------------------------------------------- */

/* True if a kernel and the processor suit the segment. Its gate is held. */
static bool segment_suits(const struct pl_segment *segment, uint64_t device)
{
	const struct pl_memory *memory = &segment->region->memory;
	const struct pl_memory *gpu = local_ends_of(segment->region, segment->remote).gpu;

	/* The driver copies locked memory that no kernel may touch faster than a processor, which may read it slowly. */
	return gpu->device == device && gpu->ops->gather_take && gpu->ops->host_is_locked &&
	       !gpu->ops->host_is_locked(gpu, memory->address, memory->length);
}

/* The same, of a segment whose gate is not held. */
static bool segment_is_for_ring(const struct pl_operation *operation, unsigned number)
{
	const struct pl_segment *segment = &operation->segments[number];
	const struct local_access *access = segment->remote->fabric_data;
	struct pl_error error;
	bool suited;

	if (access->path != &local_device_path || pl_memory_staged(&segment->region->memory) ||
	    local_kernel_gate_hold(access, operation, &error) < 0)
		return false;
	suited = segment_suits(segment, local_gather_gpu(operation)->device);
	local_copy_gate_release(access);
	return suited;
}

static bool suits(const struct pl_operation *operation)
{
	if (operation->segment_count < SEGMENTS_MIN ||
	    ((const struct local_access *)operation->segments->remote->fabric_data)->path != &local_device_path ||
	    !operation->total || operation->total / operation->segment_count > SEGMENT_MEAN ||
	    !operation->segments->region || operation->context->options.gpu_multiprocessors == PL_NO_GPU_KERNEL ||
	    (operation->attributes.flags & PL_REQUIRE_DIRECT))
		return false;
	for (unsigned i = 0; i < operation->segment_count; i = local_next_memory(operation, i))
		if (!segment_is_for_ring(operation, i))
			return false;
	return true;
}

/* -- pieces -------------------------------------------------------------------------------------------- */

/* Position in a piece, and the position in the operation whose bytes are there. */
struct cursor {
	struct local_position at;
	size_t used;
};

struct span {
	const struct pl_segment *segment;
	uint64_t at;
	size_t in_piece, length;
};

/* Returns the segment with the byte at a position, which moves past segments without further bytes; NULL: there is none. */
static const struct pl_segment *segment_at(const struct pl_operation *operation, struct local_position *at)
{
	while (at->segment < operation->segment_count && at->done == operation->segments[at->segment].length)
		*at = (struct local_position){ at->segment + 1, 0 };
	return at->segment < operation->segment_count ? &operation->segments[at->segment] : NULL;
}

/* Takes the next span of a piece; each walk over a piece gives the same ones. Returns false if the piece has no room. */
static bool next_span(const struct pl_operation *operation, struct cursor *cursor, struct span *span)
{
	const struct pl_segment *segment = segment_at(operation, &cursor->at);
	uint64_t done = cursor->at.done;
	size_t begin;

	if (!segment)
		return false;
	begin = cursor->used + (size_t)((segment->remote_offset + done - cursor->used) % ALIGNMENT);
	if (begin >= PIECE_BYTES)
		return false;
	*span = (struct span){ segment, done, begin, PIECE_BYTES - begin };
	span->length = (size_t)PL_MIN(segment->length - done, PL_MIN((uint64_t)span->length, (uint64_t)RANGE_BYTES));
	cursor->at.done += span->length;
	cursor->used = begin + span->length;
	return true;
}

/* Gives the next bytes of the operation to a piece. */
static void cut_piece(struct ring *ring, struct piece *piece)
{
	struct cursor cursor = { ring->next, 0 };
	struct span span;

	piece->from = ring->next;
	piece->ranges = 0;
	piece->length = 0;
	while (piece->ranges < RANGES_MAX && next_span(ring->operation, &cursor, &span)) {
		piece->ranges++;
		piece->length += span.length;
		piece->end = cursor.at.segment + 1;
	}
	ring->next = cursor.at;
}

/* Copies between a piece and the host memory. */
static void copy_piece(struct ring *ring, const struct piece *piece)
{
	struct pl_operation *operation = ring->operation;
	struct cursor cursor = { piece->from, 0 };
	struct pl_error error;
	struct span span;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < piece->ranges && next_span(operation, &cursor, &span); i++) {
		struct pl_memory *memory = &span.segment->region->memory;
		uint64_t offset = span.segment->offset + span.at;

		rc = is_write(ring) ? pl_memory_copy_out(memory, offset, piece->bytes + span.in_piece, span.length)
				    : pl_memory_copy_in(memory, offset, piece->bytes + span.in_piece, span.length);
	}
	if (rc == 0)
		return;
	local_copy_fail(&error, rc, is_write(ring));
	pl_operation_fail(operation, rc, &error);
}

/* Fills the list of the kernel. Counts the bytes: memory that the library allocated may be locked for later operations. */
static void fill_ranges(const struct ring *ring, const struct piece *piece, const struct pl_memory *gpu)
{
	struct pl_gather *gather = piece->copy.gather;
	struct cursor cursor = { piece->from, 0 };
	struct span span;

	while (gather->count < piece->ranges && next_span(ring->operation, &cursor, &span)) {
		uint64_t there = local_ends_of(span.segment->region, span.segment->remote).there +
				 span.segment->remote_offset + span.at;
		uint64_t here = (uintptr_t)piece->bytes + span.in_piece;

		gather->ranges[gather->count++] = (struct pl_gather_range){
			.to = is_write(ring) ? there : here,
			.from = is_write(ring) ? here : there,
			.length = span.length,
		};
		local_region_note_copy(span.segment->region, gpu, span.length);
	}
	gather->bytes = piece->length;
}

/* -- kernels ------------------------------------------------------------------------------------------- */

/* Leaves the rest of the operation to copies, from the earliest such position on. */
static void use_copies(struct ring *ring, struct local_position from)
{
	struct local_position *again = &ring->again;

	if (!ring->copies || from.segment < again->segment ||
	    (from.segment == again->segment && from.done < again->done))
		*again = from;
	ring->copies = true;
}

/* True if a kernel reaches the piece and its bytes of the GPU: the program may free memory between two kernels. */
static bool piece_is_reached(const struct ring *ring, const struct piece *piece)
{
	const struct pl_memory memory = { .ops = &pl_host_memory, .address = piece->bytes, .length = PIECE_BYTES };
	const struct pl_operation *operation = ring->operation;

	for (unsigned i = piece->from.segment; i < piece->end; i = local_next_memory(operation, i)) {
		const struct local_access *access = operation->segments[i].remote->fabric_data;

		if (!local_device_kernel_reaches(access->device, &memory, true))
			return false;
	}
	return true;
}

/* Starts the kernel of a piece, or gives its gather back. The gate of the first segment is held. */
static void start_kernel(struct ring *ring, struct piece *piece, struct pl_copier *copier)
{
	struct pl_operation *operation = ring->operation;
	unsigned most = PL_MIN(operation->context->options.gpu_multiprocessors, LOCAL_HOST_MULTIPROCESSORS), held;
	bool reached = piece_is_reached(ring, piece);
	struct pl_error error;

	if (!reached)
		use_copies(ring, piece->from);
	held = reached ? local_gather_hold_gates(operation, piece->from.segment, piece->end, true, &error)
		       : piece->from.segment;
	if (held == piece->end) {
		piece->state = PIECE_RUNS;
		pl_copier_gather(copier, &piece->copy, most);
		return;
	}
	if (reached)
		pl_operation_fail(operation, error.code, &error);
	local_gather_hold_gates(operation, piece->from.segment, held, false, NULL);
	piece->copy.gather->ops->gather_give(piece->copy.gather);
}

/*
 * Does the next bytes of the operation by a piece, or leaves them to copies. The gate is held from the time at which the gather is
 * taken, because the end of the GPU's use would free it.
 */
static void start_piece(struct ring *ring, struct piece *piece)
{
	struct pl_operation *operation = ring->operation;
	struct pl_copier *copier = pl_context_copier(operation->context, operation->home);
	const struct pl_segment *first = segment_at(operation, &ring->next);
	const struct local_access *access = first->remote->fabric_data;
	const struct pl_memory *gpu;
	struct pl_error error;
	int rc = local_kernel_gate_hold(access, operation, &error);

	if (rc < 0) {
		pl_operation_fail(operation, rc, &error);
		return;
	}
	cut_piece(ring, piece);
	gpu = local_ends_of(first->region, first->remote).gpu;
	pl_copier_prepare(copier, gpu);
	piece->copy.gather = gpu->ops->gather_take(gpu, piece->ranges);
	if (piece->copy.gather) {
		fill_ranges(ring, piece, gpu);
		if (is_write(ring))
			copy_piece(ring, piece);
		start_kernel(ring, piece, copier);
	} else {
		use_copies(ring, piece->from);
	}
	local_copy_gate_release(access);
}

/* -- the operation ------------------------------------------------------------------------------------- */

static void ring_free(struct ring *ring)
{
	struct pl_context *context = ring->operation->context;

	for (unsigned i = 0; i < SLOTS; i++)
		pl_slots_give(&context->slot_pool, ring->slots[i]);
	pl_free(&context->allocator, ring);
}

static void ring_end(struct ring *ring)
{
	struct pl_operation *operation = ring->operation;
	struct local_position again = ring->again;
	bool copies = ring->copies;

	if (copies)
		operation->route_reason = ring->reason_of_copies;
	ring_free(ring);
	if (copies)
		local_device_post(operation, again);
	else
		pl_operation_pending_done(operation);
}

static bool may_copy_piece(struct ring *ring)
{
	const struct pl_operation *operation = ring->operation;

	return pl_copier_may_block(pl_context_copier(operation->context, operation->home), &ring->turn,
				   (size_t)PL_MIN(operation->total, (uint64_t)PIECE_BYTES));
}

/* Returns false if the piece waits for a turn. */
static bool advance_piece(struct ring *ring, struct piece *piece)
{
	if (piece->state == PIECE_FULL) {
		if (!has_failed(ring)) {
			if (!may_copy_piece(ring))
				return false;
			copy_piece(ring, piece);
		}
		piece->state = PIECE_EMPTY;
	}
	if (piece->state != PIECE_EMPTY || ring->copies || has_failed(ring) ||
	    !segment_at(ring->operation, &ring->next))
		return true;
	if (is_write(ring) && !may_copy_piece(ring))
		return false;
	start_piece(ring, piece);
	return true;
}

static bool kernels_run(const struct ring *ring)
{
	for (unsigned i = 0; i < ring->piece_count; i++)
		if (ring->pieces[i].state == PIECE_RUNS)
			return true;
	return false;
}

static void ring_advance(struct ring *ring)
{
	bool waits = false;

	ring->starting = true;
	for (unsigned i = 0; i < ring->piece_count && !waits; i++)
		waits = !advance_piece(ring, &ring->pieces[i]);
	ring->starting = false;
	if (!waits && !kernels_run(ring) && pl_list_empty(&ring->turn.link))
		ring_end(ring);
}

static bool ring_has_turn(struct pl_watch *turn)
{
	ring_advance(pl_container_of(turn, struct ring, turn));
	return true;
}

static void kernel_ended(struct pl_copy *base, int status)
{
	struct pl_gather_copy *copy = pl_container_of(base, struct pl_gather_copy, copy);
	struct piece *piece = pl_container_of(copy, struct piece, copy);
	struct ring *ring = pl_container_of(piece - base->sequence, struct ring, pieces);
	struct pl_operation *operation = ring->operation;
	struct pl_error error;

	local_gather_hold_gates(operation, piece->from.segment, piece->end, false, NULL);
	piece->state = status == 0 && !is_write(ring) ? PIECE_FULL : PIECE_EMPTY;
	if (status == 0) {
		pl_operation_staged(operation, piece->length, reason_ring);
	} else if (status == -ECANCELED) {
		use_copies(ring, piece->from);
	} else {
		local_copy_fail(&error, status, is_write(ring));
		pl_operation_fail(operation, status, &error);
	}
	if (!ring->starting)
		ring_advance(ring);
}

/* Takes locked memory near the GPU for the pieces. Returns false if there is none. */
static bool take_slots(struct ring *ring, const struct pl_memory *gpu)
{
	struct pl_operation *operation = ring->operation;
	unsigned wanted = operation->total > PL_SLOT_SIZE ? SLOTS : 1;

	for (unsigned i = 0; i < wanted; i++) {
		ring->slots[i] = pl_slots_take_more(&operation->context->slot_pool, gpu);
		if (!ring->slots[i])
			break;
		for (unsigned k = 0; k < PIECES_OF_SLOT; k++) {
			struct piece *piece = &ring->pieces[ring->piece_count];

			piece->bytes = ring->slots[i]->bytes + (size_t)k * PIECE_BYTES;
			piece->copy.copy = (struct pl_copy){ .sequence = ring->piece_count++, .done = kernel_ended };
		}
	}
	return ring->piece_count;
}

/* True if the GPU has a kernel that could start now. Without this look, a process that loaded none would lock slots for nothing. */
static bool kernel_may_start(const struct pl_memory *gpu)
{
	struct pl_gather *gather = gpu->ops->gather_take(gpu, 1);

	if (gather)
		gather->ops->gather_give(gather);
	return gather;
}

/* Returns NULL if copies do the operation. Sets the reason then, if no memory could be locked. */
static struct ring *ring_new(struct pl_operation *operation)
{
	const struct pl_memory *gpu = local_gather_gpu(operation);
	struct ring *ring = kernel_may_start(gpu) ? pl_zalloc(&operation->context->allocator, sizeof(*ring)) : NULL;

	if (!ring)
		return NULL;
	ring->operation = operation;
	ring->reason_of_copies = operation->route_reason;
	pl_watch_init(&ring->turn, ring_has_turn);
	if (!take_slots(ring, gpu)) {
		operation->route_reason = reason_no_slot;
	} else {
		ring->pieces[0].end = 1;
		if (piece_is_reached(ring, &ring->pieces[0]))
			return ring;
	}
	ring_free(ring);
	return NULL;
}

bool local_ring_post(struct pl_operation *operation)
{
	const struct local_access *access;
	struct ring *ring;
	struct pl_error error;

	if (!suits(operation) || !pl_context_copier(operation->context, operation->home))
		return false;
	/* Copies find the same error of the gate. */
	access = operation->segments->remote->fabric_data;
	if (local_kernel_gate_hold(access, operation, &error) < 0)
		return false;
	ring = ring_new(operation);
	local_copy_gate_release(access);
	if (!ring)
		return false;
	ring_advance(ring);
	return true;
}
