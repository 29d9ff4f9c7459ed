/* SPDX-License-Identifier: BSD-2-Clause */
/* Building of work requests, shared by lists and single requests. Inline for single requests. */
#ifndef PL_FABRIC_VERBS_DATA_REQUEST_H
#define PL_FABRIC_VERBS_DATA_REQUEST_H

#include <endian.h>

#include "fabric/verbs/data/imm_tag.h"
#include "fabric/verbs/verbs.h"

/* Takes work without a pending count of the operation. */
PL_ALWAYS_INLINE struct verbs_work *verbs_work_take(struct verbs_endpoint *endpoint, enum verbs_work_kind kind,
						    struct pl_operation *operation)
{
	struct verbs_work *work = pl_pool_first(&endpoint->spare);

	if (!work)
		work = verbs_work_allocate(endpoint);
	if (!work)
		return NULL;
	pl_list_init(&work->link);
	/* The compiler leaves out members that the caller sets. memset() would clear them before. */
	work->operation = operation;
	work->serial = 0;
	work->region = NULL;
	work->offset = 0;
	work->target = NULL;
	work->remote = 0;
	work->lkey_device = NULL;
	work->length = work->lkey = 0;
	work->kind = kind;
	work->choice = 0;
	work->simple = work->fresh = false;
	return work;
}

PL_ALWAYS_INLINE enum verbs_work_kind verbs_kind_of(const struct pl_operation *operation)
{
	switch (operation->completion.kind) {
	case PL_KIND_WRITE:
		return VERBS_WRITE;
	case PL_KIND_READ:
		return VERBS_READ;
	default:
		return VERBS_ATOMIC;
	}
}

/* work.c: returns false if the profile of routes advises staging and the program does not require a direct route. */
bool verbs_is_advised(const struct verbs_device *device, struct pl_operation *operation,
		      const struct pl_segment *segment, bool written, const char **refusal);

PL_ALWAYS_INLINE bool verbs_needs_buffer(const struct verbs_work *work)
{
	return work->staged || work->back || work->kind == VERBS_FRAME || work->kind == VERBS_ATOMIC;
}

/* Takes the buffer that a work request needs. Returns 0, -EAGAIN if none is free, or the permanent error. */
PL_ALWAYS_INLINE int verbs_take_buffer(struct verbs_cq *queue, struct verbs_work *work)
{
	struct verbs_buffer_pool *pool = work->staged ? &queue->stages : &queue->sends;
	struct verbs_buffer *last = work->buffer;
	int rc = 0;

	/* Another device does not know the last buffer. */
	if (last && last->pool == pool)
		return 0;
	if (!pool->mr)
		rc = verbs_buffer_pool_open(pool, queue->state, queue->device, VERBS_STAGES, VERBS_STAGE);
	if (rc < 0)
		return rc;
	work->buffer = verbs_buffer_pool_take(pool);
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

/* Returns the bytes copied; gathered bytes are not copied. */
PL_ALWAYS_INLINE uint32_t verbs_put_payload(const struct verbs_work *work, uint8_t *bytes)
{
	uint32_t length = pl_frame_payload(&work->frame);

	if (length && !work->gathered)
		memcpy(bytes, work->payload, length);
	return length;
}

/* Copies header and payload. */
PL_ALWAYS_INLINE uint32_t verbs_put_frame(const struct verbs_work *work, uint8_t *bytes)
{
	pl_frame_encode(&work->frame, bytes);
	return PL_FRAME_HEADER + verbs_put_payload(work, bytes + PL_FRAME_HEADER);
}

/*
 * The bytes are copied, so the operation's buffer is free again and one pending count ends. Gathered bytes belong to
 * the device until it is done. `packed`: other frames follow, so the frame needs its header.
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

/* True if a request can have a piece for the header and one for the payload. The kernel reports erdma's as 1. */
PL_ALWAYS_INLINE bool verbs_device_gathers(const struct verbs_device *device)
{
	return device->attributes.max_sge >= 2;
}

/*
 * Finds the lkey of the local bytes at the rail's device; that of the first rail is known. Returns 0 or a negative
 * errno.
 */
PL_ALWAYS_INLINE int verbs_rail_key(struct verbs_rail *rail, struct verbs_work *work)
{
	int rc;

	if (work->gathered && !verbs_device_gathers(rail->device))
		return -ENOTSUP;
	rc = verbs_local_key(rail->endpoint->state, rail->device, work->region, work->kind == VERBS_READ, &work->lkey);
	if (rc < 0)
		return rc;
	work->lkey_device = rail->device;
	work->lkey_only = false;
	return 0;
}

PL_ALWAYS_INLINE struct ibv_sge verbs_piece(uintptr_t address, uint32_t length, uint32_t lkey)
{
	return (struct ibv_sge){ .addr = address, .length = length, .lkey = lkey };
}

PL_ALWAYS_INLINE struct ibv_sge verbs_local_piece(const struct verbs_work *work, uint32_t length)
{
	return verbs_piece((uintptr_t)work->region->memory.address + work->offset, length, work->lkey);
}

/* Fills the pieces of one frame or several: headers from the buffer, payloads from their regions. */
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

/*
 * Fills the scatter/gather entries. Returns their number. Some drivers use the first entry of a request that has none:
 * libirdma of reads and writes, liberdma of reads. So it is empty then.
 */
PL_ALWAYS_INLINE int verbs_fill_pieces(const struct verbs_work *work, struct ibv_sge pieces[VERBS_PIECES])
{
	const struct verbs_buffer *buffer = work->buffer;
	uint32_t length = work->kind == VERBS_ATOMIC ? 8 : work->length;

	if (work->gathered)
		return verbs_gathered_pieces(work, pieces);
	if (length == 0) {
		pieces[0] = verbs_piece(0, 0, 0);
		return 0;
	}
	pieces[0] = buffer ? verbs_piece((uintptr_t)buffer->bytes, length, buffer->pool->mr->lkey)
			   : verbs_local_piece(work, length);
	return 1;
}

/* True if the device's driver copies the bytes when the request is posted. */
PL_ALWAYS_INLINE bool verbs_is_inline(const struct verbs_rail *rail, const struct verbs_work *work)
{
	/* The processor copies inline bytes, so it must reach them. */
	return work->length <= rail->inline_max && (work->kind == VERBS_WRITE || work->kind == VERBS_FRAME) &&
	       !work->gathered && (work->buffer || !work->region || !pl_memory_staged(&work->region->memory));
}

PL_ALWAYS_INLINE void verbs_fill_head(struct verbs_rail *rail, struct verbs_work *work, struct ibv_send_wr *request,
				      struct ibv_sge pieces[VERBS_PIECES])
{
	/* Other members belong to other kinds of requests. */
	request->next = NULL;
	request->send_flags = 0;
	request->wr_id = verbs_number_request(rail, work);
	request->sg_list = pieces;
}

/* `kind`: write or read. */
PL_ALWAYS_INLINE void verbs_fill_transfer(const struct verbs_rail *rail, const struct verbs_work *work,
					  enum verbs_work_kind kind, struct ibv_send_wr *request)
{
	request->opcode = kind == VERBS_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	request->wr.rdma.remote_addr = work->remote;
	request->wr.rdma.rkey = work->target->rkeys[rail->index];
}

/* Fills the request of a write or read that has no buffer. */
PL_ALWAYS_INLINE void verbs_fill_simple(struct verbs_rail *rail, struct verbs_work *work, enum verbs_work_kind kind,
					struct ibv_send_wr *request, struct ibv_sge pieces[VERBS_PIECES])
{
	verbs_fill_head(rail, work, request, pieces);
	pieces[0] = verbs_local_piece(work, work->length);
	request->num_sge = work->length > 0;
	verbs_fill_transfer(rail, work, kind, request);
	if (kind == VERBS_WRITE && work->length <= rail->inline_max && !pl_memory_staged(&work->region->memory))
		request->send_flags = IBV_SEND_INLINE;
}

PL_ALWAYS_INLINE void verbs_fill_request(struct verbs_rail *rail, struct verbs_work *work, struct ibv_send_wr *request,
					 struct ibv_sge pieces[VERBS_PIECES])
{
	verbs_fill_head(rail, work, request, pieces);
	request->num_sge = verbs_fill_pieces(work, pieces);
	switch (work->kind) {
	case VERBS_WRITE:
	case VERBS_READ:
		verbs_fill_transfer(rail, work, work->kind, request);
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
	case VERBS_BIND: /* mw.c */
	case VERBS_INVALIDATE:
		break;
	case VERBS_ATOMIC: {
		bool add = work->operation->completion.kind == PL_KIND_FETCH_ADD;

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

/* work.c: says in the receipt whether the rail's cards are the nearest to the memory, unless there is more to say. */
void verbs_explain_rail(const struct verbs_rail *rail, const struct verbs_work *work);
/* stage.c */
/*
 * Copies staged bytes of a write into its buffer. Returns 0, -EINPROGRESS while a copy is under way that gives the work
 * back, or -EFAULT.
 */
int verbs_stage_out(struct verbs_endpoint *endpoint, struct verbs_work *work);
/* Copies the bytes of a staged read to their place. Returns true while a copy is under way, which ends the work. */
bool verbs_stage_in(struct verbs_endpoint *endpoint, struct verbs_work *work);
/* Waits for the copies of an endpoint that closes. */
void verbs_stages_drain(struct verbs_endpoint *endpoint);

/* post.c: chooses among several rails */
struct verbs_rail *verbs_choose_of_many(struct verbs_endpoint *endpoint, const struct verbs_work *work);

PL_ALWAYS_INLINE bool verbs_usable(const struct verbs_rail *rail)
{
	return rail->link == VERBS_UP && rail->posted_count < VERBS_SEND_DEPTH && rail->posted_bytes < rail->pace.limit;
}

/* True if the work should wait for others to share a SEND. */
PL_ALWAYS_INLINE bool verbs_is_small(const struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	return work->kind == VERBS_FRAME && endpoint->base.peer->packs && work->frame.length <= VERBS_PACK_BYTES;
}

/* True if new work must wait. Small work does not wait for transfers, which may take long. */
PL_ALWAYS_INLINE bool verbs_is_busy(const struct verbs_rail *rail, bool small)
{
	return rail->posted_count >= VERBS_BUSY || (small && rail->frames >= VERBS_BUSY_FRAMES);
}

/* Returns NULL if no rail has room now. */
PL_ALWAYS_INLINE struct verbs_rail *verbs_choose_rail(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	/* Most endpoints have one rail. */
	if (endpoint->rail_count == 1 && !work->only && !work->choice)
		return verbs_usable(&endpoint->rails[0]) && (!work->target || verbs_reaches(work->target, 0))
			       ? &endpoint->rails[0]
			       : NULL;
	return verbs_choose_of_many(endpoint, work);
}

/* Returns the most bytes of a request on a usable rail. */
PL_ALWAYS_INLINE uint32_t verbs_most_of(const struct verbs_rail *rail)
{
	uint32_t most = PL_MIN(rail->chunk, rail->device->message_max);

	return (uint32_t)PL_MIN(most, rail->pace.limit - rail->posted_bytes);
}

/* Only the home engine posts, so no other thread changes `rails` meanwhile. */
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
	if (!work->simple)
		rail->frames += verbs_has_number(work);
	rail->queue->posted++;
	if (pl_list_empty(&rail->watch.link))
		verbs_watch_begin(rail);
}

/* Posts a list of requests. Returns 0 or a negative errno; siw's driver returns one itself. */
PL_ALWAYS_INLINE int verbs_post_list(struct verbs_rail *rail, struct ibv_send_wr *list, struct ibv_send_wr **bad)
{
	int rc;

	*bad = NULL;
	rc = ibv_post_send(rail->qp, list, bad);
	if (rc == 0)
		return 0;
	return rc < -1 ? rc : verbs_result(rc);
}

/* Removes unposted work from the rail's counts. */
PL_ALWAYS_INLINE void verbs_unaccount(struct verbs_rail *rail, const struct verbs_work *work)
{
	rail->posted_count--;
	rail->posted_bytes -= work->length;
	if (!work->simple)
		rail->frames -= verbs_has_number(work);
	rail->queue->posted--;
}

/* Removes the oldest posted work; the caller finishes it. */
PL_ALWAYS_INLINE struct verbs_work *verbs_take_posted(struct verbs_rail *rail)
{
	struct verbs_work *work = pl_list_first(&rail->posted, struct verbs_work, link);

	pl_list_remove(&work->link);
	verbs_unaccount(rail, work);
	return work;
}

#endif
