/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdma/loopback_qp.h"

#include "rdma/gid.h"

#define ACK_TIMEOUT 14
#define TRIES 6 /* soft-RoCE takes 7 as "without end" */

struct self {
	const struct verbs_library *library;
	struct ibv_qp *qp;
	uint8_t port;
	uint8_t gid_index;
	uint16_t pkey_index;
	union ibv_gid gid;
};

static int find_port(struct self *self, struct ibv_port_attr *port)
{
	struct ibv_context *context = self->qp->context;
	struct ibv_device_attr attributes;
	int rc;

	if (self->port)
		return verbs_query_port(self->library, context, self->port, port);
	rc = verbs_result(self->library->ibv_query_device(context, &attributes));
	for (unsigned i = 1; rc == 0 && i <= attributes.phys_port_cnt; i++) {
		self->port = (uint8_t)i;
		if (verbs_query_port(self->library, context, self->port, port) == 0 && port->state == IBV_PORT_ACTIVE)
			return 0;
	}
	return rc ? rc : -ENETDOWN;
}

/*
 * Returns the use of an entry of the GID table: a connection of the port uses it, or its GID; it is RoCE v2; it is an IPv4
 * address.
 */
static unsigned rank_gid(const struct self *self, const struct verbs_gid_entry *entry)
{
	const bool same = verbs_gid_same(&entry->gid, &self->gid);

	return 1u + 8u * (same && entry->index == self->gid_index) + 4u * same + 2u * entry->second_version +
	       verbs_gid_is_ipv4(&entry->gid);
}

/* Finds the best GID of the port. Returns its index, or -ENOENT. */
static int find_gid(struct self *self, const struct ibv_port_attr *port, union ibv_gid *gid)
{
	struct verbs_gid_entry entries[VERBS_GID_TABLE_MAX];
	unsigned count = verbs_gids_read(self->library, self->qp->context, self->port, port->gid_tbl_len, entries);
	unsigned best = 0;
	int found = -ENOENT;

	for (unsigned i = 0; i < count; i++) {
		unsigned rank = rank_gid(self, &entries[i]);

		if (rank <= best)
			continue;
		best = rank;
		found = entries[i].index;
		*gid = entries[i].gid;
	}
	return found;
}

static int to_init(const struct self *self, unsigned access)
{
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = self->pkey_index,
		.port_num = self->port,
		.qp_access_flags = access,
	};

	return verbs_result(self->library->ibv_modify_qp(
		self->qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static int to_receive(struct self *self, const struct ibv_port_attr *port)
{
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port->active_mtu,
		.dest_qp_num = self->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .dlid = port->lid, .port_num = self->port },
	};
	struct ibv_global_route *route = &attributes.ah_attr.grh;
	int index = find_gid(self, port, &route->dgid);

	/* Routable InfiniBand and virtual functions need the header, too. */
	if (port->link_layer == IBV_LINK_LAYER_ETHERNET || port->flags & IBV_QPF_GRH_REQUIRED) {
		if (index < 0)
			return index;
		attributes.ah_attr.is_global = 1;
		route->sgid_index = (uint8_t)index;
		route->hop_limit = 64;
	}
	return verbs_result(self->library->ibv_modify_qp(self->qp, &attributes,
							 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
								 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
								 IBV_QP_MIN_RNR_TIMER));
}

static int to_send(const struct self *self)
{
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_RTS,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = TRIES,
		.rnr_retry = TRIES,
		.max_rd_atomic = 1,
	};

	return verbs_result(self->library->ibv_modify_qp(self->qp, &attributes,
							 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
								 IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
								 IBV_QP_MAX_QP_RD_ATOMIC));
}

int rdma_loopback_qp_connect(const struct verbs_library *library, struct ibv_qp *qp,
			     const struct rdma_loopback_path *path, unsigned access, const char **what)
{
	struct self self = {
		.library = library,
		.qp = qp,
		.port = path->port,
		.gid_index = path->gid_index,
		.pkey_index = path->pkey_index,
		.gid = path->gid,
	};
	struct ibv_port_attr port;
	int rc = find_port(&self, &port);

	*what = "no port is active";
	if (rc < 0)
		return rc;
	*what = "ibv_modify_qp";
	rc = to_init(&self, access);
	if (rc == 0)
		rc = to_receive(&self, &port);
	return rc ? rc : to_send(&self);
}
