/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GID table. The character has a letter for each entry:
 *   i InfiniBand, r InfiniBand with an FLID, m iWARP, n empty;
 *   l link-local address of RoCE v1, L of RoCE v2, 3 IPv4 address of RoCE v1, 4 of RoCE v2, 6 IPv6 address of RoCE v2;
 *   v IPv4 address of a VLAN, whose interface is down.
 * Each further port of all devices has the next addresses.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "card/card.h"

static union ibv_gid gid_of_ipv4(uint32_t address)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	memcpy(gid.raw + 12, &address, sizeof(address));
	return gid;
}

unsigned card_subnet(unsigned device)
{
	const char *networks = getenv("STANDIN_NETWORKS");

	return 1 + (networks && !strcmp(networks, "routed") ? device : 0);
}

unsigned card_gid_count(void)
{
	return (unsigned)strlen(card_character()->gids);
}

static union ibv_gid gid_by_letter(unsigned place, char letter)
{
	union ibv_gid link_local = { .raw = { 0xfe, 0x80, [8] = 0x02, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 5 } };

	switch (letter) {
	case '3':
	case '4':
		return gid_of_ipv4(htonl(INADDR_LOOPBACK + place));
	case '6':
		return (union ibv_gid){ .raw = { [14] = (uint8_t)place, [15] = 1 } };
	case 'v':
		return gid_of_ipv4(htonl(0x0a090807 + place));
	case 'r':
		link_local.raw[1] = 0xc0;
		link_local.raw[4] = 0xc0;
		link_local.raw[5] = (uint8_t)(1 + place);
		link_local.raw[7] = (uint8_t)card_subnet(place % CARD_DEVICES);
		link_local.raw[14] = (uint8_t)place;
		return link_local;
	case 'n':
		return (union ibv_gid){ .raw = { 0 } };
	default:
		link_local.raw[14] = (uint8_t)place;
		return link_local;
	}
}

int card_gid(unsigned place, unsigned index, union ibv_gid *gid, enum ibv_gid_type *type, bool *usable)
{
	char letter;

	if (index >= card_gid_count())
		return -EINVAL;
	letter = card_character()->gids[index];
	*gid = gid_by_letter(place, letter);
	if (type)
		*type = strchr("ir", letter)    ? IBV_GID_TYPE_IB
			: strchr("l3m", letter) ? IBV_GID_TYPE_ROCE_V1
						: IBV_GID_TYPE_ROCE_V2;
	if (usable)
		*usable = letter != 'v';
	return letter == 'n' ? -ENODATA : 0;
}
