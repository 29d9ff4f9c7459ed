/* SPDX-License-Identifier: BSD-2-Clause */
/* Failed work requests: some fail with their operation, the others wait for the next connection. */
#include <stdio.h>

#include "fabric/verbs/data/request.h"
#include "rdma/vendor.h"

/* Returns the reason of a rail's end, for the peer's log. Static storage. */
static const char *verbs_loss_reason(const struct verbs_rail *rail, enum ibv_wc_status status)
{
	return status == IBV_WC_WR_FLUSH_ERR ? "the device returned all requests"
					     : verbs_library_of(rail)->ibv_wc_status_str(status);
}

static void describe_status(struct pl_error *error, const struct verbs_rail *rail, const struct ibv_wc *completion)
{
	static const struct {
		enum ibv_wc_status status;
		int code;
		const char *id, *hint;
	} kinds[] = {
		{ IBV_WC_REM_ACCESS_ERR, -EACCES, "RDMA-REMOTE-ACCESS",
		  "import a new token: the peer revoked the grant, or it expired" },
		{ IBV_WC_REM_INV_REQ_ERR, -EPROTO, "RDMA-REMOTE-REQUEST",
		  "use the same release of Peerlane at both ends" },
		{ IBV_WC_REM_OP_ERR, -EIO, "RDMA-REMOTE-OPERATION", "see the kernel log of the peer's host" },
		{ IBV_WC_LOC_PROT_ERR, -EFAULT, "RDMA-LOCAL-PROTECTION",
		  "keep the region mapped and writable while it is used" },
		/* all other statuses */
		{ IBV_WC_LOC_LEN_ERR, -EIO, "RDMA-LOCAL", "see the kernel log, and report this" },
	};
	const struct verbs_library *library = rail->endpoint->state->library;
	char object[IBV_SYSFS_NAME_MAX + 4];
	unsigned i = 0;

	while (i + 1 < PL_ARRAY_SIZE(kinds) && kinds[i].status != completion->status)
		i++;
	snprintf(object, sizeof(object), "%s:%u", verbs_device_name(rail->device), rail->port->number);
	pl_fail(error, kinds[i].code, kinds[i].id, "ibv_poll_cq", object, kinds[i].hint, "%s (vendor error 0x%x)",
		library->ibv_wc_status_str(completion->status), completion->vendor_err);
}

/* True if the request itself caused the failure: it would fail again on another connection. */
static bool own_fault(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
	case IBV_WC_REM_ABORT_ERR:
	case IBV_WC_LOC_QP_OP_ERR: /* soft-RoCE without a route */
	case IBV_WC_GENERAL_ERR:
	case IBV_WC_FATAL_ERR:
		return false;
	default:
		return true;
	}
}

/*
 * A responder may report a valid request as invalid after a packet loss that its state machine does not handle
 * (soft-RoCE, when its link comes up meanwhile). The request is posted once more.
 */
static bool mistaken(struct verbs_work *work, enum ibv_wc_status status)
{
	bool first = !work->refused;

	if (status != IBV_WC_REM_INV_REQ_ERR || work->kind == VERBS_ATOMIC)
		return false;
	work->refused = true;
	return first;
}

/*
 * A refused write or read costs a connection. Range and rights were checked before, so the grant is gone, and other
 * work for the same remote region is refused too.
 */
static struct ibv_wc verdict(struct verbs_rail *rail, const struct verbs_work *work, const struct ibv_wc *completion)
{
	struct ibv_wc result = *completion;

	if (completion->status == IBV_WC_REM_ACCESS_ERR)
		rail->denied = work->target;
	else if (completion->status == IBV_WC_WR_FLUSH_ERR && work->target && work->target == rail->denied)
		result.status = IBV_WC_REM_ACCESS_ERR;
	return result;
}

/* True for a failure of this end's device, which may be the connection's. soft-RoCE reports a missing route in this way. */
static bool device_fault(enum ibv_wc_status status)
{
	return status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_GENERAL_ERR || status == IBV_WC_FATAL_ERR;
}

/* True if such a failure came too often for this request. A route may come back. */
static bool is_refused_again(struct verbs_work *work, enum ibv_wc_status status)
{
	return device_fault(status) && ++work->refusals >= VERBS_REFUSALS;
}

/* Ends the peer: a message for it cannot be sent, and later messages would overtake. */
static void lose_peer_of_frame(struct verbs_rail *rail, const struct verbs_work *work, const struct pl_error *error)
{
	if (work->kind == VERBS_FRAME && !work->operation)
		pl_peer_lose(rail->endpoint->base.peer, error);
}

bool verbs_work_refused(struct verbs_rail *rail, struct verbs_work *work, int code)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	struct pl_operation *operation = work->operation;
	char object[IBV_SYSFS_NAME_MAX + 4];
	struct pl_error error;

	/* A full queue, or a message: both may fare better on a new connection. */
	if ((code == -ENOMEM || work->kind == VERBS_FRAME) && ++work->refusals < VERBS_REFUSALS)
		return false;
	snprintf(object, sizeof(object), "%s:%u", verbs_device_name(rail->device), rail->port->number);
	pl_fail(&error, code, "RDMA-POST", "ibv_post_send", object,
		"see the abilities of the card with: ibv_devinfo -v; or use the fabric tcp",
		"the card's driver refuses the request (%s)", strerrorname_np(-code) ? strerrorname_np(-code) : "?");
	if (work->kind == VERBS_FRAME) {
		pl_list_append(&endpoint->again, &work->link);
		/* A lost peer's rails end without an event: this one's has the cause. */
		verbs_fail(rail, "the device refused a request");
		pl_peer_lose(endpoint->base.peer, &error);
		return true;
	}
	pl_operation_fail(operation, code, &error);
	if (verbs_work_skip(work))
		pl_list_append(&endpoint->again, &work->link);
	else
		verbs_work_free(endpoint, work);
	pl_operation_pending_done(operation);
	return true;
}

static void work_back(struct verbs_rail *rail, struct verbs_work *work, const struct ibv_wc *completion)
{
	const struct ibv_wc result = verdict(rail, work, completion);
	struct pl_operation *operation = work->operation;
	struct pl_error error;
	bool own;

	completion = &result;
	own = own_fault(completion->status) ? !mistaken(work, completion->status)
					    : is_refused_again(work, completion->status);
	if (own)
		describe_status(&error, rail, completion);
	if (work->kind == VERBS_INVALIDATE || (operation && atomic_load(&operation->canceled))) {
		; /* a failed queue pair needs no invalidation; the status of the operation is known */
	} else if (operation && own) {
		pl_operation_fail(operation, error.code, &error);
	} else if (work->kind == VERBS_ATOMIC) {
		pl_fail(&error, -ECONNRESET, "ATOMIC-UNCERTAIN", "ibv_poll_cq", NULL,
			"read the word to see whether it was done", "the connection broke before the answer came");
		if (operation)
			pl_operation_fail(operation, -ECONNRESET, &error);
	} else if (work->back && rail->endpoint->rail_count > 1) {
		/* The writes before it may be repeated on another rail. */
		operation->settled = false;
	} else if (operation || verbs_has_number(work)) {
		rail->frames += verbs_has_number(work);
		rail->held_generation = rail->generation;
		pl_list_append(&rail->held, &work->link);
		if (own)
			lose_peer_of_frame(rail, work, &error);
		return;
	}
	if (verbs_work_skip(work)) {
		rail->frames++;
		rail->held_generation = rail->generation;
		pl_list_append(&rail->held, &work->link);
	} else {
		verbs_work_free(rail->endpoint, work);
	}
	if (operation)
		pl_operation_pending_done(operation);
}

static const struct ibv_wc flushed = { .status = IBV_WC_WR_FLUSH_ERR };

/* A request of several frames failed: the faulty frame shows itself when each is posted alone. */
static void several_back(struct verbs_rail *rail, struct verbs_work *work, const struct ibv_wc *completion)
{
	struct pl_list works;

	pl_list_init(&works);
	pl_list_append(&works, &work->link);
	verbs_unpack(&works);
	while (!pl_list_empty(&works)) {
		work = pl_list_first(&works, struct verbs_work, link);
		pl_list_remove(&work->link);
		work_back(rail, work, own_fault(completion->status) ? &flushed : completion);
	}
}

static void request_back(struct verbs_rail *rail, struct verbs_work *work, const struct ibv_wc *completion)
{
	if (work->also)
		several_back(rail, work, completion);
	else
		work_back(rail, work, completion);
}

void verbs_take_back(struct verbs_rail *rail)
{
	while (!pl_list_empty(&rail->posted))
		request_back(rail, verbs_take_posted(rail), &flushed);
}

/* The connection failed before any request was done: uses smaller requests. */
static void adapt_chunk(struct verbs_rail *rail)
{
	if (rail->done == 0 && rail->chunk > VERBS_CHUNK_LEAST)
		rail->chunk = PL_MAX(rail->chunk / 4, VERBS_CHUNK_LEAST);
	rail->done = 0;
}

static void broke(struct verbs_rail *rail, const struct ibv_wc *completion)
{
	rail->broke.status = completion->status;
	rail->broke.vendor_error = completion->vendor_err;
	rail->broke.port = rail->port->number;
	rail->broke.here = completion->status == IBV_WC_LOC_QP_OP_ERR;
	adapt_chunk(rail);
	verbs_pace_broke(&rail->pace, pl_now());
}

bool verbs_names_oldest(const struct ibv_device_attr *attributes)
{
	/* mlx4 and mlx5, hns, qedr, ionic, mana, erdma and rxe, by their sources: an index or number tells the request. */
	static const uint32_t exact[] = { RDMA_VENDOR_MELLANOX, RDMA_VENDOR_MELLANOX_PCI, RDMA_VENDOR_HISILICON,
					  RDMA_VENDOR_QLOGIC,   RDMA_VENDOR_PENSANDO,     RDMA_VENDOR_MICROSOFT,
					  RDMA_VENDOR_ALIBABA,  RDMA_VENDOR_SOFT_ROCE };

	for (size_t i = 0; i < PL_ARRAY_SIZE(exact); i++)
		if (attributes->vendor_id == exact[i])
			return false;
	return true;
}

/*
 * True if another request may have failed than the named one. A signaled request has failed itself: the completion of a
 * later one would have ended it. So has one that is not the oldest, or the only one.
 */
static bool is_doubtful(const struct verbs_rail *rail, const struct ibv_wc *completion, bool oldest)
{
	return rail->device->names_oldest && oldest && completion->wr_id & VERBS_UNSIGNALED &&
	       !pl_list_empty(&rail->posted) && (own_fault(completion->status) || device_fault(completion->status));
}

/* Counts the work, and frames that are sent with it. */
static void suspect(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	for (; work; work = work->also) {
		endpoint->suspects += !work->suspect;
		work->suspect = true;
		/* Work that ends in the short way is not cleared. */
		work->simple = false;
	}
}

/* The next connection tells which request failed: all are signaled there. */
static void suspect_all(struct verbs_rail *rail, struct verbs_work *named)
{
	suspect(rail->endpoint, named);
	pl_list_for_each(at, &rail->posted)
		suspect(rail->endpoint, pl_list_entry(at, struct verbs_work, link));
}

void verbs_work_failed(struct verbs_rail *rail, struct verbs_work *work, const struct ibv_wc *completion, bool oldest)
{
	const char *reason = verbs_loss_reason(rail, completion->status);

	if (!own_fault(completion->status) && completion->status != IBV_WC_WR_FLUSH_ERR)
		broke(rail, completion);
	if (is_doubtful(rail, completion, oldest)) {
		suspect_all(rail, work);
		completion = &flushed;
	}
	if (work->kind == VERBS_BIND && completion->status != IBV_WC_WR_FLUSH_ERR)
		verbs_bind_failed(rail, work);
	/* First: the request may lose the peer, whose other rails end without an event. This one's has the cause. */
	verbs_fail(rail, reason);
	request_back(rail, work, completion);
}
