/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Topology of a machine: GPUs, RDMA cards and NVMe drives, the PCI tree above them, links between GPUs, and the quality
 * of the path between any two of them. Read once from files (sysroot.h) or from a topology file of NCCL. After that only
 * pl_topology_set_nvlinks() and pl_topology_set_data_direct() change it: it needs no lock.
 *
 * Elements refer to each other by their index in the arrays; -1 is none. Texts hold no control characters.
 */
#ifndef PL_TOPOLOGY_H
#define PL_TOPOLOGY_H

#include "base/base.h"
#include "topology/sysroot.h"

#define PL_PCI_ADDRESS_MAX 24 /* "0000:3b:00.0"; a host bridge is "pci0000:3a", a processor of a file "cpu0" */
#define PL_PCI_BARS 6

#define PL_PCI_VENDOR_AMD 0x1002
#define PL_PCI_VENDOR_NVIDIA 0x10de
#define PL_PCI_VENDOR_MELLANOX 0x15b3
#define PL_PCI_VENDOR_AMAZON 0x1d0f
#define PL_PCI_VENDOR_INTEL 0x8086
#define PL_PCI_VENDOR_TI 0x104c
#define PL_PCI_VENDOR_REDHAT 0x1b36
#define PL_PCI_VENDOR_BROADCOM 0x14e4
#define PL_PCI_VENDOR_MICROSOFT 0x1414
#define PL_PCI_VENDOR_PENSANDO 0x1dd8

/* Classes as nvidia-smi defines them; smaller is better. */
enum pl_path_class {
	PL_PATH_PIX,  /* at most one PCI bridge (switch) */
	PL_PATH_PXB,  /* several bridges, no host bridge */
	PL_PATH_PHB,  /* one host bridge */
	PL_PATH_NODE, /* several host bridges of one NUMA node */
	PL_PATH_SYS,  /* the link between NUMA nodes */
};

enum pl_pci_kind {
	PL_PCI_HOST_BRIDGE, /* sysfs' pciDDDD:BB; or a processor of a topology file */
	PL_PCI_ROOT_PORT,
	PL_PCI_UPSTREAM, /* of a switch; in a topology file it stands for the whole switch */
	PL_PCI_DOWNSTREAM,
	PL_PCI_BRIDGE, /* to conventional PCI, or from it */
	PL_PCI_ENDPOINT,
};

/* PCI Express link; 0: unknown. */
struct pl_pci_link {
	uint32_t speed; /* millions of transfers per second and lane */
	uint32_t width; /* lanes */
};

struct pl_pci_bar {
	uint64_t start, size; /* size 0: absent; start 0 with a size: no address assigned */
	uint64_t sizes;       /* sizes of a resizable BAR: bit n stands for 2^n MiB; 0: not resizable, or unknown */
	bool prefetchable, is64;
};

/* Configuration space for privileged readers; the kernel cuts it after 64 bytes for others. */
struct pl_pci_config {
	bool express;  /* the PCI Express capability was read; the members below are valid then */
	bool extended; /* the extended capabilities were read; acs and ats are valid then */
	bool acs, ats; /* the capability exists */
	bool ats_enabled;
	uint8_t port_type; /* of the Express capability */
	uint16_t acs_capability, acs_control;
	uint16_t payload, payload_supported, read_request; /* bytes */
};

#define PL_ACS_SOURCE_VALIDATION 0x01
#define PL_ACS_REQUEST_REDIRECT 0x04
#define PL_ACS_COMPLETION_REDIRECT 0x08
#define PL_ACS_UPSTREAM_FORWARDING 0x10
#define PL_ACS_DIRECT_TRANSLATED 0x40

/* Device, or a bridge above one. Others (memory controllers, sound, ...) are left out. */
struct pl_pci_node {
	char address[PL_PCI_ADDRESS_MAX];
	enum pl_pci_kind kind;
	int parent, child, next; /* the tree: first child, next of the same parent */
	uint16_t vendor, device, subsystem_vendor, subsystem_device;
	uint32_t class; /* 24 bits */
	int numa;       /* -1: unknown */
	int iommu_group;
	char iommu_type[16]; /* "DMA", "DMA-FQ", "identity"; empty: unknown */
	char driver[32];     /* empty: none is bound */
	bool virtual_function;
	/* Link towards the root: its present state, and the best that both ends support. */
	struct pl_pci_link now, best;
	/* Link below as this port reports it. */
	struct pl_pci_link below_now, below_best;
	struct pl_pci_bar bars[PL_PCI_BARS];
	struct pl_pci_config config;
};

enum pl_gpu_vendor { PL_GPU_NVIDIA, PL_GPU_AMD, PL_GPU_INTEL, PL_GPU_OTHER };

struct pl_gpu {
	int node; /* always set */
	enum pl_gpu_vendor vendor;
	char model[64]; /* name from its driver; may be empty */
};

enum pl_gpu_link_kind { PL_GPU_LINK_NVLINK, PL_GPU_LINK_XGMI };

/* Device at the other end of a link. */
enum pl_gpu_link_end { PL_GPU_END_GPU, PL_GPU_END_SWITCH, PL_GPU_END_CPU, PL_GPU_END_UNKNOWN };

/* Links of one GPU that lead to one device. Each end of a link has its own element. */
struct pl_gpu_link {
	int gpu;
	int peer; /* GPU at the other end; -1: another device, or a GPU of another machine */
	enum pl_gpu_link_kind kind;
	enum pl_gpu_link_end end;
	char remote[PL_PCI_ADDRESS_MAX]; /* address of the other end; empty: unknown, as of links that are down */
	unsigned generation;             /* of NVLink; 0: unknown */
	unsigned active, down;           /* numbers of links */
	unsigned hops;                   /* links to pass; above 1 through other GPUs, and active is 0 */
	uint64_t bandwidth;              /* bytes per second and direction of the active links together; 0: unknown */
};

struct pl_rdma_gid {
	unsigned index;
	char gid[40];
	char type[20]; /* "IB/RoCE v1", "RoCE v2" */
	char netdev[16];
};

struct pl_rdma_port {
	unsigned number;
	char state[24], physical[24]; /* "ACTIVE", "LinkUp" */
	bool active;
	char link_layer[16];      /* "InfiniBand", "Ethernet" */
	uint64_t rate;            /* bits per second; 0: unknown */
	unsigned lanes;           /* of the cable; 0: unknown */
	int32_t lid, sm_lid;      /* -1: unknown */
	char netdev[16];          /* of its first GID, or of the card; empty: none */
	struct pl_rdma_gid *gids; /* GIDs that are not zero */
	size_t gid_count;
};

struct pl_netdev {
	char name[16], state[16], address[24];
	int port; /* port of the card, as the RDMA device counts them; -1: unknown */
	uint32_t mtu;
	int64_t speed; /* Mbit/s; -1: unknown */
};

/* RDMA device; or a card that should be one and is not: `name` is empty then. */
struct pl_card {
	int node;          /* -1: software device over a network device without a PCI device */
	int data_direct;   /* node of its Data Direct function, by which it reaches GPU memory; -1: none, or unknown */
	bool data_direct_below; /* a topology file lacks the function: that node is the device above it */
	char name[64];     /* "mlx5_0" */
	char uverbs[16];   /* "uverbs0" */
	char type[32];     /* hca_type */
	char firmware[32]; /* fw_ver */
	char board[32];    /* board_id */
	char guid[24];     /* node_guid */
	bool software;     /* soft-RoCE, soft-iWARP */
	bool described;    /* known from a topology file only */
	struct pl_rdma_port *ports;
	size_t port_count;
	struct pl_netdev *netdevs;
	size_t netdev_count;
};

struct pl_nvme {
	int node;
	char name[16], model[48];
};

struct pl_numa_node {
	int id;
	int socket;      /* -1: unknown */
	char cpus[128];  /* "0-31,64-95" */
	char cpu[64];    /* model; from a topology file its vendor; may be empty */
	uint64_t memory; /* bytes; 0: unknown */
};

/* Path from a GPU to a card. */
struct pl_path {
	int gpu, card;
	enum pl_path_class class;
	uint64_t bandwidth; /* bytes per second of the narrowest link now; 0: unknown */
	uint64_t possible;  /* the same with all links at their best */
	int narrowest;      /* node below the narrowest link; -1: the card's port, or unknown */
	bool redirected;    /* ACS sends requests between devices of one switch through the root */
	bool usable;        /* the card is an RDMA device and has an active port */
	bool best;
};

struct pl_topology {
	struct pl_pci_node *nodes;
	struct pl_gpu *gpus;
	struct pl_card *cards;
	struct pl_nvme *drives;
	struct pl_numa_node *numa;
	struct pl_path *paths; /* gpu_count times card_count: paths[gpu * card_count + card] */
	struct pl_gpu_link *links;
	size_t node_count, gpu_count, card_count, drive_count, numa_count, path_count, link_count;
	bool is_virtual;    /* a virtual machine */
	char platform[96];  /* manufacturer and product; may be empty */
	char file[256];     /* topology file in use; empty: none */
	bool file_foreign;  /* none of the file's devices is on this machine */
	bool file_others;   /* the file also has other hosts, which were left out */
	size_t file_twice;  /* devices that the file has in two positions; the first one counts */
	size_t file_vague;  /* devices whose kind the file does not tell */
	size_t file_absent; /* GPUs and cards of this machine that the file lacks */
	char ignored[256];  /* topology file named in the environment and not used */
	/* Why the drivers did not tell the Data Direct functions of the cards; empty: they did. */
	char data_direct_silent[64];
};

struct pl_topology_options {
	const char *nccl_file;     /* NULL: in a virtual machine the file that it names itself (/etc/nccl.conf) */
	const char *nccl_variable; /* value of NCCL_TOPO_FILE; NULL: ignored */
	bool no_file;              /* use no file, not even that of a virtual machine: the kernel's view */
};

/*
 * Reads a topology. options may be NULL. Unreadable facts are left out; only -ENOMEM and a bad topology file are
 * failures.
 */
int pl_topology_read(struct pl_topology **ret, struct pl_sysroot *root, const struct pl_topology_options *options,
		     struct pl_error *error);
void pl_topology_free(struct pl_topology *topology);

/* Returns the kernel driver that such a device needs for RDMA; NULL if it is no known RDMA card. */
const char *pl_pci_rdma_driver(uint16_t vendor, uint16_t device);
/* Returns BAR1 of an NVIDIA GPU, through which cards reach its memory: never NULL. */
const struct pl_pci_bar *pl_pci_nvidia_bar1(const struct pl_pci_node *node);

/*
 * Notes the Data Direct function of the RDMA device `name`, by its path below /sys. Paths between GPUs and the card end
 * there then. Nothing changes if the topology lacks the device or the function, or has a host bridge, a GPU or a card
 * there. Returns 0; or -ENOMEM, and nothing changes either.
 */
int pl_topology_set_data_direct(struct pl_topology *topology, struct pl_sysroot *root, const char *name,
				const char *path);
/* Returns the node at which a card reaches GPU memory: its Data Direct function, else itself; -1: none. */
int pl_card_gpu_node(const struct pl_card *card);
/* Returns the address of a card's Data Direct function. NULL: the card has none, or the topology does not have it. */
const char *pl_card_data_direct(const struct pl_topology *topology, const struct pl_card *card);

/* Returns the node with this address, -1 if there is none. */
int pl_topology_find(const struct pl_topology *topology, const char *address);

/* Returns "PIX" ... "SYS". */
const char *pl_path_class_name(enum pl_path_class class);
/* Returns the class of the path between any two nodes. */
enum pl_path_class pl_topology_class(const struct pl_topology *topology, int a, int b);
const struct pl_path *pl_topology_path(const struct pl_topology *topology, size_t gpu, size_t card);

/* Connection between two GPUs. */
struct pl_gpu_pair {
	enum pl_path_class class; /* of the path over PCI */
	bool linked;              /* by NVLink or xGMI; the members below are valid then */
	enum pl_gpu_link_kind kind;
	bool switched;      /* through switches */
	unsigned links;     /* of each of both GPUs; 0: through other GPUs */
	uint64_t bandwidth; /* bytes per second and direction; 0: unknown */
};

/* Sums up the links of one kind that a GPU has. The generation is the highest one. */
struct pl_gpu_link_sum {
	unsigned active, down, generation;
	uint64_t bandwidth; /* of all active links; 0: unknown */
};

/* Describes the connection between two different GPUs: direct links, else links of both to switches, else PCI. */
void pl_topology_gpu_pair(const struct pl_topology *topology, size_t a, size_t b, struct pl_gpu_pair *pair);
void pl_topology_sum_links(const struct pl_topology *topology, size_t gpu, enum pl_gpu_link_kind kind,
			   struct pl_gpu_link_sum *sum);
/* Returns "NVLink" or "xGMI". */
const char *pl_gpu_link_name(enum pl_gpu_link_kind kind);
/* Translate the end of a link to "gpu", "switch", "cpu" or "unknown", as documents have it, and back. */
const char *pl_gpu_link_end_name(enum pl_gpu_link_end end);
enum pl_gpu_link_end pl_gpu_link_end_parse(const char *name);
bool pl_topology_has_vendor(const struct pl_topology *topology, enum pl_gpu_vendor vendor);
/*
 * Replaces the NVLinks of each GPU that stands in `links`; a GPU with an element without links has none. `peer` follows
 * from `remote`. Returns 0 or -ENOMEM; links above a limit are left out.
 */
int pl_topology_set_nvlinks(struct pl_topology *topology, const struct pl_gpu_link *links, size_t count);
/*
 * Returns the generation of NVLink of a GPU's architecture, by its compute capability (90 for 9.0); 0 if unknown. Some
 * drivers report generation 5 for Hopper, which has 4: the architecture is more dependable.
 */
unsigned pl_nvlink_generation(unsigned capability);
/* Returns bytes per second and direction of one link; 0 if unknown. */
uint64_t pl_nvlink_rate(unsigned generation, unsigned capability);

/* Returns a link's rate after its line code, in bytes per second and direction; 0 if unknown. */
uint64_t pl_pci_link_rate(struct pl_pci_link link);
/*
 * True if the link above a node is slower or narrower than both of its ends support. An idle GPU lowers its speed to
 * save power, which is no defect: see pl_topology_idle().
 */
bool pl_topology_degraded(const struct pl_topology *topology, int node);
bool pl_topology_idle(const struct pl_topology *topology, int node);

/* Writes "16 GT/s x16" or "unknown"; returns buffer. */
char *pl_pci_link_text(char *buffer, size_t size, struct pl_pci_link link);

#define PL_REASON_MAX 200

/* Lists the reasons of a path, one sentence each. Returns their number. */
size_t pl_topology_reasons(const struct pl_topology *topology, const struct pl_path *path,
			   char (*reasons)[PL_REASON_MAX], size_t room);

/* -- choice of a card ---------------------------------------------------------------------------- */

struct pl_card_rank {
	unsigned card;
	enum pl_path_class class;
	uint64_t bandwidth;
	bool usable;
};

/*
 * Ranks RDMA devices, best first, for the memory of a GPU or of a NUMA node of the host (-1: any). ranks has room for
 * card_count. Returns their number, or -ENOENT if there is no such GPU.
 */
int pl_topology_rank_gpu(const struct pl_topology *topology, const char *address, struct pl_card_rank *ranks);
int pl_topology_rank_numa(const struct pl_topology *topology, int numa, struct pl_card_rank *ranks);
/* True if a card serves as well as the one with the first rank. */
bool pl_card_rank_alike(const struct pl_topology *topology, const struct pl_card_rank *first,
			const struct pl_card_rank *rank);

#endif
