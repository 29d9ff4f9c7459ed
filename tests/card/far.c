/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests between queue pairs of two processes: the requester asks, and the responder's process does what its card does. */
#include <stdlib.h>
#include <string.h>

#include "card/wire.h"

static bool carries(uint32_t opcode)
{
	return opcode != IBV_WR_RDMA_READ && opcode != IBV_WR_ATOMIC_CMP_AND_SWP && opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* -- requester ------------------------------------------------------------------------------------- */

/* Copies the bytes of the pieces to a buffer, or from it. */
static void copy_pieces(const struct card_qp *qp, struct card_request *request, uint8_t *bytes, bool write)
{
	uint32_t before = 0;

	for (int i = 0; i < request->wr.num_sge; i++) {
		const uint32_t length = request->pieces[i].length;
		uint8_t *piece = card_piece(qp, request, i, before, write);

		if (length && write)
			card_copy(piece, bytes + before, length);
		else if (length)
			card_copy(bytes + before, piece, length);
		before += length;
	}
}

static bool ask(struct card_qp *qp, struct card_request *request)
{
	const struct ibv_send_wr *wr = &request->wr;
	static uint64_t ids;
	struct wire_header header = { .kind = WIRE_ASK,
				      .id = ++ids,
				      .opcode = wr->opcode,
				      .from = qp->base.qp_num,
				      .to = qp->peer,
				      .psn = qp->send_psn,
				      .pkey_index = qp->pkey_index,
				      .immediate = wr->imm_data,
				      .wanted = request->length,
				      .address = wr->wr.rdma.remote_addr,
				      .key = wr->wr.rdma.rkey };
	uint8_t *bytes;
	bool sent;

	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		header.address = wr->wr.atomic.remote_addr;
		header.key = wr->wr.atomic.rkey;
		header.compare = wr->wr.atomic.compare_add;
		header.swap = wr->wr.atomic.swap;
	}
	header.length = carries(wr->opcode) ? request->length : 0;
	bytes = malloc(header.length + 1);
	if (!bytes)
		abort();
	if (header.length)
		copy_pieces(qp, request, bytes, false);
	sent = card_wire_send(qp->peer, &header, bytes);
	free(bytes);
	qp->asked = sent ? header.id : 0;
	return sent;
}

int card_far_execute(struct card_qp *qp, struct card_request *request)
{
	if (!card_pieces_are_good(qp, request, !carries(request->wr.opcode)))
		return IBV_WC_LOC_PROT_ERR;
	if (!qp->asked && !ask(qp, request))
		return CARD_SILENT;
	/* The answer wakes it, or the end of the connection does. */
	qp->wake = UINT64_MAX;
	return CARD_WAIT;
}

static void take_answer(const struct wire_header *header, uint8_t *bytes)
{
	struct card_qp *qp = card_qp_find(header->from);
	struct card_request *request;

	if (!qp || qp->asked != header->id || qp->base.state == IBV_QPS_ERR)
		return;
	request = qp->ring[(qp->unanswered ? qp->executed : qp->tail) % qp->size];
	qp->asked = qp->wake = 0;
	qp->answered = true;
	qp->answer = header->status;
	qp->answer_timer = header->rnr_timer;
	/* The regions of the pieces may be gone since the request was sent. */
	if (header->length && !card_pieces_are_good(qp, request, true))
		qp->answer = IBV_WC_LOC_PROT_ERR;
	else if (header->length)
		copy_pieces(qp, request, bytes, true);
	card_pump(qp);
}

void card_far_lost(unsigned place)
{
	struct card_qp *qp = NULL;

	while ((qp = card_qp_next(qp))) {
		if (!qp->asked || card_wire_place(qp->peer) != place)
			continue;
		qp->asked = 0;
		qp->wake = 0;
		card_pump(qp);
	}
}

/* -- responder ------------------------------------------------------------------------------------- */

/* Does the request for a queue pair of another process; `bytes` has what it carries, or takes what it wants. */
static int serve(const struct wire_header *header, uint8_t *bytes)
{
	struct card_qp *peer = card_qp_find(header->to);
	struct card_qp requester = { .base = { .qp_num = header->from, .state = IBV_QPS_RTS },
				     .peer = header->to,
				     .send_psn = header->psn };
	struct card_request *request;
	int status;

	if (!peer || !card_answers(peer, &requester) || !card_pkeys_match(header->pkey_index, peer->pkey_index))
		return CARD_SILENT;
	request = calloc(1, sizeof(*request));
	if (!request)
		abort();
	request->bytes = bytes;
	request->length = header->wanted;
	request->pieces[0].length = header->wanted;
	request->wr = (struct ibv_send_wr){ .opcode = header->opcode,
					    .num_sge = 1,
					    .sg_list = request->pieces,
					    .imm_data = header->immediate,
					    .wr.rdma = { header->address, header->key } };
	if (header->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || header->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		request->wr.wr.atomic.remote_addr = header->address;
		request->wr.wr.atomic.rkey = header->key;
		request->wr.wr.atomic.compare_add = header->compare;
		request->wr.wr.atomic.swap = header->swap;
	}
	status = card_execute_at(&requester, peer, request);
	free(request);
	return status == CARD_WAIT ? CARD_NOT_READY : status;
}

static void answer_request(struct wire *wire, const struct wire_header *header, uint8_t *bytes)
{
	struct wire_header answer = { .kind = WIRE_ANSWER, .id = header->id, .from = header->from, .to = header->to };
	const struct card_qp *peer = card_qp_find(header->to);
	uint8_t *read = carries(header->opcode) ? NULL : malloc(header->wanted + 1);

	answer.rnr_timer = peer ? peer->rnr_timer : 0;
	answer.status = serve(header, read ? read : bytes);
	answer.length = read && answer.status == IBV_WC_SUCCESS ? header->wanted : 0;
	card_wire_answer(wire, &answer, read);
	free(read);
}

void card_far_message(struct wire *wire, const struct wire_header *header, uint8_t *bytes)
{
	if (header->kind == WIRE_ASK)
		answer_request(wire, header, bytes);
	else
		take_answer(header, bytes);
}
