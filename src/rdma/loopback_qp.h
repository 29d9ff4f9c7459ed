/* SPDX-License-Identifier: BSD-2-Clause */
/* Loopback queue pair: connected to itself, so its requests reach memory of this host. */
#ifndef PL_RDMA_LOOPBACK_QP_H
#define PL_RDMA_LOOPBACK_QP_H

#include "rdma/library.h"

/*
 * Makes a new RC queue pair ready. port: 0 is the first active one. access: what it may do to itself. Returns 0, or a
 * negative errno and the failed step (static storage).
 */
int rdma_loopback_qp_connect(const struct verbs_library *library, struct ibv_qp *qp, uint8_t port, unsigned access,
			     const char **what);

#endif
