/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports of RDMA cards, chosen by PEERLANE_DEVICES and NCCL's own variable. */
#include <stdio.h>
#include <stdlib.h>

#include "state.h"

#ifdef PL_HAVE_VERBS

#include <endian.h>
#include <unistd.h>

#include "rdma/gid.h"
#include "rdma/port_rate.h"

/* The kernel has the module ib_uverbs. */
#define UVERBS_ABI "/sys/class/infiniband_verbs/abi_version"

static bool port_is_selected(const char *name, unsigned port)
{
	const char *hca = getenv("NCCL_IB_HCA"), *devices = plugin.settings.options.devices;

	return (!devices || name_list_has(devices, name, port)) &&
	       (!hca || !*hca || name_list_selects(hca, name, port));
}

/* A port of Ethernet without a GID has no address. */
static bool port_is_active(const struct verbs_library *library, struct ibv_context *context, uint8_t number,
			   struct ibv_port_attr *port)
{
	struct verbs_gid_entry entries[VERBS_GID_TABLE_MAX];

	return verbs_query_port(library, context, number, port) == 0 && port->state == IBV_PORT_ACTIVE &&
	       (port->link_layer != IBV_LINK_LAYER_ETHERNET ||
		verbs_gids_read(library, context, number, port->gid_tbl_len, entries));
}

static void fill_card(struct plugin_device *device, const char *name, const struct ibv_device_attr *card,
		      unsigned number, const struct ibv_port_attr *port)
{
	char path[128];

	*device = (struct plugin_device){
		.speed = plugin.settings.speed ? plugin.settings.speed
					       : (int)rdma_port_rate(port->active_speed, port->active_width) * 100,
		.guid = be64toh(card->node_guid),
		.port_number = (int)number,
		.pointers = NET_POINTER_HOST,
	};
	if (!device->speed)
		device->speed = SPEED_UNKNOWN;
	snprintf(device->port, sizeof(device->port), "%s:%u", name, number);
	snprintf(device->name, sizeof(device->name), "%s", card->phys_port_cnt > 1 ? device->port : name);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", name);
	device_keep_pci_path(device, path);
}

/* Adds the ports of a card. Returns the number of devices. */
static int add_card(const struct verbs_library *library, struct ibv_device *of, struct plugin_device *devices,
		    int count)
{
	const char *name = library->ibv_get_device_name(of);
	/* The fabric needs reliable connections with immediate data. */
	struct ibv_context *context = of->transport_type == IBV_TRANSPORT_IB ? library->ibv_open_device(of) : NULL;
	struct ibv_device_attr card;
	struct ibv_port_attr port;
	int first = count;

	if (!context)
		return count;
	if (library->ibv_query_device(context, &card))
		card.phys_port_cnt = 0;
	for (unsigned number = 1; number <= card.phys_port_cnt && count < DEVICES_MAX; number++)
		if (port_is_selected(name, number) && port_is_active(library, context, (uint8_t)number, &port))
			fill_card(&devices[count++], name, &card, number, &port);
	library->ibv_close_device(context);
	if (count > first)
		devices[first].pointers |= gpus_prove(library, of);
	for (int i = first; i < count; i++)
		devices[i].pointers = devices[first].pointers;
	return count;
}

/* The order of PCI addresses is the same in all processes, and NCCL's for devices of other plugins. */
static int compare_cards(const void *a, const void *b)
{
	const struct plugin_device *first = a, *second = b;
	size_t first_length = strlen(first->port), second_length = strlen(second->port);
	int order = strcmp(first->pci_path, second->pci_path);

	if (order == 0 && first_length != second_length)
		return first_length < second_length ? -1 : 1;
	return order ? order : strcmp(first->port, second->port);
}

int cards_find(struct plugin_device devices[DEVICES_MAX])
{
	const struct verbs_library *library = access(UVERBS_ABI, R_OK) == 0 ? verbs_library_get(NULL) : NULL;
	struct ibv_device **list = library ? library->ibv_get_device_list(NULL) : NULL;
	int count = 0;

	for (unsigned i = 0; list && list[i]; i++)
		count = add_card(library, list[i], devices, count);
	if (list)
		library->ibv_free_device_list(list);
	qsort(devices, (size_t)count, sizeof(*devices), compare_cards);
	for (int i = 0; i < count; i++)
		if (!devices[i].guid)
			devices[i].guid = (uint64_t)i + 1;
	return count;
}

#else

int cards_find(struct plugin_device devices[DEVICES_MAX])
{
	(void)devices;
	return 0;
}

#endif
