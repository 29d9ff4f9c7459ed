/* SPDX-License-Identifier: BSD-2-Clause */
/* Execution of requests at both ends of a connection. */
#include <string.h>

#include "card/wire.h"

/* Pause before a packet without an answer is sent again. */
#define RESEND (2 * CARD_MILLISECOND)
/* Requests above this size take time, in which a key can be revoked: 32 Gb/s. */
#define QUICK (64u << 10)
#define BYTES_PER_NS 4

static int wait_for(struct card_qp *qp, uint64_t pause)
{
	qp->wake = card_now() + pause;
	return CARD_WAIT;
}

/* Pause that the responder asks for, by InfiniBand's encoding: 0 means 655 ms. */
static int receiver_not_ready(struct card_qp *qp, unsigned rnr_timer)
{
	card_counts.receiver_waits++;
	return wait_for(qp, rnr_timer ? 640 * CARD_MICROSECOND : 655 * CARD_MILLISECOND);
}

uint8_t *card_piece(const struct card_qp *qp, struct card_request *request, int piece, uint32_t before, bool write)
{
	const struct ibv_sge *at = &request->pieces[piece];
	const struct card_access access = { at->addr, at->lkey, at->length, write ? IBV_ACCESS_LOCAL_WRITE : 0 };

	return request->bytes ? request->bytes + before : card_local(qp, &access);
}

bool card_pieces_are_good(const struct card_qp *qp, struct card_request *request, bool write)
{
	for (int i = 0; i < request->wr.num_sge; i++)
		if (request->pieces[i].length && !card_piece(qp, request, i, 0, write))
			return false;
	return true;
}

static struct card_receives *receives_of(struct card_qp *qp)
{
	return qp->base.srq ? &((struct card_srq *)qp->base.srq)->receives : &qp->receives;
}

static void receive_done(struct card_qp *peer, struct ibv_wc *wc)
{
	struct card_receives *receives = receives_of(peer);

	wc->wr_id = receives->ring[receives->tail++ % receives->size].wr_id;
	wc->qp_num = peer->base.qp_num;
	card_place_held(false);
	card_complete(peer->base.recv_cq, wc, 0);
}

static int execute_write(struct card_qp *qp, struct card_qp *peer, struct card_request *request)
{
	const struct ibv_send_wr *wr = &request->wr;
	const struct card_access access = { wr->wr.rdma.remote_addr, wr->wr.rdma.rkey, request->length,
					    IBV_ACCESS_REMOTE_WRITE };
	uint8_t *to = request->length ? card_remote(peer, &access) : NULL;
	uint32_t before = 0;

	if (!card_pieces_are_good(qp, request, false))
		return IBV_WC_LOC_PROT_ERR;
	if (request->length && !to)
		return IBV_WC_REM_ACCESS_ERR;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct card_place place = { to + before, card_piece(qp, request, i, before, false),
						  request->pieces[i].length, card_region_of(wr->wr.rdma.rkey) };

		if (place.length)
			card_place(&place);
		before += place.length;
	}
	if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		struct ibv_wc wc = { .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
				     .byte_len = request->length,
				     .imm_data = wr->imm_data,
				     .wc_flags = IBV_WC_WITH_IMM };

		receive_done(peer, &wc);
	}
	return IBV_WC_SUCCESS;
}

static int execute_read(struct card_qp *qp, struct card_qp *peer, struct card_request *request)
{
	const struct ibv_send_wr *wr = &request->wr;
	const struct card_access access = { wr->wr.rdma.remote_addr, wr->wr.rdma.rkey, request->length,
					    IBV_ACCESS_REMOTE_READ };
	const uint8_t *from = request->length ? card_remote(peer, &access) : NULL;
	uint32_t before = 0;

	card_place_pushed(peer->base.context);
	if (!card_pieces_are_good(qp, request, true))
		return IBV_WC_LOC_PROT_ERR;
	if (request->length && !from)
		return IBV_WC_REM_ACCESS_ERR;
	for (int i = 0; i < wr->num_sge; i++) {
		/* NULL: the bytes go to another process. */
		const struct card_mr *mr = request->bytes ? NULL : card_region_of(request->pieces[i].lkey);
		const struct card_place place = { card_piece(qp, request, i, before, true), from + before,
						  request->pieces[i].length, mr };

		if (place.length && mr && mr->map && card_happens(CARD_READ_ORDER))
			card_place_later(&place);
		else if (place.length)
			card_copy_shared(place.to, place.from, place.length);
		before += place.length;
	}
	return IBV_WC_SUCCESS;
}

static int execute_send(struct card_qp *qp, struct card_qp *peer, struct card_request *request)
{
	const struct card_receives *receives = receives_of(peer);
	const struct card_receive *receive = &receives->ring[receives->tail % receives->size];
	const struct card_access access = { receive->address, receive->lkey, receive->length, IBV_ACCESS_LOCAL_WRITE };
	uint8_t *to = card_local(peer, &access);
	struct ibv_wc wc = { .opcode = IBV_WC_RECV, .byte_len = request->length };
	uint32_t before = 0;
	int status = IBV_WC_SUCCESS;

	if (!card_pieces_are_good(qp, request, false))
		return IBV_WC_LOC_PROT_ERR;
	if (request->wr.opcode == IBV_WR_SEND_WITH_IMM) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = request->wr.imm_data;
	}
	if (request->length > receive->length) {
		wc.status = IBV_WC_LOC_LEN_ERR;
		status = IBV_WC_REM_INV_REQ_ERR;
	} else if (request->length && !to) {
		wc.status = IBV_WC_LOC_PROT_ERR;
		status = IBV_WC_REM_OP_ERR;
	}
	for (int i = 0; i < request->wr.num_sge && status == IBV_WC_SUCCESS; i++) {
		if (request->pieces[i].length)
			card_copy(to + before, card_piece(qp, request, i, before, false), request->pieces[i].length);
		before += request->pieces[i].length;
	}
	receive_done(peer, &wc);
	return status;
}

static int execute_atomic(struct card_qp *qp, struct card_qp *peer, struct card_request *request)
{
	const struct ibv_send_wr *wr = &request->wr;
	const struct card_access access = { wr->wr.atomic.remote_addr, wr->wr.atomic.rkey, 8,
					    IBV_ACCESS_REMOTE_ATOMIC };
	uint64_t *word = (uint64_t *)card_remote(peer, &access), old;

	card_place_pushed(peer->base.context);
	if (wr->num_sge != 1 || request->length != 8 || !card_pieces_are_good(qp, request, true))
		return IBV_WC_LOC_PROT_ERR;
	if (wr->wr.atomic.remote_addr % 8)
		return IBV_WC_REM_INV_REQ_ERR;
	if (!word)
		return IBV_WC_REM_ACCESS_ERR;
	/* This copy takes the fault if the process has lost the page. */
	card_copy((uint8_t *)&old, (const uint8_t *)word, sizeof(old));
	old = wr->wr.atomic.compare_add;
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		old = __atomic_fetch_add(word, wr->wr.atomic.compare_add, __ATOMIC_SEQ_CST);
	else
		__atomic_compare_exchange_n(word, &old, wr->wr.atomic.swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	card_copy(card_piece(qp, request, 0, 0, true), (const uint8_t *)&old, sizeof(old));
	return IBV_WC_SUCCESS;
}

static bool needs_receive(const struct card_request *request)
{
	return request->wr.opcode == IBV_WR_SEND || request->wr.opcode == IBV_WR_SEND_WITH_IMM ||
	       request->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Returns the status of a request that fails by chance, or success. */
static int status_by_chance(const struct card_qp *qp)
{
	static const enum ibv_wc_status statuses[] = {
		IBV_WC_LOC_LEN_ERR,    IBV_WC_LOC_QP_OP_ERR,    IBV_WC_LOC_PROT_ERR,     IBV_WC_MW_BIND_ERR,
		IBV_WC_BAD_RESP_ERR,   IBV_WC_LOC_ACCESS_ERR,   IBV_WC_REM_INV_REQ_ERR,  IBV_WC_REM_ACCESS_ERR,
		IBV_WC_REM_OP_ERR,     IBV_WC_RETRY_EXC_ERR,    IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_REM_ABORT_ERR,
		IBV_WC_FATAL_ERR,      IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_GENERAL_ERR,      IBV_WC_WR_FLUSH_ERR,
	};

	/* The network loses it. */
	if (!qp->loopback && card_happens(CARD_UNDELIVERED))
		return IBV_WC_RETRY_EXC_ERR;
	return card_happens(CARD_STATUS) ? (int)statuses[card_random(sizeof(statuses) / sizeof(statuses[0]))]
					 : IBV_WC_SUCCESS;
}

static int execute_connected(struct card_qp *qp, struct card_qp *peer, struct card_request *request)
{
	const struct card_receives *receives = receives_of(peer);

	if (request->length > card_character()->max_message)
		return IBV_WC_LOC_LEN_ERR;
	if (needs_receive(request) && (receives->head == receives->tail || card_happens(CARD_RNR)))
		return receiver_not_ready(qp, peer->rnr_timer);
	switch (request->wr.opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return execute_write(qp, peer, request);
	case IBV_WR_RDMA_READ:
		return execute_read(qp, peer, request);
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return execute_send(qp, peer, request);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return execute_atomic(qp, peer, request);
	default:
		return IBV_WC_LOC_QP_OP_ERR;
	}
}

bool card_answers(const struct card_qp *peer, const struct card_qp *qp)
{
	return peer && (peer->base.state == IBV_QPS_RTR || peer->base.state == IBV_QPS_RTS) && !peer->mute && !qp->mute &&
	       peer->peer == qp->base.qp_num && peer->receive_psn == qp->send_psn;
}

int card_execute_at(struct card_qp *qp, struct card_qp *peer, struct card_request *request)
{
	int status = execute_connected(qp, peer, request);

	/* The responder's queue pair fails, too. */
	if (status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_OP_ERR) {
		card_qp_fail(peer);
		card_event(
			(struct ibv_async_event){ .element.qp = &peer->base, .event_type = IBV_EVENT_QP_ACCESS_ERR });
	}
	return status;
}

/* Begins a request at the connected queue pair. Returns a status, CARD_WAIT or CARD_SILENT. */
static int begin(struct card_qp *qp, struct card_request *request)
{
	struct card_qp *peer = card_qp_find(qp->peer);
	unsigned device;
	bool far = card_wire_is_far(qp->peer, &device);
	int status;

	if (qp->asked)
		return card_far_execute(qp, request);
	if (far ? qp->mute : !card_answers(peer, qp))
		return CARD_SILENT;
	if (request->length > QUICK && card_now() - request->since < request->length / BYTES_PER_NS)
		return wait_for(qp, request->length / BYTES_PER_NS);
	status = request->wr.opcode == IBV_WR_RDMA_READ && card_happens(CARD_BAD_READS) ? IBV_WC_LOC_QP_OP_ERR
											: status_by_chance(qp);
	if (status)
		return status;
	return far ? card_far_execute(qp, request) : card_execute_at(qp, peer, request);
}

/* Returns a status, or CARD_WAIT. */
static int execute(struct card_qp *qp, struct card_request *request)
{
	int status;

	if (qp->base.state == IBV_QPS_ERR)
		return IBV_WC_WR_FLUSH_ERR;
	if (!request->since)
		request->since = card_now();
	if (request->wr.opcode == IBV_WR_BIND_MW)
		return (int)card_bind(qp, &request->wr, request->pieces[0].lkey);
	if (request->wr.opcode == IBV_WR_LOCAL_INV)
		return (int)card_invalidate(qp, request->wr.invalidate_rkey);
	status = qp->answered ? qp->answer : begin(qp, request);
	qp->answered = false;
	if (status == CARD_NOT_READY)
		return receiver_not_ready(qp, qp->answer_timer);
	if (status != CARD_SILENT)
		return status;
	if (!request->silent)
		request->silent = card_now();
	return card_now() - request->silent < CARD_RETRY_TIME ? wait_for(qp, RESEND) : IBV_WC_RETRY_EXC_ERR;
}

static enum ibv_wc_opcode opcode_of(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return IBV_WC_SEND;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_RDMA_WRITE;
	}
}

static void pump_later(void *argument)
{
	card_pump(argument);
}

static void pump_at_wake(struct card_qp *qp)
{
	uint64_t now = card_now();

	if (qp->wake == UINT64_MAX)
		return;
	card_after(qp->wake > now ? qp->wake - now : 0, pump_later, qp);
}

static void report(struct card_qp *qp, uint64_t number, int status)
{
	const struct card_request *request = qp->ring[number % qp->size];
	struct ibv_wc wc = { .wr_id = request->wr.wr_id,
			     .status = (enum ibv_wc_status)status,
			     .opcode = opcode_of(request->wr.opcode),
			     .vendor_err = status ? 0x88 : 0,
			     .byte_len = request->length,
			     .qp_num = qp->base.qp_num };

	qp->reported = number + 1;
	card_complete(qp->base.send_cq, &wc, qp->reported);
}

/* Ends the first request. */
static void finish_first(struct card_qp *qp, int status)
{
	const struct card_request *request = qp->ring[qp->tail++ % qp->size];

	/* libbnxt_re and libirdma do not look which request failed. */
	if (status && card_character()->oldest && qp->reported + 1 < qp->tail) {
		report(qp, qp->reported, status);
		while (qp->reported < qp->tail)
			report(qp, qp->reported, IBV_WC_WR_FLUSH_ERR);
	} else if (status || request->signaled) {
		report(qp, qp->tail - 1, status);
	}
	if (status && qp->base.state != IBV_QPS_ERR)
		card_qp_fail(qp);
}

/* -- lost acknowledgements ------------------------------------------------------------------------- */

static void give_up(void *argument)
{
	struct card_qp *qp = argument;

	if (qp->unanswered && qp->base.state != IBV_QPS_ERR)
		finish_first(qp, IBV_WC_RETRY_EXC_ERR);
}

static bool is_local(const struct card_request *request)
{
	return request->wr.opcode == IBV_WR_BIND_MW || request->wr.opcode == IBV_WR_LOCAL_INV;
}

static void begin_unanswered(struct card_qp *qp)
{
	qp->unanswered = true;
	qp->executed = qp->tail + 1;
	card_after(CARD_RETRY_TIME, give_up, qp);
}

/* Runs requests whose completions never come. A request that fails at the responder ends that. */
static void run_unanswered(struct card_qp *qp)
{
	while (qp->executed != qp->head && (!qp->wake || card_now() >= qp->wake)) {
		int status;

		qp->wake = 0;
		status = execute(qp, qp->ring[qp->executed % qp->size]);
		if (status == CARD_WAIT)
			pump_at_wake(qp);
		if (status)
			break;
		qp->executed++;
	}
}

/* Runs the first request. Returns false if it must wait. */
static bool run_first(struct card_qp *qp)
{
	struct card_request *request = qp->ring[qp->tail % qp->size];
	int status = execute(qp, request);

	if (status == CARD_WAIT) {
		pump_at_wake(qp);
		return false;
	}
	if (status == IBV_WC_SUCCESS && !qp->loopback && !is_local(request) && card_happens(CARD_UNANSWERED)) {
		begin_unanswered(qp);
		return false;
	}
	finish_first(qp, status);
	return true;
}

/* True if the requests of the queue pair are held. Those of a failed one are returned. */
static bool is_stalled(const struct card_qp *qp)
{
	return qp->base.state != IBV_QPS_ERR && atomic_load(&((const struct card_cq *)qp->base.send_cq)->stalled);
}

void card_pump(struct card_qp *qp)
{
	if (qp->pumping || is_stalled(qp))
		return;
	qp->pumping = true;
	if (qp->base.state == IBV_QPS_ERR) {
		qp->wake = qp->asked = 0;
		qp->unanswered = qp->answered = false;
	}
	while (!qp->unanswered && qp->tail != qp->head && (!qp->wake || card_now() >= qp->wake)) {
		qp->wake = 0;
		if (!run_first(qp))
			break;
	}
	if (qp->unanswered)
		run_unanswered(qp);
	qp->pumping = false;
}
