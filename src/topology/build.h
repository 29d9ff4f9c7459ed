/* SPDX-License-Identifier: BSD-2-Clause */
/* Construction of a topology; private to src/topology. */
#ifndef PL_TOPOLOGY_BUILD_H
#define PL_TOPOLOGY_BUILD_H

#include "base/printable.h"
#include "topology/topology.h"

/* Limit of nodes, above the largest machines. */
#define TOPOLOGY_NODES_MAX 16384
#define TOPOLOGY_GPUS_MAX 256
#define TOPOLOGY_CARDS_MAX 1024
#define TOPOLOGY_LINKS_MAX 4096
/* Most NUMA nodes, and limit of their numbers: as in the kernel. */
#define TOPOLOGY_NUMA_MAX 1024

/* PCI classes, without the last byte. */
#define PCI_CLASS_NVME 0x0108
#define PCI_CLASS_ETHERNET 0x0200
#define PCI_CLASS_INFINIBAND 0x0207
#define PCI_CLASS_BRIDGE 0x0604

/* Adds a cleared element to an array. Returns its index, -ENOMEM, or -E2BIG at the limit. The array may move. */
#define TOPOLOGY_ADD(array, count, limit) topology_add((void **)&(array), &(count), sizeof(*(array)), limit)
int topology_add(void **array, size_t *count, size_t size, size_t limit);

/* Copies text, cut to fit and without control characters; the macro knows the size. */
#define TOPOLOGY_COPY(to, from) pl_copy_printable(to, sizeof(to), from)

/* -- nodes (pci_tree.c) -------------------------------------------------------------------------- */

/* True for "0000:3b:00.0" in lower case, also with longer domains. */
bool topology_is_pci_address(const char *text, size_t length);
/* Adds a node below a parent (-1: at the top), with unknown values. Returns its index, or a negative errno. */
int topology_node_add(struct pl_topology *topology, const char *address, enum pl_pci_kind kind, int parent);
/*
 * Returns the node of a device, and adds all above it, from a path such as
 * "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0".
 */
int topology_node_chain(struct pl_topology *topology, struct pl_sysroot *root, const char *path);
/* Reads the device of the node's address from sysfs; the node's kind follows from its class. */
void topology_node_read(struct pl_pci_node *node, struct pl_sysroot *root);
/* Copies the properties that do not depend on the position from another node. */
void topology_node_merge(struct pl_pci_node *node, const struct pl_pci_node *from);
/* True if a node is that of a GPU or an RDMA card. (merge.c) */
bool topology_has_owner(const struct pl_topology *topology, int node);
/* Derives the kinds of ports, and the links, from the tree and from both ends, for the nodes from `first` on. */
void topology_nodes_finish(struct pl_topology *topology, size_t first);

/* Converts "16.0 GT/s PCIe" to 16000; 0 if unknown. */
uint32_t topology_link_speed(const char *text);
/* Returns 1 to 32 lanes; 0 for all other values. */
uint32_t topology_link_width(uint64_t lanes);

/* -- configuration space (config_space.c) -------------------------------------------------------- */

void topology_config_parse(struct pl_pci_node *node, const uint8_t *data, size_t length);

/* -- devices ------------------------------------------------------------------------------------- */

/* Classifies a device by its class and vendor. */
bool topology_is_gpu(const struct pl_pci_node *node, enum pl_gpu_vendor *vendor);
/* True if a function may be a GPU, a card or a drive; only those get a node. */
bool topology_is_of_interest(struct pl_sysroot *root, const char *address);
/* True for a card that is made for RDMA only, or whose RDMA device would be missed. */
bool topology_is_rdma_card(const struct pl_pci_node *node);

/* Each returns 0 or -ENOMEM. */
int topology_read_devices(struct pl_topology *topology, struct pl_sysroot *root);  /* devices.c */
int topology_complete_file(struct pl_topology *topology, struct pl_sysroot *root); /* merge.c */
int topology_read_cards(struct pl_topology *topology, struct pl_sysroot *root);    /* rdma_devices.c */
int topology_read_ports(struct pl_card *card, struct pl_sysroot *root);            /* ports.c */
int topology_netdev_add(struct pl_card *card, struct pl_sysroot *root, const char *name);
int topology_read_netdevs(struct pl_card *card, struct pl_sysroot *root, const char *address);
void topology_name_ports(struct pl_card *card);
int topology_read_machine(struct pl_topology *topology, struct pl_sysroot *root); /* numa.c */
int topology_read_names(struct pl_topology *topology, struct pl_sysroot *root);   /* devices.c */

/* Adds a GPU, a card or a drive for a node. Returns its index, or a negative errno. */
int topology_gpu_add(struct pl_topology *topology, int node, enum pl_gpu_vendor vendor);
int topology_card_add(struct pl_topology *topology, int node, const char *name);

/* -- links between GPUs -------------------------------------------------------------------------- */

/*
 * Adds links, or adds their numbers to the element with the same ends. Returns the index of the element, or a negative
 * errno.
 */
int topology_link_add(struct pl_topology *topology, const struct pl_gpu_link *link); /* gpu_links.c */
/* Finds the GPUs at the other ends, by address. */
void topology_links_resolve(struct pl_topology *topology);
/* Reads the links of AMD's GPUs. Returns 0 or -ENOMEM. */
int topology_read_xgmi(struct pl_topology *topology, struct pl_sysroot *root); /* xgmi.c */

/* -- topology files (nccl_file.c, xml.c) --------------------------------------------------------- */

/*
 * Creates the nodes of a file, and its GPUs and cards as far as the file names them. The tree is the file's from now
 * on: topology_node_chain() adds nothing.
 */
int topology_read_nccl(struct pl_topology *topology, const char *name, const char *data, size_t length,
		       struct pl_error *error);

/* XML events in order. attributes: names and values in turns, NULL at the end. A negative errno stops the parser. */
struct topology_xml {
	int (*begin)(struct topology_xml *xml, const char *element, const char *const *attributes);
	void (*end)(struct topology_xml *xml, const char *element);
};
int topology_parse_xml(struct topology_xml *xml, const char *name, const char *data, size_t length,
		       struct pl_error *error);

/* -- paths (path.c, nearest_card.c) -------------------------------------------------------------- */

/* Makes the paths, again if the topology has changed. Returns 0 or -ENOMEM. */
int topology_make_paths(struct pl_topology *topology);
int topology_choose(struct pl_topology *topology);
/* Returns the node where two paths meet, -1 if there is none, and counts the switches on the way. */
int topology_meeting(const struct pl_topology *topology, int a, int b, unsigned *count);
/* Returns the rate from a card to the root, whether the card works, and its NUMA node (-1: unknown). */
uint64_t topology_card_rate(const struct pl_topology *topology, const struct pl_card *card);
bool topology_card_usable(const struct pl_topology *topology, const struct pl_card *card);
int topology_card_numa(const struct pl_topology *topology, const struct pl_card *card);

#endif
