/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Data Direct of ConnectX-8 and later: the card accesses GPU memory by a PCI Express function of its own, beside the
 * GPU. libmlx5 has it from rdma-core 54 on, and is loaded on first use; programs run without it.
 */
#ifndef PL_RDMA_DATA_DIRECT_H
#define PL_RDMA_DATA_DIRECT_H

#include "rdma/library.h"

/* Bytes of the path in sysfs of a Data Direct function. */
#define RDMA_DATA_DIRECT_PATH 256

/* Reason in receipts of memory that was registered so. */
extern const char rdma_data_direct_reason[];

/*
 * Writes the path below /sys of a device's Data Direct function. Returns 0; -EOPNOTSUPP if the device or libmlx5 has
 * none, or another negative errno. Thread-safe.
 */
int rdma_data_direct_path(const struct verbs_library *library, struct ibv_context *context,
			  char path[RDMA_DATA_DIRECT_PATH]);
/* True if the device has one. Thread-safe. */
bool rdma_data_direct_has(const struct verbs_library *library, struct ibv_context *context);
/*
 * ibv_reg_dmabuf_mr(3) by Data Direct, for a device that has it. The caller keeps `fd`. Returns 0 and the region, which
 * ibv_dereg_mr(3) ends, or a negative errno. Thread-safe.
 */
int rdma_data_direct_register(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, unsigned access,
			      struct ibv_mr **mr);

#endif
