/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue pair that is connected to itself: what it asks of its device comes back to this host's memory. */
#ifndef PL_RDMA_LOOPBACK_QP_H
#define PL_RDMA_LOOPBACK_QP_H

#include "rdma/library.h"

/*
 * Makes a new RC queue pair ready.  port: 0 is the first that is active.  access: what it may do to itself.  0, or a
 * negative errno and what failed (static storage).
 */
int verbs_self_connect(const struct verbs_library *library, struct ibv_qp *qp, uint8_t port, unsigned access,
		       const char **what);

#endif
