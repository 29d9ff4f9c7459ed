/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pair of a rail. */
#include "fabric/verbs/verbs.h"

#define READS_MAX 128u
/* 4.096 us times 2 to this power: 67 ms. The default of the connection manager is around 1 s. */
#define ACK_TIMEOUT 14

/* 0.64 ms in InfiniBand's encoding of the RNR timer. */
#define RECEIVER_PAUSE 12

/* Registers the receives of the rail's queue pairs, anew for another device. */
static int open_receives(struct verbs_rail *rail)
{
	struct verbs_state *state = rail->endpoint->state;

	if (rail->queue->posted + VERBS_SEND_DEPTH + VERBS_OWN_RECEIVES > rail->queue->room)
		return -ENOBUFS;
	if (rail->receives.mr && rail->receives.mr->pd == rail->device->pd)
		return 0;
	verbs_buffer_pool_close(&rail->receives, state);
	return verbs_buffer_pool_open(&rail->receives, state, rail->device, VERBS_OWN_RECEIVES, VERBS_BUFFER);
}

/* Creates the queue pair on its queue. */
static int create_qp(struct verbs_rail *rail, const char **call)
{
	struct ibv_qp_init_attr attributes = {
		.send_cq = rail->queue->cq,
		.recv_cq = rail->queue->cq,
		.srq = rail->queue->srq,
		.cap = { .max_send_wr = VERBS_SEND_DEPTH,
			 .max_send_sge = PL_MIN(VERBS_PIECES, (uint32_t)rail->device->attributes.max_sge),
			 .max_inline_data = VERBS_INLINE },
		.qp_type = IBV_QPT_RC,
	};
	int rc;

	if (!rail->queue->srq) {
		*call = "ibv_reg_mr";
		rc = open_receives(rail);
		if (rc < 0)
			return rc;
		attributes.cap.max_recv_wr = VERBS_OWN_RECEIVES;
		attributes.cap.max_recv_sge = 1;
	}
	*call = "rdma_create_qp";
	if (verbs_library_of(rail)->rdma_create_qp(rail->id, rail->device->pd, &attributes))
		return -errno;
	rail->inline_max = attributes.cap.max_inline_data;
	rail->unsignaled = 0;
	*call = "ibv_post_recv";
	return verbs_own_receives_post(rail);
}

int verbs_qp_make(struct verbs_rail *rail, const char **call)
{
	uint8_t timeout = ACK_TIMEOUT;
	struct verbs_failure failure;
	struct ibv_port_attr port;
	int rc;

	*call = "rdma_create_qp";
	if (atomic_load(&rail->device->gone))
		verbs_rail_renew(rail);
	/* Keys were given out for the earlier device of this address. */
	if (rail->id->verbs != rail->device->verbs)
		return -ENODEV;
	rail->queue = verbs_cq_get(rail->endpoint->state, rail->device, rail->endpoint->base.peer->home, &failure);
	if (!rail->queue) {
		*call = failure.call;
		return failure.code;
	}
	rail->queue->rail_count++;
	verbs_srq_grow(rail->queue);
	if (verbs_query_port(verbs_library_of(rail), rail->id->verbs, rail->id->port_num, &port) == 0)
		verbs_pace_connect(&rail->pace, port.active_mtu);
	/* Older kernels lack this option. */
	verbs_library_of(rail)->rdma_set_option(rail->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
						sizeof(timeout));
	rc = create_qp(rail, call);
	if (rc < 0)
		return rc;
	pl_list_append(&rail->queue->rails[rail->id->qp->qp_num % PL_ARRAY_SIZE(rail->queue->rails)],
		       &rail->queue_link);
	return 0;
}

void verbs_qp_up(struct verbs_rail *rail)
{
	struct ibv_qp_attr attributes = { .min_rnr_timer = RECEIVER_PAUSE };

	/*
	 * The connection manager leaves the RNR timer at 0, which means 655 ms: the pause of a peer without a receive.
	 */
	verbs_library_of(rail)->ibv_modify_qp(rail->id->qp, &attributes, IBV_QP_MIN_RNR_TIMER);
}

uint8_t verbs_qp_reads(const struct verbs_device *device)
{
	int most = PL_MIN(device->attributes.max_qp_rd_atom, device->attributes.max_qp_init_rd_atom);

	return (uint8_t)PL_MIN((unsigned)PL_MAX(most, 1), READS_MAX);
}

/* The peer will ask again. */
static void drop_asked(struct verbs_rail *rail)
{
	while (!pl_list_empty(&rail->asked)) {
		struct verbs_work *work = pl_list_first(&rail->asked, struct verbs_work, link);

		pl_list_remove(&work->link);
		verbs_work_free(rail->endpoint, work);
	}
}

void verbs_qp_drop(struct verbs_rail *rail)
{
	struct verbs_cq *queue = rail->queue;

	if (!rail->id)
		return;
	pl_list_remove(&rail->queue_link);
	pl_list_remove(&rail->starved_link);
	verbs_mw_drop_all(rail);
	drop_asked(rail);
	if (rail->id->qp)
		verbs_library_of(rail)->rdma_destroy_qp(rail->id);
	verbs_library_of(rail)->rdma_destroy_id(rail->id);
	rail->id = NULL;
	rail->queue = NULL;
	if (queue)
		queue->rail_count--;
	if (queue && rail->own_receives)
		queue->room += VERBS_OWN_RECEIVES;
	rail->own_receives = false;
	/* The device's protection domain goes; the buffers stay until the end. */
	if (queue && atomic_load(&queue->device->gone))
		verbs_buffer_pool_shut(&rail->receives, rail->endpoint->state);
	/* Deferred: the caller may be walking the queue's completions. */
	if (queue && atomic_load(&queue->device->gone))
		pl_engine_post(queue->engine, &queue->events_task);
}

void verbs_take_rest(struct verbs_rail *rail)
{
	while (rail->queue && verbs_cq_poll(rail->queue))
		;
}

bool verbs_port_is_down(const struct verbs_rail *rail)
{
	struct ibv_port_attr port;

	/* This device does not return; another one may. */
	if (atomic_load(&rail->device->gone))
		return false;
	return verbs_query_port(verbs_library_of(rail), rail->id->verbs, rail->id->port_num, &port) == 0 &&
	       (port.state == IBV_PORT_DOWN || port.state == IBV_PORT_INIT);
}
