/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ports of the devices that the program allows, and their GIDs. A GID is the address of a port: on Ethernet an IP
 * address of its interface, on InfiniBand the subnet's prefix and the port's number. A port that routers reach has
 * a second GID there, which is the best.
 */
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabric/verbs/verbs.h"

#define SUBNET_PREFIX 64
/* Ranks of IPv4 and other addresses that are alike otherwise differ by less. */
#define RANK_STEP 2

/* -- GIDs ----------------------------------------------------------------------------------------- */

/* Returns the bits of the network's part of an interface's address, or -1: no interface that is up has the address. */
static int prefix_of(const struct ifaddrs *interfaces, const union ibv_gid *gid)
{
	for (const struct ifaddrs *at = interfaces; at; at = at->ifa_next) {
		struct sockaddr_storage address = { 0 }, mask = { 0 };
		size_t length = at->ifa_addr && at->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
										   : sizeof(struct sockaddr_in6);
		union ibv_gid bits;
		int count = 0;

		if (!at->ifa_addr || !at->ifa_netmask || !(at->ifa_flags & IFF_UP) ||
		    (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6))
			continue;
		memcpy(&address, at->ifa_addr, length);
		memcpy(&mask, at->ifa_netmask, length);
		mask.ss_family = address.ss_family;
		bits = verbs_gid_of(&address);
		if (!verbs_gid_same(&bits, gid))
			continue;
		bits = verbs_gid_of(&mask);
		for (size_t i = address.ss_family == AF_INET ? 12 : 0; i < sizeof(bits.raw); i++)
			count += __builtin_popcount(bits.raw[i]);
		return count + (address.ss_family == AF_INET ? 96 : 0);
	}
	return -1;
}

static bool is_link_local(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/*
 * Ranks an entry of a RoCE port: its interface is up; version 2, which routers pass; an address that routers know; IPv4,
 * which hosts have more often. All networks share the link-local prefix.
 */
static void judge_gid(const struct ifaddrs *interfaces, bool second_version, struct verbs_gid *gid)
{
	int prefix = prefix_of(interfaces, &gid->gid);

	gid->rank = (uint8_t)(RANK_STEP * (4 * (prefix >= 0) + 2 * second_version + !is_link_local(&gid->gid)) +
			      verbs_gid_is_ipv4(&gid->gid));
	gid->prefix = prefix > 0 && !is_link_local(&gid->gid) ? (uint8_t)prefix : 0;
}

/* Adds an entry, the best first; of equals the first. */
static void keep_gid(struct verbs_port *port, const struct verbs_gid *gid)
{
	unsigned at = port->gid_count;

	for (unsigned i = 0; i < port->gid_count; i++)
		if (verbs_gid_same(&port->gids[i].gid, &gid->gid) && port->gids[i].rank >= gid->rank)
			return;
	while (at && port->gids[at - 1].rank < gid->rank)
		at--;
	memmove(&port->gids[at + 1], &port->gids[at], (port->gid_count - at) * sizeof(*gid));
	port->gids[at] = *gid;
	port->gid_count++;
}

static void keep_gids(struct verbs_port *port, const struct verbs_port_seen *seen, const struct ifaddrs *interfaces)
{
	unsigned wanted = port->device->state->context->options.gid_index;
	bool ethernet = port->link_layer == IBV_LINK_LAYER_ETHERNET;

	port->gid_count = 0;
	for (unsigned i = 0; i < seen->gid_count; i++) {
		const struct verbs_gid_entry *entry = &seen->gids[i];
		struct verbs_gid gid = { .gid = entry->gid, .index = entry->index, .prefix = SUBNET_PREFIX };

		if (wanted && PL_GID_INDEX(gid.index) != wanted)
			continue;
		gid.rank = !ethernet && verbs_gid_flid(&gid.gid);
		/* Further entries of InfiniBand are aliases. */
		if (!ethernet && !wanted && gid.index && !gid.rank)
			continue;
		if (ethernet)
			judge_gid(interfaces, entry->second_version, &gid);
		keep_gid(port, &gid);
	}
}

/* Returns the port's GID of that address, or NULL. */
static const struct verbs_gid *find_gid(const struct verbs_port *port, const union ibv_gid *wanted)
{
	for (unsigned i = 0; i < port->gid_count; i++)
		if (verbs_gid_same(&port->gids[i].gid, wanted))
			return &port->gids[i];
	return NULL;
}

const struct verbs_gid *verbs_port_gid(const struct verbs_port *port, const union ibv_gid *wanted)
{
	const struct verbs_gid *found = find_gid(port, wanted), *other = NULL;

	if (found || port->link_layer != IBV_LINK_LAYER_ETHERNET)
		return found || !port->gid_count ? found : &port->gids[0];
	for (unsigned i = 0; i < port->gid_count; i++) {
		const struct verbs_gid *gid = &port->gids[i];

		if (verbs_gid_is_ipv4(&gid->gid) != verbs_gid_is_ipv4(wanted))
			continue;
		/* A link-local address reaches link-local addresses. */
		if (is_link_local(&gid->gid) == is_link_local(wanted))
			return gid;
		if (!other)
			other = gid;
	}
	return other;
}

const struct verbs_gid *verbs_port_offer(const struct verbs_port *port, const union ibv_gid *control)
{
	const struct verbs_gid *found = find_gid(port, control);

	/* The kind decides between equals only: the control connection may use networks that the ports do not have. */
	for (unsigned i = 0; i < port->gid_count && !found; i++) {
		const struct verbs_gid *gid = &port->gids[i];

		if (gid->rank / RANK_STEP < port->gids[0].rank / RANK_STEP)
			break;
		if (verbs_gid_is_ipv4(&gid->gid) == verbs_gid_is_ipv4(control))
			found = gid;
	}
	return found || !port->gid_count ? found : &port->gids[0];
}

/* -- ports ---------------------------------------------------------------------------------------- */

bool verbs_port_is_allowed(const struct verbs_state *state, const char *device, unsigned port)
{
	const char *at = state->context->devices;
	size_t length = strlen(device);

	if (!at)
		return true;
	while (*at) {
		size_t piece = strcspn(at, ",");

		if (piece >= length && !strncmp(at, device, length) &&
		    (piece == length ||
		     (at[length] == ':' && (!port || strtoul(at + length + 1, NULL, 10) == port))))
			return true;
		at += piece + (at[piece] == ',');
	}
	return false;
}

/* "mlx5_2" before "mlx5_10", so that both ends have the same order. */
static int compare_names(const char *a, const char *b)
{
	size_t first = strlen(a), second = strlen(b);

	return first != second ? (first < second ? -1 : 1) : strcmp(a, b);
}

static int compare_ports(const struct verbs_port *a, const struct verbs_port *b)
{
	int order = compare_names(verbs_device_name(a->device), verbs_device_name(b->device));

	return order ? order : a->number - b->number;
}

static void insert_port(struct verbs_state *state, struct verbs_port *port)
{
	pl_list_for_each(at, &state->ports) {
		if (compare_ports(port, pl_list_entry(at, struct verbs_port, link)) < 0) {
			pl_list_append(at, &port->link);
			return;
		}
	}
	pl_list_append(&state->ports, &port->link);
}

/* Other threads read the places without a lock. */
static void give_place(struct verbs_state *state, struct verbs_port *port)
{
	unsigned count = atomic_load_explicit(&state->place_count, memory_order_relaxed);

	port->place = count;
	if (count == VERBS_PLACES)
		return;
	state->places[count] = port;
	atomic_store_explicit(&state->place_count, count + 1, memory_order_release);
}

/* True if a device has a name of the earlier one: its present one, or the first one of a removed device. */
static bool succeeds(const struct verbs_device *device, const struct verbs_device *earlier)
{
	const char *name = verbs_device_name(device);

	return !strcmp(name, verbs_device_name(earlier)) ||
	       (atomic_load(&earlier->gone) && !strcmp(name, earlier->name));
}

/* Finds the device's port, else that of an earlier device of the same name. */
static struct verbs_port *find_port(struct verbs_device *device, uint8_t number)
{
	struct verbs_port *found = NULL;

	pl_list_for_each(at, &device->state->ports) {
		struct verbs_port *port = pl_list_entry(at, struct verbs_port, link);

		if (port->number != number)
			continue;
		if (port->device == device)
			return port;
		if (!found && succeeds(device, port->device))
			found = port;
	}
	return found;
}

/* Finds the port, or makes it. */
static struct verbs_port *get_port(struct verbs_device *device, uint8_t number)
{
	struct verbs_port *port = find_port(device, number);

	if (port) {
		port->device = device;
		return port;
	}
	port = pl_zalloc(&device->state->context->allocator, sizeof(*port));
	if (!port)
		return NULL;
	port->device = device;
	port->number = number;
	snprintf(port->name, sizeof(port->name), "%s", verbs_device_name(device));
	memcpy(port->firmware, device->attributes.fw_ver, sizeof(port->firmware));
	insert_port(device->state, port);
	give_place(device->state, port);
	return port;
}

/* Writes the present state of a port. */
static void write_port(const struct verbs_port *seen)
{
	struct verbs_state *state = seen->device->state;
	struct verbs_port *port;

	pthread_mutex_lock(&state->lock);
	port = get_port(seen->device, seen->number);
	if (port) {
		/* Written only when it changes, because connections read it without the lock. */
		if (port->link_layer != seen->link_layer)
			port->link_layer = seen->link_layer;
		port->active = seen->active;
		port->wide = seen->wide;
		port->pkey_index = seen->pkey_index;
		port->excluded = seen->excluded;
		/* The table of a port that is down may be empty for a moment; rails keep what they have. */
		port->gid_count = seen->gid_count;
		memcpy(port->gids, seen->gids, seen->gid_count * sizeof(seen->gids[0]));
	}
	pthread_mutex_unlock(&state->lock);
}

enum verbs_obstacle verbs_port_update(struct verbs_device *device, uint8_t number, const struct verbs_port_seen *seen,
				      const struct ifaddrs *interfaces)
{
	struct verbs_port port = {
		.device = device,
		.number = number,
		.link_layer = seen->attributes.link_layer,
		.active = seen->attributes.state == IBV_PORT_ACTIVE,
	};
	enum verbs_obstacle obstacle;

	keep_gids(&port, seen, interfaces);
	port.wide = verbs_port_is_wide(&port, &seen->attributes);
	obstacle = verbs_port_apply_options(&port, seen);
	write_port(&port);
	return obstacle;
}

bool verbs_ports_leave(struct verbs_state *state)
{
	bool complete = true;

	pl_list_for_each(at, &state->ports) {
		struct verbs_port *port = pl_list_entry(at, struct verbs_port, link);

		if (!atomic_load(&port->device->gone))
			continue;
		port->active = complete = false;
	}
	return complete;
}

void verbs_ports_close(struct verbs_state *state)
{
	verbs_looks_close(state);
	while (!pl_list_empty(&state->ports)) {
		struct verbs_port *port = pl_list_first(&state->ports, struct verbs_port, link);

		pl_list_remove(&port->link);
		pl_free(&state->context->allocator, port);
	}
}
