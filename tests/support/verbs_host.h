/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices and interfaces of a host, for tests of ports. A test that includes this file defines getifaddrs(3) by
 * VERBS_HOST_GETIFADDRS, so that other tests keep the real one.
 */
#ifndef TEST_VERBS_HOST_H
#define TEST_VERBS_HOST_H

#ifdef PL_HAVE_VERBS

#include <ifaddrs.h>

#include "fabric/verbs/verbs.h"

#define VERBS_HOST_DEVICES 6
#define VERBS_HOST_TABLE 24

struct verbs_host_interface {
	const char *address;
	unsigned bits; /* of the network */
	bool up;
};

/* Entry of the table of all ports. */
struct verbs_host_gid {
	const char *text; /* NULL: empty */
	bool second_version;
};

struct verbs_host {
	struct ifaddrs interfaces[VERBS_HOST_TABLE];
	struct sockaddr_storage addresses[VERBS_HOST_TABLE], masks[VERBS_HOST_TABLE];
	struct ibv_device devices[VERBS_HOST_DEVICES];
	struct ibv_context contexts[VERBS_HOST_DEVICES];
	struct ibv_pd pds[VERBS_HOST_DEVICES];
	const char *names[VERBS_HOST_DEVICES];
	struct ibv_device *list[VERBS_HOST_DEVICES + 1];
	unsigned count;
	/* Calls so far. Threads of looks make some at once. */
	atomic_uint looks, freed, opened, closed, pd_count;
	uint8_t ports, link_layer; /* of each device */
	enum ibv_port_state state;
	int no_open; /* errno; 0: devices can be opened */
	const struct verbs_host_gid *gids;
	int gid_count;
	const uint16_t *pkeys;
	uint16_t pkey_count;
	atomic_uint gid_calls; /* calls that read GIDs */
	bool no_gid_table;  /* the kernel cannot read a table at once */
};

extern struct verbs_host verbs_host;

#define VERBS_HOST_GETIFADDRS \
	int getifaddrs(struct ifaddrs **list) \
	{ \
		*list = verbs_host.interfaces; \
		return 0; \
	} \
	void freeifaddrs(struct ifaddrs *list) \
	{ \
		(void)list; \
	}

/* Context that looks for devices, and a peer of it. */
struct verbs_host_rig {
	struct verbs_library library;
	struct pl_context context;
	struct verbs_state state;
	struct pl_peer peer;
};

/* Fills an address, of IPv4 or IPv6. */
void verbs_host_address(struct sockaddr_storage *address, const char *text);

/* Makes the host one with these devices, each with so many ports of a kind, and without interfaces. */
void verbs_host_set(const char *const *names, unsigned count, uint8_t ports, uint8_t link_layer);
void verbs_host_interfaces(const struct verbs_host_interface *all, unsigned count);

/* `allowed`: the devices that the program names; NULL: all. */
struct verbs_host_rig *verbs_host_open(char *allowed);
void verbs_host_close(struct verbs_host_rig *rig);

/* Looks for ports. Returns the first one, or NULL. */
struct verbs_port *verbs_host_look(struct verbs_host_rig *rig);

#endif
#endif
