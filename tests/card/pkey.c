/* SPDX-License-Identifier: BSD-2-Clause */
/* P_Key table. A port of InfiniBand is a full member of two partitions and a limited member of a third one. */
#include <endian.h>
#include <errno.h>

#include "card/card.h"

#define FULL_MEMBER 0x8000u

static uint16_t infiniband[] = { 0xffff, 0x8005, 0x0007, 0 };

void card_pkeys_turn(void)
{
	const uint16_t second = infiniband[1];

	infiniband[1] = infiniband[3];
	infiniband[3] = second;
}

unsigned card_pkey_count(void)
{
	return card_character()->link_layer == IBV_LINK_LAYER_INFINIBAND ? sizeof(infiniband) / sizeof(infiniband[0]) : 1;
}

uint16_t card_pkey(unsigned index)
{
	return infiniband[index];
}

bool card_pkeys_match(unsigned first, unsigned second)
{
	return !((card_pkey(first) ^ card_pkey(second)) & ~FULL_MEMBER) &&
	       (card_pkey(first) | card_pkey(second)) & FULL_MEMBER;
}

int ibv_query_pkey(struct ibv_context *of, uint8_t port, int index, __be16 *pkey)
{
	(void)of;
	if (!card_has_port(port) || index < 0 || (unsigned)index >= card_pkey_count()) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&card_lock);
	*pkey = htobe16(card_pkey((unsigned)index));
	pthread_mutex_unlock(&card_lock);
	return 0;
}
