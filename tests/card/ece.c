/* SPDX-License-Identifier: BSD-2-Clause */
/* Options of queue pairs (ECE). As with mlx5, a queue pair has none until they are set, before its move to RTR. */
#include <errno.h>
#include <stdlib.h>

#include "card/card.h"

/* mlx5: its vendor, and the option that only the first device has. */
#define VENDOR 0x15b3u
#define FIRST_ONLY 4u

uint32_t card_ece(const struct ibv_context *of)
{
	const char *without = getenv("STANDIN_NO_ECE");
	const unsigned number = card_number(of);

	if (without && strtoul(without, NULL, 10) & 1ul << number)
		return 0;
	return card_character()->ece & (number ? ~FIRST_ONLY : ~0u);
}

int ibv_query_ece(struct ibv_qp *base, struct ibv_ece *ece)
{
	const struct card_qp *qp = (struct card_qp *)base;
	const uint32_t supported = card_ece(base->context);

	if (!supported)
		return EOPNOTSUPP;
	*ece = (struct ibv_ece){ .vendor_id = VENDOR, .options = qp->ece };
	return 0;
}

int ibv_set_ece(struct ibv_qp *base, struct ibv_ece *ece)
{
	struct card_qp *qp = (struct card_qp *)base;
	const uint32_t supported = card_ece(base->context);

	if (!supported)
		return EOPNOTSUPP;
	if (ece->vendor_id != VENDOR || base->state != IBV_QPS_INIT)
		return EINVAL;
	qp->ece = ece->options &= supported;
	qp->ece_set = true;
	return 0;
}
