/* SPDX-License-Identifier: BSD-2-Clause */
/* NCCL's devices: all are ports of RDMA cards, or all are IP interfaces. */
#include <stdio.h>
#include <stdlib.h>

#include "base/processors.h"
#include "state.h"

/* A card's progress thread moves no data, so one suffices. */
#define CARD_WORKERS 1
/* Most lanes of a connection by default: a rank has connections to several others, which share the threads. */
#define LANES_USUAL 8u

void device_keep_pci_path(struct plugin_device *device, const char *link)
{
	char *path = realpath(link, NULL), *last;

	while (path && (last = strrchr(path, '/')) && last != path) {
		unsigned domain, bus, slot, function;
		char rest;

		if (sscanf(last, "/%4x:%2x:%2x.%1x%c", &domain, &bus, &slot, &function, &rest) == 4) {
			snprintf(device->pci_path, sizeof(device->pci_path), "%s", path);
			break;
		}
		*last = '\0';
	}
	free(path);
}

/* True if cards are used that reach no GPU: the program asked for them. */
static bool cards_are_demanded(void)
{
	const char *fabric = plugin.settings.options.fabric;

	return fabric && !strcmp(fabric, "verbs");
}

/* Cards do not encrypt. A card that reaches GPU memory is the reason to choose cards. */
static bool cards_are_wanted(const struct plugin_device *cards, int count)
{
	const struct pl_options *options = &plugin.settings.options;

	if (cards_are_demanded())
		return count > 0;
	if ((options->fabric && strcmp(options->fabric, "auto")) || options->encrypt_data == PL_ON)
		return false;
	for (int i = 0; i < count; i++)
		if (cards[i].pointers & NET_POINTER_CUDA)
			return true;
	return false;
}

/* Connections of cards begin with a connection over the first interface. */
static void use_cards(const struct plugin_device *cards, int count)
{
	char address[sizeof(plugin.devices[0].address)];

	memcpy(address, plugin.devices[0].address, sizeof(address));
	memcpy(plugin.devices, cards, (size_t)count * sizeof(*cards));
	for (int i = 0; i < count; i++)
		memcpy(plugin.devices[i].address, address, sizeof(address));
	plugin.device_count = count;
	plugin.cards = true;
}

static bool cards_are_possible(void)
{
	const char *fabric = plugin.settings.options.fabric;

	return !fabric || !strcmp(fabric, "auto") || cards_are_demanded();
}

bool devices_find(void)
{
	static struct plugin_device cards[DEVICES_MAX];
	int count;

	/* NCCL keeps the names. */
	if (plugin.device_count > 0)
		return true;
	plugin.device_count = interfaces_find(plugin.devices);
	if (plugin.device_count == 0)
		return false;
	count = cards_are_possible() ? cards_find(cards) : 0;
	if (cards_are_wanted(cards, count))
		use_cards(cards, count);
	if (cards_are_demanded() && !plugin.cards) {
		plugin_warn("PEERLANE_FABRIC=verbs: no port of an RDMA device is active, or the variables "
			    "PEERLANE_DEVICES and NCCL_IB_HCA select none");
		plugin.device_count = 0;
	}
	return plugin.device_count > 0;
}

/* Opens a context that uses the device's port alone. */
static bool card_open(struct plugin_device *device)
{
	struct pl_options options = plugin.settings.options;
	struct pl_error error;

	options.devices = device->port;
	options.fabric = "verbs";
	if (!options.workers)
		options.workers = CARD_WORKERS;
	if (pl_open(&device->context, &options, &error) == 0)
		return true;
	plugin_warn_error("cannot start", &error);
	return false;
}

static long half_the_cores(void)
{
	return pl_processors() / 2;
}

/*
 * Returns the default number of a connection's lanes: half the cores, at most LANES_USUAL. So two cores have one lane, where the library
 * has two: ranks that send both ways, or over several connections, keep both cores busy with one, and a second one cost a tenth more
 * processor time.
 */
static unsigned interface_lanes(void)
{
	return (unsigned)PL_MAX(PL_MIN(half_the_cores(), (long)LANES_USUAL), 1l);
}

/*
 * Two ranks have a connection for each direction, and NCCL's collectives use both at once: a thread for each lane of both, as far
 * as there are cores. 0: the library's default.
 */
static unsigned interface_workers(unsigned lanes)
{
	long half = half_the_cores();

	return half > (long)lanes ? (unsigned)PL_MIN(half, 2l * lanes) : 0;
}

static bool interfaces_open(void)
{
	struct pl_options options = plugin.settings.options;
	struct pl_error error;

	if (!options.lanes)
		options.lanes = interface_lanes();
	if (!options.workers)
		options.workers = interface_workers(options.lanes);
	if (pl_open(&plugin.devices[0].context, &options, &error) < 0) {
		plugin_warn_error("cannot start", &error);
		return false;
	}
	for (int i = 1; i < plugin.device_count; i++)
		plugin.devices[i].context = plugin.devices[0].context;
	return true;
}

bool devices_open(void)
{
	bool opened = plugin.cards || interfaces_open();

	for (int i = 0; i < plugin.device_count && plugin.cards && opened; i++)
		opened = card_open(&plugin.devices[i]);
	if (!opened)
		devices_close();
	return opened;
}

void devices_forget(void)
{
	for (int i = 0; i < plugin.device_count; i++) {
		plugin.devices[i].context = NULL;
		plugin.devices[i].listener = NULL;
		plugin.devices[i].used = false;
	}
}

void devices_close(void)
{
	for (int i = 0; i < (plugin.cards ? plugin.device_count : 1); i++)
		if (plugin.devices[i].context)
			pl_close(plugin.devices[i].context);
	devices_forget();
}

bool device_listen(struct plugin_device *device)
{
	struct pl_error error;

	if (device->listener)
		return true;
	if (pl_listen(device->context, device->address, &device->listener, &error) < 0) {
		plugin_warn_error("cannot listen", &error);
		return false;
	}
	pl_listener_address(device->listener, device->bound, sizeof(device->bound));
	device->used = true;
	device_accept(device);
	return true;
}

void device_accept(struct plugin_device *device)
{
	struct pl_error error;

	if (pl_accept_start(device->listener, user_data(device, USER_DEVICE), NULL, &error) < 0)
		plugin_warn_error("cannot accept connections", &error);
}

/*
 * Finds the interfaces again: one may have disappeared since the process opened the plugin first. NCCL asks for their number
 * after it has loaded the plugin anew, and then knows none of the old ones.
 */
static void interfaces_find_again(void)
{
	static struct plugin_device found[DEVICES_MAX];
	struct pl_context *context = plugin.devices[0].context;
	int count = interfaces_find(found);

	if (count == 0)
		return;
	for (int i = 0; i < count; i++) {
		found[i].context = context;
		found[i].pointers = plugin.devices[0].pointers;
	}
	if (count != plugin.device_count)
		plugin_info("%d interfaces, %d before", count, plugin.device_count);
	memcpy(plugin.devices, found, (size_t)count * sizeof(*found));
	plugin.device_count = count;
}

enum net_result plugin_device_count(int *count)
{
	*count = 0;
	if (plugin_is_of_parent())
		return NET_INVALID_USAGE;
	plugin_lock();
	if (plugin.reopened && !plugin.cards)
		interfaces_find_again();
	plugin.reopened = false;
	*count = plugin.device_count;
	pthread_mutex_unlock(&plugin.lock);
	return NET_SUCCESS;
}

enum net_result plugin_device_properties(int number, struct plugin_properties *properties)
{
	struct plugin_device *device;

	if (plugin_is_of_parent())
		return NET_INVALID_USAGE;
	if (number < 0 || number >= plugin.device_count)
		return NET_INVALID_ARGUMENT;
	device = &plugin.devices[number];
	properties->name = device->name;
	properties->pci_path = device->pci_path[0] ? device->pci_path : NULL;
	properties->speed = device->speed;
	properties->guid = device->guid;
	properties->port = device->port_number;
	properties->pointers = device->pointers;
	return NET_SUCCESS;
}
