/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue pair of a device that is connected to itself: what is written with it comes back into this host. */
#ifndef PL_RDMA_LOOPBACK_WRITE_H
#define PL_RDMA_LOOPBACK_WRITE_H

#include "rdma/library.h"

struct rdma_loopback {
	const struct verbs_library *library;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

/* 0, or a negative errno and the call that failed, or what is missing (static storage). */
int rdma_loopback_open(struct rdma_loopback *loop, const struct verbs_library *library, struct ibv_device *device,
		    const char **what);
void rdma_loopback_close(struct rdma_loopback *loop);

/* The same number of bytes of two regions. */
struct rdma_span {
	struct ibv_mr *from, *to;
	uint64_t from_address, to_address;
	uint32_t length;
};

/* Writes them `count` times, several at a time; nanoseconds, or negative and what went wrong (static storage). */
int64_t rdma_loopback_write(struct rdma_loopback *loop, const struct rdma_span *span, unsigned count, const char **what);

#endif
