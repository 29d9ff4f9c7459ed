/* SPDX-License-Identifier: BSD-2-Clause */
/* Obstacles between devices besides links: IOMMU, platform, virtual machine, NUMA. */
#include <stdio.h>

#include "diag/check/row.h"
#include "topology/topology.h"

#define GROUP "Platform"

/* Kernels before 5.11 show no type of a group, but have a command line. */
static bool passes_through(const struct pl_check_machine *machine)
{
	return check_command_line(machine, "iommu=pt") || check_command_line(machine, "iommu.passthrough=1");
}

/* Checks by the type of its group whether the IOMMU translates for this device. */
static void judge_group(const struct pl_check_machine *machine, const struct pl_pci_node *pci,
			struct pl_check_result *result, size_t *groups)
{
	if (pci->iommu_group < 0)
		return;
	(*groups)++;
	if (!*pci->iommu_type && passes_through(machine))
		pl_check_note(result, PL_CHECK_OK, pci->address,
			      "the kernel was told to pass its addresses through (group %d)", pci->iommu_group);
	else if (!*pci->iommu_type)
		pl_check_unknown(result, pci->address, "cat /sys/kernel/iommu_groups/*/type (Linux 5.11)",
				 "it is in IOMMU group %d, of a type that is not known", pci->iommu_group);
	else if (!strcmp(pci->iommu_type, "identity"))
		pl_check_note(result, PL_CHECK_OK, pci->address, "the IOMMU passes its addresses through (group %d)",
			      pci->iommu_group);
	else
		pl_check_note(result, PL_CHECK_FAIL, pci->address, "the IOMMU translates its addresses (group %d, %s)",
			      pci->iommu_group, pci->iommu_type);
}

static void probe_iommu(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const char *fault = pl_facts_get(machine->facts, "log.dmar");
	size_t groups = 0;

	fault = fault ? fault : pl_facts_get(machine->facts, "log.io_page_fault");
	if (!machine->gpu_count && !machine->card_count)
		return;
	for (size_t i = 0; i < machine->gpu_count; i++)
		judge_group(machine, machine->gpus[i].pci, result, &groups);
	for (size_t i = 0; i < machine->card_count; i++)
		judge_group(machine, machine->cards[i].pci, result, &groups);
	if (fault)
		pl_check_note(result, PL_CHECK_FAIL, NULL, "the IOMMU stopped an access: %s", fault);
	if (result->status == PL_CHECK_FAIL && machine->virtual_machine)
		pl_check_remedy(result,
				"in the virtual machine: iommu=pt on its kernel's command line, or no virtual IOMMU");
	if (!groups && !result->count)
		pl_check_note(result, PL_CHECK_OK, NULL, "no IOMMU is in use");
}

static void probe_platform(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const char *kind = pl_facts_get(machine->facts, "system.machine"), *topology;
	const char *system = pl_facts_get(machine->facts, "system.name");

	topology = pl_facts_get(machine->facts, "log.topology");
	if (system && strcmp(system, "Linux")) {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "%s: GPUDirect RDMA is for Linux", system);
		return;
	}
	if (!kind) {
		pl_check_unknown(result, NULL, "uname -m", "the kind of processor is not known");
	} else if (topology) {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "the NVIDIA driver refuses this machine: %s", topology);
	} else if (!strcmp(kind, "x86_64")) {
		pl_check_note(result, PL_CHECK_OK, NULL, "%s, %s", kind,
			      *machine->product ? machine->product : "of unknown make");
	} else if (!strncmp(kind, "ppc", 3)) {
		pl_check_note(result, PL_CHECK_WARN, NULL, "%s: works on POWER9 with NVLink at best, not on POWER8",
			      kind);
		pl_check_remedy(result, "stage through host memory, or prove it with a verified transfer");
	} else if (!strcmp(kind, "aarch64")) {
		bool grace = strstr(machine->product, "Grace") || strstr(machine->product, "GH200") ||
			     strstr(machine->product, "GB200") || strstr(machine->product, "GB300");

		if (machine->virtual_machine && machine->gpu_count && !grace) {
			pl_check_unknown(result, NULL, "peerlane routes",
					 "%s, a virtual machine (%s): the machine below it is not known", kind,
					 *machine->product ? machine->product : "of unknown make");
			return;
		}
		pl_check_note(result,
			      grace                ? PL_CHECK_OK
			      : machine->gpu_count ? PL_CHECK_WARN
						   : PL_CHECK_OK,
			      NULL,
			      grace ? "%s, %s: cards can use the mapping through the link between processor and GPU"
				    : "%s, %s: without a switch that GPU and card share, attaching can be refused",
			      kind, *machine->product ? machine->product : "of unknown make");
	} else {
		pl_check_note(result, PL_CHECK_WARN, NULL, "%s: not a machine that NVIDIA names", kind);
	}
}

static void probe_virtual(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_topology *topology = machine->topology;

	if (!machine->virtual_machine) {
		if (check_exists(machine, "proc/cpuinfo") || *machine->product)
			pl_check_note(result, PL_CHECK_OK, NULL, "not a virtual machine");
		else
			pl_check_unknown(result, NULL, "systemd-detect-virt",
					 "neither processor nor board say what it is");
	} else if (!machine->gpu_count || !machine->card_count) {
		pl_check_note(result, PL_CHECK_OK, NULL, "a virtual machine (%s)",
			      *machine->product ? machine->product : "of unknown make");
	} else if (topology->file[0] && topology->file_absent) {
		pl_check_note(result, PL_CHECK_WARN, NULL,
			      "%zu of the GPUs and cards here are not in the topology file %s", topology->file_absent,
			      topology->file);
		pl_check_remedy(result, "peerlane topo; the addresses in that file have to be those of lspci here");
	} else if (topology->file[0]) {
		pl_check_note(result, PL_CHECK_OK, NULL, "a virtual machine, whose topology file is followed: %s",
			      topology->file);
	} else if (machine->file_trouble[0]) {
		pl_check_note(result, PL_CHECK_WARN, NULL, "the topology file is of no use: %s", machine->file_trouble);
	} else {
		/* Most providers give none, so the machine is as it should be. */
		pl_check_note(result, PL_CHECK_OK, NULL,
			      "a virtual machine (%s) without a topology file: its PCI tree does not show which "
			      "devices are near each other",
			      *machine->product ? machine->product : "of unknown make");
	}
}

static void judge_numa(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	char cpus[128];

	for (size_t i = 0; i < machine->card_count; i++) {
		const char *address = machine->cards[i].pci->address;
		int node = machine->cards[i].pci->numa;

		if (check_text(machine, cpus, "sys/bus/pci/devices/%s/local_cpulist", address) < 0)
			cpus[0] = '\0';
		if (node >= 0)
			pl_check_note(result, PL_CHECK_OK, address, "NUMA node %d, processors %s", node, cpus);
		else if (!check_exists(machine, "sys/devices/system/node/node1"))
			continue;
		else if (machine->virtual_machine)
			pl_check_unknown(result, address,
					 "measure from both nodes: numactl --cpunodebind=N peerlane bench",
					 "the virtual machine does not show its NUMA node");
		else {
			pl_check_note(result, PL_CHECK_WARN, address,
				      "the firmware does not say which NUMA node it is at");
			pl_check_remedy(result, "update the firmware; until then numactl by measuring both nodes");
		}
	}
}

static void probe_numa(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	char governor[32];

	if (!machine->gpu_count && !machine->card_count)
		return;
	judge_numa(machine, result);
	if (check_text(machine, governor, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") <= 0) {
		if (!result->count)
			pl_check_unknown(result, NULL, "cpupower frequency-info",
					 "neither NUMA nodes nor governors are shown");
	} else if (!strcmp(governor, "performance")) {
		pl_check_note(result, PL_CHECK_OK, NULL, "the governor of the processors is performance");
	} else {
		pl_check_note(result, PL_CHECK_WARN, NULL, "the governor of the processors is %s", governor);
		pl_check_remedy(result,
				"cpupower frequency-set -g performance; numactl --cpunodebind=N --membind=N PROGRAM");
	}
}

const struct pl_check_row pl_check_rows_bus[] = {
	{
		.id = "bus-iommu",
		.group = GROUP,
		.title = "no translation by the IOMMU",
		.requirement = "The IOMMU is off, or passes the addresses of GPUs and cards through unchanged.",
		.how = "/sys/kernel/iommu_groups/*/type is identity; iommu=pt in /proc/cmdline; DMAR in the kernel's "
		       "log",
		.reason = "An address translated for one device is invalid for another: DMAR faults and lost writes.",
		.remedy = "in /etc/default/grub add iommu=pt to GRUB_CMDLINE_LINUX; update-grub; reboot",
		.rank = 32,
		.probe = probe_iommu,
	},
	{
		.id = "bus-platform",
		.group = GROUP,
		.title = "platform with peer-to-peer traffic",
		.requirement = "Linux on a machine whose root passes traffic between devices: x86; ARM64 with a common "
			       "switch, "
			       "or Grace; not POWER8.",
		.how = "uname -m; /sys/class/dmi/id/product_name; \"topology not supported\" in the kernel's log",
		.reason = "On other platforms the driver refuses to attach, or transfers between devices are lost.",
		.remedy = "use slots below one switch; Ampere Altra: options nvidia NVreg_GrdmaPciTopoCheckOverride=1; "
			  "Grace: the C2C mapping",
		.rank = 34,
		.probe = probe_platform,
	},
	{
		.id = "bus-virtual",
		.group = GROUP,
		.title = "topology file in virtual machines",
		.requirement = "A topology file that a virtual machine names can be read and has its devices. Without "
			       "a file the machine is well, but the distances of its devices are not known.",
		.how = "the flag hypervisor in /proc/cpuinfo; NCCL_TOPO_FILE, in the environment or in /etc/nccl.conf",
		.reason = "The PCI tree of a virtual machine does not show the hardware, and is often flat: all pairs "
			  "look equal.",
		.remedy = "export NCCL_TOPO_FILE=/path/of/topology.xml   # from the provider; "
			  "to keep it: a line in /etc/nccl.conf",
		.rank = 68,
		.probe = probe_virtual,
	},
	{
		.id = "bus-numa",
		.group = GROUP,
		.title = "NUMA nodes and processor governor",
		.requirement = "The NUMA node of each card is known, and processors do not slow down to save power.",
		.how = "D/{numa_node,local_cpulist}; /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
		.reason = "Latency varies if processors save power. Staging buffers are in remote memory if the node "
			  "is unknown.",
		.remedy = "numactl --cpunodebind=N --membind=N PROGRAM; cpupower frequency-set -g performance",
		.rank = 96,
		.probe = probe_numa,
	},
	{ .id = NULL },
};
