/* SPDX-License-Identifier: BSD-2-Clause */
/* Loopback queue pair of a device: its writes and reads reach memory of this host. */
#ifndef PL_RDMA_LOOPBACK_WRITE_H
#define PL_RDMA_LOOPBACK_WRITE_H

#include "rdma/device_memory.h"
#include "rdma/library.h"

struct rdma_loopback {
	struct rdma_domain domain; /* with which the caller registers memory, too */
	struct ibv_context *context;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

/* Returns 0, or a negative errno and the failed call or missing feature (static storage). */
int rdma_loopback_open(struct rdma_loopback *loop, const struct verbs_library *library, struct ibv_device *device,
		       const char **what);
void rdma_loopback_close(struct rdma_loopback *loop);

/* Equally long ranges of two regions. */
struct rdma_span {
	struct ibv_mr *from, *to;
	uint64_t from_address, to_address;
	uint32_t length;
};

/*
 * Writes the ranges `count` times, several at a time. Returns nanoseconds, or a negative errno and the failure (static
 * storage).
 */
int64_t rdma_loopback_write(struct rdma_loopback *loop, const struct rdma_span *span, unsigned count,
			    const char **what);
/* Reads from `from` into `to`, once, which flushes earlier writes to `from`. The same. */
int64_t rdma_loopback_read(struct rdma_loopback *loop, const struct rdma_span *span, const char **what);

#endif
