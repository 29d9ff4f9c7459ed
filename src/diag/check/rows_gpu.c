/* SPDX-License-Identifier: BSD-2-Clause */
/* The GPUs themselves. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "diag/check/kernel_log.h"
#include "diag/check/row.h"

#define GROUP "GPU"
#define ATTRIBUTE_VMM 110
#define ATTRIBUTE_FLUSH 117
#define ATTRIBUTE_ORDER 118
#define ORDER_OWNER 100
#define SMALL_BAR (256ull << 20)
/* Written by dmesg.service of Debian and Ubuntu, and rotated at each start: the log of the start before this one. */
#define EARLIER_LOG "var/log/dmesg.0"
#define LOG_LIMIT (4u << 20)
#define ASK_LIBCUDA "run `peerlane check` on the machine itself, with libcuda"

static enum pl_check_status of_way(enum pl_check_way way, enum pl_check_status no)
{
	return way == PL_CHECK_WAY_YES ? PL_CHECK_OK : way == PL_CHECK_WAY_NO ? no : PL_CHECK_UNKNOWN;
}

/* True if the device does not answer any more: the kernel then reads ones. */
static bool is_off_bus(const struct pl_check_machine *machine, const struct check_gpu *gpu)
{
	unsigned char id[4];

	return pl_sysroot_bytes(machine->root, id, sizeof(id), "sys/bus/pci/devices/%s/config", gpu->pci->address) ==
		       (int)sizeof(id) &&
	       (id[0] & id[1] & id[2] & id[3]) == 0xff;
}

/* Notes GPUs that fell off the bus since the kernel started. */
static void note_lost_gpus(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	static const char prefix[] = "log.gpu.";
	const char *key, *value;

	for (size_t i = 0; i < machine->gpu_count; i++)
		if (is_off_bus(machine, &machine->gpus[i]))
			pl_check_note(result, PL_CHECK_FAIL, machine->gpus[i].pci->address,
				      "the GPU fell off the bus: its configuration space reads as ones");
	for (size_t i = 0; (key = pl_facts_at(machine->facts, i, &value)); i++) {
		const char *address = key + strlen(prefix);
		bool fell_off = !strcmp(value, "fell off"), gone;
		struct check_gpu *gpu = machine->gpus;

		if (strncmp(key, prefix, strlen(prefix)))
			continue;
		while (gpu < machine->gpus + machine->gpu_count && strcmp(gpu->pci->address, address))
			gpu++;
		gone = gpu == machine->gpus + machine->gpu_count;
		if (fell_off && (gone || !is_off_bus(machine, gpu)))
			pl_check_note(result, PL_CHECK_FAIL, address, "the GPU fell off the bus, says the kernel's log%s",
				      gone ? ", and is not on the PCI bus now" : "");
		else if (gone && !fell_off)
			pl_check_note(result, PL_CHECK_WARN, address,
				      "the kernel found a GPU of NVIDIA here, which is not on the PCI bus now");
	}
}

/* Counts the GPUs of NVIDIA that the kernel found at the previous start; 0: unknown. */
static size_t count_earlier_gpus(const struct pl_check_machine *machine)
{
	char seen[64][PL_LOG_ADDRESS_MAX], *text, *line, *rest;
	size_t length, count = 0, i;

	if (pl_sysroot_load(machine->root, LOG_LIMIT, &text, &length, EARLIER_LOG) < 0)
		return 0;
	for (line = strtok_r(text, "\n", &rest); line && count < PL_ARRAY_SIZE(seen); line = strtok_r(NULL, "\n", &rest)) {
		if (!pl_kernel_log_found_gpu(line, seen[count]))
			continue;
		for (i = 0; i < count && strcmp(seen[i], seen[count]); i++)
			;
		count += i == count;
	}
	free(text);
	return count;
}

/* Bus numbers can change from one start to the next, so only the numbers of GPUs are compared. */
static void compare_earlier_start(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	size_t before = count_earlier_gpus(machine), now = 0;

	for (size_t i = 0; i < machine->gpu_count; i++)
		now += machine->gpus[i].pci->vendor == PL_PCI_VENDOR_NVIDIA;
	if (before > now)
		pl_check_note(result, PL_CHECK_WARN, NULL,
			      "%zu GPU%s of NVIDIA on the PCI bus, %zu at the previous start (/" EARLIER_LOG ")", now,
			      now == 1 ? "" : "s", before);
}

static void probe_gpu_count(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const char *plural = machine->gpu_count == 1 ? "" : "s";

	if (machine->gpu_count < machine->policy->expected.gpus)
		pl_check_note(result, PL_CHECK_FAIL, NULL, "%zu GPU%s on the PCI bus, %u expected", machine->gpu_count,
			      plural, machine->policy->expected.gpus);
	else if (!check_has_nvidia(machine) && check_module(machine, "nvidia"))
		pl_check_note(result, PL_CHECK_FAIL, NULL,
			      "the module nvidia is loaded, and there is no GPU of NVIDIA on the PCI bus");
	note_lost_gpus(machine, result);
	/* An expected number counts more than that of the previous start. */
	if (!result->count && !machine->policy->expected.gpus)
		compare_earlier_start(machine, result);
	if (!result->count && machine->gpu_count)
		pl_check_note(result, PL_CHECK_OK, NULL, "%zu GPU%s", machine->gpu_count, plural);
}

static void probe_gpu_model(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	char reason[200];

	for (size_t i = 0; i < machine->gpu_count; i++) {
		const struct check_gpu *gpu = &machine->gpus[i];
		enum pl_check_way way = check_gpu_capable(machine, gpu, reason, sizeof(reason));

		pl_check_note(result, of_way(way, PL_CHECK_FAIL), gpu->pci->address, "%s", reason);
		if (way == PL_CHECK_WAY_UNKNOWN)
			pl_check_reveal(result, "load the driver of NVIDIA, then run it again");
	}
}

static void probe_gpu_dmabuf(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	/* Where peer memory works, dma-buf is only the better of two paths. */
	enum pl_check_status no = check_peer_client(machine) ? PL_CHECK_OK : PL_CHECK_WARN;
	char reason[200];

	for (size_t i = 0; i < machine->gpu_count; i++) {
		const struct check_gpu *gpu = &machine->gpus[i];
		enum pl_check_way way;

		if (gpu->pci->vendor != PL_PCI_VENDOR_NVIDIA)
			continue;
		way = check_gpu_dmabuf(machine, gpu, reason, sizeof(reason));
		pl_check_note(result, of_way(way, no), gpu->pci->address, "%s%s", reason,
			      way == PL_CHECK_WAY_NO && no == PL_CHECK_OK ? "; peer memory takes its place" : "");
		if (way == PL_CHECK_WAY_UNKNOWN)
			pl_check_reveal(result, ASK_LIBCUDA);
		if (!*gpu->pci->driver && !check_module(machine, "nvidia"))
			pl_check_remedy(result, "modprobe nvidia, then run it again");
		if (way == PL_CHECK_WAY_NO && gpu->capability && gpu->capability < 75)
			pl_check_remedy(result, "modprobe nvidia-peermem   # no open driver for this GPU");
	}
}

static void probe_vmm(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	for (size_t i = 0; i < machine->gpu_count; i++) {
		const char *address = machine->gpus[i].pci->address;
		long long value =
			pl_facts_number(machine->facts, -1, "cuda.gpu.%s.attribute.%d", address, ATTRIBUTE_VMM);

		if (machine->gpus[i].pci->vendor != PL_PCI_VENDOR_NVIDIA)
			continue;
		if (value < 0)
			pl_check_unknown(result, address, ASK_LIBCUDA, "libcuda was not asked, or did not answer");
		else
			pl_check_note(result, value ? PL_CHECK_OK : PL_CHECK_WARN, address,
				      value ? "memory of cuMemCreate() can be registered"
					    : "memory of cuMemCreate() cannot be registered");
	}
}

static void probe_visibility(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	for (size_t i = 0; i < machine->gpu_count; i++) {
		const char *address = machine->gpus[i].pci->address;
		long long order =
			pl_facts_number(machine->facts, -1, "cuda.gpu.%s.attribute.%d", address, ATTRIBUTE_ORDER);
		long long flush =
			pl_facts_number(machine->facts, -1, "cuda.gpu.%s.attribute.%d", address, ATTRIBUTE_FLUSH);

		if (machine->gpus[i].pci->vendor != PL_PCI_VENDOR_NVIDIA)
			continue;
		if (order < 0)
			pl_check_unknown(result, address, ASK_LIBCUDA, "libcuda was not asked, or did not answer");
		else if (order >= ORDER_OWNER)
			pl_check_note(result, PL_CHECK_OK, address,
				      "what the card wrote is visible to kernels that start after the completion");
		else if (flush > 0)
			pl_check_note(result, PL_CHECK_OK, address,
				      "kernels see what the card wrote after a flush, which this GPU offers (%s)",
				      flush & 1 ? "cuFlushGPUDirectRDMAWrites" : "stream memory operations");
		else
			pl_check_note(result, PL_CHECK_WARN, address,
				      "a kernel can read old data, and the GPU offers no flush");
	}
}

static void probe_partition(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	bool confidential = pl_facts_number(machine->facts, 0, "nvml.confidential") > 0;

	for (size_t i = 0; i < machine->gpu_count; i++) {
		const char *address = machine->gpus[i].pci->address;
		long long mig = pl_facts_number(machine->facts, -1, "nvml.gpu.%s.mig", address);
		long long mode = pl_facts_number(machine->facts, -1, "nvml.gpu.%s.virtualization", address);

		if (machine->gpus[i].pci->vendor != PL_PCI_VENDOR_NVIDIA)
			continue;
		if (confidential)
			pl_check_note(result, PL_CHECK_FAIL, address,
				      "confidential computing is on: no card may read the GPU's memory");
		else if (mig == 1)
			pl_check_note(result, PL_CHECK_WARN, address,
				      "MIG is on: pins that survive a free are not to be had");
		else if (mode == 2) /* NVML_GPU_VIRTUALIZATION_MODE_VGPU */
			pl_check_note(result, PL_CHECK_WARN, address, "this is a vGPU, not a whole one");
		else if (mig < 0)
			pl_check_unknown(result, address, "run it on the machine itself, with libnvidia-ml",
					 "NVML was not asked, or did not answer");
		else
			pl_check_note(result, PL_CHECK_OK, address, "a whole GPU");
	}
}

static bool has_bars(const struct pl_pci_node *pci)
{
	for (size_t i = 0; i < PL_PCI_BARS; i++)
		if (pci->bars[i].size)
			return true;
	return false;
}

static void judge_bar(const struct pl_check_machine *machine, const struct check_gpu *gpu,
		      struct pl_check_result *result)
{
	const struct pl_pci_bar *bar = pl_pci_nvidia_bar1(gpu->pci);
	uint64_t size = bar->start ? bar->size : 0;
	long long total = pl_facts_number(machine->facts, -1, "nvml.gpu.%s.bar1_total", gpu->pci->address);
	bool hidden = !has_bars(gpu->pci);
	long long memory = pl_facts_number(machine->facts, 0, "cuda.gpu.%s.memory", gpu->pci->address);
	long long used = pl_facts_number(machine->facts, -1, "nvml.gpu.%s.bar1_used", gpu->pci->address);
	char extra[64] = "";

	if (used >= 0)
		snprintf(extra, sizeof(extra), ", %lld MiB of it in use", used >> 20);
	if (hidden && total > 0)
		size = (uint64_t)total;
	if (hidden && !size) {
		/* Probably a sandbox: a GPU without its registers would have no driver. */
		pl_check_note(result, PL_CHECK_UNKNOWN, gpu->pci->address, "the kernel shows no addresses of its BARs");
		pl_check_reveal(result, "lspci -v, on the host of this machine");
	} else if (!size) {
		pl_check_note(result, PL_CHECK_FAIL, gpu->pci->address,
			      "BAR1 has no address: the firmware gave it none");
	} else if (size <= SMALL_BAR) {
		pl_check_note(result, PL_CHECK_WARN, gpu->pci->address,
			      "BAR1 has only %" PRIu64 " MiB%s: no more than that can be registered at a time",
			      size >> 20, extra);
	} else if (memory > 0 && size < (uint64_t)memory) {
		pl_check_note(result, PL_CHECK_WARN, gpu->pci->address,
			      "BAR1 has %" PRIu64 " MiB%s, the GPU %lld MiB: not all of it can be registered",
			      size >> 20, extra, memory >> 20);
	} else {
		pl_check_note(result, PL_CHECK_OK, gpu->pci->address, "BAR1 has %" PRIu64 " MiB%s", size >> 20, extra);
	}
}

static void probe_bar(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	for (size_t i = 0; i < machine->gpu_count; i++)
		if (machine->gpus[i].pci->vendor == PL_PCI_VENDOR_NVIDIA)
			judge_bar(machine, &machine->gpus[i], result);
}

const struct pl_check_row pl_check_rows_gpu[] = {
	{
		.id = "gpu-count",
		.group = GROUP,
		.title = "number of GPUs",
		.requirement =
			"The PCI bus shows as many GPUs as --expect names, and at least one if the driver of NVIDIA "
			"is loaded. Each GPU that the kernel found since it started, or at the start before, is still "
			"there and answers.",
		.how = "lspci -d 10de::0302; lsmod; the first bytes of D/config are not ff; dmesg: \"[10de:\" lines and "
		       "\"fallen off the bus\" (Xid 79); /var/log/dmesg.0, where the distribution writes it",
		.reason = "A GPU that fell off the bus is not there for other checks: what remains looks well.",
		.remedy = "dmesg | grep -e Xid -e 'fallen off'; echo 1 > /sys/bus/pci/rescan; if the GPU stays away, "
			  "switch "
			  "the machine off and on",
		.rank = 4,
		.probe = probe_gpu_count,
	},
	{
		.id = "gpu-model",
		.group = GROUP,
		.title = "GPU with GPUDirect RDMA",
		.requirement =
			"Linux, and a Kepler or newer GPU of the Tesla, Quadro, RTX professional or data-centre lines.",
		.how = "CUDA device attribute 116, compute capability, /proc/driver/nvidia/gpus/*/information",
		.reason =
			"Memory of GeForce and older GPUs cannot be registered: ibv_reg_mr() fails with EFAULT, \"Bad "
			"address\".",
		.remedy = "use staging through host memory, which works with any GPU",
		.rank = 30,
		.probe = probe_gpu_model,
	},
	{
		.id = "gpu-dmabuf",
		.group = GROUP,
		.title = "export of GPU memory as dma-buf",
		.requirement =
			"The GPU's memory can be exported as a dma-buf, the way that needs no module but the driver's: "
			"open kernel modules, Turing or newer, CUDA 11.7 or later, Linux 5.12 or later.",
		.how = "CUDA device attribute 124, and exporting 2 MiB of one GPU: cuMemGetHandleForAddressRange() "
		       "answers 801 where it is not supported",
		.reason = "Without it only the peer memory client remains, which must fit the RDMA drivers.",
		.remedy = "install the open kernel modules (package nvidia-open); or: modprobe nvidia-peermem",
		.rank = 60,
		.probe = probe_gpu_dmabuf,
	},
	{
		.id = "gpu-vmm",
		.group = GROUP,
		.title = "memory of the virtual memory interface",
		.requirement =
			"Memory of cuMemCreate(), which PyTorch's expandable segments and NCCL use, can be registered.",
		.how = "CUDA device attribute 110",
		.reason = "Without the attribute, registering such memory fails with EFAULT, while memory of "
			  "cudaMalloc() works.",
		.remedy = "create it with gpuDirectRDMACapable set, or use cuMemAlloc(); PyTorch: "
			  "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
		.rank = 80,
		.probe = probe_vmm,
	},
	{
		.id = "gpu-visibility",
		.group = GROUP,
		.title = "visibility of the card's writes",
		.requirement = "Kernels see the writes of a card: the GPU orders them, or offers a flush.",
		.how = "CUDA device attributes 117 (flush) and 118 (order: 100 and more is enough)",
		.reason = "Without order or flush, a kernel can read old data after the completion.",
		.remedy = "launch kernels after the completion; below 100 flush first; for inspection copy device to "
			  "host",
		.rank = 82,
		.probe = probe_visibility,
	},
	{
		.id = "gpu-partition",
		.group = GROUP,
		.title = "whole GPU: no MIG, no vGPU, no confidential computing",
		.requirement = "The GPU is not divided, not virtual, and not in confidential mode.",
		.how = "NVML: MIG mode, virtualisation mode, state of confidential computing",
		.reason = "Persistent pins fail with ENOTSUPP under MIG and vGPU; confidential mode forbids all "
			  "registrations.",
		.remedy = "nvidia-smi -mig 0; or: modprobe nvidia-peermem persistent_api_support=0; "
			  "for confidential computing: switch it off, or stage",
		.rank = 40,
		.probe = probe_partition,
	},
	{
		.id = "gpu-bar1",
		.group = GROUP,
		.title = "size of BAR1",
		.requirement =
			"BAR1, the window through which cards see the GPU's memory, is as large as what is registered, "
			"best as the memory itself.",
		.how = "D/resource: the second line, from Hopper on the third; NVML's BAR1 memory information",
		.reason = "Large registrations fail with EFAULT or ENOMEM.",
		.remedy = "in the firmware switch on \"Above 4G decoding\" and \"Resizable BAR\"; "
			  "echo options nvidia NVreg_EnableResizableBar=1 > /etc/modprobe.d/nvidia-bar.conf; "
			  "until then register smaller pieces",
		.rank = 50,
		.probe = probe_bar,
	},
	{ .id = NULL },
};
