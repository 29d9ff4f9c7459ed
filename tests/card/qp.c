/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs and receive queues. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card/wire.h"

#define HASH 1024u
#define FIRST_NUMBER 17u
/* Time until an address is found late, or not at all. The kernel needs up to a second. */
#define RESOLVE_LATE (20 * CARD_MILLISECOND)
#define RESOLVE_LIMIT (50 * CARD_MILLISECOND)

static struct card_qp *table[HASH];
static uint32_t next_number = FIRST_NUMBER;

struct card_qp *card_qp_find(uint32_t number)
{
	struct card_qp *qp = table[number % HASH];

	while (qp && qp->base.qp_num != number)
		qp = qp->next;
	return qp;
}

struct card_qp *card_qp_next(const struct card_qp *qp)
{
	unsigned row = qp ? qp->base.qp_num % HASH + 1 : 0;

	if (qp && qp->next)
		return qp->next;
	while (row < HASH && !table[row])
		row++;
	return row < HASH ? table[row] : NULL;
}

/* -- receives -------------------------------------------------------------------------------------- */

int card_receives_open(struct card_receives *receives, unsigned count)
{
	unsigned size = 1;

	while (size < count)
		size *= 2;
	receives->ring = calloc(size, sizeof(*receives->ring));
	receives->size = count;
	return receives->ring ? 0 : ENOMEM;
}

static unsigned receives_slot(const struct card_receives *receives, unsigned number)
{
	return number % receives->size;
}

static int receives_post(struct card_receives *receives, const struct ibv_recv_wr *wr, int max_sge)
{
	if (wr->num_sge < 0 || wr->num_sge > max_sge || wr->num_sge > 1)
		return EINVAL;
	if (receives->head - receives->tail == receives->size)
		return ENOMEM;
	receives->ring[receives_slot(receives, receives->head++)] = (struct card_receive){
		.wr_id = wr->wr_id,
		.address = wr->num_sge ? wr->sg_list[0].addr : 0,
		.length = wr->num_sge ? wr->sg_list[0].length : 0,
		.lkey = wr->num_sge ? wr->sg_list[0].lkey : 0,
		.empty = !wr->num_sge,
	};
	return 0;
}

static int receives_post_list(struct card_receives *receives, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int rc = 0;

	for (; wr && rc == 0; wr = rc ? wr : wr->next)
		rc = receives_post(receives, wr, card_character()->max_sge);
	if (rc)
		*bad = wr;
	return rc;
}

int card_post_srq(struct ibv_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int rc;

	pthread_mutex_lock(&card_lock);
	rc = receives_post_list(&((struct card_srq *)base)->receives, wr, bad);
	pthread_mutex_unlock(&card_lock);
	return rc;
}

int card_post_receive(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct card_qp *qp = (struct card_qp *)base;
	int rc = EINVAL;

	*bad = wr;
	pthread_mutex_lock(&card_lock);
	if (!base->srq && qp->receives.size)
		rc = receives_post_list(&qp->receives, wr, bad);
	/* The error state returns receives at once. */
	if (base->state == IBV_QPS_ERR)
		card_qp_fail(qp);
	pthread_mutex_unlock(&card_lock);
	return rc;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attributes)
{
	const struct card_character *character = card_character();
	struct card_srq *srq = character->srq ? calloc(1, sizeof(*srq)) : NULL;
	bool refused;

	pthread_mutex_lock(&card_lock);
	refused = card_happens(CARD_NO_SRQ);
	pthread_mutex_unlock(&card_lock);
	if (refused) {
		free(srq);
		errno = ENOMEM;
		return NULL;
	}
	errno = character->srq ? EINVAL : EOPNOTSUPP;
	if (!srq || (int)attributes->attr.max_wr > character->max_srq_wr ||
	    (int)attributes->attr.max_sge > character->max_sge ||
	    card_receives_open(&srq->receives, attributes->attr.max_wr)) {
		free(srq);
		return NULL;
	}
	srq->base = (struct ibv_srq){ .context = pd->context, .srq_context = attributes->srq_context, .pd = pd };
	pthread_mutex_lock(&card_lock);
	card_counts.srqs++;
	card_counts.made_srqs++;
	pthread_mutex_unlock(&card_lock);
	return &srq->base;
}

int ibv_destroy_srq(struct ibv_srq *base)
{
	struct card_srq *srq = (struct card_srq *)base;

	card_await_call(__func__);
	pthread_mutex_lock(&card_lock);
	if (srq->users) {
		pthread_mutex_unlock(&card_lock);
		return EBUSY;
	}
	card_counts.srqs--;
	pthread_mutex_unlock(&card_lock);
	free(srq->receives.ring);
	free(srq);
	return 0;
}

/* -- queue pairs ----------------------------------------------------------------------------------- */

static bool limits_hold(const struct ibv_qp_cap *cap)
{
	const struct card_character *character = card_character();

	return (int)cap->max_send_wr <= character->max_qp_wr && (int)cap->max_recv_wr <= character->max_qp_wr &&
	       (int)cap->max_send_sge <= character->max_sge && (int)cap->max_recv_sge <= character->max_sge &&
	       cap->max_send_sge <= CARD_PIECES && (int)cap->max_inline_data <= CARD_INLINE;
}

/* A driver gives what it has above the wish, and refuses a wish above its limit. */
static int qp_fill(struct card_qp *qp, struct ibv_qp_init_attr *attributes)
{
	const struct card_character *character = card_character();

	if (!character->rc || attributes->qp_type != IBV_QPT_RC)
		return EOPNOTSUPP;
	if (!limits_hold(&attributes->cap))
		return EINVAL;
	qp->size = attributes->cap.max_send_wr;
	qp->ring = calloc(qp->size, sizeof(struct card_request *));
	if (!qp->ring)
		return ENOMEM;
	if (!attributes->srq && attributes->cap.max_recv_wr && card_receives_open(&qp->receives, attributes->cap.max_recv_wr))
		return ENOMEM;
	if ((int)attributes->cap.max_inline_data > character->max_inline && !character->inline_ignored)
		attributes->cap.max_inline_data = (uint32_t)character->max_inline;
	qp->max_inline = attributes->cap.max_inline_data;
	qp->max_sge = attributes->cap.max_send_sge;
	qp->sq_sig_all = attributes->sq_sig_all;
	return 0;
}

static void qp_release(struct card_qp *qp)
{
	for (unsigned i = 0; qp->ring && i < qp->size; i++)
		free(qp->ring[i]);
	free(qp->ring);
	free(qp->receives.ring);
	free(qp);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
	struct card_qp *qp = calloc(1, sizeof(*qp));
	int rc = qp ? qp_fill(qp, attributes) : ENOMEM;

	if (rc) {
		if (qp)
			qp_release(qp);
		errno = rc;
		return NULL;
	}
	qp->base = (struct ibv_qp){ .context = pd->context,
				    .qp_context = attributes->qp_context,
				    .pd = pd,
				    .send_cq = attributes->send_cq,
				    .recv_cq = attributes->recv_cq,
				    .srq = attributes->srq,
				    .state = IBV_QPS_RESET,
				    .qp_type = attributes->qp_type };
	qp->ece = card_ece(pd->context);
	pthread_mutex_lock(&card_lock);
	card_counts.qps++;
	card_counts.made_qps++;
	if (qp->base.srq)
		((struct card_srq *)qp->base.srq)->users++;
	do
		qp->base.qp_num = card_wire_number(card_number(pd->context), next_number++);
	while (card_qp_find(qp->base.qp_num));
	qp->next = table[qp->base.qp_num % HASH];
	table[qp->base.qp_num % HASH] = qp;
	pthread_mutex_unlock(&card_lock);
	return &qp->base;
}

int ibv_destroy_qp(struct ibv_qp *base)
{
	struct card_qp *qp = (struct card_qp *)base, **at;
	bool kept;

	card_await_call(__func__);
	pthread_mutex_lock(&card_lock);
	at = &table[qp->base.qp_num % HASH];
	while (*at != qp)
		at = &(*at)->next;
	*at = qp->next;
	card_forget(qp);
	card_forget_events(qp);
	card_unbind(qp);
	card_purge(qp->base.send_cq, qp->base.qp_num);
	card_purge(qp->base.recv_cq, qp->base.qp_num);
	if (qp->base.srq)
		((struct card_srq *)qp->base.srq)->users--;
	card_counts.qps--;
	/* The kernel keeps its object until the device is closed; this card forgets it at once. */
	kept = card_happens(CARD_DESTROY);
	pthread_mutex_unlock(&card_lock);
	qp_release(qp);
	return kept ? EIO : 0;
}

/* -- shared receives of a queue pair that fails ---------------------------------------------------- */

#define RETURN_MOST (5 * CARD_MILLISECOND)

static void tell_last(void *argument)
{
	struct card_qp *qp = argument;

	card_event((struct ibv_async_event){ .element.qp = &qp->base, .event_type = IBV_EVENT_QP_LAST_WQE_REACHED });
}

/* Returns the receive that was taken, then tells. The event comes after all completions. */
static void return_taken(void *argument)
{
	struct card_qp *qp = argument;
	struct ibv_wc wc = { .wr_id = qp->taken,
			     .status = IBV_WC_WR_FLUSH_ERR,
			     .opcode = IBV_WC_RECV,
			     .qp_num = qp->base.qp_num };
	uint64_t last, now = card_now();

	if (qp->taken)
		card_complete(qp->base.recv_cq, &wc, 0);
	qp->taken = 0;
	last = ((struct card_cq *)qp->base.recv_cq)->last;
	card_after(last > now ? last - now : 0, tell_last, qp);
}

static void end_shared_receives(struct card_qp *qp)
{
	struct card_receives *receives = &((struct card_srq *)qp->base.srq)->receives;
	uint64_t delay = 0;

	if (receives->head != receives->tail && card_happens(CARD_TAKEN)) {
		qp->taken = receives->ring[receives_slot(receives, receives->tail++)].wr_id;
		delay = card_random(RETURN_MOST);
	}
	if (!card_happens(CARD_NO_LAST))
		card_after(delay, return_taken, qp);
}

void card_qp_fail(struct card_qp *qp)
{
	if (qp->base.state != IBV_QPS_ERR && qp->base.srq)
		end_shared_receives(qp);
	qp->base.state = IBV_QPS_ERR;
	card_pump(qp);
	while (qp->receives.head != qp->receives.tail) {
		const struct card_receive *receive =
			&qp->receives.ring[receives_slot(&qp->receives, qp->receives.tail++)];
		struct ibv_wc wc = { .wr_id = receive->wr_id,
				     .status = IBV_WC_WR_FLUSH_ERR,
				     .opcode = IBV_WC_RECV,
				     .qp_num = qp->base.qp_num };

		card_complete(qp->base.recv_cq, &wc, 0);
	}
}

/* True if the port has the address, of that version of RoCE. */
static bool port_has_gid(unsigned place, const union ibv_gid *wanted, enum ibv_gid_type type)
{
	for (unsigned i = 0; i < card_gid_count(); i++) {
		enum ibv_gid_type other;
		union ibv_gid gid;

		if (card_gid(place, i, &gid, &other, NULL) == 0 && other == type && !memcmp(&gid, wanted, sizeof(gid)))
			return true;
	}
	return false;
}

/* Returns true if the packets of a queue pair with this address come to a port of the device; a loopback one's, to its own. */
static bool has_gid(const struct card_qp *qp, unsigned device, const struct ibv_qp_attr *attributes,
		    enum ibv_gid_type type)
{
	const union ibv_gid *wanted = &attributes->ah_attr.grh.dgid;

	if (attributes->dest_qp_num == qp->base.qp_num)
		return port_has_gid(card_place_of(device, qp->port), wanted, type);
	for (unsigned port = 1; card_has_port(port); port++)
		if (port_has_gid(card_place_of(device, port), wanted, type))
			return true;
	return false;
}

/* Returns the device of a queue pair, by its number. */
static unsigned device_of(uint32_t number)
{
	const struct card_qp *qp = card_qp_find(number);
	unsigned device;

	if (card_wire_is_far(number, &device))
		return device;
	return qp ? card_number(qp->base.context) : 0;
}

/*
 * True if packets with this LID come to the device, on InfiniBand. A router has the LID of a port in another subnet, and
 * needs a global route header that it may forward.
 */
static bool lid_leads_to(const struct card_qp *qp, unsigned far, const struct ibv_ah_attr *address)
{
	const struct card_character *character = card_character();
	const struct ibv_global_route *route = &address->grh;

	if (character->link_layer == IBV_LINK_LAYER_ETHERNET)
		return address->is_global;
	if (card_subnet(card_number(qp->base.context)) == card_subnet(far))
		return ((unsigned)address->dlid - CARD_LID) % CARD_DEVICES == far &&
		       (address->is_global || !character->grh);
	return address->is_global && route->hop_limit > 1 && route->dgid.raw[4] &&
	       address->dlid == (route->dgid.raw[4] << 8 | route->dgid.raw[5]);
}

/* Path to the other end. Returns an errno. */
static int qp_route(const struct card_qp *qp, const struct ibv_qp_attr *attributes)
{
	unsigned far = device_of(attributes->dest_qp_num);
	const struct card_character *character = card_character();
	bool usable;
	enum ibv_gid_type type;
	union ibv_gid gid;

	if (attributes->path_mtu > character->mtu || attributes->ah_attr.port_num != qp->port ||
	    attributes->ah_attr.sl > 15)
		return EINVAL;
	if (!lid_leads_to(qp, far, &attributes->ah_attr))
		return EINVAL;
	if (!attributes->ah_attr.is_global)
		return 0;
	if (card_gid(card_place_of(card_number(qp->base.context), qp->port), attributes->ah_attr.grh.sgid_index, &gid,
		     &type, &usable) < 0)
		return EINVAL;
	/* The interface of the entry must be up. */
	if (!usable)
		return ENODEV;
	return has_gid(qp, far, attributes, type) ? 0 : ENETUNREACH;
}

/* STANDIN_NETWORKS=apart: each device has a network of its own, and packets to other devices are lost. */
static bool is_apart(const struct card_qp *qp)
{
	const char *networks = getenv("STANDIN_NETWORKS");

	return networks && !strcmp(networks, "apart") && card_number(qp->base.context) != device_of(qp->peer);
}

/* Moves to RTR. */
static int qp_connect(struct card_qp *qp, const struct ibv_qp_attr *attributes, int mask)
{
	const int needed = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			   IBV_QP_MIN_RNR_TIMER;
	const struct card_qp *peer = card_qp_find(attributes->dest_qp_num);
	int rc = (mask & needed) == needed ? qp_route(qp, attributes) : EINVAL;
	struct card_attributes found;

	if (rc)
		return rc;
	if (attributes->max_dest_rd_atomic > card_character()->max_reads || attributes->min_rnr_timer > 31)
		return EINVAL;
	qp->peer = attributes->dest_qp_num;
	qp->receive_psn = attributes->rq_psn;
	qp->loopback = qp->peer == qp->base.qp_num;
	qp->mute = !qp->loopback && (is_apart(qp) || card_happens(CARD_PATH_LOST));
	card_counts.connects += !qp->loopback && peer && peer->peer == qp->base.qp_num;
	/* A port drops packets of another partition, and those between limited members. */
	if (peer && !card_pkeys_match(qp->pkey_index, peer->pkey_index))
		qp->mute = true;
	found = (struct card_attributes){
		.port = qp->port,
		.pkey_index = qp->pkey_index,
		.service_level = attributes->ah_attr.sl,
		.traffic_class = attributes->ah_attr.grh.traffic_class,
		.gid_index = attributes->ah_attr.grh.sgid_index,
		.rnr_timer = attributes->min_rnr_timer,
		.ece = qp->ece_set ? qp->ece : 0,
	};
	card_counts.loopbacks += qp->loopback;
	if (qp->loopback) {
		card_counts.loopback = found;
		return 0;
	}
	card_counts.acceptor = card_counts.initiator;
	card_counts.initiator = found;
	return 0;
}

/* Moves to RTS. */
static int qp_begin_sending(struct card_qp *qp, const struct ibv_qp_attr *attributes, int mask)
{
	const int needed = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

	if ((mask & needed) != needed || attributes->max_rd_atomic > card_character()->max_reads ||
	    attributes->timeout > 31 || attributes->retry_cnt > 7 || attributes->rnr_retry > 7)
		return EINVAL;
	qp->send_psn = attributes->sq_psn;
	if (!qp->loopback) {
		card_counts.initiator.ack_timeout = attributes->timeout;
		card_counts.initiator.retries = attributes->retry_cnt;
	}
	return 0;
}

/* Moves to INIT. */
static int qp_begin(struct card_qp *qp, const struct ibv_qp_attr *attributes, int mask)
{
	const int needed = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

	if ((mask & needed) != needed || !card_has_port(attributes->port_num) ||
	    attributes->pkey_index >= card_pkey_count())
		return EINVAL;
	qp->port = attributes->port_num;
	qp->pkey_index = attributes->pkey_index;
	return 0;
}

static int qp_move(struct card_qp *qp, const struct ibv_qp_attr *attributes, int mask)
{
	enum ibv_qp_state from = qp->base.state, to = attributes->qp_state;
	int rc = 0;

	if (to == IBV_QPS_ERR) {
		card_qp_fail(qp);
		return 0;
	}
	if ((to == IBV_QPS_INIT && from != IBV_QPS_RESET && from != IBV_QPS_INIT) ||
	    (to == IBV_QPS_RTR && from != IBV_QPS_INIT) || (to == IBV_QPS_RTS && from != IBV_QPS_RTR && from != IBV_QPS_RTS))
		return EINVAL;
	if (mask & IBV_QP_ACCESS_FLAGS)
		qp->access = attributes->qp_access_flags;
	if (to == IBV_QPS_INIT)
		rc = qp_begin(qp, attributes, mask);
	else if (to == IBV_QPS_RTR)
		rc = qp_connect(qp, attributes, mask);
	else if (to == IBV_QPS_RTS)
		rc = qp_begin_sending(qp, attributes, mask);
	if (rc == 0)
		qp->base.state = to;
	return rc;
}

/* The kernel asks the network for the other end's address, and waits. Returns an errno. */
static int resolve_neighbour(void)
{
	uint64_t pause = 0;
	bool lost;

	pthread_mutex_lock(&card_lock);
	lost = card_happens(CARD_ROUTE_LOST);
	if (lost)
		pause = RESOLVE_LIMIT;
	else if (card_happens(CARD_ROUTE_LATE))
		pause = card_random(RESOLVE_LATE);
	pthread_mutex_unlock(&card_lock);
	usleep((useconds_t)(pause / CARD_MICROSECOND));
	return lost ? ETIMEDOUT : 0;
}

int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attributes, int mask)
{
	struct card_qp *qp = (struct card_qp *)base;
	int rc = 0;

	if (mask & IBV_QP_STATE && attributes->qp_state == IBV_QPS_ERR)
		card_await_call("ibv_modify_qp to ERR");
	if (mask & IBV_QP_DEST_QPN && attributes->dest_qp_num != base->qp_num)
		rc = resolve_neighbour();
	if (rc)
		return rc;
	pthread_mutex_lock(&card_lock);
	if (mask & IBV_QP_MIN_RNR_TIMER)
		qp->rnr_timer = attributes->min_rnr_timer;
	if (mask & IBV_QP_STATE)
		rc = qp_move(qp, attributes, mask);
	pthread_mutex_unlock(&card_lock);
	return rc;
}

int ibv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attributes, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask;
	(void)init;
	pthread_mutex_lock(&card_lock);
	card_counts.queried_qps++;
	attributes->qp_state = attributes->cur_qp_state = base->state;
	pthread_mutex_unlock(&card_lock);
	return 0;
}
