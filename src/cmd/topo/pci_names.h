/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of PCI devices from the database of libpci. */
#ifndef PL_CMD_TOPO_PCI_NAMES_H
#define PL_CMD_TOPO_PCI_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pci_names;

/* Loads libpci if it is installed and `numeric` is false.  Returns NULL only if out of memory. */
struct pci_names *pci_names_open(bool numeric);
void pci_names_close(struct pci_names *names);
/*
 * Writes the name of a device: the product name in the database, such as "ConnectX-7", else the other name in it, else
 * vendor and numbers, such as "NVIDIA 10de:2330".  `names` may be NULL.  Returns buffer.
 */
const char *pci_names_device(struct pci_names *names, uint16_t vendor, uint16_t device, char *buffer, size_t size);

#endif
