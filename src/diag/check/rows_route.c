/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows of `peerlane routes`: results of tests with real transfers, which the command judges. */
#include "diag/check/row.h"

#define GROUP "Tested route"

const struct pl_check_row pl_check_rows_route[] = {
	{
		.id = "route-works",
		.group = GROUP,
		.title = "routes between GPUs and cards",
		.requirement =
			"peerlane routes sends bytes between each GPU and each card in both directions, and they "
			"arrive. With --expect gpus=N or cards=N, so many were tested.",
		.how = "peerlane routes",
		.reason = "Without any route, transfers between this GPU and this card fail.",
		.remedy = "peerlane check; the notes of peerlane routes have the reason for each path",
		.rank = 48,
	},
	{
		.id = "route-direct",
		.group = GROUP,
		.title = "direct routes between GPUs and cards",
		.requirement = "The route to use between each GPU and each card is direct, in both directions.",
		.how = "peerlane routes",
		.reason = "A staged transfer passes through host memory: it costs memory bandwidth and latency.",
		.remedy = "peerlane check; for pairs that are meant to be staged: --ignore route-direct:GPU/DEVICE=far",
		.rank = 84,
	},
	{
		.id = "expect-direct",
		.group = GROUP,
		.title = "expected direct routes of each GPU",
		.requirement = "Each GPU reaches as many cards directly as --expect direct=N says, in both directions.",
		.how = "peerlane routes",
		.reason = "A GPU without its direct route is slower than the others, and all ranks wait for it.",
		.remedy = "peerlane check; peerlane routes shows which path fails, and why",
		.rank = 42,
	},
	{
		.id = "expect-route-rate",
		.group = GROUP,
		.title = "expected rate of the routes",
		.requirement = "The route to use between each GPU and each card has at least the rate of --expect "
			       "rate=GBITS, in both directions.",
		.how = "peerlane routes",
		.reason = "A slow route limits all transfers of its GPU.",
		.remedy = "peerlane check; look at the links of GPU and card: peerlane topo",
		.rank = 43,
	},
	{
		.id = "route-baseline",
		.group = GROUP,
		.title = "as in an earlier test of routes",
		.requirement =
			"Each pair of a GPU and a card in the file of --baseline is there, has a direct route if it "
			"had one, and at least 80 % of its rate.",
		.how = "peerlane routes --save FILE, then peerlane routes --baseline FILE",
		.reason = "A route that is gone or slower than before is broken, or the machine was changed.",
		.remedy = "look at what differs; if it is intended: peerlane routes --save FILE",
		.rank = 49,
	},
	{ .id = NULL },
};
