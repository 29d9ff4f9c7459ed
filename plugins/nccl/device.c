/* SPDX-License-Identifier: BSD-2-Clause */
/* IP interfaces: NCCL's devices, chosen by NCCL's own variables. */
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/address.h"
#include "state.h"

/* Speed of interfaces that tell none, as NCCL assumes. */
#define SPEED_UNKNOWN 10000
/* The loopback interface: NCCL then uses more channels. */
#define SPEED_LOOPBACK 240000

/* True if a list of NCCL_SOCKET_IFNAME names an interface: "eth,ib" prefixes, "=eth0" whole names, "^docker" none. */
static bool list_selects(const char *list, const char *name)
{
	bool inverted = list[0] == '^', exact, found = false;

	list += inverted;
	exact = list[0] == '=';
	list += exact;
	while (*list && !found) {
		size_t length = strcspn(list, ",");

		found = length && !strncmp(list, name, length) && (!exact || name[length] == '\0');
		list += length + (list[length] == ',');
	}
	return found != inverted;
}

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

/* Keeps the path up to the last PCI device: a virtio device, for example, lies below one. */
static void keep_pci_path(struct plugin_device *device, char *path)
{
	char *last;

	while ((last = strrchr(path, '/')) && last != path) {
		unsigned domain, bus, slot, function;
		char rest;

		if (sscanf(last, "/%4x:%2x:%2x.%1x%c", &domain, &bus, &slot, &function, &rest) == 4) {
			snprintf(device->pci_path, sizeof(device->pci_path), "%s", path);
			return;
		}
		*last = '\0';
	}
}

static void read_interface(struct plugin_device *device)
{
	char path[128], text[32], *resolved;

	device->speed = plugin.settings.speed;
	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", device->name);
	if (!device->speed && pl_read_head(path, text, sizeof(text)))
		device->speed = atoi(text);
	if (device->speed <= 0)
		device->speed = strcmp(device->name, "lo") ? SPEED_UNKNOWN : SPEED_LOOPBACK;
	snprintf(path, sizeof(path), "/sys/class/net/%s/device", device->name);
	resolved = realpath(path, NULL);
	if (resolved)
		keep_pci_path(device, resolved);
	free(resolved);
}

/* Adds the interface of an address, unless it is there or the table is full. */
static void add_interface(const struct ifaddrs *at)
{
	struct sockaddr_storage address = { 0 };
	struct plugin_device *device;

	for (int i = 0; i < plugin.device_count; i++)
		if (!strcmp(plugin.devices[i].name, at->ifa_name))
			return;
	if (plugin.device_count == DEVICES_MAX)
		return;
	device = &plugin.devices[plugin.device_count];
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
		return;
	read_interface(device);
	plugin.device_count++;
}

bool devices_find(void)
{
	const char *list = getenv("NCCL_SOCKET_IFNAME");
	struct ifaddrs *all;

	/* NCCL keeps the names. */
	if (plugin.device_count > 0)
		return true;
	if (getifaddrs(&all) < 0) {
		plugin_warn("getifaddrs: %s", strerror(errno));
		return false;
	}
	for (int rank = 0; rank <= 2 && plugin.device_count == 0; rank++)
		for (struct ifaddrs *at = all; at; at = at->ifa_next)
			if (address_is_usable(at) &&
			    (list && *list ? list_selects(list, at->ifa_name) : interface_rank(at) == rank))
				add_interface(at);
	freeifaddrs(all);
	if (plugin.device_count == 0)
		plugin_warn("no IP interface is up%s%s", list && *list ? " of NCCL_SOCKET_IFNAME=" : "",
			    list && *list ? list : "");
	return plugin.device_count > 0;
}

bool device_listen(struct plugin_device *device)
{
	struct pl_error error;

	if (device->listener)
		return true;
	if (pl_listen(plugin.context, device->address, &device->listener, &error) < 0) {
		plugin_warn_error("cannot listen", &error);
		return false;
	}
	pl_listener_address(device->listener, device->bound, sizeof(device->bound));
	device_accept(device);
	return true;
}

void device_accept(struct plugin_device *device)
{
	struct pl_error error;

	if (pl_accept_start(device->listener, user_data(device, USER_DEVICE), NULL, &error) < 0)
		plugin_warn_error("cannot accept connections", &error);
}

enum net_result plugin_device_count(int *count)
{
	pthread_mutex_lock(&plugin.lock);
	*count = plugin.device_count;
	pthread_mutex_unlock(&plugin.lock);
	return NET_SUCCESS;
}

enum net_result plugin_device_properties(int number, struct plugin_properties *properties)
{
	struct plugin_device *device;

	if (number < 0 || number >= plugin.device_count)
		return NET_INVALID_ARGUMENT;
	device = &plugin.devices[number];
	properties->name = device->name;
	properties->pci_path = device->pci_path[0] ? device->pci_path : NULL;
	properties->speed = device->speed;
	return NET_SUCCESS;
}
