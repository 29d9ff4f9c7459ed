/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and connections of the connection manager. The card has the host's loopback addresses. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "card/cm.h"

#define FIRST_PORT 20000
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static bool is_ours(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
	return address->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static size_t address_length(const struct sockaddr *address)
{
	return address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static int bind_to(struct cm_id *id, const struct sockaddr *address)
{
	/* A card without reliable connections has no connection manager. */
	if (!card_character()->rc || !is_ours(address))
		return ENODEV;
	memcpy(&id->base.route.addr.src_storage, address, address_length(address));
	id->base.route.addr.addr.ibaddr.sgid = card_gid_of(address);
	id->base.route.addr.addr.ibaddr.pkey = 0xffff;
	cm_attach(id);
	id->port = ntohs(((const struct sockaddr_in *)address)->sin_port);
	return 0;
}

static int cm_result(int error)
{
	errno = error;
	return error ? -1 : 0;
}

int rdma_bind_addr(struct rdma_cm_id *base, struct sockaddr *address)
{
	int rc;

	pthread_mutex_lock(&card_lock);
	rc = bind_to((struct cm_id *)base, address);
	pthread_mutex_unlock(&card_lock);
	return cm_result(rc);
}

int rdma_listen(struct rdma_cm_id *base, int backlog)
{
	static uint16_t next_port = FIRST_PORT;
	struct cm_id *id = (struct cm_id *)base;

	(void)backlog;
	pthread_mutex_lock(&card_lock);
	if (!id->port)
		id->port = next_port++;
	id->state = CM_LISTENING;
	pthread_mutex_unlock(&card_lock);
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *base)
{
	return htons(((struct cm_id *)base)->port);
}

int rdma_resolve_addr(struct rdma_cm_id *base, struct sockaddr *from, struct sockaddr *to, int limit)
{
	struct cm_id *id = (struct cm_id *)base;
	int rc;

	(void)limit;
	pthread_mutex_lock(&card_lock);
	rc = bind_to(id, from ? from : to);
	if (rc == 0) {
		memcpy(&base->route.addr.dst_storage, to, address_length(to));
		base->route.addr.addr.ibaddr.dgid = card_gid_of(to);
		cm_report(id, is_ours(to) ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR,
			  is_ours(to) ? 0 : -EHOSTUNREACH, NULL, NULL);
	}
	pthread_mutex_unlock(&card_lock);
	return cm_result(rc);
}

int rdma_resolve_route(struct rdma_cm_id *base, int limit)
{
	(void)limit;
	pthread_mutex_lock(&card_lock);
	cm_report((struct cm_id *)base, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, NULL);
	pthread_mutex_unlock(&card_lock);
	return 0;
}

static bool parameters_hold(const struct rdma_conn_param *parameters, unsigned data)
{
	const struct card_character *character = card_character();

	return parameters->private_data_len <= data && parameters->responder_resources <= character->max_reads &&
	       parameters->initiator_depth <= character->max_reads;
}

static struct cm_message message_of(const struct cm_id *id, enum cm_kind kind, const struct rdma_conn_param *parameters)
{
	struct cm_message message = {
		.kind = kind,
		.from = id->number,
		.to = id->peer,
		.address = id->base.route.addr.dst_storage,
		.qp_num = id->base.qp ? id->base.qp->qp_num : 0,
		.depth = parameters->initiator_depth,
	};

	if (parameters->private_data)
		memcpy(message.data, parameters->private_data, parameters->private_data_len);
	return message;
}

int rdma_connect(struct rdma_cm_id *base, struct rdma_conn_param *parameters)
{
	struct cm_id *id = (struct cm_id *)base;
	struct cm_message message;

	if (!parameters_hold(parameters, CM_REQUEST_DATA))
		return cm_result(EINVAL);
	pthread_mutex_lock(&card_lock);
	card_counts.connects++;
	id->state = CM_REQUESTED;
	message = message_of(id, CM_REQUEST, parameters);
	cm_send(&message);
	pthread_mutex_unlock(&card_lock);
	return 0;
}

int rdma_accept(struct rdma_cm_id *base, struct rdma_conn_param *parameters)
{
	struct cm_id *id = (struct cm_id *)base;
	struct card_qp *qp = (struct card_qp *)base->qp;
	struct cm_message message;
	int rc = 0;

	if (!parameters_hold(parameters, CM_REPLY_DATA))
		return cm_result(EINVAL);
	pthread_mutex_lock(&card_lock);
	if (id->state == CM_ASKED && qp) {
		/* librdmacm makes the queue pair ready before it sends the reply. */
		qp->peer = id->peer_qp;
		qp->base.state = IBV_QPS_RTS;
		id->state = CM_ACCEPTED;
		message = message_of(id, CM_REPLY, parameters);
		cm_send(&message);
	} else {
		rc = EINVAL;
	}
	pthread_mutex_unlock(&card_lock);
	return cm_result(rc);
}

int rdma_reject(struct rdma_cm_id *base, const void *data, uint8_t length)
{
	struct cm_id *id = (struct cm_id *)base;
	int rc = EINVAL;

	(void)data;
	(void)length;
	pthread_mutex_lock(&card_lock);
	if (id->state == CM_ASKED) {
		id->state = CM_OVER;
		cm_tell(id, CM_REJECT, CM_CONSUMER);
		rc = 0;
	}
	pthread_mutex_unlock(&card_lock);
	return cm_result(rc);
}

int rdma_disconnect(struct rdma_cm_id *base)
{
	struct cm_id *id = (struct cm_id *)base;
	int rc = 0;

	pthread_mutex_lock(&card_lock);
	if (base->qp)
		card_qp_fail((struct card_qp *)base->qp);
	if (id->state == CM_UP || id->state == CM_ACCEPTED)
		cm_tell(id, CM_DISCONNECT, 0);
	else
		rc = EINVAL;
	pthread_mutex_unlock(&card_lock);
	return cm_result(rc);
}

int rdma_create_qp(struct rdma_cm_id *base, struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
	struct card_qp *qp = pd->context == base->verbs ? card_qp_make(pd, attributes) : NULL;

	if (!qp)
		return -1;
	qp->access = ACCESS;
	qp->base.state = IBV_QPS_INIT;
	base->qp = &qp->base;
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *base)
{
	struct ibv_qp *qp = base->qp;

	pthread_mutex_lock(&card_lock);
	base->qp = NULL;
	pthread_mutex_unlock(&card_lock);
	card_qp_free((struct card_qp *)qp);
}

int rdma_set_option(struct rdma_cm_id *base, int level, int option, void *value, size_t length)
{
	(void)base;
	(void)value;
	if (level == RDMA_OPTION_ID && (option == RDMA_OPTION_ID_TOS || option == RDMA_OPTION_ID_ACK_TIMEOUT))
		return cm_result(length == sizeof(uint8_t) ? 0 : EINVAL);
	return cm_result(ENOSYS);
}

struct ibv_context **rdma_get_devices(int *count)
{
	struct ibv_context **list = calloc(2, sizeof(struct ibv_context *));

	if (!list)
		return NULL;
	list[0] = card_context();
	if (count)
		*count = 1;
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
