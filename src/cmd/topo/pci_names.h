/* SPDX-License-Identifier: BSD-2-Clause */
/* What PCI devices are called, by the database of libpci. */
#ifndef PL_CLI_PCI_NAMES_H
#define PL_CLI_PCI_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pci_names;

/* Loads libpci if it is there; with `numeric` it is not used.  Never NULL but for want of memory. */
struct pci_names *pci_names_open(bool numeric);
void pci_names_close(struct pci_names *names);
/*
 * The marketing name if the database has one, "ConnectX-7", else what it has, else the maker and the
 * number, "NVIDIA 10de:2330".  names may be NULL; returns buffer.
 */
const char *pci_names_device(struct pci_names *names, uint16_t vendor, uint16_t device, char *buffer, size_t size);

#endif
