/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How work becomes a work request: what lists of them and single ones have in common.  Inline, for the sake of those
 * that are posted alone.
 */
#ifndef PL_FABRIC_VERBS_DATA_REQUEST_H
#define PL_FABRIC_VERBS_DATA_REQUEST_H

#include <endian.h>

#include "fabric/verbs/data/imm_tag.h"
#include "fabric/verbs/verbs.h"

/* Without a part of the operation's. */
PL_ALWAYS_INLINE struct verbs_work *verbs_work_take(struct verbs_endpoint *endpoint, enum verbs_work_kind kind,
						    struct pl_operation *operation)
{
	struct verbs_work *work;

	if (endpoint->spare_count) {
		work = pl_list_first(&endpoint->spare, struct verbs_work, link);
		pl_list_remove(&work->link);
		endpoint->spare_count--;
	} else {
		work = pl_alloc(&endpoint->state->context->allocator, sizeof(*work));
	}
	if (!work)
		return NULL;
	memset(work, 0, offsetof(struct verbs_work, frame));
	pl_list_init(&work->link);
	work->kind = kind;
	work->operation = operation;
	return work;
}

PL_ALWAYS_INLINE enum verbs_work_kind verbs_kind_of(const struct pl_operation *operation)
{
	switch (operation->receipt.kind) {
	case PL_KIND_WRITE:
		return VERBS_WRITE;
	case PL_KIND_READ:
		return VERBS_READ;
	default:
		return VERBS_ATOMIC;
	}
}

/* work.c.  False: the profile of routes says that staging is better, and the program does not insist. */
bool verbs_is_advised(const struct verbs_device *device, struct pl_operation *operation,
		      const struct pl_segment *segment, bool written, const char **refusal);

PL_ALWAYS_INLINE bool verbs_needs_buffer(const struct verbs_work *work)
{
	return work->staged || work->back || work->kind == VERBS_FRAME || work->kind == VERBS_ATOMIC;
}

/* The buffer that a work request needs: 0, -EAGAIN if there is none now, or why there never is one. */
PL_ALWAYS_INLINE int verbs_take_buffer(struct verbs_queue *queue, struct verbs_work *work)
{
	struct verbs_pool *pool = work->staged ? &queue->stages : &queue->sends;
	struct verbs_buffer *last = work->buffer;
	int rc = 0;

	/* Another device does not know the buffer that the last one had. */
	if (last && last->pool == pool)
		return 0;
	if (!pool->mr)
		rc = verbs_pool_open(pool, queue, VERBS_STAGES, VERBS_STAGE);
	if (rc < 0)
		return rc;
	work->buffer = verbs_pool_take(pool);
	if (!work->buffer) {
		work->buffer = last;
		return -EAGAIN;
	}
	if (last) {
		memcpy(work->buffer->bytes, last->bytes, work->gathered ? PL_FRAME_HEADER : work->length);
		verbs_buffer_put(last);
	}
	return 0;
}

PL_ALWAYS_INLINE void verbs_number(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	if (!verbs_unnumbered(work) && !work->counted)
		work->frame.ack = ++endpoint->sent;
}

/* How many bytes; those that are gathered are not copied. */
PL_ALWAYS_INLINE uint32_t verbs_put_payload(const struct verbs_work *work, uint8_t *bytes)
{
	uint32_t length = pl_frame_payload(&work->frame);

	if (length && !work->gathered)
		memcpy(bytes, work->payload, length);
	return length;
}

/* Header and payload. */
PL_ALWAYS_INLINE uint32_t verbs_put_frame(const struct verbs_work *work, uint8_t *bytes)
{
	pl_frame_encode(&work->frame, bytes);
	return PL_FRAME_HEADER + verbs_put_payload(work, bytes + PL_FRAME_HEADER);
}

/*
 * The bytes are copied, so the operation's buffer is free again: that part of it is done.  Those that are gathered are
 * the device's until it is done with them.  `packed`: others come behind it, so that it needs its header.
 */
PL_ALWAYS_INLINE void verbs_copy_frame(struct verbs_endpoint *endpoint, struct verbs_work *work, bool packed)
{
	struct pl_operation *operation = work->operation;

	if (work->built)
		return;
	verbs_number(endpoint, work);
	work->built = true;
	work->bare = endpoint->base.peer->headerless && !packed && verbs_bare_encode(&work->frame, &work->immediate);
	work->length =
		work->bare ? verbs_put_payload(work, work->buffer->bytes) : verbs_put_frame(work, work->buffer->bytes);
	if (work->gathered)
		return;
	work->payload = NULL;
	work->operation = NULL;
	if (operation)
		pl_operation_pending_done(operation);
}

PL_ALWAYS_INLINE bool verbs_needs_local_key(const struct verbs_rail *rail, const struct verbs_work *work)
{
	return work->lkey_device != rail->device && (work->gathered || (!work->buffer && work->length));
}

/* What names the local bytes at the rail's device; the first rail's is known.  0, or why it does not reach them. */
PL_ALWAYS_INLINE int verbs_rail_key(struct verbs_rail *rail, struct verbs_work *work)
{
	int rc = verbs_local_key(rail->endpoint->state, rail->device, work->region, work->kind == VERBS_READ,
				 &work->lkey);

	if (rc == 0)
		work->lkey_device = rail->device;
	return rc;
}

PL_ALWAYS_INLINE struct ibv_sge verbs_piece(uintptr_t address, uint32_t length, uint32_t lkey)
{
	return (struct ibv_sge){ .addr = address, .length = length, .lkey = lkey };
}

PL_ALWAYS_INLINE struct ibv_sge verbs_local_piece(const struct verbs_work *work, uint32_t length)
{
	return verbs_piece((uintptr_t)work->region->memory.address + work->offset, length, work->lkey);
}

/* Of a frame, or several: headers from the buffer, payloads from where they are. */
static inline int verbs_gathered_pieces(const struct verbs_work *work, struct ibv_sge pieces[VERBS_PIECES])
{
	const struct verbs_buffer *buffer = work->buffer;
	uintptr_t header = (uintptr_t)buffer->bytes;
	bool bare = work->bare;
	int count = 0;

	for (; work; work = work->also, header += PL_FRAME_HEADER) {
		if (!bare)
			pieces[count++] = verbs_piece(header, PL_FRAME_HEADER, buffer->pool->mr->lkey);
		pieces[count++] = verbs_local_piece(work, work->frame.length);
	}
	return count;
}

/* Where the bytes are: in so many pieces. */
PL_ALWAYS_INLINE int verbs_fill_pieces(const struct verbs_work *work, struct ibv_sge pieces[VERBS_PIECES])
{
	const struct verbs_buffer *buffer = work->buffer;
	uint32_t length = work->kind == VERBS_ATOMIC ? 8 : work->length;

	if (work->gathered)
		return verbs_gathered_pieces(work, pieces);
	if (length == 0)
		return 0;
	pieces[0] = buffer ? verbs_piece((uintptr_t)buffer->bytes, length, buffer->pool->mr->lkey)
			   : verbs_local_piece(work, length);
	return 1;
}

/* Whether the device's driver takes the bytes when it is posted. */
PL_ALWAYS_INLINE bool verbs_is_inline(const struct verbs_rail *rail, const struct verbs_work *work)
{
	/* The processor copies them: not where it cannot reach them. */
	return work->length <= rail->inline_max && (work->kind == VERBS_WRITE || work->kind == VERBS_FRAME) &&
	       !work->gathered && (work->buffer || !work->region || !pl_memory_staged(&work->region->memory));
}

PL_ALWAYS_INLINE void verbs_fill_request(struct verbs_rail *rail, struct verbs_work *work, struct ibv_send_wr *request,
					 struct ibv_sge pieces[VERBS_PIECES])
{
	/* The rest of it is for other kinds of requests. */
	request->next = NULL;
	request->send_flags = 0;
	request->wr_id = (uintptr_t)work;
	request->sg_list = pieces;
	request->num_sge = verbs_fill_pieces(work, pieces);
	switch (work->kind) {
	case VERBS_WRITE:
	case VERBS_READ:
		request->opcode = work->kind == VERBS_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		request->wr.rdma.remote_addr = work->remote;
		request->wr.rdma.rkey = work->target->rkeys[rail->index];
		if (work->notify) {
			request->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
			request->imm_data =
				htobe32(work->frame.ack << VERBS_NOTIFY_BITS | (uint32_t)work->frame.offset);
		}
		break;
	case VERBS_FRAME:
		request->opcode = work->bare ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
		request->imm_data = htobe32(work->immediate);
		break;
	case VERBS_BIND: /* window.c */
		break;
	case VERBS_ATOMIC: {
		bool add = work->operation->receipt.kind == PL_KIND_FETCH_ADD;

		request->opcode = add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
		request->wr.atomic.remote_addr = work->remote;
		request->wr.atomic.rkey = work->target->rkeys[rail->index];
		request->wr.atomic.compare_add = add ? work->operation->operand : work->operation->compare;
		request->wr.atomic.swap = work->operation->operand;
		break;
	}
	}
	if (verbs_is_inline(rail, work))
		request->send_flags |= IBV_SEND_INLINE;
}

/* post.c: where there is a choice */
struct verbs_rail *verbs_choose_of_many(struct verbs_endpoint *endpoint, const struct verbs_work *work);

PL_ALWAYS_INLINE bool verbs_usable(const struct verbs_rail *rail)
{
	return rail->link == VERBS_UP && rail->posted_count < VERBS_SEND_DEPTH && rail->posted_bytes < rail->pace.limit;
}

/* Whether it is worth waiting for others, to go with them in one SEND. */
PL_ALWAYS_INLINE bool verbs_is_small(const struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	return work->kind == VERBS_FRAME && endpoint->base.peer->packs && work->frame.length <= VERBS_PACK_BYTES;
}

/* Whether what comes waits.  What is small does not wait for transfers, which may take long. */
PL_ALWAYS_INLINE bool verbs_is_busy(const struct verbs_rail *rail, bool small)
{
	return rail->posted_count >= VERBS_BUSY || (small && rail->frames >= VERBS_BUSY_FRAMES);
}

/* NULL: none has room for it now. */
PL_ALWAYS_INLINE struct verbs_rail *verbs_choose_rail(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	/* By far the most have one. */
	if (endpoint->rail_count == 1 && !work->only)
		return verbs_usable(&endpoint->rails[0]) && (!work->target || verbs_reaches(work->target, 0))
			       ? &endpoint->rails[0]
			       : NULL;
	return verbs_choose_of_many(endpoint, work);
}

/* The bytes of a request, of a rail that is usable. */
PL_ALWAYS_INLINE uint32_t verbs_most_of(const struct verbs_rail *rail)
{
	uint32_t most = PL_MIN(rail->chunk, rail->device->message_max);

	return (uint32_t)PL_MIN(most, rail->pace.limit - rail->posted_bytes);
}

/* Only the home engine posts, so that nobody else changes it meanwhile. */
PL_ALWAYS_INLINE void verbs_carried_by(struct pl_operation *operation, const struct verbs_rail *rail)
{
	unsigned rails = atomic_load_explicit(&operation->rails, memory_order_relaxed);

	atomic_store_explicit(&operation->rails, rails | 1u << rail->index, memory_order_relaxed);
}

PL_ALWAYS_INLINE void verbs_account(struct verbs_rail *rail, const struct verbs_work *work)
{
	rail->endpoint->latest = rail;
	rail->posted_count++;
	rail->posted_bytes += work->length;
	rail->frames += work->kind == VERBS_FRAME && !verbs_unnumbered(work);
	rail->queue->posted++;
	if (pl_list_empty(&rail->watch.link))
		verbs_watch_begin(rail);
}

/* It is not posted (any more). */
PL_ALWAYS_INLINE void verbs_unaccount(struct verbs_rail *rail, const struct verbs_work *work)
{
	rail->posted_count--;
	rail->posted_bytes -= work->length;
	rail->frames -= work->kind == VERBS_FRAME && !verbs_unnumbered(work);
	rail->queue->posted--;
}

/* Takes the oldest posted work off; the caller finishes it. */
PL_ALWAYS_INLINE struct verbs_work *verbs_take_posted(struct verbs_rail *rail)
{
	struct verbs_work *work = pl_list_first(&rail->posted, struct verbs_work, link);

	pl_list_remove(&work->link);
	verbs_unaccount(rail, work);
	return work;
}

#endif
