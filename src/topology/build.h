/* SPDX-License-Identifier: BSD-2-Clause */
/* How a topology comes about; only for src/topology. */
#ifndef PL_TOPOLOGY_BUILD_H
#define PL_TOPOLOGY_BUILD_H

#include "topology/topology.h"

/* More than the largest machines have: a limit for what is made up. */
#define TOPOLOGY_NODES_MAX 16384
#define TOPOLOGY_GPUS_MAX 256
#define TOPOLOGY_CARDS_MAX 1024
/* NUMA nodes, and what their numbers stay below: as in the kernel. */
#define TOPOLOGY_NUMA_MAX 1024

/* PCI classes, without the last byte. */
#define PCI_CLASS_NVME 0x0108
#define PCI_CLASS_ETHERNET 0x0200
#define PCI_CLASS_INFINIBAND 0x0207
#define PCI_CLASS_BRIDGE 0x0604

/*
 * Makes room for one more element of an array and clears it: its index, -ENOMEM, or -E2BIG at the limit.
 * What was there moves.
 */
#define TOPOLOGY_ADD(array, count, limit) topology_add((void **)&(array), &(count), sizeof(*(array)), limit)
int topology_add(void **array, size_t *count, size_t size, size_t limit);

/* Copies text that may be too long, or hold control characters; how much room there is, the macro knows. */
#define TOPOLOGY_COPY(to, from) topology_copy(to, sizeof(to), from)
void topology_copy(char *to, size_t size, const char *from);

/* -- nodes (node.c) ------------------------------------------------------------------------------ */

/* "0000:3b:00.0" in lower case; longer domains too. */
bool topology_is_pci_address(const char *text, size_t length);
/* Adds a node below a parent (-1: at the top), with all that is not known set so.  Its index, or a negative errno. */
int topology_node_add(struct pl_topology *topology, const char *address, enum pl_pci_kind kind, int parent);
/* The node of a device and all above it, from a path such as "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0". */
int topology_node_chain(struct pl_topology *topology, struct pl_sysroot *root, const char *path);
/* Reads what sysfs has of the device with the node's address; the node's kind becomes that of its class. */
void topology_node_read(struct pl_pci_node *node, struct pl_sysroot *root);
/* What of a device has nothing to do with where it is, from another node. */
void topology_node_merge(struct pl_pci_node *node, const struct pl_pci_node *from);
/* Finds out from the position in the tree, and from what both ends say, what ports and links are. */
void topology_nodes_finish(struct pl_topology *topology);

/* "16.0 GT/s PCIe": 16000; 0 if it is not known. */
uint32_t topology_link_speed(const char *text);
/* 1 to 32 lanes; 0 for everything else. */
uint32_t topology_link_width(uint64_t lanes);

/* -- configuration space (config.c) -------------------------------------------------------------- */

void topology_config_parse(struct pl_pci_node *node, const uint8_t *data, size_t length);

/* -- devices ------------------------------------------------------------------------------------- */

/* What a device is by its class and vendor. */
bool topology_is_gpu(const struct pl_pci_node *node, enum pl_gpu_vendor *vendor);
/* Whether a function can be a GPU, a card or a drive at all; only such get a node. */
bool topology_is_of_interest(struct pl_sysroot *root, const char *address);
/* A card that is made for RDMA only, or whose RDMA device is worth missing. */
bool topology_is_rdma_card(const struct pl_pci_node *node);

/* Each returns 0 or -ENOMEM. */
int topology_read_devices(struct pl_topology *topology, struct pl_sysroot *root);  /* devices.c */
int topology_complete_file(struct pl_topology *topology, struct pl_sysroot *root); /* merge.c */
int topology_read_cards(struct pl_topology *topology, struct pl_sysroot *root);    /* cards.c */
int topology_read_ports(struct pl_card *card, struct pl_sysroot *root);            /* ports.c */
int topology_netdev_add(struct pl_card *card, struct pl_sysroot *root, const char *name);
int topology_read_netdevs(struct pl_card *card, struct pl_sysroot *root, const char *address);
void topology_name_ports(struct pl_card *card);
int topology_read_machine(struct pl_topology *topology, struct pl_sysroot *root); /* machine.c */
int topology_read_names(struct pl_topology *topology, struct pl_sysroot *root);   /* devices.c */

/* A GPU, a card or a drive for a node; its index, or a negative errno. */
int topology_gpu_add(struct pl_topology *topology, int node, enum pl_gpu_vendor vendor);
int topology_card_add(struct pl_topology *topology, int node, const char *name);

/* -- topology files (nccl.c, expat.c) ------------------------------------------------------------ */

/*
 * Makes the nodes of a file, and GPUs and cards as far as it says so itself.  From now on the tree is the
 * file's: topology_node_chain() adds nothing.
 */
int topology_read_nccl(struct pl_topology *topology, const char *name, const char *data, size_t length,
		       struct pl_error *error);

/* What a file has of XML, in order.  attributes: names and values in turns, NULL at the end.  A negative errno ends it. */
struct topology_xml {
	int (*begin)(struct topology_xml *xml, const char *element, const char *const *attributes);
	void (*end)(struct topology_xml *xml, const char *element);
};
int topology_parse_xml(struct topology_xml *xml, const char *name, const char *data, size_t length,
		       struct pl_error *error);

/* -- paths (path.c, choice.c) -------------------------------------------------------------------- */

int topology_make_paths(struct pl_topology *topology);
int topology_choose(struct pl_topology *topology);
/* Where two nodes meet, -1 if nowhere, and how many switches are on the way. */
int topology_meeting(const struct pl_topology *topology, int a, int b, unsigned *count);
/* From a card to the root: what it carries; whether it works; the NUMA node, -1 if it is not known. */
uint64_t topology_card_rate(const struct pl_topology *topology, const struct pl_card *card);
bool topology_card_usable(const struct pl_topology *topology, const struct pl_card *card);
int topology_card_numa(const struct pl_topology *topology, const struct pl_card *card);

#endif
