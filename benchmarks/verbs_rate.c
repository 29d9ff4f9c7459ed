/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_rate GID_INDEX SIZE DEPTH SECONDS: messages between two processes of this machine over the first RDMA device, by plain
 * libibverbs, with the calls that nccl_rate makes the NCCL plugin do: the receiver tells the sender of each buffer by a small write
 * with immediate data, and the sender writes the message with immediate data. Both ends poll their queue, with sched_yield() in
 * between, as NCCL's proxy does. Prints GB/s, and microseconds of a message. benchmarks/verbs runs it beside nccl_rate.
 */
#include <infiniband/verbs.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define DEPTH_MAX 8u
#define RECEIVES (2 * DEPTH_MAX)
#define NOTICE 32u /* bytes of the receiver's message */
#define PORT 1
/* Of ib_write_bw and of Peerlane: 67 ms, and repetitions. */
#define ACK_TIMEOUT 14
#define RETRIES 7

/* What an end tells the other one. */
struct introduction {
	union ibv_gid gid;
	uint32_t number, data_key, notice_key;
	uint64_t data, notice;
};

struct end {
	struct ibv_context *device;
	struct ibv_cq *queue;
	struct ibv_qp *pair;
	struct ibv_mr *data, *notice;
	struct introduction other;
	int fd; /* socket to the other process */
	bool sends;
	size_t size;
	unsigned depth;
	uint64_t allowed; /* messages for which the receiver has told of a buffer */
	uint64_t begun, ended;
};

static void check_call(bool done, const char *call)
{
	if (done)
		return;
	perror(call);
	exit(1);
}

#define CALL(condition) check_call(condition, #condition)

/* -- connection ----------------------------------------------------------------------------------- */

static struct ibv_mr *register_bytes(struct ibv_pd *domain, size_t length)
{
	void *data = NULL;
	struct ibv_mr *region;

	CALL(posix_memalign(&data, 4096, length) == 0);
	memset(data, 1, length);
	region = ibv_reg_mr(domain, data, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CALL(region);
	return region;
}

static void open_end(struct end *end)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr wanted = {
		.cap = { .max_send_wr = 2 * DEPTH_MAX, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_pd *domain;

	CALL(list && list[0]);
	CALL((end->device = ibv_open_device(list[0])));
	CALL((domain = ibv_alloc_pd(end->device)));
	CALL((end->queue = ibv_create_cq(end->device, 4 * RECEIVES, NULL, NULL, 0)));
	wanted.send_cq = wanted.recv_cq = end->queue;
	CALL((end->pair = ibv_create_qp(domain, &wanted)));
	end->data = register_bytes(domain, end->size * end->depth);
	end->notice = register_bytes(domain, NOTICE);
}

static void post_receive(struct end *end)
{
	struct ibv_recv_wr request = { .wr_id = 0 }, *bad;

	CALL(ibv_post_recv(end->pair, &request, &bad) == 0);
}

/* Takes the queue pair to the state in which it receives and sends. */
static void activate_pair(struct end *end, int gid_index)
{
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_INIT,
					  .port_num = PORT,
					  .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_port_attr port;

	CALL(ibv_query_port(end->device, PORT, &port) == 0);
	CALL(ibv_modify_qp(end->pair, &attributes,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	for (unsigned i = 0; i < RECEIVES; i++)
		post_receive(end);
	attributes = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = end->other.number,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = PORT,
			     .grh = { .dgid = end->other.gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64 } },
	};
	CALL(ibv_modify_qp(end->pair, &attributes,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attributes = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
					   .timeout = ACK_TIMEOUT,
					   .retry_cnt = RETRIES,
					   .rnr_retry = 7,
					   .max_rd_atomic = 1 };
	CALL(ibv_modify_qp(end->pair, &attributes,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				   IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void meet(const struct end *end)
{
	char byte = 0;

	put(end->fd, &byte, 1);
	get(end->fd, &byte, 1);
}

static void connect_end(struct end *end, int gid_index)
{
	struct introduction own = { .number = end->pair->qp_num,
				    .data_key = end->data->rkey,
				    .notice_key = end->notice->rkey,
				    .data = (uintptr_t)end->data->addr,
				    .notice = (uintptr_t)end->notice->addr };

	CALL(ibv_query_gid(end->device, PORT, gid_index, &own.gid) == 0);
	put(end->fd, &own, sizeof(own));
	get(end->fd, &end->other, sizeof(end->other));
	activate_pair(end, gid_index);
	meet(end);
}

/* -- messages ------------------------------------------------------------------------------------- */

static void post_write(struct end *end, const struct ibv_mr *from, size_t offset, size_t length, uint64_t to,
		       uint32_t key)
{
	struct ibv_sge bytes = { (uintptr_t)from->addr + offset, (uint32_t)length, from->lkey };
	struct ibv_send_wr request = { .sg_list = &bytes, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM }, *bad;

	request.wr.rdma.remote_addr = to;
	request.wr.rdma.rkey = key;
	CALL(ibv_post_send(end->pair, &request, &bad) == 0);
}

/* Sends if there is a buffer at the other end, or tells of a free one. Returns true if it did. */
static bool begin_message(struct end *end, uint64_t last)
{
	size_t offset = end->begun % end->depth * end->size;

	if (end->begun == last || end->begun - end->ended == end->depth || (end->sends && end->begun == end->allowed))
		return false;
	if (end->sends)
		post_write(end, end->data, offset, end->size, end->other.data + offset, end->other.data_key);
	else
		post_write(end, end->notice, 0, NOTICE, end->other.notice, end->other.notice_key);
	end->begun++;
	return true;
}

/* Returns true if there was a completion. */
static bool take_completion(struct end *end)
{
	struct ibv_wc completion;
	int count = ibv_poll_cq(end->queue, 1, &completion);
	bool received = count > 0 && completion.opcode & IBV_WC_RECV;

	CALL(count >= 0 && (count == 0 || completion.status == IBV_WC_SUCCESS));
	if (received)
		post_receive(end);
	if (received && end->sends)
		end->allowed++;
	else if (count > 0 && received != end->sends)
		end->ended++;
	return count > 0;
}

/* Moves `count` messages more. Returns the nanoseconds that they took. */
static uint64_t move_more(struct end *end, uint64_t count)
{
	uint64_t last = end->ended + count, begun;

	meet(end);
	begun = now_ns();
	while (end->ended < last) {
		bool progressed = begin_message(end, last);

		if (!(take_completion(end) || progressed))
			sched_yield();
	}
	meet(end);
	return now_ns() - begun;
}

static void measure(struct end *end, double seconds)
{
	uint64_t count = 16, took;

	move_more(end, count);
	took = move_more(end, count);
	count = (uint64_t)((double)count * seconds * NS_PER_S / (double)took) + 1;
	/* Both processes take the number of the sender. */
	if (end->sends)
		put(end->fd, &count, sizeof(count));
	else
		get(end->fd, &count, sizeof(count));
	took = move_more(end, count);
	if (end->sends)
		printf("%.4f %.2f\n", (double)(count * end->size) / (double)took, (double)took / 1000 / (double)count);
}

int main(int argc, char **argv)
{
	struct end end = { 0 };
	int ends[2], status = 0;
	pid_t child;

	end.size = argc > 2 ? (size_t)atol(argv[2]) : 0;
	end.depth = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
	if (argc != 5 || end.depth < 1 || end.depth > DEPTH_MAX || end.size < 1 || end.size > 1u << 30 ||
	    atof(argv[4]) <= 0) {
		fputs("usage: verbs_rate GID_INDEX SIZE DEPTH SECONDS\n", stderr);
		return 2;
	}
	CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CALL((child = fork()) >= 0);
	end.sends = child != 0;
	end.fd = ends[child == 0];
	close(ends[child != 0]);
	open_end(&end);
	connect_end(&end, atoi(argv[1]));
	measure(&end, atof(argv[4]));
	if (child == 0)
		return 0;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
