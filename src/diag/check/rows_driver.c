/* SPDX-License-Identifier: BSD-2-Clause */
/* Driver of the GPU, and its state. */
#include <stdio.h>

#include "diag/check/row.h"

#define GROUP "GPU driver"
#define TAINT_DIED (1ll << 7)
#define CUDA_MISMATCH 803
#define CUDA_NO_DEVICE 100
#define CUDA_NOT_READY 802

/* Returns libcuda's release, which ends its file name: libcuda.so.580.159.04. */
static const char *library_version(const struct pl_check_machine *machine)
{
	const char *file = pl_facts_get(machine->facts, "cuda.file"), *mark = file ? strstr(file, ".so.") : NULL;

	return mark && strchr(mark + 4, '.') ? mark + 4 : NULL;
}

/*
 * True if cuInit() failed because libcuda is of another release than the module. A libcuda of CUDA's forward
 * compatibility (/usr/local/cuda/compat) may be newer than the module. CUDA_NO_DEVICE and CUDA_NOT_READY have causes of
 * their own.
 */
static bool library_mismatches(const char *module, const char *library, long long init)
{
	if (init == CUDA_MISMATCH)
		return true;
	return library && strcmp(library, module) && init != 0 && init != CUDA_NO_DEVICE && init != CUDA_NOT_READY;
}

static void judge_library(const struct pl_check_machine *machine, const char *module, struct pl_check_result *result)
{
	const char *library = library_version(machine), *state = pl_facts_get(machine->facts, "cuda.state");
	const char *loading = pl_facts_get(machine->facts, "cuda.library");
	long long init = pl_facts_number(machine->facts, -1, "cuda.init"),
		  version = pl_facts_number(machine->facts, 0, "cuda.version");

	/* A libcuda that did not answer says nothing about a mismatch. */
	if (state && strcmp(state, "done")) {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "driver %s; asking libcuda %s%s", module,
			      strcmp(state, "hangs") ? "" : "did not end in time: it ", state);
		pl_check_remedy(result, "nvidia-smi; if that hangs too: dmesg | grep NVRM, and reboot");
	} else if (library_mismatches(module, library, init)) {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "the kernel has driver %s, the libraries are of %s", module,
			      library ? library : "another release");
		pl_check_remedy(result, "reboot, or without anything using the GPUs: rmmod nvidia_uvm nvidia_drm "
					"nvidia_modeset nvidia && modprobe nvidia");
	} else if (init == 0) {
		bool differs = library && strcmp(library, module);

		pl_check_note(result, PL_CHECK_OK, NULL, "driver %s, CUDA %lld.%lld%s%s", module, version / 1000,
			      version % 1000 / 10, differs ? ", libcuda " : "", differs ? library : "");
	} else if (init > 0) {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "driver %s, but cuInit() fails with %lld%s", module, init,
			      init == CUDA_NO_DEVICE   ? ": no device that this process may use"
			      : init == CUDA_NOT_READY ? ": the fabric manager is not ready"
						       : "");
		pl_check_remedy(result, "%s",
				init == CUDA_NOT_READY ? "systemctl restart nvidia-fabricmanager"
						       : "nvidia-smi; ls -l /dev/nvidia*; echo $CUDA_VISIBLE_DEVICES");
	} else if (loading && strcmp(loading, "ok")) {
		pl_check_note(result, PL_CHECK_WARN, NULL, "driver %s is loaded, libcuda is not there: %s", module,
			      loading);
		pl_check_remedy(result, "install the user-space driver (libcuda1); for containers: "
					"docker run --gpus all ...");
	} else {
		pl_check_note(result, PL_CHECK_OK, NULL, "driver %s is loaded", module);
	}
}

static void probe_gpu_driver(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	char version[64];

	if (!check_has_nvidia(machine))
		return;
	for (size_t i = 0; i < machine->gpu_count; i++) {
		const struct check_gpu *gpu = &machine->gpus[i];

		if (gpu->pci->vendor == PL_PCI_VENDOR_NVIDIA && *gpu->pci->driver &&
		    strcmp(gpu->pci->driver, "nvidia")) {
			pl_check_note(result, PL_CHECK_FAIL, gpu->pci->address, "driver %s has the GPU, not nvidia",
				      gpu->pci->driver);
			if (!strcmp(gpu->pci->driver, "nouveau"))
				pl_check_remedy(result,
						"echo blacklist nouveau > /etc/modprobe.d/nouveau.conf, install "
						"the driver of NVIDIA, reboot");
		}
	}
	if (result->count)
		return;
	if (check_driver_version(machine, version, sizeof(version)))
		judge_library(machine, version, result);
	else
		pl_check_note(result, PL_CHECK_FAIL, NULL, "the module nvidia is not loaded");
}

static void plan_gpu_driver(const struct pl_check_machine *machine, struct pl_check_plan *plan)
{
	for (size_t i = 0; i < machine->gpu_count; i++)
		if (machine->gpus[i].pci->vendor == PL_PCI_VENDOR_NVIDIA && *machine->gpus[i].pci->driver)
			return;
	if (!check_module(machine, "nvidia"))
		pl_check_plan_module(plan, "nvidia");
}

static void probe_flavour(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	bool old = true;

	for (size_t i = 0; i < machine->gpu_count; i++)
		if (machine->gpus[i].pci->vendor == PL_PCI_VENDOR_NVIDIA)
			old = old && machine->gpus[i].capability && machine->gpus[i].capability < 75;
	if (!check_has_nvidia(machine) || !check_module(machine, "nvidia"))
		return;
	switch (check_driver_flavour(machine)) {
	case CHECK_FLAVOUR_OPEN:
		pl_check_note(result, PL_CHECK_OK, NULL, "open kernel modules");
		break;
	case CHECK_FLAVOUR_CLOSED:
		/* GPUs before Turing have no other modules. */
		pl_check_note(result, old ? PL_CHECK_OK : PL_CHECK_WARN, NULL, "closed kernel modules%s",
			      old ? ", the only ones for GPUs older than Turing" : ": no export as dma-buf");
		break;
	default:
		pl_check_unknown(result, NULL, "cat /proc/driver/nvidia/version",
				 "the module does not say which it is");
	}
}

static void probe_health(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	static const struct {
		const char *fact, *what;
		enum pl_check_status status;
	} signs[] = {
		{ "log.oops", "the kernel had an Oops", PL_CHECK_FAIL },
		{ "log.bug", "the kernel had a BUG", PL_CHECK_FAIL },
		{ "log.gpu_fell_off", "a GPU fell off the bus", PL_CHECK_FAIL },
		{ "log.xid", "the GPU's driver reported an Xid", PL_CHECK_WARN },
		{ "log.aer", "PCI Express reported errors", PL_CHECK_WARN },
	};
	int64_t tainted = check_number(machine, "proc/sys/kernel/tainted");

	if (tainted >= 0 && tainted & TAINT_DIED)
		pl_check_note(result, PL_CHECK_FAIL, NULL, "the kernel had an Oops since it was booted");
	for (size_t i = 0; i < PL_ARRAY_SIZE(signs); i++) {
		const char *line = pl_facts_get(machine->facts, "%s", signs[i].fact);

		if (line)
			pl_check_note(result, signs[i].status, NULL, "%s: %s", signs[i].what, line);
	}
	if (pl_facts_get(machine->facts, "log.gpu_fell_off"))
		pl_check_remedy(result, "power the machine off and on; nvidia-bug-report.sh if it happens again");
	else if (pl_facts_get(machine->facts, "log.xid") && result->status == PL_CHECK_WARN)
		pl_check_remedy(
			result,
			"look the number up in NVIDIA's list of Xid errors; nvidia-smi -q -d ECC,PAGE_RETIREMENT");
	if (result->count)
		return;
	if (pl_facts_get(machine->facts, "log.readable"))
		pl_check_note(result, PL_CHECK_OK, NULL, "no Oops, no Xid in the kernel's log");
	else if (tainted >= 0)
		pl_check_unknown(result, NULL, "run it as root, or: sudo dmesg | grep -E 'Oops|Xid'",
				 "no Oops; whether there was an Xid, only the kernel's log tells");
	else
		pl_check_unknown(result, NULL, "cat /proc/sys/kernel/tainted", "the kernel does not say");
}

const struct pl_check_row pl_check_rows_driver[] = {
	{
		.id = "driver-loaded",
		.group = GROUP,
		.title = "driver of NVIDIA, and libraries that fit it",
		.requirement = "The module nvidia is loaded and has the GPUs, and libcuda works with it: it is of the "
			       "same release, or of CUDA's forward compatibility.",
		.how = "/sys/module/nvidia/version against the name of libcuda's file, cuInit(), cuDriverGetVersion()",
		.reason =
			"Without them, CUDA fails with 803 (mismatch), 100 (no device) or 999, and no program can use "
			"the GPU.",
		.remedy = "modprobe nvidia; if that fails: dmesg | grep -i nvidia; install the driver again",
		.rank = 10,
		.probe = probe_gpu_driver,
		.plan = plan_gpu_driver,
	},
	{
		.id = "driver-flavour",
		.group = GROUP,
		.title = "open kernel modules",
		.requirement =
			"The kernel modules of NVIDIA are the open ones, which Turing and all later GPUs can use.",
		.how = "/proc/driver/nvidia/version says \"Open\"; the closed ones taint the kernel with P",
		.reason = "The proprietary modules export no dma-buf; only the peer memory client remains.",
		.remedy = "apt install nvidia-open; or the .run file with --kernel-module-type=open; then reboot",
		.rank = 62,
		.probe = probe_flavour,
	},
	{
		.id = "kernel-health",
		.group = GROUP,
		.title = "no Oops, no Xid",
		.requirement =
			"The kernel has not crashed since it was booted, and the GPU's driver reported no error.",
		.how = "bit 7 of /proc/sys/kernel/tainted; dmesg",
		.reason = "After an Oops in a driver, calls hang and memory stays pinned.",
		.remedy = "reboot; if the same Oops comes again, update the driver that it names",
		.rank = 5,
		.probe = probe_health,
	},
	{ .id = NULL },
};
