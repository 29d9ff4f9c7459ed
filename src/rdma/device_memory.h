/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PL_RDMA_DEVICE_MEMORY_H
#define PL_RDMA_DEVICE_MEMORY_H

#include "rdma/library.h"
#include "memory/memory.h"

/* Protection domain of a device, with which memory is registered. */
struct rdma_domain {
	const struct verbs_library *library;
	struct ibv_pd *pd;
	bool data_direct; /* rdma_data_direct_has() of the device */
};

/* Range to register. */
struct rdma_range {
	struct pl_memory *memory;
	size_t offset, length;
	/* Address of the first byte at the device: that of the memory, or another one as far from the begin of a page. */
	uint64_t iova;
};

/*
 * Registers memory: of the host by its address, other memory by any path. Returns 0, or a negative errno with the
 * reason for other memory (static storage). A registration by Data Direct has the reason rdma_data_direct_reason; other
 * successful ones leave it as it was.
 */
int verbs_reg_memory(const struct rdma_domain *domain, const struct rdma_range *range, unsigned access,
		     bool address_first, struct ibv_mr **mr, const char **reason);
/* Registers by dma-buf only. */
int verbs_reg_dmabuf(const struct rdma_domain *domain, struct pl_memory *memory, size_t offset, size_t length,
		     unsigned access, struct ibv_mr **mr, const char **reason);

#endif
