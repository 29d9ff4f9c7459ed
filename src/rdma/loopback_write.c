/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdma/data_direct.h"
#include "rdma/loopback_qp.h"
#include "rdma/loopback_write.h"

#define DEPTH 8u
#define LIMIT (10 * PL_NS_PER_S) /* for one series of writes */

static int connect_loop(struct rdma_loopback *loop, const char **what)
{
	struct ibv_qp_init_attr attributes = {
		.send_cq = loop->cq,
		.recv_cq = loop->cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	const struct rdma_loopback_path any = { 0 };
	int rc;

	*what = "ibv_create_qp";
	loop->qp = loop->domain.library->ibv_create_qp(loop->domain.pd, &attributes);
	rc = verbs_made(loop->qp);
	return rc ? rc
		  : rdma_loopback_qp_connect(loop->domain.library, loop->qp, &any,
					     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, what);
}

int rdma_loopback_open(struct rdma_loopback *loop, const struct verbs_library *library, struct ibv_device *device,
		       const char **what)
{
	int rc;

	*loop = (struct rdma_loopback){ .domain.library = library };
	/* The fabric uses no other devices. */
	if (device->transport_type != IBV_TRANSPORT_IB) {
		*what = device->transport_type == IBV_TRANSPORT_IWARP ? "an iWARP device, which verbs does not use"
								      : "the device has no reliable connections (RC)";
		return -ENOTSUP;
	}
	loop->context = library->ibv_open_device(device);
	*what = "ibv_open_device";
	rc = verbs_made(loop->context);
	if (rc == 0) {
		loop->domain.data_direct = rdma_data_direct_has(library, loop->context);
		*what = "ibv_alloc_pd";
		loop->domain.pd = library->ibv_alloc_pd(loop->context);
		rc = verbs_made(loop->domain.pd);
	}
	if (rc == 0) {
		*what = "ibv_create_cq";
		loop->cq = library->ibv_create_cq(loop->context, DEPTH, NULL, NULL, 0);
		rc = verbs_made(loop->cq);
	}
	if (rc == 0)
		rc = connect_loop(loop, what);
	if (rc < 0)
		rdma_loopback_close(loop);
	return rc;
}

void rdma_loopback_close(struct rdma_loopback *loop)
{
	if (loop->qp)
		loop->domain.library->ibv_destroy_qp(loop->qp);
	if (loop->cq)
		loop->domain.library->ibv_destroy_cq(loop->cq);
	if (loop->domain.pd)
		loop->domain.library->ibv_dealloc_pd(loop->domain.pd);
	if (loop->context)
		loop->domain.library->ibv_close_device(loop->context);
	*loop = (struct rdma_loopback){ 0 };
}

static int post_loopback(struct rdma_loopback *loop, const struct rdma_span *span, bool read)
{
	struct ibv_sge from = { .addr = span->from_address, .length = span->length, .lkey = span->from->lkey };
	struct ibv_sge to = { .addr = span->to_address, .length = span->length, .lkey = span->to->lkey };
	struct ibv_send_wr *bad, request = {
		.sg_list = read ? &to : &from,
		.num_sge = 1,
		.opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = read ? span->from_address : span->to_address,
			     .rkey = read ? span->from->rkey : span->to->rkey },
	};

	return verbs_result(ibv_post_send(loop->qp, &request, &bad));
}

static int64_t move_loopback(struct rdma_loopback *loop, const struct rdma_span *span, unsigned count, bool read,
			     const char **what)
{
	uint64_t begin = pl_now();
	unsigned posted = 0, done = 0;
	struct ibv_wc completion;
	int n;

	while (done < count) {
		while (posted < count && posted - done < DEPTH && post_loopback(loop, span, read) == 0)
			posted++;
		n = ibv_poll_cq(loop->cq, 1, &completion);
		if (n == 1 && completion.status != IBV_WC_SUCCESS) {
			*what = loop->domain.library->ibv_wc_status_str(completion.status);
			return -EIO;
		}
		*what = "the device does not answer";
		if (n < 0 || pl_now() - begin > LIMIT)
			return -ETIMEDOUT;
		done += (unsigned)n;
	}
	return (int64_t)PL_MAX(pl_now() - begin, 1);
}

int64_t rdma_loopback_write(struct rdma_loopback *loop, const struct rdma_span *span, unsigned count, const char **what)
{
	return move_loopback(loop, span, count, false, what);
}

int64_t rdma_loopback_read(struct rdma_loopback *loop, const struct rdma_span *span, const char **what)
{
	return move_loopback(loop, span, 1, true, what);
}
