/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Characters: cards that people own, one row each. Limits are those of `ibv_devinfo -v`; refusals are those of the
 * kernel and of the provider in rdma-core.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card/card.h"

#define IB IBV_TRANSPORT_IB
#define IWARP IBV_TRANSPORT_IWARP
#define ETHERNET IBV_LINK_LAYER_ETHERNET
#define INFINIBAND IBV_LINK_LAYER_INFINIBAND

/* What all ConnectX cards have in common. */
#define MLX5(speed) \
	.device = "mlx5_0", .transport = IB, .rc = true, .srq = true, .atomics = true, .immediate = true, \
	.windows = true, .window_max = 1ull << 31, .keys = CARD_KEYS_LAST, .dmabuf = true, .relaxed = true, .ece = 7, \
	.refusal = EINVAL, .max_sge = 30, .max_inline = 316, .max_reads = 16, .max_cqe = 4194303, .max_qp_wr = 32768, \
	.max_srq_wr = 32767, .max_message = 1u << 30, .mtu = speed

static const struct card_character characters[] = {
	{ .name = "cx5-ib", .link_layer = INFINIBAND, .gids = "i", MLX5(IBV_MTU_4096) },
	{ .name = "cx5-roce", .link_layer = ETHERNET, .gids = "lL346v", MLX5(IBV_MTU_1024) },
	{ .name = "cx7-ib", .link_layer = INFINIBAND, .gids = "i", MLX5(IBV_MTU_4096) },
	{ .name = "cx7-roce", .link_layer = ETHERNET, .gids = "lL346", MLX5(IBV_MTU_4096) },
	{ .name = "cx8-ib", .link_layer = INFINIBAND, .gids = "i", MLX5(IBV_MTU_4096) },
	{ .name = "cx8-roce", .link_layer = ETHERNET, .gids = "lL4n6", MLX5(IBV_MTU_4096) },
	{ .name = "cx7-400g", .link_layer = INFINIBAND, .width = 2, .speed = 128, .gids = "i", MLX5(IBV_MTU_4096) },
	{ .name = "cx7-200g", .link_layer = INFINIBAND, .width = 2, .speed = 64, .gids = "i", MLX5(IBV_MTU_4096) },
	{ .name = "cx8-800g", .link_layer = ETHERNET, .width = 4, .speed = 128, .gids = "lL4", MLX5(IBV_MTU_4096) },
	{ .name = "cx8-direct", .link_layer = ETHERNET, .gids = "lL4n6", .data_direct = true, MLX5(IBV_MTU_4096) },
	{ .name = "ib-vf", .link_layer = INFINIBAND, .grh = true, .gids = "i", MLX5(IBV_MTU_4096) },
	{ .name = "ib-routed", .link_layer = INFINIBAND, .gids = "ir", MLX5(IBV_MTU_4096) },
	{ .name = "grace", .link_layer = ETHERNET, .gids = "lL346", MLX5(IBV_MTU_4096) },
	{ .name = "thor2",
	  .device = "bnxt_re0",
	  .transport = IB,
	  .link_layer = ETHERNET,
	  .rc = true,
	  .srq = true,
	  .immediate = true,
	  .dmabuf = true,
	  .relaxed = true,
	  .early = true,
	  .oldest = true,
	  .exact = true,
	  .refusal = EINVAL,
	  .max_sge = 6,
	  .max_inline = 96,
	  .max_reads = 126,
	  .max_cqe = 65535,
	  .max_qp_wr = 32767,
	  .max_srq_wr = 32767,
	  .max_message = 1u << 30,
	  .mtu = IBV_MTU_4096,
	  .gids = "l346" },
	{ .name = "e810",
	  .device = "irdma0",
	  .transport = IB,
	  .link_layer = ETHERNET,
	  .rc = true,
	  .immediate = true,
	  .dmabuf = true,
	  .relaxed = true,
	  .oldest = true,
	  .first_if_given = true,
	  .exact = true,
	  .refusal = EINVAL,
	  .max_sge = 13,
	  .max_inline = 101,
	  .max_reads = 127,
	  .max_cqe = 1048574,
	  .max_qp_wr = 4063,
	  .max_message = 1u << 31,
	  .mtu = IBV_MTU_4096,
	  .gids = "l46" },
	{ .name = "e2000",
	  .device = "irdma0",
	  .transport = IB,
	  .link_layer = ETHERNET,
	  .rc = true,
	  .srq = true,
	  .atomics = true,
	  .immediate = true,
	  .windows = true,
	  .dmabuf = true,
	  .relaxed = true,
	  .oldest = true,
	  .first_if_given = true,
	  .exact = true,
	  .refusal = EINVAL,
	  .max_sge = 14,
	  .max_inline = 216,
	  .max_reads = 64,
	  .max_cqe = 1048574,
	  .max_qp_wr = 4063,
	  .max_srq_wr = 32767,
	  .max_message = 1u << 31,
	  .mtu = IBV_MTU_4096,
	  .gids = "l46" },
	/* In its RoCE mode; in the other mode it is iWARP. */
	{ .name = "erdma",
	  .device = "erdma_0",
	  .transport = IB,
	  .link_layer = ETHERNET,
	  .rc = true,
	  .atomics = true,
	  .immediate = true,
	  .first_of_reads = true,
	  .refusal = -EINVAL,
	  .max_sge = 6,
	  .max_recv_sge = 1,
	  .max_inline = 96,
	  .max_reads = 128,
	  .max_cqe = 1048576,
	  .max_qp_wr = 8192,
	  .max_message = 1u << 31,
	  .mtu = IBV_MTU_1024,
	  .gids = "4" },
	{ .name = "ionic",
	  .device = "ionic_0",
	  .transport = IB,
	  .link_layer = ETHERNET,
	  .rc = true,
	  .atomics = true,
	  .immediate = true,
	  .windows = true,
	  .dmabuf = true,
	  .relaxed = true,
	  .exact = true,
	  .refusal = EINVAL,
	  .max_sge = 8,
	  .max_inline = 128,
	  .max_reads = 16,
	  .max_cqe = 65435,
	  .max_qp_wr = 65535,
	  .max_message = 1u << 31,
	  .mtu = IBV_MTU_4096,
	  .gids = "l46" },
	{ .name = "mana",
	  .device = "mana_0",
	  .transport = IB,
	  .link_layer = ETHERNET,
	  .rc = true,
	  .immediate = true,
	  .dmabuf = true,
	  .refusal = EINVAL,
	  .max_sge = 30,
	  .inline_ignored = true,
	  .max_reads = 16,
	  .max_cqe = 65536,
	  .max_qp_wr = 8192,
	  .max_message = 1u << 31,
	  .mtu = IBV_MTU_4096,
	  .gids = "46" },
	{ .name = "mlx4",
	  .device = "mlx4_0",
	  .transport = IB,
	  .link_layer = ETHERNET,
	  .rc = true,
	  .srq = true,
	  .atomics = true,
	  .immediate = true,
	  .refusal = EINVAL,
	  .max_sge = 32,
	  .max_inline = 256,
	  .max_reads = 16,
	  .max_cqe = 4194303,
	  .max_qp_wr = 16351,
	  .max_srq_wr = 65535,
	  .max_message = 1u << 30,
	  .mtu = IBV_MTU_1024,
	  .gids = "l346" },
	{ .name = "hns",
	  .keys = CARD_KEYS_LOWEST,
	  .device = "hns_0",
	  .transport = IB,
	  .link_layer = ETHERNET,
	  .rc = true,
	  .srq = true,
	  .atomics = true,
	  .immediate = true,
	  .relaxed = true,
	  .refusal = EINVAL,
	  .max_sge = 64,
	  .max_inline = 1024,
	  .max_reads = 128,
	  .max_cqe = 4194303,
	  .max_qp_wr = 32767,
	  .max_srq_wr = 32767,
	  .max_message = 1u << 31,
	  .mtu = IBV_MTU_4096,
	  .gids = "l346" },
	{ .name = "qedr",
	  .keys = CARD_KEYS_LOWEST,
	  .device = "qedr0",
	  .transport = IB,
	  .link_layer = ETHERNET,
	  .rc = true,
	  .srq = true,
	  .atomics = true,
	  .immediate = true,
	  .refusal = EINVAL,
	  .max_sge = 4,
	  .max_inline = 256,
	  .max_reads = 32,
	  .max_cqe = 8388607,
	  .max_qp_wr = 32767,
	  .max_srq_wr = 32767,
	  .max_message = 1u << 31,
	  .mtu = IBV_MTU_4096,
	  .gids = "l346" },
	/* No card of a maker: the least that the library copes with. */
	{ .name = "small",
	  .device = "small0",
	  .transport = IB,
	  .link_layer = ETHERNET,
	  .rc = true,
	  .srq = true,
	  .immediate = true,
	  .dmabuf = true,
	  .refusal = EINVAL,
	  .max_sge = 4,
	  .max_recv_sge = 1,
	  .max_inline = 64,
	  .max_reads = 4,
	  .max_cqe = 2047,
	  .max_qp_wr = 128,
	  .max_srq_wr = 400,
	  .max_message = 1u << 30,
	  .mtu = IBV_MTU_1024,
	  .gids = "l4" },
	{ .name = "siw",
	  .device = "siw0",
	  .transport = IWARP,
	  .link_layer = ETHERNET,
	  .rc = true,
	  .srq = true,
	  .refusal = -EINVAL,
	  .max_sge = 6,
	  .max_reads = 128,
	  .max_cqe = 65536,
	  .max_qp_wr = 32768,
	  .max_srq_wr = 32768,
	  .max_message = 1u << 31,
	  .mtu = IBV_MTU_1024,
	  .gids = "m" },
	{ .name = "efa",
	  .device = "efa_0",
	  .transport = IBV_TRANSPORT_UNSPECIFIED,
	  .link_layer = ETHERNET,
	  .dmabuf = true,
	  .refusal = EINVAL,
	  .max_sge = 2,
	  .max_inline = 32,
	  .max_cqe = 32768,
	  .max_qp_wr = 4096,
	  .max_message = 8928,
	  .mtu = IBV_MTU_4096,
	  .gids = "l" },
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct card_character *chosen;

static void choose_character(void)
{
	const char *name = getenv("STANDIN_CARD");

	if (!name)
		name = "cx7-roce";
	for (size_t i = 0; i < sizeof(characters) / sizeof(characters[0]); i++)
		if (!strcmp(characters[i].name, name))
			chosen = &characters[i];
	if (!chosen) {
		fprintf(stderr, "stand-in card: STANDIN_CARD=%s is unknown\n", name);
		abort();
	}
}

const struct card_character *card_character(void)
{
	pthread_once(&once, choose_character);
	return chosen;
}

int card_cqe_most(void)
{
	const char *text = getenv("STANDIN_CQE");

	return text ? atoi(text) : card_character()->max_cqe;
}
