/* SPDX-License-Identifier: BSD-2-Clause */
/* NVLinks of a topology, which no file tells: from answers of NVML, of this machine or kept in a dump. */
#ifndef PL_DIAG_CHECK_GPU_LINKS_H
#define PL_DIAG_CHECK_GPU_LINKS_H

#include "diag/check/facts.h"
#include "topology/topology.h"

/* Adds the NVLinks in the facts nvml.gpu.*.nvlink.*; the root tells which devices are switches. 0 or -ENOMEM. */
int pl_gpu_links_add(struct pl_topology *topology, struct pl_sysroot *root, const struct pl_facts *facts);
/*
 * Adds the NVLinks of the machine below the root. For this machine a child process asks NVML, for at most `timeout`
 * nanoseconds. A topology without GPUs of NVIDIA, or of another machine than the root, stays as it is. Returns 0 or
 * -ENOMEM.
 */
int pl_gpu_links_read(struct pl_topology *topology, struct pl_sysroot *root, uint64_t timeout);

#endif
