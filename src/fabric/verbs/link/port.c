/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ports of the devices that the program allows, and their GIDs. A GID is the address of a port: on Ethernet an IP
 * address of its interface, on InfiniBand the subnet's prefix and the port's number. A port that routers reach has
 * a second GID there, which is the best.
 *
 * A look at the ports opens new devices, and reads again what connections need to know.
 */
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabric/verbs/memory/near.h"
#include "fabric/verbs/verbs.h"

#define SUBNET_PREFIX 64
/* Entries of InfiniBand's table: the port's GID, and behind it that of a fabric with routers. */
#define SUBNET_GIDS 2
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

static void read_gids(const struct verbs_library *library, struct verbs_port *port, int table,
		      const struct ifaddrs *interfaces)
{
	struct verbs_gid_entry entries[VERBS_GID_TABLE_MAX];
	unsigned wanted = port->device->state->context->options.gid_index;
	bool ethernet = port->link_layer == IBV_LINK_LAYER_ETHERNET;
	unsigned count = verbs_gids_read(library, port->device->verbs, port->number,
					 ethernet || wanted ? table : PL_MIN(table, SUBNET_GIDS), entries);

	port->gid_count = 0;
	for (unsigned i = 0; i < count; i++) {
		struct verbs_gid gid = { .gid = entries[i].gid, .index = entries[i].index, .prefix = SUBNET_PREFIX };

		if (wanted && PL_GID_INDEX(gid.index) != wanted)
			continue;
		gid.rank = !ethernet && verbs_gid_flid(&gid.gid);
		/* Further entries of InfiniBand are aliases. */
		if (!ethernet && !wanted && gid.index && !gid.rank)
			continue;
		if (ethernet)
			judge_gid(interfaces, entries[i].second_version, &gid);
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

/* True if the program allows a device's port (0: any): it named no devices, this device, or "device:port". */
static bool is_allowed(const struct verbs_state *state, const char *device, unsigned port)
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

/* Look at the devices and their ports. It calls the driver, which may take long, without the state's lock. */
struct look {
	struct verbs_state *state;
	const struct ifaddrs *interfaces;
	struct verbs_obstacle_met obstacle;
};

static void meet_obstacle(struct look *look, enum verbs_obstacle kind, int code, const char *device)
{
	/* Of devices with the same obstacle, the first is reported. */
	if (kind <= look->obstacle.kind)
		return;
	look->obstacle.kind = kind;
	look->obstacle.code = code;
	snprintf(look->obstacle.device, sizeof(look->obstacle.device), "%s", device);
}

/* Writes what a look has seen of a port. */
static void update_port(const struct verbs_port *seen)
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

static void look_at_port(struct look *look, struct verbs_device *device, uint8_t number)
{
	const struct verbs_library *library = look->state->library;
	struct verbs_port seen = { .device = device, .number = number };
	struct ibv_port_attr attributes;
	enum verbs_obstacle obstacle;
	char name[sizeof(look->obstacle.device)];

	if (!is_allowed(look->state, device->name, number) ||
	    verbs_query_port(library, device->verbs, number, &attributes) < 0)
		return;
	seen.link_layer = attributes.link_layer;
	seen.active = attributes.state == IBV_PORT_ACTIVE;
	read_gids(library, &seen, attributes.gid_tbl_len, look->interfaces);
	seen.wide = verbs_port_is_wide(&seen, &attributes);
	obstacle = verbs_port_apply_options(&seen, &attributes);
	update_port(&seen);
	snprintf(name, sizeof(name), "%s:%u", verbs_device_name(device), number);
	if (seen.active)
		meet_obstacle(look, obstacle, 0, name);
}

/* -- devices -------------------------------------------------------------------------------------- */

/*
 * Finds the device's object that is in use, or one of a removed device that is not closed yet. It stays until the context
 * closes; the device may be closed at any time. name: NULL: only the same device, whatever its name was.
 */
static struct verbs_device *find_device(struct verbs_state *state, const struct ibv_device *of, const char *name)
{
	struct verbs_device *found = NULL, *named = NULL;

	pthread_mutex_lock(&state->lock);
	pl_list_for_each(at, &state->devices) {
		struct verbs_device *device = pl_list_entry(at, struct verbs_device, link);

		if (device->verbs && verbs_device_is(device, of))
			found = device;
		else if (device->verbs && name && !strcmp(verbs_device_name(device), name))
			named = device;
	}
	pthread_mutex_unlock(&state->lock);
	return found ? found : named;
}

/* Notes new names of open devices before any device is found by its name: another one may have their earlier names. */
static void note_names(struct verbs_state *state, struct ibv_device **devices)
{
	for (unsigned i = 0; devices && devices[i]; i++) {
		struct verbs_device *device = find_device(state, devices[i], NULL);

		if (device)
			verbs_device_rename(device, state->library->ibv_get_device_name(devices[i]));
	}
}

/* Opens a device for the look. Returns NULL and meets an obstacle if that fails. */
static struct verbs_device *open_found_device(struct look *look, struct ibv_device *of, const char *name)
{
	int code;
	struct verbs_device *device = verbs_device_open(look->state, of, &code);

	if (!device) {
		meet_obstacle(look, VERBS_CLOSED, code, name);
		return NULL;
	}
	pthread_mutex_lock(&look->state->lock);
	pl_list_append(&look->state->devices, &device->link);
	pthread_mutex_unlock(&look->state->lock);
	/* The device may serve long before the look ends, if the driver of a later one hangs. */
	pl_engine_post(look->state->context->engines[0], &look->state->watch_task);
	return device;
}

static void look_at_device(struct look *look, struct ibv_device *of)
{
	const char *name = look->state->library->ibv_get_device_name(of);
	struct verbs_device *device = find_device(look->state, of, name);

	if (!is_allowed(look->state, device ? device->name : name, 0))
		return;
	pthread_mutex_lock(&look->state->lock);
	snprintf(look->state->looking_at, sizeof(look->state->looking_at), "%s", name);
	pthread_mutex_unlock(&look->state->lock);
	/* iWARP has neither immediate data nor atomics. */
	if (of->transport_type != IBV_TRANSPORT_IB) {
		meet_obstacle(look, of->transport_type == IBV_TRANSPORT_IWARP ? VERBS_IWARP : VERBS_NO_RC, 0, name);
		return;
	}
	if (!device)
		device = open_found_device(look, of, name);
	if (!device || !verbs_device_use(device))
		return;
	meet_obstacle(look, VERBS_INACTIVE, 0, name);
	for (unsigned i = 1; i <= device->attributes.phys_port_cnt; i++)
		look_at_port(look, device, (uint8_t)i);
	verbs_device_leave(device);
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

/* Returns true if all ports have a device. */
static bool look_end(const struct look *look, unsigned places)
{
	struct verbs_state *state = look->state;
	bool complete;

	pthread_mutex_lock(&state->lock);
	state->obstacle = look->obstacle;
	/* Connections may have begun during a long first look. */
	if ((places || atomic_load(&state->port_look.late)) && atomic_load(&state->place_count) != places)
		verbs_near_forget(state);
	complete = verbs_ports_leave(state);
	pthread_mutex_unlock(&state->lock);
	return complete;
}

bool verbs_ports_read(struct verbs_state *state)
{
	struct look look = { .state = state, .obstacle.kind = VERBS_NO_DEVICE };
	unsigned places = atomic_load(&state->place_count);
	struct ifaddrs *interfaces = NULL;
	struct ibv_device **devices;

	atomic_store(&state->stale, false);
	atomic_store(&state->looked, pl_now());
	devices = state->library->ibv_get_device_list(NULL);
	if (getifaddrs(&interfaces))
		interfaces = NULL;
	look.interfaces = interfaces;
	note_names(state, devices);
	for (unsigned i = 0; devices && devices[i]; i++)
		look_at_device(&look, devices[i]);
	freeifaddrs(interfaces);
	if (devices)
		state->library->ibv_free_device_list(devices);
	verbs_machine_read(state);
	return look_end(&look, places);
}

void verbs_ports_close(struct verbs_state *state)
{
	while (!pl_list_empty(&state->ports)) {
		struct verbs_port *port = pl_list_first(&state->ports, struct verbs_port, link);

		pl_list_remove(&port->link);
		pl_free(&state->context->allocator, port);
	}
}
