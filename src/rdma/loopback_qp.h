/* SPDX-License-Identifier: BSD-2-Clause */
/* Loopback queue pair: connected to itself, so its requests reach memory of this host. */
#ifndef PL_RDMA_LOOPBACK_QP_H
#define PL_RDMA_LOOPBACK_QP_H

#include "rdma/library.h"

/* Where a loopback queue pair sends: to its own port. */
struct rdma_loopback_path {
	uint8_t port;      /* 0: the first active one */
	union ibv_gid gid; /* that a connection of the port uses; zero: unknown */
	uint8_t gid_index; /* of that GID in the table, which has some GIDs twice */
	uint16_t pkey_index;
};

/*
 * Makes a new RC queue pair ready. access: what it may do to itself. Returns 0, or a negative errno and the failed step
 * (static storage).
 */
int rdma_loopback_qp_connect(const struct verbs_library *library, struct ibv_qp *qp,
			     const struct rdma_loopback_path *path, unsigned access, const char **what);

#endif
