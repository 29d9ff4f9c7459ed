/* SPDX-License-Identifier: BSD-2-Clause */
/* Vendors of devices as ibv_query_device(3) names them: the OUI of some, the PCI vendor of others. */
#ifndef PL_RDMA_VENDOR_H
#define PL_RDMA_VENDOR_H

#define RDMA_VENDOR_MELLANOX 0x2c9u /* all cards that libmlx5 knows, and those of libmlx4 */
#define RDMA_VENDOR_MELLANOX_PCI 0x15b3u
#define RDMA_VENDOR_HISILICON 0x19e5u
#define RDMA_VENDOR_QLOGIC 0x1077u
#define RDMA_VENDOR_PENSANDO 0x1dd8u
#define RDMA_VENDOR_MICROSOFT 0x1414u
#define RDMA_VENDOR_ALIBABA 0x1dedu
#define RDMA_VENDOR_SOFT_ROCE 0xffffffu

#endif
