/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/verbs/data/signal.h"

#include "fabric/verbs/data/request.h"

/*
 * Fills an empty request for the same memory as the last one, with a right that the last one needed. Devices do not
 * check the key of an empty request (InfiniBand, C9-88), and this one is valid in any case.
 */
static void fill_empty(struct verbs_rail *rail, const struct verbs_work *last, struct ibv_send_wr *request,
		       struct ibv_sge *piece)
{
	*piece = (struct ibv_sge){ 0 };
	*request = (struct ibv_send_wr){
		.sg_list = piece,
		.send_flags = IBV_SEND_SIGNALED,
		.opcode = last->kind == VERBS_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
	};
	if (last->target) {
		request->wr.rdma.remote_addr = last->remote;
		request->wr.rdma.rkey = last->target->rkeys[rail->index];
	}
}

/* Posts the empty request. Its work has no operation. Returns 0 or a negative errno. */
static int post_empty(struct verbs_rail *rail)
{
	struct verbs_work *work = verbs_work_take(rail->endpoint, VERBS_WRITE, NULL);
	struct ibv_send_wr request, *bad;
	struct ibv_sge piece;
	int rc;

	if (!work)
		return -ENOMEM;
	fill_empty(rail, pl_list_entry(rail->posted.prev, struct verbs_work, link), &request, &piece);
	request.wr_id = verbs_number_request(rail, work);
	rc = verbs_post_list(rail, &request, &bad);
	if (rc < 0) {
		verbs_work_free(rail->endpoint, work);
		return rc;
	}
	verbs_account(rail, work);
	pl_list_append(&rail->posted, &work->link);
	return 0;
}

void verbs_ask(struct verbs_rail *rail)
{
	if (!rail->unsignaled)
		return;
	/* First: a failing rail asks, too. */
	verbs_mark_signaled(rail);
	rail->usual = 0;
	if (!pl_list_empty(&rail->posted) && post_empty(rail) < 0)
		verbs_fail(rail, "the device refused a request");
}

bool verbs_ask_before(struct verbs_rail *rail)
{
	verbs_ask(rail);
	return verbs_usable(rail);
}

void verbs_ask_all(struct verbs_cq *queue)
{
	for (size_t i = 0; i < PL_ARRAY_SIZE(queue->rails) && queue->quiet; i++)
		pl_list_for_each_safe(at, next, &queue->rails[i])
			verbs_ask(pl_list_entry(at, struct verbs_rail, queue_link));
}
