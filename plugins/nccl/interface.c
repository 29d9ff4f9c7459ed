/* SPDX-License-Identifier: BSD-2-Clause */
/* IP interfaces, chosen by NCCL's own variables. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/address.h"
#include "state.h"

/* Speed of the loopback interface: NCCL then uses more channels. */
#define SPEED_LOOPBACK 240000

/* Interfaces without NCCL_SOCKET_IFNAME: real ones, else bridges of containers, else loopback. */
static int interface_rank(const struct ifaddrs *at)
{
	if (at->ifa_flags & IFF_LOOPBACK)
		return 2;
	return !strncmp(at->ifa_name, "docker", 6) || !strncmp(at->ifa_name, "virbr", 5) ? 1 : 0;
}

static bool address_is_usable(const struct ifaddrs *at)
{
	const char *family = getenv("NCCL_SOCKET_FAMILY");
	const struct sockaddr_in6 *six = (const void *)at->ifa_addr;

	if (!at->ifa_addr || (at->ifa_flags & (IFF_UP | IFF_RUNNING)) != (IFF_UP | IFF_RUNNING))
		return false;
	switch (at->ifa_addr->sa_family) {
	case AF_INET:
		return !family || strcmp(family, "AF_INET6");
	case AF_INET6:
		/* A link-local address means nothing to another host. */
		return (!family || strcmp(family, "AF_INET")) && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
	default:
		return false;
	}
}

static void read_interface(struct plugin_device *device)
{
	char path[128], text[32];

	device->speed = plugin.settings.speed;
	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", device->name);
	if (!device->speed && pl_read_head(path, text, sizeof(text)))
		device->speed = atoi(text);
	if (device->speed <= 0)
		device->speed = strcmp(device->name, "lo") ? SPEED_UNKNOWN : SPEED_LOOPBACK;
	snprintf(path, sizeof(path), "/sys/class/net/%s/device", device->name);
	device_keep_pci_path(device, path);
}

/* Adds the interface of an address, unless it is there or the table is full. Returns the number of interfaces. */
static int add_interface(struct plugin_device *devices, int count, const struct ifaddrs *at)
{
	struct plugin_device *device = &devices[count];
	struct sockaddr_storage address = { 0 };

	for (int i = 0; i < count; i++)
		if (!strcmp(devices[i].name, at->ifa_name))
			return count;
	if (count == DEVICES_MAX)
		return count;
	memset(device, 0, sizeof(*device));
	snprintf(device->name, sizeof(device->name), "%s", at->ifa_name);
	if (at->ifa_addr->sa_family == AF_INET) {
		memcpy(&address, at->ifa_addr, sizeof(struct sockaddr_in));
		((struct sockaddr_in *)&address)->sin_port = 0;
	} else {
		memcpy(&address, at->ifa_addr, sizeof(struct sockaddr_in6));
		((struct sockaddr_in6 *)&address)->sin6_port = 0;
	}
	if (pl_address_format((struct sockaddr *)&address, device->address, sizeof(device->address)) < 0)
		return count;
	device->pointers = NET_POINTER_HOST;
	device->guid = (uint64_t)count + 1;
	device->port_number = 1;
	read_interface(device);
	return count + 1;
}

int interfaces_find(struct plugin_device devices[DEVICES_MAX])
{
	const char *list = getenv("NCCL_SOCKET_IFNAME");
	struct ifaddrs *all;
	int found = 0;

	if (getifaddrs(&all) < 0) {
		plugin_warn("getifaddrs: %s", strerror(errno));
		return 0;
	}
	for (int rank = 0; rank <= 2 && found == 0; rank++)
		for (struct ifaddrs *at = all; at; at = at->ifa_next)
			if (address_is_usable(at) &&
			    (list && *list ? name_list_selects(list, at->ifa_name, 0) : interface_rank(at) == rank))
				found = add_interface(devices, found, at);
	freeifaddrs(all);
	if (found == 0)
		plugin_warn("no IP interface is up%s%s", list && *list ? " of NCCL_SOCKET_IFNAME=" : "",
			    list && *list ? list : "");
	return found;
}
