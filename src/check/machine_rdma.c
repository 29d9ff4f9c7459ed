/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA devices and their ports. */
#include "check/machine.h"

#include <stdio.h>
#include <stdlib.h>

#define DEVICES "sys/class/infiniband"
#define VERBS "sys/class/infiniband_verbs"

/* "4: ACTIVE" without its number. */
static const char *after_number(char *text)
{
	char *colon = strchr(text, ':');

	if (colon)
		memmove(text, colon + 1 + strspn(colon + 1, " "), strlen(colon + 1 + strspn(colon + 1, " ")) + 1);
	return text;
}

static long read_lid(const struct pl_check_machine *machine, const char *device, unsigned port, const char *name)
{
	uint64_t value;

	if (pl_sysroot_number(machine->root, 10, &value, DEVICES "/%s/ports/%u/%s", device, port, name) < 0 ||
	    value > 0xffff)
		return -1;
	return (long)value;
}

/* The net device of the port: that of its first GID, or, on InfiniBand, one of the same card. */
static void read_netdev(const struct pl_check_machine *machine, const char *device, struct check_port *port)
{
	struct pl_sysroot_list list;

	if (check_text(machine, port->netdev, DEVICES "/%s/ports/%u/gid_attrs/ndevs/0", device, port->number) > 0)
		return;
	port->netdev[0] = '\0';
	if (pl_sysroot_list(machine->root, &list, DEVICES "/%s/device/net", device) < 0)
		return;
	for (size_t i = 0; i < list.count && !port->netdev[0]; i++) {
		int64_t number = check_number(machine, DEVICES "/%s/device/net/%s/dev_port", device, list.names[i]);

		if ((number < 0 || number == (int64_t)port->number - 1) && strlen(list.names[i]) < sizeof(port->netdev))
			strcpy(port->netdev, list.names[i]);
	}
	pl_sysroot_list_free(&list);
}

static void read_port(const struct pl_check_machine *machine, struct check_device *device, unsigned number)
{
	struct check_port *port = &device->ports[device->port_count++];

	*port = (struct check_port){ .number = number };
	check_text(machine, port->state, DEVICES "/%s/ports/%u/state", device->name, number);
	check_text(machine, port->phys_state, DEVICES "/%s/ports/%u/phys_state", device->name, number);
	check_text(machine, port->rate, DEVICES "/%s/ports/%u/rate", device->name, number);
	check_text(machine, port->layer, DEVICES "/%s/ports/%u/link_layer", device->name, number);
	port->active = !strcmp(after_number(port->state), "ACTIVE");
	after_number(port->phys_state);
	port->lid = read_lid(machine, device->name, number, "lid");
	port->manager_lid = read_lid(machine, device->name, number, "sm_lid");
	read_netdev(machine, device->name, port);
}

static void read_ports(const struct pl_check_machine *machine, struct check_device *device)
{
	struct pl_sysroot_list list;

	if (pl_sysroot_list(machine->root, &list, DEVICES "/%s/ports", device->name) < 0)
		return;
	for (size_t i = 0; i < list.count && device->port_count < CHECK_PORTS; i++) {
		unsigned long number = strtoul(list.names[i], NULL, 10);

		if (number > 0 && number < 256)
			read_port(machine, device, (unsigned)number);
	}
	pl_sysroot_list_free(&list);
}

static const struct check_card *find_card(const struct pl_check_machine *machine, const char *address)
{
	for (size_t i = 0; i < machine->card_count; i++)
		if (!strcmp(machine->cards[i].address, address))
			return &machine->cards[i];
	return NULL;
}

static void read_node(const struct pl_check_machine *machine, struct check_device *device,
		      const struct pl_sysroot_list *nodes)
{
	char name[64];

	for (size_t i = 0; i < nodes->count; i++)
		if (strlen(nodes->names[i]) < sizeof(device->node) &&
		    check_text(machine, name, VERBS "/%s/ibdev", nodes->names[i]) > 0 && !strcmp(name, device->name))
			strcpy(device->node, nodes->names[i]);
}

static int add(struct pl_check_machine *machine, const char *name, const struct pl_sysroot_list *nodes)
{
	struct check_device *more = realloc(machine->devices, (machine->device_count + 1) * sizeof(*more)), *device;
	char address[64];

	if (!more)
		return -ENOMEM;
	machine->devices = more;
	device = &more[machine->device_count++];
	*device = (struct check_device){ .card = NULL };
	snprintf(device->name, sizeof(device->name), "%.63s", name);
	if (pl_sysroot_link_name(machine->root, address, sizeof(address), DEVICES "/%s/device", name) > 0)
		device->card = find_card(machine, address);
	if (!device->card)
		check_text(machine, device->parent, DEVICES "/%s/parent", name);
	read_node(machine, device, nodes);
	read_ports(machine, device);
	return 0;
}

int check_read_rdma(struct pl_check_machine *machine)
{
	struct pl_sysroot_list list, nodes;
	int rc = 0;

	if (pl_sysroot_list(machine->root, &list, DEVICES) < 0)
		return 0;
	pl_sysroot_list(machine->root, &nodes, VERBS);
	for (size_t i = 0; rc == 0 && i < list.count && i < 256; i++)
		rc = add(machine, list.names[i], &nodes);
	pl_sysroot_list_free(&list);
	pl_sysroot_list_free(&nodes);
	return rc;
}
