/* SPDX-License-Identifier: BSD-2-Clause */
/* Data Direct functions of a topology's cards, which no file tells: from answers of libmlx5, of this machine or kept in a dump. */
#ifndef PL_DIAG_CHECK_DATA_DIRECT_H
#define PL_DIAG_CHECK_DATA_DIRECT_H

#include "diag/check/facts.h"
#include "topology/topology.h"

/* Adds the functions in the facts verbs.device.*.data-direct. Returns 0 or -ENOMEM. */
int pl_data_direct_add(struct pl_topology *topology, struct pl_sysroot *root, const struct pl_facts *facts);
/*
 * Adds the functions of the machine below the root. For this machine a child process asks libmlx5, for at most
 * `timeout` nanoseconds. A topology without GPUs or without RDMA devices of NVIDIA, or of another machine than the root,
 * stays as it is. A child that does not end well shows in topology->data_direct_silent. Returns 0 or -ENOMEM.
 */
int pl_data_direct_read(struct pl_topology *topology, struct pl_sysroot *root, uint64_t timeout);

#endif
