/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reception of frames. Many small frames are read at once into the engine's scratch buffer and handled there. The payload of a
 * bulk frame is read straight to its destination; the same system call reads the next header, so a series of these is not copied.
 */
#include "base/ordered_copy.h"
#include "fabric/tcp/finish.h"
#include "fabric/tcp/landing.h"
#include "fabric/tcp/turns.h"

/*
 * Sizes in bytes of a WRITE and of DATA after which only a header is read, because the next frame is probably bulk too.
 * Small VALUE frames stand between DATA frames. A smaller answer is copied in less time than a system call takes.
 */
#define BULKY_WRITE_FROM 16384
#define BULKY_DATA_FROM 32768
/* Headers that are read at once between large answers. */
#define HEADERS_OF_ANSWERS 8u
/* Most bytes, and system calls, of one visit to a socket. Then other sockets get their turn. */
#define VISIT_BYTES (4u << 20)
#define VISIT_READS 256
/* Frames, and bytes, after which one-way traffic is acknowledged. */
#define ACK_FRAMES 512
#define ACK_BYTES (1u << 20)

static struct pl_peer *receiving_peer(const struct tcp_lane *lane)
{
	return lane->endpoint->base.peer;
}

/* -- small frames ------------------------------------------------------------------------------- */

static int request_value_arrived(struct tcp_lane *lane, const struct pl_frame *frame)
{
	struct tcp_request *request = tcp_request_find(lane, frame->cookie);

	if (!request || request->received != request->length)
		return -EPROTO;
	tcp_request_take_value(request, frame->offset);
	lane->bulky &= !request->atomic;
	tcp_request_complete(lane, request);
	return 0;
}

static void fail_refused_operation(struct pl_operation *operation, uint64_t status)
{
	struct pl_error error;

	if (!operation)
		return;
	pl_wire_fail(&error, (uint32_t)status, "transfer", NULL);
	pl_operation_fail(operation, error.code, &error);
}

static int tcp_write_refused(struct tcp_lane *lane, const struct pl_frame *frame)
{
	pl_list_for_each(at, &lane->unacked) {
		struct tcp_piece *piece = pl_list_entry(at, struct tcp_piece, link);

		if (piece->sequence != frame->cookie || piece->frame.type != PL_FRAME_WRITE)
			continue;
		fail_refused_operation(piece->operation, frame->offset);
		return 0;
	}
	return -EPROTO;
}

static int tcp_request_refused(struct tcp_lane *lane, const struct pl_frame *frame)
{
	struct tcp_request *request;

	/* The refusal of a WRITE acknowledges it, so that the search for the next one begins behind it. */
	if (frame->flags == PL_FRAME_WRITE)
		return frame->ack == frame->cookie ? tcp_write_refused(lane, frame) : -EPROTO;
	request = tcp_request_find(lane, frame->cookie);
	if (!request)
		return -EPROTO;
	fail_refused_operation(request->operation, frame->offset);
	tcp_request_complete(lane, request);
	return 0;
}

static int tcp_message_frame_arrived(struct tcp_lane *lane, const struct pl_frame *frame, const uint8_t *payload)
{
	if (frame->type == PL_FRAME_NOTIFY && (lane->index || frame->cookie || frame->flags))
		return tcp_notification_arrived(lane, frame, payload);
	if (lane->index == 0 && (frame->type == PL_FRAME_COPY || frame->type == PL_FRAME_COPIED) &&
	    lane->endpoint->copy_frame)
		return lane->endpoint->copy_frame(receiving_peer(lane), frame, payload);
	if (lane->index && frame->type == PL_FRAME_FINISH)
		return tcp_finish_arrived(lane, frame);
	if (lane->index != 0 || frame->type > PL_FRAME_CREDIT)
		return -EPROTO;
	if (tcp_frame_is_counted(frame->type))
		tcp_lane_count_received(lane, PL_WIRE_OK);
	return tcp_message_arrived(lane, frame, payload);
}

static int tcp_handle_small_frame(struct tcp_lane *lane, const struct pl_frame *frame, const uint8_t *payload)
{
	switch (frame->type) {
	case PL_FRAME_READ:
		return tcp_serve_read(lane, frame);
	case PL_FRAME_ATOMIC:
		return tcp_serve_atomic(lane, frame, payload);
	case PL_FRAME_VALUE:
		return request_value_arrived(lane, frame);
	case PL_FRAME_FAIL:
		return tcp_request_refused(lane, frame);
	case PL_FRAME_ACK:
		return 0;
	default:
		return tcp_message_frame_arrived(lane, frame, payload);
	}
}

/* -- bulk frames -------------------------------------------------------------------------------- */

static int data_frame_begins(struct tcp_lane *lane, const struct pl_frame *frame, bool whole)
{
	struct tcp_request *request = tcp_request_find(lane, frame->cookie);

	if (!request || request->atomic || frame->length > request->length - request->received)
		return -EPROTO;
	lane->request = request;
	lane->destination = request->destination ? request->destination + request->received : NULL;
	if (lane->destination && pl_memory_staged(request->memory) && frame->length &&
	    tcp_land_answer(lane, request, whole) < 0)
		return -ENOMEM;
	return 0;
}

static int data_frame_ends(struct tcp_lane *lane)
{
	struct tcp_request *request = lane->request;

	lane->request = NULL;
	tcp_land_end(lane, NULL, request->operation);
	request->received += lane->current.length;
	if (request->received == request->length && request->joint && lane->destination)
		tcp_joint_received(request);
	if (request->received == request->length)
		tcp_request_leave_joint(lane, request, lane->destination);
	if (!(lane->current.flags & TCP_DATA_LAST))
		return 0;
	/* The trailing word is in the VALUE that follows. */
	if (request->received != request->length || request->trailing)
		return -EPROTO;
	tcp_request_complete(lane, request);
	return 0;
}

static int bulk_frame_begins(struct tcp_lane *lane, const struct pl_frame *frame, bool whole)
{
	lane->current = *frame;
	lane->in_slot = false;
	lane->remaining = frame->length;
	lane->bulky = frame->length >= (frame->type == PL_FRAME_WRITE ? BULKY_WRITE_FROM : BULKY_DATA_FROM);
	if (frame->type == PL_FRAME_WRITE)
		return tcp_serve_write(lane, frame, whole);
	return data_frame_begins(lane, frame, whole);
}

static int bulk_frame_ends(struct tcp_lane *lane)
{
	lane->unacked_bytes += lane->current.length;
	if (lane->current.type == PL_FRAME_DATA)
		return data_frame_ends(lane);
	tcp_serve_written(lane);
	return 0;
}

/* Returns the destination of the next byte; NULL: drop the byte. Called before each use. */
static uint8_t *bulk_destination(struct tcp_lane *lane)
{
	if (lane->current.type == PL_FRAME_WRITE && lane->key && atomic_load(&lane->key->revoked)) {
		lane->destination = NULL;
		lane->refusal = PL_WIRE_UNKNOWN_KEY;
	} else if (lane->current.type == PL_FRAME_DATA && !lane->request->operation) {
		lane->destination = NULL;
	}
	return lane->destination;
}

/* Fails the current frame, whose destination the kernel could not write. */
static void fail_unwritable_destination(struct tcp_lane *lane)
{
	struct pl_operation *operation;
	struct pl_error error;

	lane->destination = NULL;
	if (lane->current.type == PL_FRAME_WRITE) {
		lane->refusal = PL_WIRE_MEMORY;
		return;
	}
	tcp_request_leave_joint(lane, lane->request, false);
	operation = lane->request->operation;
	lane->request->operation = NULL;
	/* The program may free the memory once the operation has ended. The answer may have further frames. */
	lane->request->destination = NULL;
	pl_fail(&error, -EFAULT, "MEMORY-UNWRITABLE", "recvmsg", NULL,
		"keep the region mapped and writable, and files behind it whole, while it is used",
		"the region's memory cannot be written");
	pl_operation_fail(operation, -EFAULT, &error);
	pl_operation_pending_done(operation);
}

static struct pl_memory *destination_memory(const struct tcp_lane *lane)
{
	return lane->current.type == PL_FRAME_WRITE ? lane->key->memory : lane->request->memory;
}

/* Copies of up to a cache line store aligned words in ascending order in any case. */
#define ORDERED_MIN 64u

static int copy_payload_to_destination(struct tcp_lane *lane, const uint8_t *bytes, uint32_t length)
{
	struct pl_memory *memory = destination_memory(lane);

	if (lane->in_slot) {
		memcpy(lane->destination, bytes, length);
		return 0;
	}
	/* A reader may poll the memory meanwhile. Few bytes may be a word that must be stored at once. */
	if (length > ORDERED_MIN && !memory->fragile && pl_memory_host_pointer(memory, 0)) {
		pl_copy_ordered(lane->destination, bytes, length);
		return 0;
	}
	return pl_memory_copy_in(memory, (size_t)(lane->destination - (uint8_t *)memory->address), bytes, length);
}

/* Consumes up to `length` bytes that were read already. Returns their number. */
static uint32_t bulk_consume_bytes(struct tcp_lane *lane, const uint8_t *bytes, size_t length)
{
	uint32_t count = (uint32_t)PL_MIN(length, (size_t)lane->remaining);
	uint8_t *destination = bulk_destination(lane);

	if (destination && copy_payload_to_destination(lane, bytes, count) < 0)
		fail_unwritable_destination(lane);
	else if (destination)
		lane->destination += count;
	lane->remaining -= count;
	return count;
}

/*
 * Returns the bytes to read into the scratch buffer, behind the payload of the current frame or between two: all that fit if small
 * frames are likely. Answers end with VALUE frames, of which several may stand before the next one. 0: only the next header.
 */
static size_t bytes_for_scratch(const struct tcp_lane *lane)
{
	if (!lane->bulky)
		return PL_ENGINE_SCRATCH;
	return lane->current.type == PL_FRAME_DATA ? HEADERS_OF_ANSWERS * PL_FRAME_HEADER : 0;
}

/*
 * Reads at most `most` bytes of payload to their destination. Behind the payload of a bulk frame reads the next header;
 * behind that of a smaller one fills the scratch buffer, because small frames come together. Sets `beyond` to the bytes
 * in the scratch buffer. Returns bytes or a negative errno.
 */
static ssize_t bulk_read_payload(struct tcp_lane *lane, size_t most, size_t *beyond)
{
	uint8_t *destination = bulk_destination(lane);
	struct iovec vectors[2] = {
		{ .iov_base = destination, .iov_len = lane->remaining },
		{ .iov_base = lane->head, .iov_len = sizeof(lane->head) },
	};
	bool gathers = bytes_for_scratch(lane) && most > lane->remaining;
	int count = 2;
	ssize_t got;

	*beyond = 0;
	if (!destination) {
		vectors[0].iov_base = lane->engine->scratch;
		most = PL_MIN(most, (size_t)PL_ENGINE_SCRATCH);
	}
	if (gathers) {
		/* Overwrites dropped bytes. */
		vectors[1].iov_base = lane->engine->scratch;
		vectors[1].iov_len = PL_MIN(most - lane->remaining, bytes_for_scratch(lane));
	}
	if (most < lane->remaining) {
		vectors[0].iov_len = most;
		count = 1;
	}
	lane->stream.fragile = destination && destination_memory(lane)->fragile && !lane->in_slot;
	got = pl_stream_read(&lane->stream, vectors, count);
	lane->read_short = got < (ssize_t)(vectors[0].iov_len + (count > 1 ? vectors[1].iov_len : 0));
	lane->stream.fragile = false;
	if (got == -EFAULT && destination) {
		fail_unwritable_destination(lane);
		return 0;
	}
	if (got <= 0)
		return got;
	if ((size_t)got > lane->remaining) {
		size_t behind = (size_t)got - lane->remaining;

		lane->remaining = 0;
		if (gathers)
			*beyond = behind;
		else
			lane->head_have = (unsigned)behind;
	} else {
		lane->remaining -= (uint32_t)got;
		if (destination)
			lane->destination += got;
	}
	return got;
}

/* -- the byte stream ---------------------------------------------------------------------------- */

static bool frame_is_bulk(const struct pl_frame *frame)
{
	return frame->type == PL_FRAME_WRITE || frame->type == PL_FRAME_DATA;
}

/* Handles one frame at the front of the bytes. Returns bytes used, 0 if more are needed, or a negative errno. */
static ssize_t tcp_lane_handle_frame(struct tcp_lane *lane, const uint8_t *bytes, size_t length)
{
	struct pl_frame frame;
	uint32_t payload, used = PL_FRAME_HEADER;
	int rc;

	if (length < PL_FRAME_HEADER)
		return 0;
	rc = pl_frame_decode(bytes, &frame);
	if (rc < 0)
		return -EPROTO;
	payload = pl_frame_payload(&frame);
	if (frame_is_bulk(&frame)) {
		rc = bulk_frame_begins(lane, &frame, length - used >= payload);
		if (rc == 0) {
			used += bulk_consume_bytes(lane, bytes + used, length - used);
			if (lane->remaining == 0)
				rc = bulk_frame_ends(lane);
		}
	} else {
		if (length - used < payload)
			return 0;
		lane->bulky &= frame.type == PL_FRAME_VALUE;
		rc = tcp_handle_small_frame(lane, &frame, bytes + used);
		used += payload;
	}
	if (rc < 0)
		return rc;
	tcp_lane_take_ack(lane, frame.ack);
	return used;
}

static int save_incomplete_frame(struct tcp_lane *lane, const uint8_t *bytes, size_t length)
{
	if (length < PL_FRAME_HEADER) {
		memcpy(lane->head, bytes, length);
		lane->head_have = (unsigned)length;
		return 0;
	}
	lane->carry = pl_alloc(lane->engine->allocator, length);
	if (!lane->carry)
		return -ENOMEM;
	memcpy(lane->carry, bytes, length);
	lane->carry_length = (uint32_t)length;
	return 0;
}

static int tcp_lane_handle_frames(struct tcp_lane *lane, const uint8_t *bytes, size_t length)
{
	while (length && lane->state == TCP_LANE_UP && lane->remaining == 0) {
		ssize_t used = tcp_lane_handle_frame(lane, bytes, length);

		if (used < 0)
			return (int)used;
		if (used == 0)
			return save_incomplete_frame(lane, bytes, length);
		bytes += used;
		length -= (size_t)used;
	}
	return 0;
}

/* Handles the frames of one look at the socket. */
static int tcp_lane_handle_batch(struct tcp_lane *lane, size_t length)
{
	bool outer = pl_engine_begin_batch(lane->engine);
	int rc = tcp_lane_handle_frames(lane, lane->engine->scratch, length);

	pl_engine_end_batch(lane->engine, outer);
	return rc;
}

/* Moves the rest of the last read to the front of the scratch buffer. Returns its length. */
static size_t restore_incomplete_frame(struct tcp_lane *lane)
{
	uint8_t *scratch = lane->engine->scratch;
	size_t have = lane->carry ? lane->carry_length : lane->head_have;

	memcpy(scratch, lane->carry ? lane->carry : lane->head, have);
	pl_free(lane->engine->allocator, lane->carry);
	lane->carry = NULL;
	lane->head_have = 0;
	return have;
}

/* Reads at most `most` bytes once, and handles them. Returns bytes read or a negative errno. */
static ssize_t tcp_lane_receive_once(struct tcp_lane *lane, size_t most)
{
	struct iovec vector;
	size_t have;
	ssize_t got;
	int rc;

	if (lane->remaining) {
		got = bulk_read_payload(lane, most, &have);
		if (got < 0 || lane->remaining)
			return got;
		rc = bulk_frame_ends(lane);
		if (rc == 0 && lane->head_have == PL_FRAME_HEADER && lane->state == TCP_LANE_UP)
			have = restore_incomplete_frame(lane);
		if (rc == 0)
			rc = tcp_lane_handle_batch(lane, have);
		return rc < 0 ? rc : got;
	}
	have = restore_incomplete_frame(lane);
	vector.iov_base = lane->engine->scratch + have;
	vector.iov_len = PL_MIN(PL_ENGINE_SCRATCH - have, most);
	if (lane->bulky && have < PL_FRAME_HEADER)
		vector.iov_len = PL_MIN(most, PL_MAX(bytes_for_scratch(lane), (size_t)PL_FRAME_HEADER) - have);
	got = pl_stream_read(&lane->stream, &vector, 1);
	lane->read_short = got < (ssize_t)vector.iov_len;
	if (got < 0) {
		rc = have ? save_incomplete_frame(lane, lane->engine->scratch, have) : 0;
		return rc < 0 ? rc : got;
	}
	rc = tcp_lane_handle_batch(lane, have + (size_t)got);
	return rc < 0 ? rc : got;
}

/* True if the last read, which ended with a frame, has emptied the socket. A read of a sealed stream ends with its record. */
static bool tcp_lane_is_empty(const struct tcp_lane *lane, ssize_t got)
{
	if (lane->remaining || pl_stream_pending(&lane->stream))
		return false;
	return lane->bulky ? lane->read_short && !lane->stream.sealed && !lane->stream.ssl : got < 16384;
}

bool tcp_lane_receive(struct tcp_lane *lane)
{
	bool limited = tcp_lane_has_rate(lane);
	size_t total = 0, most = SIZE_MAX;
	ssize_t got = 0;

	lane->receiving = true;
	for (int reads = 0; lane->state == TCP_LANE_UP && !lane->stopped && total < VISIT_BYTES && reads < VISIT_READS;
	     reads++) {
		pl_engine_tick(lane->engine);
		if (limited)
			most = tcp_lane_take_allowance(lane, &lane->reading);
		if (!most)
			break;
		got = tcp_lane_receive_once(lane, most);
		if (got < 0)
			break;
		total += (size_t)got;
		tcp_allowance_use(&lane->reading, got);
		/* A visit may be long, and the other end waits for what is placed. */
		tcp_lane_finish_landings(lane);
		if (lane->placed - lane->placed_told >= ACK_FRAMES || lane->unacked_bytes >= ACK_BYTES)
			tcp_lane_ack(lane);
		if (tcp_lane_must_ask(lane))
			tcp_lane_flush(lane);
		if (tcp_lane_is_empty(lane, got))
			break;
	}
	lane->receiving = false;
	tcp_lane_hand_finished(lane);
	if (got < 0 && got != -EAGAIN)
		tcp_lane_fail(lane, (int)got);
	/* The timer goes on. */
	else if (!most && lane->state == TCP_LANE_UP)
		pl_source_watch(&lane->source, tcp_lane_events(lane) | (lane->blocked ? EPOLLOUT : 0));
	/* epoll does not report bytes that the stream has received: lane_run() reads them, after other sockets. */
	else if (lane->state == TCP_LANE_UP && !lane->stopped && pl_stream_pending(&lane->stream))
		tcp_lane_wake(lane);
	return total > 0;
}

void tcp_lane_drop_received(struct tcp_lane *lane)
{
	tcp_land_drop(lane);
	pl_key_release(lane->key);
	pl_key_release(lane->kept_key);
	lane->key = lane->kept_key = NULL;
	lane->request = NULL;
	lane->remaining = 0;
	pl_free(lane->engine->allocator, lane->carry);
	lane->carry = NULL;
}
