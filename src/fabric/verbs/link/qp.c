/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pair of a rail. */
#include "fabric/verbs/data/signal.h"

#define READS_MAX 128u
/*
 * Defaults of options. The ACK timeout is 4.096 us times 2 to this power: 67 ms. Soft-RoCE takes 7 retries as "without
 * end".
 */
#define ACK_TIMEOUT 14
#define RETRIES 6
/* 0.64 ms in InfiniBand's encoding of the RNR timer. */
#define RNR_TIMER 12
/* Routers that a packet may pass. */
#define HOPS 64

/* Registers the receives of the rail's queue pairs, anew for another device. */
static int open_receives(struct verbs_rail *rail, const char **call)
{
	struct verbs_state *state = rail->endpoint->state;

	*call = "ibv_reg_mr";
	if (rail->receives.mr && rail->receives.mr->pd == rail->device->pd)
		return 0;
	verbs_buffer_pool_close(&rail->receives, state);
	return verbs_buffer_pool_open(&rail->receives, state, rail->device, VERBS_OWN_RECEIVES, VERBS_BUFFER);
}

/* Creates the queue pair on its queue. */
static int create_qp(struct verbs_rail *rail, const char **call)
{
	struct ibv_qp_init_attr attributes = {
		.qp_context = rail, /* for its events */
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
		rc = open_receives(rail, call);
		if (rc < 0)
			return rc;
		attributes.cap.max_recv_wr = VERBS_OWN_RECEIVES;
		attributes.cap.max_recv_sge = 1;
	}
	atomic_store(&rail->last_reached, false);
	atomic_store(&rail->pair_event, false);
	rail->awaits_last = false;
	*call = "ibv_create_qp";
	rail->qp = verbs_library_of(rail)->ibv_create_qp(rail->device->pd, &attributes);
	rail->inline_max = attributes.cap.max_inline_data;
	return verbs_made(rail->qp);
}

/* Moves the queue pair to INIT, in which it takes receives. */
static int init_qp(struct verbs_rail *rail, const char **call)
{
	const struct verbs_library *library = verbs_library_of(rail);
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = rail->own.pkey_index,
		.port_num = rail->port->number,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	int rc;

	/* Drivers without atomics may refuse the flag. */
	if (rail->device->attributes.atomic_cap != IBV_ATOMIC_NONE)
		attributes.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
	*call = "ibv_modify_qp to INIT";
	rc = verbs_result(library->ibv_modify_qp(
		rail->qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	if (rc < 0)
		return rc;
	*call = "ibv_post_recv";
	return verbs_own_receives_post(rail);
}

/* Asks the port for what the other end must know. Addresses and their places in the table change. */
static int query_path(struct verbs_rail *rail, const char **call)
{
	struct verbs_state *state = rail->endpoint->state;
	struct ibv_port_attr port;
	const struct verbs_gid *gid;
	bool excluded;
	int rc = verbs_query_port(state->library, rail->device->verbs, rail->port->number, &port);

	*call = "ibv_query_port";
	if (rc < 0)
		return rc;
	verbs_pace_connect(&rail->pace, port.active_mtu);
	rail->own.mtu = (uint8_t)port.active_mtu;
	rail->own.lid = port.lid;
	rail->own.global = port.flags & IBV_QPF_GRH_REQUIRED;
	*call = "ibv_query_gid";
	pthread_mutex_lock(&state->lock);
	gid = verbs_port_gid(rail->port, &rail->chosen_gid);
	if (gid) {
		rail->gid = gid->gid;
		rail->own.gid_index = gid->index;
	}
	excluded = rail->port->excluded;
	rail->own.pkey_index = rail->port->pkey_index;
	pthread_mutex_unlock(&state->lock);
	if (excluded)
		return -EADDRNOTAVAIL;
	if (!gid && rail->port->link_layer == IBV_LINK_LAYER_ETHERNET)
		return -EADDRNOTAVAIL;
	/* A late packet of an earlier queue pair with this number does not fit. */
	*call = "getrandom";
	rc = pl_random(&rail->own.psn, sizeof(rail->own.psn));
	rail->own.psn &= 0xffffff;
	return rc;
}

int verbs_qp_make(struct verbs_rail *rail, const char **call)
{
	struct verbs_failure failure;
	int rc;

	*call = "ibv_open_device";
	if (atomic_load(&rail->device->gone))
		verbs_rail_renew(rail);
	if (atomic_load(&rail->device->gone)) {
		/* Without another rail the peer is lost soon. */
		if (!verbs_rails_up(rail->endpoint))
			verbs_device_seek(rail->endpoint->state);
		return -ENODEV;
	}
	/* Addresses may have moved within the table. */
	verbs_ports_look(rail->endpoint->state, UINT64_MAX);
	rail->queue = verbs_cq_get(rail->endpoint->state, rail->device, rail->endpoint->base.peer->home, &failure);
	if (!rail->queue) {
		*call = failure.call;
		return failure.code;
	}
	rail->queue->rail_count++;
	verbs_srq_grow(rail->queue);
	rc = query_path(rail, call);
	if (rc == 0)
		rc = create_qp(rail, call);
	if (rc < 0)
		return rc;
	pl_list_append(&rail->queue->rails[rail->qp->qp_num % PL_ARRAY_SIZE(rail->queue->rails)], &rail->queue_link);
	return init_qp(rail, call);
}

/*
 * ECE: both queue pairs of a connection get the options of the card that both cards support, such as selective repeat and
 * the kind of congestion control of mlx5. The initiator tells what its card supports. The acceptor's card chooses of that
 * when its queue pair becomes RTR, and the acceptor tells the choice.
 */
static void describe_options(const struct verbs_rail *rail, struct pl_rail_message *message)
{
	const struct verbs_library *library = verbs_library_of(rail);
	const struct pl_peer *peer = rail->endpoint->base.peer;
	struct ibv_ece options = { 0 };

	if (!peer->ece || !library->ibv_query_ece || (!peer->initiator && !rail->own.extended) ||
	    verbs_result(library->ibv_query_ece(rail->qp, &options)) < 0 || !options.vendor_id)
		return;
	message->ece_vendor = options.vendor_id;
	message->ece_options = options.options;
}

/* A card of another maker refuses the options: then neither queue pair has any. */
static void set_options(struct verbs_rail *rail, const struct pl_rail_message *far)
{
	const struct verbs_library *library = verbs_library_of(rail);
	struct ibv_ece options = { .vendor_id = far->ece_vendor, .options = far->ece_options };

	rail->own.extended =
		far->ece_vendor && library->ibv_set_ece && verbs_result(library->ibv_set_ece(rail->qp, &options)) == 0;
}

void verbs_qp_describe(const struct verbs_rail *rail, struct pl_rail_message *message)
{
	message->renewals = rail->renewals;
	message->qp_number = rail->qp->qp_num;
	message->psn = rail->own.psn;
	message->lid = rail->own.lid;
	memcpy(message->gid, rail->gid.raw, sizeof(message->gid));
	message->mtu = rail->own.mtu;
	message->reads = verbs_qp_reads(rail->device);
	message->global = rail->own.global;
	message->traffic_class = rail->own.traffic_class;
	message->service_level = rail->own.service_level;
	describe_options(rail, message);
}

/*
 * Fills the other end's address. Packets need a global route header on Ethernet, by a port's wish, or from one subnet of
 * InfiniBand to another. In another subnet a router has the LID.
 */
static void fill_address(const struct verbs_rail *rail, const struct pl_rail_message *far, struct ibv_ah_attr *address)
{
	const bool ethernet = rail->port->link_layer == IBV_LINK_LAYER_ETHERNET;
	uint16_t flid;
	bool apart;

	memcpy(address->grh.dgid.raw, far->gid, sizeof(far->gid));
	apart = !ethernet && !verbs_gid_same_subnet(&rail->gid, &address->grh.dgid);
	flid = apart ? verbs_gid_flid(&address->grh.dgid) : 0;
	address->dlid = flid ? flid : far->lid;
	address->sl = rail->own.service_level;
	address->port_num = rail->port->number;
	if (!ethernet && !apart && !rail->own.global && !far->global && far->lid)
		return;
	address->is_global = 1;
	address->grh.sgid_index = rail->own.gid_index;
	address->grh.hop_limit = HOPS;
	address->grh.traffic_class = rail->own.traffic_class;
}

/* Returns the value of an option, of which 0 stands for the default. */
static uint8_t option_or(unsigned value, uint8_t otherwise)
{
	return value ? (uint8_t)value : otherwise;
}

uint64_t verbs_retry_time(const struct pl_options *options)
{
	return (option_or(options->retries, RETRIES) + 1u) * (4096ull << option_or(options->ack_timeout, ACK_TIMEOUT));
}

void verbs_qp_route(struct verbs_rail *rail, const struct pl_rail_message *far)
{
	const struct pl_options *options = &rail->endpoint->state->context->options;
	uint8_t reads = verbs_qp_reads(rail->device);
	struct verbs_ready_job *job = &rail->ready;

	job->receive = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)PL_MIN(rail->own.mtu, far->mtu),
		.dest_qp_num = far->qp_number,
		.rq_psn = far->psn,
		.max_dest_rd_atomic = reads,
		.min_rnr_timer = option_or(options->rnr_timer, RNR_TIMER),
	};
	fill_address(rail, far, &job->receive.ah_attr);
	set_options(rail, far);
	job->send = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = rail->own.psn,
		.timeout = option_or(options->ack_timeout, ACK_TIMEOUT),
		.retry_cnt = option_or(options->retries, RETRIES),
		.rnr_retry = VERBS_RECEIVER_RETRIES,
		.max_rd_atomic = PL_MIN(reads, far->reads),
	};
}

uint8_t verbs_qp_reads(const struct verbs_device *device)
{
	int most = PL_MIN(device->attributes.max_qp_rd_atom, device->attributes.max_qp_init_rd_atom);

	return (uint8_t)PL_MIN((unsigned)PL_MAX(most, 1), READS_MAX);
}

void verbs_qp_destroy(struct verbs_rail *rail)
{
	struct ibv_qp *qp = rail->qp;

	rail->qp = NULL;
	/* The device may go on to use buffers and windows: closing it ends that. */
	if (qp && verbs_object_end(rail->device, VERBS_QP, qp) < 0)
		verbs_device_lost(rail->endpoint->state, rail->device);
}

void verbs_qp_drop(struct verbs_rail *rail)
{
	struct verbs_cq *queue = rail->queue;

	if (!queue)
		return;
	pl_list_remove(&rail->queue_link);
	pl_list_remove(&rail->starved_link);
	verbs_mark_signaled(rail);
	verbs_mw_drop_all(rail);
	verbs_qp_destroy(rail);
	rail->queue = NULL;
	queue->rail_count--;
	queue->posted -= rail->proof_posted;
	rail->proof_posted = false;
	if (rail->own_receives)
		queue->room += VERBS_OWN_RECEIVES;
	rail->own_receives = false;
	if (!atomic_load(&queue->device->gone) && !queue->broken)
		return;
	/* The device's protection domain goes; the buffers stay until the end. */
	if (atomic_load(&queue->device->gone))
		verbs_buffer_pool_shut(&rail->receives);
	/* Deferred: the caller may be walking the queue's completions. */
	pl_engine_post(queue->engine, &queue->events_task);
}

void verbs_take_rest(struct verbs_rail *rail)
{
	if (rail->queue)
		verbs_cq_take_present(rail->queue);
}

bool verbs_port_is_down(const struct verbs_rail *rail)
{
	struct verbs_device *device = rail->device;
	struct ibv_port_attr port;
	bool known;

	/* A rail without a queue there does not keep a removed device open. A call of the card's firmware may take long. */
	if (!verbs_device_use(device))
		return false;
	known = verbs_query_port(verbs_library_of(rail), device->verbs, rail->port->number, &port) == 0;
	verbs_device_leave(device);
	return known && (port.state == IBV_PORT_DOWN || port.state == IBV_PORT_INIT);
}
