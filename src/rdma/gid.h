/* SPDX-License-Identifier: BSD-2-Clause */
/* GIDs, the addresses of a port: on Ethernet an IP address, IPv4 as a mapped IPv6 address. */
#ifndef PL_RDMA_GID_H
#define PL_RDMA_GID_H

#include <netinet/in.h>

#include "rdma/library.h"

static inline bool verbs_gid_same(const union ibv_gid *a, const union ibv_gid *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/*
 * InfiniBand: returns the LID by which the routers of other subnets reach the port's subnet (FLID), or 0. A GID that
 * routers know has it between the prefix fec0::/32 and the number of the subnet, 16 bits each.
 */
uint16_t verbs_gid_flid(const union ibv_gid *gid);
/* InfiniBand: true if the ports with these GIDs are in one subnet. */
bool verbs_gid_same_subnet(const union ibv_gid *a, const union ibv_gid *b);
/* True for IPv4 addresses. */
bool verbs_gid_is_ipv4(const union ibv_gid *gid);
/* Returns the GID of an address; zero for other families than IPv4 and IPv6. */
union ibv_gid verbs_gid_of(const struct sockaddr_storage *address);
/* The reverse. Returns the length of the address. */
socklen_t verbs_gid_to_address(const union ibv_gid *gid, uint16_t port, struct sockaddr_storage *address);
/* Writes a GID as the address that it stands for. */
void verbs_gid_format(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN]);

/* Entries of a GID table that are read, the first ones. An address handle has 8 bits for the index. */
#define VERBS_GID_TABLE_MAX 256

/* Entry of a port's GID table that is in use. */
struct verbs_gid_entry {
	union ibv_gid gid;
	uint8_t index;
	bool second_version; /* true for RoCE v2 */
};

/*
 * Reads the entries of a port's GID table, in their order, with one call where the library and the device allow that.
 * length: length of the table, from ibv_query_port(3). Returns the number of entries.
 */
unsigned verbs_gids_read(const struct verbs_library *library, struct ibv_context *context, uint8_t port, int length,
			 struct verbs_gid_entry entries[VERBS_GID_TABLE_MAX]);

#endif
