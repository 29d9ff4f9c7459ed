/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Log lines with the reason of a refusal: user space gets only an errno. */
#include "peermem.h"

#include <linux/errno.h>
#include <linux/printk.h>
#include <linux/ratelimit.h>
#include <linux/sched.h>

struct meaning {
	enum pm_step step;
	int status;
	const char *text;
};

static const struct meaning meanings[] = {
	{ PM_STEP_PIN, -EINVAL,
	  "not GPU memory of this process, or freed, or of a kind that cannot be pinned (managed)" },
	{ PM_STEP_PIN, -ENOMEM, "the GPU's BAR1 window is full, or no memory is left: see nvidia-smi -q -d MEMORY" },
	{ PM_STEP_PIN, -EOPNOTSUPP,
	  "the driver does not offer this for the GPU (MIG, vGPU, or a GPU without GPUDirect)" },
	{ PM_STEP_PIN, -ENOTSUPP,
	  "the driver does not offer this for the GPU (MIG, vGPU, or a GPU without GPUDirect)" },
	{ PM_STEP_PIN, -EPERM, "the driver does not permit this process to pin" },
	{ PM_STEP_PIN, -EIO, "the GPU reports an error: look for Xid in the kernel's log" },
	{ PM_STEP_PIN, -ENODEV, "the GPU has been removed" },
	{ PM_STEP_PIN, -EFAULT, "the memory was freed during the call" },
	{ PM_STEP_PIN, -EOVERFLOW, "the range exceeds the address space" },
	{ PM_STEP_PIN, -EBUSY, "the driver uses the memory for a purpose that excludes pinning" },
	{ PM_STEP_PIN, -ESHUTDOWN, "the module is being unloaded" },
	{ PM_STEP_TAKE, -EFAULT, "the memory was freed during the call" },
	{ PM_STEP_TAKE, -EINVAL, "IB core requests another range than in acquire" },
	{ PM_STEP_MAP, -EFAULT, "the memory was freed during the call" },
	{ PM_STEP_MAP, -ENODEV, "the RDMA device is not a PCI device; the GPU's driver requires one" },
	{ PM_STEP_MAP, -EINVAL, "the driver found no path from the device to the GPU" },
	{ PM_STEP_MAP, -EIO, "the IOMMU gave no addresses: boot with iommu=pt, or disable the IOMMU" },
	{ PM_STEP_MAP, -ENOMEM, "no memory is left, or no addresses in the IOMMU" },
};

static const char *const steps[] = {
	[PM_STEP_PIN] = "pin",
	[PM_STEP_TAKE] = "register",
	[PM_STEP_MAP] = "map",
};

static const char *meaning(enum pm_step step, int status)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(meanings); i++) {
		if (meanings[i].step == step && meanings[i].status == status)
			return meanings[i].text;
	}
	return "the driver gives no other reason";
}

void pm_refuse(enum pm_step step, u64 addr, u64 size, int status)
{
	/* A pointer that is not GPU memory counts separately: any invalid pointer of a program comes here. */
	pm_add(step == PM_STEP_PIN && status == -EINVAL ? PM_NOT_OURS : PM_REFUSED, 1);
	pr_info_ratelimited("%s[%d]: cannot %s %llu bytes at 0x%llx: %s (error %d)\n", current->comm, current->pid,
			    steps[step], size, addr, meaning(step, status), status);
}

void pm_refuse_because(u64 addr, u64 size, const char *reason, u32 value)
{
	pm_add(PM_REFUSED, 1);
	pr_warn_ratelimited("%s[%d]: cannot register %llu bytes at 0x%llx: %s (0x%x)\n", current->comm, current->pid,
			    size, addr, reason, value);
}
