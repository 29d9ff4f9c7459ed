/* SPDX-License-Identifier: BSD-2-Clause */
#ifdef PL_HAVE_VERBS

#include "route/loop.h"

#define DEPTH 8u
#define GIDS 256
#define LIMIT (10 * PL_NS_PER_S) /* of one series of writes */
#define ACK_TIMEOUT 14
#define TRIES 6 /* with 7, soft-RoCE tries for ever */

static int find_port(struct route_loop *loop, struct ibv_port_attr *port)
{
	struct ibv_device_attr attributes;
	int rc = verbs_result(loop->library->ibv_query_device(loop->context, &attributes));

	for (unsigned i = 1; rc == 0 && i <= attributes.phys_port_cnt; i++) {
		loop->port = (uint8_t)i;
		if (verbs_query_port(loop->library, loop->context, loop->port, port) == 0 &&
		    port->state == IBV_PORT_ACTIVE)
			return 0;
	}
	return rc ? rc : -ENETDOWN;
}

/* The entry of an IPv4 address, which is that of RoCE over routers; else the first that there is. */
static int find_gid(struct route_loop *loop, const struct ibv_port_attr *port, union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	union ibv_gid one, none = { 0 };
	int found = -ENOENT;

	for (int i = 0; i < PL_MIN(port->gid_tbl_len, GIDS); i++) {
		if (loop->library->ibv_query_gid(loop->context, loop->port, i, &one) ||
		    !memcmp(&one, &none, sizeof(none)))
			continue;
		if (found < 0 || !memcmp(one.raw, mapped, sizeof(mapped))) {
			found = i;
			*gid = one;
		}
	}
	return found;
}

static int to_init(struct route_loop *loop)
{
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT,
		.port_num = loop->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	return verbs_result(loop->library->ibv_modify_qp(
		loop->qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static int to_receive(struct route_loop *loop, const struct ibv_port_attr *port)
{
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port->active_mtu,
		.dest_qp_num = loop->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .dlid = port->lid, .port_num = loop->port },
	};
	struct ibv_global_route *route = &attributes.ah_attr.grh;
	int index = find_gid(loop, port, &route->dgid);

	if (port->link_layer == IBV_LINK_LAYER_ETHERNET) {
		if (index < 0)
			return index;
		attributes.ah_attr.is_global = 1;
		route->sgid_index = (uint8_t)index;
		route->hop_limit = 64;
	}
	return verbs_result(loop->library->ibv_modify_qp(loop->qp, &attributes,
							 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
								 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
								 IBV_QP_MIN_RNR_TIMER));
}

static int to_send(struct route_loop *loop)
{
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_RTS,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = TRIES,
		.rnr_retry = TRIES,
		.max_rd_atomic = 1,
	};

	return verbs_result(loop->library->ibv_modify_qp(loop->qp, &attributes,
							 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
								 IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
								 IBV_QP_MAX_QP_RD_ATOMIC));
}

static int connect_loop(struct route_loop *loop, const char **what)
{
	struct ibv_qp_init_attr attributes = {
		.send_cq = loop->cq,
		.recv_cq = loop->cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_port_attr port;
	int rc = find_port(loop, &port);

	*what = "no port is active";
	if (rc < 0)
		return rc;
	*what = "ibv_create_qp";
	loop->qp = loop->library->ibv_create_qp(loop->pd, &attributes);
	rc = verbs_made(loop->qp);
	*what = "ibv_modify_qp";
	if (rc == 0)
		rc = to_init(loop);
	if (rc == 0)
		rc = to_receive(loop, &port);
	return rc ? rc : to_send(loop);
}

int route_loop_open(struct route_loop *loop, const struct verbs_library *library, struct ibv_device *device,
		    const char **what)
{
	int rc;

	*loop = (struct route_loop){ .library = library, .context = library->ibv_open_device(device) };
	*what = "ibv_open_device";
	rc = verbs_made(loop->context);
	if (rc == 0) {
		*what = "ibv_alloc_pd";
		loop->pd = library->ibv_alloc_pd(loop->context);
		rc = verbs_made(loop->pd);
	}
	if (rc == 0) {
		*what = "ibv_create_cq";
		loop->cq = library->ibv_create_cq(loop->context, DEPTH, NULL, NULL, 0);
		rc = verbs_made(loop->cq);
	}
	if (rc == 0)
		rc = connect_loop(loop, what);
	if (rc < 0)
		route_loop_close(loop);
	return rc;
}

void route_loop_close(struct route_loop *loop)
{
	if (loop->qp)
		loop->library->ibv_destroy_qp(loop->qp);
	if (loop->cq)
		loop->library->ibv_destroy_cq(loop->cq);
	if (loop->pd)
		loop->library->ibv_dealloc_pd(loop->pd);
	if (loop->context)
		loop->library->ibv_close_device(loop->context);
	*loop = (struct route_loop){ 0 };
}

static int post(struct route_loop *loop, const struct route_span *span)
{
	struct ibv_sge piece = { .addr = span->from_address, .length = span->length, .lkey = span->from->lkey };
	struct ibv_send_wr *bad, request = {
		.sg_list = &piece,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = span->to_address, .rkey = span->to->rkey },
	};

	return verbs_result(ibv_post_send(loop->qp, &request, &bad));
}

int64_t route_loop_write(struct route_loop *loop, const struct route_span *span, unsigned count, const char **what)
{
	uint64_t begin = pl_now();
	unsigned posted = 0, done = 0;
	struct ibv_wc completion;
	int n;

	while (done < count) {
		while (posted < count && posted - done < DEPTH && post(loop, span) == 0)
			posted++;
		n = ibv_poll_cq(loop->cq, 1, &completion);
		if (n == 1 && completion.status != IBV_WC_SUCCESS) {
			*what = loop->library->ibv_wc_status_str(completion.status);
			return -EIO;
		}
		*what = "the device does not answer";
		if (n < 0 || pl_now() - begin > LIMIT)
			return -ETIMEDOUT;
		done += (unsigned)n;
	}
	return (int64_t)PL_MAX(pl_now() - begin, 1);
}

#else

/* Nothing without the headers of libibverbs. */
typedef int route_loop_nothing;

#endif
