/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Soft-RoCE and GPU memory, with libibverbs and librdmacm only.  The program registers GPU memory with ibv_reg_mr(), as
 * it would register host memory.  Another machine accesses that memory.
 *
 *     peermem_verbs far ADDRESS PORT            the far end: listens, then writes, reads and sends
 *     peermem_verbs near ADDRESS PORT keep|free the end with the GPU; with "free" it frees the registered memory, and
 *                                               the far end's access must then fail
 *     peermem_verbs hold COUNT                  registers COUNT regions, prints a line, and waits to be killed
 *     peermem_verbs fork                        forks a child while a region is registered
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

#define MIB (1 << 20)
/* Bytes that are written and sent, and the offset in the region where the message is received. */
#define WRITTEN MIB
#define SENT 4096
#define SENT_AT (3 * MIB)
#define LENGTH (4 * MIB)
#define GPU_OFFSET (16 * MIB)

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct offer {
	uint64_t address;
	uint32_t key;
	uint32_t free;
};

static struct rdma_addrinfo *resolve(char *address, char *port, bool listens)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = listens ? RAI_PASSIVE : 0 }, *found;

	REQUIRE(rdma_getaddrinfo(address, port, &hints, &found) == 0);
	return found;
}

static struct ibv_qp_init_attr queue_pair(void)
{
	return (struct ibv_qp_init_attr){
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
}

static enum ibv_wc_status sent(struct rdma_cm_id *id)
{
	struct ibv_wc completion;

	REQUIRE(rdma_get_send_comp(id, &completion) == 1);
	return completion.status;
}

static void received(struct rdma_cm_id *id)
{
	struct ibv_wc completion;

	REQUIRE(rdma_get_recv_comp(id, &completion) == 1);
	REQUIRE(completion.status == IBV_WC_SUCCESS);
}

static void far_end(char *address, char *port)
{
	static uint8_t buffer[WRITTEN], copy[WRITTEN];
	struct ibv_qp_init_attr attributes = queue_pair();
	struct rdma_conn_param parameters = {
		.retry_count = 6, .rnr_retry_count = 6, .responder_resources = 1, .initiator_depth = 1
	};
	struct rdma_cm_id *listener, *id;
	struct ibv_mr *region, *copied;
	struct offer offer;
	size_t i;

	REQUIRE(rdma_create_ep(&listener, resolve(address, port, true), NULL, &attributes) == 0);
	REQUIRE(rdma_listen(listener, 1) == 0);
	REQUIRE(rdma_get_request(listener, &id) == 0);
	memcpy(&offer, id->event->param.conn.private_data, sizeof(offer));
	for (i = 0; i < WRITTEN; i++)
		buffer[i] = rig_pattern(i);
	region = ibv_reg_mr(id->pd, buffer, WRITTEN, IBV_ACCESS_LOCAL_WRITE);
	copied = ibv_reg_mr(id->pd, copy, WRITTEN, IBV_ACCESS_LOCAL_WRITE);
	REQUIRE(region && copied);
	REQUIRE(rdma_post_recv(id, NULL, copy, SENT, copied) == 0);
	REQUIRE(rdma_accept(id, &parameters) == 0);

	REQUIRE(rdma_post_write(id, NULL, buffer, WRITTEN, region, 0, offer.address, offer.key) == 0);
	REQUIRE(sent(id) == IBV_WC_SUCCESS);
	REQUIRE(rdma_post_send(id, NULL, buffer + SENT, SENT, region, 0) == 0);
	REQUIRE(sent(id) == IBV_WC_SUCCESS);
	/* The near end has checked both, and with "free" has freed its memory. */
	received(id);
	if (offer.free) {
		REQUIRE(rdma_post_write(id, NULL, copy, SENT, copied, 0, offer.address, offer.key) == 0);
		REQUIRE(sent(id) == IBV_WC_REM_ACCESS_ERR);
	} else {
		REQUIRE(rdma_post_read(id, NULL, copy, WRITTEN, copied, 0, offer.address, offer.key) == 0);
		REQUIRE(sent(id) == IBV_WC_SUCCESS);
		REQUIRE(!memcmp(buffer, copy, WRITTEN));
	}
	rdma_disconnect(id);
	ibv_dereg_mr(region);
	ibv_dereg_mr(copied);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

/* Waits until the far end disconnects. */
static void await_disconnect(struct rdma_cm_id *id)
{
	enum rdma_cm_event_type type;
	struct rdma_cm_event *event;

	do {
		REQUIRE(rdma_get_cm_event(id->channel, &event) == 0);
		type = event->event;
		rdma_ack_cm_event(event);
	} while (type != RDMA_CM_EVENT_DISCONNECTED);
}

static void near_end(const struct rig *rig, char *address, char *port, bool freeing)
{
	static uint8_t note[SENT];
	struct ibv_qp_init_attr attributes = queue_pair();
	uint8_t *memory = rig_map(rig, LENGTH, GPU_OFFSET);
	struct offer offer = { .free = freeing };
	struct rdma_conn_param parameters = { .private_data = &offer,
					      .private_data_len = sizeof(offer),
					      .retry_count = 6,
					      .rnr_retry_count = 6,
					      .responder_resources = 1,
					      .initiator_depth = 1 };
	struct ibv_mr *region, *noted;
	struct rdma_cm_id *id;
	size_t i;

	memset(memory, 0, LENGTH);
	REQUIRE(rdma_create_ep(&id, resolve(address, port, false), NULL, &attributes) == 0);
	region = ibv_reg_mr(id->pd, memory, LENGTH, ACCESS);
	if (!region)
		printf("ibv_reg_mr: %s\n", strerror(errno));
	REQUIRE(region);
	noted = ibv_reg_mr(id->pd, note, SENT, IBV_ACCESS_LOCAL_WRITE);
	REQUIRE(noted);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == 1);
	offer.address = (uintptr_t)memory;
	offer.key = region->rkey;
	REQUIRE(rdma_post_recv(id, NULL, memory + SENT_AT, SENT, region) == 0);
	REQUIRE(rdma_connect(id, &parameters) == 0);
	received(id);
	for (i = 0; i < WRITTEN; i++)
		REQUIRE(memory[i] == rig_pattern(i));
	for (i = 0; i < SENT; i++)
		REQUIRE(memory[SENT_AT + i] == rig_pattern(SENT + i));
	if (freeing) {
		REQUIRE(rig_free(rig, memory) == 0);
		REQUIRE(ioctl(rig->gpu, GPU_PINS) == 0);
	}
	REQUIRE(rdma_post_send(id, NULL, note, SENT, noted, 0) == 0);
	REQUIRE(sent(id) == IBV_WC_SUCCESS);
	await_disconnect(id);
	if (freeing) {
		for (i = 0; i < SENT; i++)
			REQUIRE(memory[i] == rig_pattern(i));
	}
	REQUIRE(ibv_dereg_mr(region) == 0);
	REQUIRE(ibv_dereg_mr(noted) == 0);
	rdma_destroy_ep(id);
	munmap(memory, LENGTH);
	rig_require_clean(rig);
}

static struct ibv_pd *open_device(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
	struct ibv_pd *domain = context ? ibv_alloc_pd(context) : NULL;

	REQUIRE(domain);
	return domain;
}

static void hold(const struct rig *rig, int count)
{
	struct ibv_pd *domain = open_device();
	char *memory = rig_map(rig, LENGTH, 0);

	while (count--)
		REQUIRE(ibv_reg_mr(domain, memory + count * 1000, MIB, ACCESS));
	printf("holding\n");
	pause();
}

static void with_child(const struct rig *rig)
{
	struct ibv_pd *domain = open_device();
	char *memory = rig_map(rig, LENGTH, 0);
	struct ibv_mr *region = ibv_reg_mr(domain, memory, LENGTH, ACCESS);
	int status;
	pid_t child;

	REQUIRE(region);
	child = fork();
	if (!child)
		_exit(!(ibv_reg_mr(domain, memory, LENGTH, ACCESS) == NULL && errno == EFAULT));
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	REQUIRE(ioctl(rig->gpu, GPU_PINS) == 1);
	/* Unmaps the memory before the region is deregistered. */
	munmap(memory, LENGTH);
	REQUIRE(ibv_dereg_mr(region) == 0);
	rig_require_clean(rig);
}

int main(int count, char **arguments)
{
	struct rig rig;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count == 4 && !strcmp(arguments[1], "far")) {
		far_end(arguments[2], arguments[3]);
		return 0;
	}
	rig_open(&rig);
	if (count == 5 && !strcmp(arguments[1], "near"))
		near_end(&rig, arguments[2], arguments[3], !strcmp(arguments[4], "free"));
	else if (count == 3 && !strcmp(arguments[1], "hold"))
		hold(&rig, atoi(arguments[2]));
	else if (count == 2 && !strcmp(arguments[1], "fork"))
		with_child(&rig);
	else
		return 2;
	return 0;
}
