/* SPDX-License-Identifier: BSD-2-Clause */
#include "card/plain_loop.h"

#include "rdma/loopback_qp.h"
#include "support/check.h"

#define DEPTH_MAX 128u
#define POLL_MAX 16

void plain_loop_open(struct plain_loop *loop)
{
	const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	const struct rdma_loopback_path path = { 0 };
	struct ibv_qp_init_attr attributes = {
		.cap = { .max_send_wr = DEPTH_MAX, .max_send_sge = 1, .max_inline_data = PLAIN_LOOP_LENGTH },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_device **devices;
	struct pl_error error;
	const char *what;
	int count = 0;

	*loop = (struct plain_loop){ .library = verbs_library_get(&error) };
	check(loop->library);
	devices = loop->library->ibv_get_device_list(&count);
	check(devices && count);
	loop->context = loop->library->ibv_open_device(devices[0]);
	check(loop->context);
	loop->library->ibv_free_device_list(devices);
	loop->pd = loop->library->ibv_alloc_pd(loop->context);
	check(loop->pd);
	loop->cq = loop->library->ibv_create_cq(loop->context, DEPTH_MAX, NULL, NULL, 0);
	check(loop->cq);
	attributes.send_cq = attributes.recv_cq = loop->cq;
	loop->qp = loop->library->ibv_create_qp(loop->pd, &attributes);
	check(loop->qp);
	check_number(verbs_reg_mr(loop->library, loop->pd, loop->bytes, sizeof(loop->bytes), access, &loop->mr), 0);
	check_number(rdma_loopback_qp_connect(loop->library, loop->qp, &path, access, &what), 0);
}

void plain_loop_close(struct plain_loop *loop)
{
	loop->library->ibv_destroy_qp(loop->qp);
	loop->library->ibv_dereg_mr(loop->mr);
	loop->library->ibv_destroy_cq(loop->cq);
	loop->library->ibv_dealloc_pd(loop->pd);
	loop->library->ibv_close_device(loop->context);
}

/* Links the requests, which are filled once, as perftest does. */
static void fill_list(struct plain_loop *loop, struct ibv_send_wr *requests, struct ibv_sge *element, unsigned list)
{
	*element = (struct ibv_sge){ (uintptr_t)loop->bytes[0], PLAIN_LOOP_LENGTH, loop->mr->lkey };
	for (unsigned i = 0; i < list; i++)
		requests[i] = (struct ibv_send_wr){
			.next = i + 1 < list ? &requests[i + 1] : NULL,
			.sg_list = element,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = { .remote_addr = (uintptr_t)loop->bytes[1], .rkey = loop->mr->rkey },
		};
}

void plain_loop_run(struct plain_loop *loop, unsigned count, unsigned depth, unsigned list, unsigned every)
{
	struct ibv_send_wr requests[PLAIN_LOOP_LIST_MAX], *bad;
	unsigned posted = 0, done = 0, unsignaled = 0;
	struct ibv_wc completions[POLL_MAX];
	struct ibv_sge element;

	check(list <= PLAIN_LOOP_LIST_MAX && depth <= DEPTH_MAX && count % depth == 0);
	fill_list(loop, requests, &element, list);
	while (done < count) {
		int got;

		while (posted < count && posted - done + list <= depth) {
			for (unsigned i = 0; i < list; i++) {
				bool signals = ++unsignaled == every;

				requests[i].send_flags = IBV_SEND_INLINE | (signals ? IBV_SEND_SIGNALED : 0);
				unsignaled = signals ? 0 : unsignaled;
			}
			check(!ibv_post_send(loop->qp, requests, &bad));
			posted += list;
		}
		got = ibv_poll_cq(loop->cq, POLL_MAX, completions);
		check(got >= 0);
		for (int i = 0; i < got; i++)
			check_number(completions[i].status, IBV_WC_SUCCESS);
		done += (unsigned)got * every;
	}
}
