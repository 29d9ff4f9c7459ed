/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inventory of a machine: its GPUs, cards, RDMA devices, ports and versions. Documents and metrics show it; the check
 * compares it with expectations and with the inventory of an earlier check.
 */
#ifndef PL_DIAG_CHECK_INVENTORY_H
#define PL_DIAG_CHECK_INVENTORY_H

#include "diag/check/check.h"
#include "topology/topology.h"

/* GPU, or card on the PCI bus. */
struct pl_inventory_device {
	char address[PL_PCI_ADDRESS_MAX];
	char model[64];          /* of a GPU; may be empty */
	int numa;                /* -1: unknown */
	bool function;           /* a virtual function, which has no link of its own */
	struct pl_pci_link link; /* towards the root, now */
	bool idle;               /* a GPU that lowered its speed to save power */
};

/* Port of an RDMA device. */
struct pl_inventory_port {
	char device[64]; /* "mlx5_0" */
	unsigned number;
	bool active, software;
	char state[24], layer[16]; /* "ACTIVE", "InfiniBand"; may be empty */
	uint64_t rate;             /* bytes per second; 0: unknown */
};

/* Device of libibverbs. */
struct pl_inventory_rdma {
	char name[64];
	char address[PL_PCI_ADDRESS_MAX]; /* empty: a software device */
	char firmware[32];                /* may be empty */
};

struct pl_inventory {
	char driver[64];  /* version of NVIDIA's kernel module; empty: not loaded, or unknown */
	char kernel[128]; /* release; may be empty */
	struct pl_inventory_device *gpus, *cards;
	struct pl_inventory_rdma *devices;
	struct pl_inventory_port *ports;
	size_t gpu_count, card_count, device_count, port_count;
};

/* Fills an inventory from a machine. Returns 0 or -ENOMEM. */
int pl_inventory_take(struct pl_inventory *inventory, const struct pl_check_machine *machine);
/* Frees the arrays; accepts an inventory of zeros. */
void pl_inventory_release(struct pl_inventory *inventory);

/* Formats the name of a port, such as "mlx5_0/1"; returns buffer. */
char *pl_inventory_port_name(char *buffer, size_t size, const struct pl_inventory_port *port);

#endif
