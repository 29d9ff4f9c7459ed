/* SPDX-License-Identifier: BSD-2-Clause */
#include "diag/check/inventory.h"

#include <stdio.h>
#include <stdlib.h>

#include "diag/check/machine.h"

static void take_pci_device(struct pl_inventory_device *device, const struct pl_check_machine *machine,
			    const struct pl_pci_node *pci)
{
	snprintf(device->address, sizeof(device->address), "%s", pci->address);
	device->numa = pci->numa;
	device->function = pci->virtual_function;
	device->link = pci->now;
	device->idle = pl_topology_idle(machine->here, (int)(pci - machine->here->nodes));
}

static void take_rdma_ports(struct pl_inventory *inventory, const struct check_device *device)
{
	for (size_t i = 0; i < device->rdma->port_count; i++) {
		const struct pl_rdma_port *from = &device->rdma->ports[i];
		struct pl_inventory_port *port = &inventory->ports[inventory->port_count++];

		snprintf(port->device, sizeof(port->device), "%s", device->name);
		snprintf(port->state, sizeof(port->state), "%s", from->state);
		snprintf(port->layer, sizeof(port->layer), "%s", from->link_layer);
		port->number = from->number;
		port->active = from->active;
		port->software = device->rdma->software;
		port->rate = from->rate / 8;
	}
}

static void take_rdma_device(struct pl_inventory *inventory, const struct check_device *device)
{
	struct pl_inventory_rdma *entry = &inventory->devices[inventory->device_count++];

	snprintf(entry->name, sizeof(entry->name), "%s", device->name);
	if (device->card)
		snprintf(entry->address, sizeof(entry->address), "%s", device->card->pci->address);
	snprintf(entry->firmware, sizeof(entry->firmware), "%s", device->rdma->firmware);
	take_rdma_ports(inventory, device);
}

static size_t count_ports(const struct pl_check_machine *machine)
{
	size_t count = 0;

	for (size_t i = 0; i < machine->device_count; i++)
		count += machine->devices[i].rdma->port_count;
	return count;
}

int pl_inventory_take(struct pl_inventory *inventory, const struct pl_check_machine *machine)
{
	*inventory = (struct pl_inventory){ .gpu_count = 0 };
	inventory->gpus = calloc(machine->gpu_count + 1, sizeof(*inventory->gpus));
	inventory->cards = calloc(machine->card_count + 1, sizeof(*inventory->cards));
	inventory->devices = calloc(machine->device_count + 1, sizeof(*inventory->devices));
	inventory->ports = calloc(count_ports(machine) + 1, sizeof(*inventory->ports));
	if (!inventory->gpus || !inventory->cards || !inventory->devices || !inventory->ports) {
		pl_inventory_release(inventory);
		return -ENOMEM;
	}
	check_driver_version(machine, inventory->driver, sizeof(inventory->driver));
	snprintf(inventory->kernel, sizeof(inventory->kernel), "%s", check_kernel_release(machine));
	for (; inventory->gpu_count < machine->gpu_count; inventory->gpu_count++) {
		const struct check_gpu *gpu = &machine->gpus[inventory->gpu_count];
		struct pl_inventory_device *entry = &inventory->gpus[inventory->gpu_count];

		take_pci_device(entry, machine, gpu->pci);
		snprintf(entry->model, sizeof(entry->model), "%s", gpu->model);
	}
	for (; inventory->card_count < machine->card_count; inventory->card_count++)
		take_pci_device(&inventory->cards[inventory->card_count], machine,
				machine->cards[inventory->card_count].pci);
	for (size_t i = 0; i < machine->device_count; i++)
		take_rdma_device(inventory, &machine->devices[i]);
	return 0;
}

void pl_inventory_release(struct pl_inventory *inventory)
{
	free(inventory->gpus);
	free(inventory->cards);
	free(inventory->devices);
	free(inventory->ports);
	*inventory = (struct pl_inventory){ .gpu_count = 0 };
}

char *pl_inventory_port_name(char *buffer, size_t size, const struct pl_inventory_port *port)
{
	snprintf(buffer, size, "%.32s/%u", port->device, port->number);
	return buffer;
}
