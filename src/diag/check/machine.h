/* SPDX-License-Identifier: BSD-2-Clause */
/* A machine as the rows see it: its GPUs, cards, RDMA devices and ports, and functions that read other facts. */
#ifndef PL_DIAG_CHECK_MACHINE_H
#define PL_DIAG_CHECK_MACHINE_H

#include "diag/check/check.h"
#include "diag/check/facts.h"
#include "diag/check/nccl.h"
#include "diag/check/policy.h"
#include "diag/check/snapshot.h"
#include "topology/topology.h"

struct check_gpu {
	const struct pl_pci_node *pci;
	char model[64];
	unsigned capability; /* NVIDIA: 90 for compute capability 9.0, from the GPU or its device number; 0: unknown */
};

struct check_card {
	const struct pl_pci_node *pci;
	const char *wanted; /* driver that it should have; empty: unknown */
};

/* Device of libibverbs. */
struct check_device {
	const char *name;
	const struct pl_card *rdma;
	const struct check_card *card; /* NULL: a software device */
};

struct pl_check_machine {
	struct pl_sysroot *root;
	struct pl_facts *facts;
	struct pl_topology *here;     /* devices that the kernel shows */
	struct pl_topology *topology; /* distances: `here`, or a topology file */
	char file_trouble[320];       /* reason why such a file is not followed; empty: it is, or there is none */
	bool live;
	bool container;
	bool virtual_machine;
	const char *product; /* product name from DMI; may be empty */
	struct check_gpu *gpus;
	size_t gpu_count;
	struct check_card *cards;
	size_t card_count;
	struct check_device *devices;
	size_t device_count;
	struct pl_inventory inventory;
	struct pl_nccl nccl;
	const struct pl_check_policy *policy; /* never NULL */
};

/* Fills the arrays from `here` (devices.c). */
int check_find_devices(struct pl_check_machine *machine);

/* -- files: short forms of pl_sysroot_...() ------------------------------------------------------------ */

#define check_text(machine, buffer, ...) pl_sysroot_text((machine)->root, buffer, sizeof(buffer), __VA_ARGS__)
/* Looks without a recorder first, so that a dump does not get the folders in which nothing is found. */
#define check_exists(machine, ...)                                                     \
	(pl_sysroot_exists(pl_snapshot_unrecorded((machine)->root), __VA_ARGS__) && \
	 pl_sysroot_exists((machine)->root, __VA_ARGS__))
/* Returns -1 if there is none. */
#define check_number(machine, ...) check_number_at((machine)->root, __VA_ARGS__)
int64_t check_number_at(struct pl_sysroot *root, const char *path, ...) __attribute__((format(printf, 2, 3)));

/* True if a kernel module is loaded, or built in with parameters. */
bool check_module(const struct pl_check_machine *machine, const char *name);
/* True if the kernel's release is at least this one, or unknown: old kernels are rare. */
bool check_kernel_at_least(const struct pl_check_machine *machine, unsigned major, unsigned minor);
/* Returns the kernel's release, or "". */
const char *check_kernel_release(const struct pl_check_machine *machine);
/* True if the kernel's command line has this word. */
bool check_command_line(const struct pl_check_machine *machine, const char *word);

/* Calls visit for each path that matches a pattern, up to a limit. '*' matches any part of one name. */
typedef void (*check_visit)(const struct pl_check_machine *machine, const char *path, void *user);
void check_glob(const struct pl_check_machine *machine, const char *pattern, check_visit visit, void *user);
/* True if a path matches the pattern. */
bool check_any(const struct pl_check_machine *machine, const char *pattern);

/* -- facts of several rows --------------------------------------------------------------------------- */

bool check_has_nvidia(const struct pl_check_machine *machine);
/* True if a port is active and the device node can be opened. */
bool check_device_usable(const struct pl_check_machine *machine, const struct check_device *device);
/* Returns the errno of opening the device node: 0 if it can be opened, -1 if unknown. */
int check_node_errno(const struct pl_check_machine *machine, const struct check_device *device);

enum check_flavour { CHECK_FLAVOUR_UNKNOWN, CHECK_FLAVOUR_OPEN, CHECK_FLAVOUR_CLOSED };
/* Returns the flavour of NVIDIA's kernel modules. */
enum check_flavour check_driver_flavour(const struct pl_check_machine *machine);
/* Copies the version of the loaded module, such as 580.159.04; false if there is none. */
bool check_driver_version(const struct pl_check_machine *machine, char *buffer, size_t size);

/* Tells whether the GPU's memory can be exported as dma-buf, with the reason as a clause. */
enum pl_check_way check_gpu_dmabuf(const struct pl_check_machine *machine, const struct check_gpu *gpu, char *reason,
				   size_t size);
/* Tells whether the device can register a dma-buf. */
enum pl_check_way check_device_dmabuf(const struct pl_check_machine *machine, const struct check_device *device,
				      char *reason, size_t size);
/* Returns the loaded peer memory client for NVIDIA GPUs, NULL if there is none. */
const char *check_peer_client(const struct pl_check_machine *machine);
/* Tells whether the RDMA core has the interface for such clients, which upstream kernels lack. */
enum pl_check_way check_peer_core(const struct pl_check_machine *machine);
/* Tells whether a GPU supports GPUDirect RDMA. */
enum pl_check_way check_gpu_capable(const struct pl_check_machine *machine, const struct check_gpu *gpu, char *reason,
				    size_t size);

/* Compares version numbers: negative, 0 or positive. */
int check_compare_versions(const char *a, const char *b);

#endif
