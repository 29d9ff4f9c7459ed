/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting of requests: a provider's checks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "card/card.h"

static bool has_immediate(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_atomic(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static int request_check(const struct card_qp *qp, const struct ibv_send_wr *wr)
{
	const struct card_character *character = card_character();
	uint64_t length = 0;

	if ((is_atomic(wr) && !card_has_atomics(qp->base.context)) || (has_immediate(wr) && !character->immediate) ||
	    (wr->opcode == IBV_WR_BIND_MW && !character->windows))
		return character->refusal;
	if (wr->opcode == IBV_WR_BIND_MW && card_window_is_too_long(wr))
		return EOPNOTSUPP;
	if (qp->head - qp->retired >= qp->size)
		return ENOMEM;
	if (wr->num_sge < 0 || (unsigned)wr->num_sge > qp->max_sge)
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	if (wr->send_flags & IBV_SEND_INLINE && length > qp->max_inline)
		return EINVAL;
	if (qp->base.state == IBV_QPS_RESET || qp->base.state == IBV_QPS_INIT)
		return EINVAL;
	if (card_happens(CARD_REFUSE))
		return card_random(2) ? EINVAL : ENOMEM;
	/* Idle queue pairs, of which there may be thousands, need no memory for requests. */
	if (!qp->ring[qp->head % qp->size])
		qp->ring[qp->head % qp->size] = calloc(1, sizeof(struct card_request));
	return qp->ring[qp->head % qp->size] ? 0 : ENOMEM;
}

/* Returns the pieces that the provider takes. A provider that reads a piece of NULL crashes the program. */
static int pieces_of(const struct ibv_send_wr *wr)
{
	const struct card_character *character = card_character();
	const bool read = wr->opcode == IBV_WR_RDMA_READ, write = wr->opcode == IBV_WR_RDMA_WRITE;

	if (wr->num_sge || wr->send_flags & IBV_SEND_INLINE)
		return wr->num_sge;
	if (read && character->first_of_reads && !wr->sg_list)
		abort();
	return (read && character->first_of_reads) || ((read || write) && character->first_if_given && wr->sg_list);
}

static void request_take(struct card_qp *qp, const struct ibv_send_wr *wr)
{
	struct card_request *request = qp->ring[qp->head++ % qp->size];
	const bool copies = wr->send_flags & IBV_SEND_INLINE && !card_character()->inline_ignored;

	request->wr = *wr;
	request->wr.next = NULL;
	request->length = 0;
	request->since = request->silent = 0;
	request->bytes = copies ? request->copy : NULL;
	request->signaled = qp->sq_sig_all || wr->send_flags & IBV_SEND_SIGNALED;
	request->wr.num_sge = pieces_of(wr);
	for (int i = 0; i < request->wr.num_sge && wr->opcode != IBV_WR_BIND_MW; i++) {
		request->pieces[i] = wr->sg_list[i];
		if (copies)
			memcpy(request->copy + request->length, (const void *)(uintptr_t)wr->sg_list[i].addr,
			       wr->sg_list[i].length);
		request->length += wr->sg_list[i].length;
	}
	request->wr.sg_list = request->pieces;
	if (wr->opcode == IBV_WR_BIND_MW) {
		request->wr.num_sge = 0;
		request->pieces[0].lkey = wr->bind_mw.bind_info.mr->lkey;
	}
}

/* Counts the bytes of one-sided requests to other queue pairs. */
static void count_bytes(const struct card_qp *qp, const struct ibv_send_wr *wr)
{
	const struct card_qp *peer = qp->loopback ? NULL : card_qp_find(qp->peer);
	uint64_t *moved;

	if (!peer || wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_BIND_MW)
		return;
	moved = &card_counts.moved[card_number(qp->base.context)][card_number(peer->base.context)];
	for (int i = 0; i < wr->num_sge; i++)
		*moved += wr->sg_list[i].length;
}

static void count_post(const struct ibv_send_wr *wr)
{
	card_counts.posts++;
	if ((unsigned)wr->opcode < CARD_OPCODES)
		card_counts.requests[wr->opcode]++;
	for (int i = 0; wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && i < wr->num_sge; i++)
		card_counts.immediate_bytes += wr->sg_list[i].length;
}

int card_post(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct card_qp *qp = (struct card_qp *)base;
	const struct ibv_send_wr *first = wr;
	int rc = 0;

	pthread_mutex_lock(&card_lock);
	for (; wr && rc == 0; wr = wr->next) {
		rc = request_check(qp, wr);
		if (rc)
			break;
		request_take(qp, wr);
		count_post(wr);
		count_bytes(qp, wr);
	}
	if (rc) {
		card_counts.refused++;
		if (wr != first || !card_character()->early)
			*bad = wr;
	}
	card_event_by_chance(qp);
	card_pump(qp);
	pthread_mutex_unlock(&card_lock);
	return rc;
}
