/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue pair of a device that is connected to itself: what is written with it comes back into this host. */
#ifndef PL_ROUTE_LOOP_H
#define PL_ROUTE_LOOP_H

#include "rdma/library.h"

struct route_loop {
	const struct verbs_library *library;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

/* 0, or a negative errno and the call that failed, or what is missing (static storage). */
int route_loop_open(struct route_loop *loop, const struct verbs_library *library, struct ibv_device *device,
		    const char **what);
void route_loop_close(struct route_loop *loop);

/* The same number of bytes of two regions. */
struct route_span {
	struct ibv_mr *from, *to;
	uint64_t from_address, to_address;
	uint32_t length;
};

/* Writes them `count` times, several at a time; nanoseconds, or negative and what went wrong (static storage). */
int64_t route_loop_write(struct route_loop *loop, const struct route_span *span, unsigned count, const char **what);

#endif
