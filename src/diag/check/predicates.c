/* SPDX-License-Identifier: BSD-2-Clause */
/* Predicates that several rows and the verdict share. */
#include <stdio.h>

#include "diag/check/row.h"

#define ATTRIBUTE_RDMA 116
#define ATTRIBUTE_DMABUF 124
#define CAPABILITY_KEPLER 30
#define CAPABILITY_TURING 75

bool check_has_nvidia(const struct pl_check_machine *machine)
{
	for (size_t i = 0; i < machine->gpu_count; i++)
		if (machine->gpus[i].pci->vendor == PL_PCI_VENDOR_NVIDIA)
			return true;
	return false;
}

int check_node_errno(const struct pl_check_machine *machine, const struct check_device *device)
{
	long long open = pl_facts_number(machine->facts, -1, "verbs.device.%s.open", device->name);

	if (open >= 0)
		return (int)PL_MIN(open, 4096);
	if (!*device->rdma->uverbs)
		return ENODEV;
	if (!check_exists(machine, "dev/infiniband/%s", device->rdma->uverbs))
		return ENOENT;
	return (int)pl_facts_number(machine->facts, -1, "node.%s", device->rdma->uverbs);
}

bool check_device_usable(const struct pl_check_machine *machine, const struct check_device *device)
{
	bool active = false;

	for (size_t i = 0; i < device->rdma->port_count; i++)
		active = active || device->rdma->ports[i].active;
	return active && check_node_errno(machine, device) <= 0;
}

enum check_flavour check_driver_flavour(const struct pl_check_machine *machine)
{
	char text[1024];

	if (check_text(machine, text, "proc/driver/nvidia/version") > 0)
		return strstr(text, "Open Kernel Module") ? CHECK_FLAVOUR_OPEN : CHECK_FLAVOUR_CLOSED;
	/* P: a proprietary module taints the kernel. */
	if (check_text(machine, text, "sys/module/nvidia/taint") > 0)
		return strchr(text, 'P') ? CHECK_FLAVOUR_CLOSED : CHECK_FLAVOUR_OPEN;
	return CHECK_FLAVOUR_UNKNOWN;
}

bool check_driver_version(const struct pl_check_machine *machine, char *buffer, size_t size)
{
	return pl_sysroot_text(machine->root, buffer, size, "sys/module/nvidia/version") > 0;
}

enum pl_check_way check_gpu_capable(const struct pl_check_machine *machine, const struct check_gpu *gpu, char *reason,
				    size_t size)
{
	long long attribute =
		pl_facts_number(machine->facts, -1, "cuda.gpu.%s.attribute.%d", gpu->pci->address, ATTRIBUTE_RDMA);
	static const char *const consumer[] = { "GeForce", "TITAN", "GTX", "MX" };

	if (gpu->pci->vendor != PL_PCI_VENDOR_NVIDIA) {
		snprintf(reason, size,
			 "%s is no NVIDIA GPU: its own driver exports dma-bufs, which is not looked at here",
			 gpu->model);
		return PL_CHECK_WAY_UNKNOWN;
	}
	if (attribute >= 0) {
		snprintf(reason, size, "%s says that it %s GPUDirect RDMA", gpu->model,
			 attribute ? "can do" : "cannot do");
		return attribute ? PL_CHECK_WAY_YES : PL_CHECK_WAY_NO;
	}
	for (size_t i = 0; i < PL_ARRAY_SIZE(consumer); i++) {
		if (!strstr(gpu->model, consumer[i]))
			continue;
		snprintf(reason, size, "%s is a model for consumers, which have no GPUDirect RDMA", gpu->model);
		return PL_CHECK_WAY_NO;
	}
	if (gpu->capability && gpu->capability < CAPABILITY_KEPLER) {
		snprintf(reason, size, "%s is older than Kepler", gpu->model);
		return PL_CHECK_WAY_NO;
	}
	if (strncmp(gpu->model, "NVIDIA GPU ", 11) == 0) {
		snprintf(reason, size, "the model is not known as long as no driver is loaded (number %04x)",
			 gpu->pci->device);
		return PL_CHECK_WAY_UNKNOWN;
	}
	snprintf(reason, size, "%s, compute capability %u.%u", gpu->model, gpu->capability / 10, gpu->capability % 10);
	return PL_CHECK_WAY_YES;
}

enum pl_check_way check_gpu_dmabuf(const struct pl_check_machine *machine, const struct check_gpu *gpu, char *reason,
				   size_t size)
{
	long long attribute =
		pl_facts_number(machine->facts, -1, "cuda.gpu.%s.attribute.%d", gpu->pci->address, ATTRIBUTE_DMABUF);
	long long exported = pl_facts_number(machine->facts, -1, "cuda.gpu.%s.export", gpu->pci->address);

	if (gpu->pci->vendor != PL_PCI_VENDOR_NVIDIA) {
		snprintf(reason, size, "%s is no NVIDIA GPU: not looked at here", gpu->model);
		return PL_CHECK_WAY_UNKNOWN;
	}
	if (!*gpu->pci->driver && !check_module(machine, "nvidia")) {
		snprintf(reason, size, "the driver of NVIDIA is not loaded");
		return PL_CHECK_WAY_NO;
	}
	if (exported == 0) {
		snprintf(reason, size, "memory of it was exported as a dma-buf");
		return PL_CHECK_WAY_YES;
	}
	if (exported > 0) {
		snprintf(reason, size, "exporting memory of it as a dma-buf failed, with CUDA's error %lld", exported);
		return PL_CHECK_WAY_NO;
	}
	if (attribute == 1) {
		snprintf(reason, size, "libcuda says that the GPU exports dma-bufs");
		return PL_CHECK_WAY_YES;
	}
	if (check_driver_flavour(machine) == CHECK_FLAVOUR_CLOSED) {
		snprintf(reason, size, "the closed kernel modules of NVIDIA do not export dma-bufs");
		return PL_CHECK_WAY_NO;
	}
	if (attribute == 0) {
		snprintf(reason, size, "libcuda says that the GPU does not export dma-bufs");
		return PL_CHECK_WAY_NO;
	}
	if (gpu->capability && gpu->capability < CAPABILITY_TURING) {
		snprintf(reason, size, "GPUs older than Turing do not export dma-bufs");
		return PL_CHECK_WAY_NO;
	}
	if (!check_kernel_at_least(machine, 5, 12)) {
		snprintf(reason, size, "the kernel is older than 5.12");
		return PL_CHECK_WAY_NO;
	}
	if (check_driver_flavour(machine) == CHECK_FLAVOUR_OPEN && gpu->capability) {
		snprintf(reason, size, "open kernel modules, and Turing or newer");
		return PL_CHECK_WAY_YES;
	}
	snprintf(reason, size, "neither libcuda nor the driver said so");
	return PL_CHECK_WAY_UNKNOWN;
}

/* direct: path of the device's Data Direct function; NULL: none */
static enum pl_check_way by_answer(long long answer, const char *direct, char *reason, size_t size)
{
	if (answer == EBADF || answer == 0) {
		snprintf(reason, size, "the driver takes dma-bufs (it was asked)%s%s",
			 direct ? ", by Data Direct: " : "", direct ? direct : "");
		return PL_CHECK_WAY_YES;
	}
	if (answer == ENOSYS)
		snprintf(reason, size, "libibverbs is too old for ibv_reg_dmabuf_mr()");
	else
		snprintf(reason, size, "the driver takes no dma-bufs (it was asked: %s)", strerrordesc_np((int)answer));
	return answer == EOPNOTSUPP || answer == EPROTONOSUPPORT || answer == ENOSYS ? PL_CHECK_WAY_NO
										     : PL_CHECK_WAY_UNKNOWN;
}

enum pl_check_way check_device_dmabuf(const struct pl_check_machine *machine, const struct check_device *device,
				      char *reason, size_t size)
{
	static const char *const with[] = { "mlx5", "efa", "irdma", "bnxt_re", "mana", "ionic" };
	static const char *const without[] = { "mlx4", "rxe", "siw", "hns", "cxgb4", "qedr", "erdma", "rocep", "iwp" };
	long long answer = pl_facts_number(machine->facts, -1, "verbs.device.%s.dmabuf", device->name);
	const char *driver = device->card ? device->card->pci->driver : "";

	if (answer >= 0)
		return by_answer(answer, pl_facts_get(machine->facts, "verbs.device.%s.data-direct", device->name),
				 reason, size);
	if (!check_kernel_at_least(machine, 5, 12)) {
		snprintf(reason, size, "the kernel is older than 5.12");
		return PL_CHECK_WAY_NO;
	}
	for (size_t i = 0; i < PL_ARRAY_SIZE(without); i++) {
		if (strncmp(device->name, without[i], strlen(without[i])) &&
		    (!*driver || strncmp(driver, without[i], strlen(without[i]))))
			continue;
		/* Names such as rocep59s0 do not show the driver; other names do. */
		if (i >= 7)
			break;
		snprintf(reason, size, "the driver %s takes no dma-bufs", without[i]);
		return PL_CHECK_WAY_NO;
	}
	for (size_t i = 0; i < PL_ARRAY_SIZE(with); i++) {
		if (strncmp(device->name, with[i], strlen(with[i])) && strncmp(driver, with[i], strlen(with[i])))
			continue;
		snprintf(reason, size, "the driver %s takes dma-bufs since some release (it was not asked)", with[i]);
		return PL_CHECK_WAY_YES;
	}
	snprintf(reason, size, "the driver was not asked");
	return PL_CHECK_WAY_UNKNOWN;
}

/* True for clients of other vendors' GPUs. */
static bool is_foreign(const char *name)
{
	return !strncmp(name, "amd", 3) || !strncmp(name, "kfd", 3) || !strncmp(name, "habana", 6);
}

const char *check_peer_client(const struct pl_check_machine *machine)
{
	static const char *const modules[] = { "nvidia_peermem", "nv_peer_mem", "efa_nv_peermem", "peerlane_peermem" };
	struct pl_sysroot_list list;
	bool registered = false, readable;

	readable = pl_sysroot_list(machine->root, &list, "sys/kernel/mm/memory_peers") == 0;
	for (size_t i = 0; i < list.count; i++)
		registered = registered || !is_foreign(list.names[i]);
	pl_sysroot_list_free(&list);
	/* EFA's driver has an interface of its own, which this folder does not show. */
	if (check_module(machine, "efa_nv_peermem"))
		return "efa_nv_peermem";
	if (readable && !registered)
		return NULL;
	for (size_t i = 0; i < PL_ARRAY_SIZE(modules); i++)
		if (check_module(machine, modules[i]))
			return modules[i];
	return registered ? "a peer memory client" : NULL;
}

enum pl_check_way check_peer_core(const struct pl_check_machine *machine)
{
	long long symbol = pl_facts_number(machine->facts, -1, "kallsyms.peer_memory");

	if (check_exists(machine, "sys/kernel/mm/memory_peers") || symbol == 1)
		return PL_CHECK_WAY_YES;
	return symbol == 0 ? PL_CHECK_WAY_NO : PL_CHECK_WAY_UNKNOWN;
}
