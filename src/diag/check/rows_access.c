/* SPDX-License-Identifier: BSD-2-Clause */
/* Access of this user, or this container, to the card. */
#include <stdio.h>
#include <stdlib.h>

#include "diag/check/row.h"

#define GROUP "Access"
#define ENOUGH_MEMLOCK (64ll << 20)
#define LIMITS_FILE "/etc/security/limits.d/90-peerlane.conf"
/* KiB: enough for staging, and more than any huge page. */
#define HUGE_ENOUGH (64ll << 10)
#define PAGE_MOST (1ll << 40)

static void judge_node(const struct pl_check_machine *machine, const struct check_device *device,
		       struct pl_check_result *result)
{
	int error = check_node_errno(machine, device);

	if (error == 0) {
		pl_check_note(result, PL_CHECK_OK, device->name, "/dev/infiniband/%s can be opened",
			      device->rdma->uverbs);
		return;
	}
	if (error < 0) {
		pl_check_unknown(result, device->name, "ls -l /dev/infiniband", "/dev/infiniband/%s is there",
				 device->rdma->uverbs);
		return;
	}
	pl_check_note(result, PL_CHECK_FAIL, device->name, "%s%s: %s",
		      *device->rdma->uverbs ? "/dev/infiniband/" : "it has no device node", device->rdma->uverbs,
		      error == ETIMEDOUT ? "the driver does not answer" : strerrordesc_np(error));
	if (error == ETIMEDOUT)
		pl_check_remedy(result, "dmesg | tail; reset the card, or load its driver again");
	else if (machine->container)
		pl_check_remedy(result, "docker run --device=/dev/infiniband --cap-add=IPC_LOCK ...; "
					"Kubernetes: the RDMA device plugin");
	else if (error == ENODEV || error == ENOENT)
		pl_check_remedy(result, "modprobe ib_uverbs; modprobe rdma_ucm; udevadm trigger");
	else if (error == EACCES || error == EPERM)
		pl_check_remedy(result,
				"ls -l /dev/infiniband; apt install rdma-core, whose udev rules open them to all");
}

static void probe_nodes(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const char *library = pl_facts_get(machine->facts, "verbs.library");
	const char *state = pl_facts_get(machine->facts, "verbs.state");

	for (size_t i = 0; i < machine->device_count; i++)
		judge_node(machine, &machine->devices[i], result);
	if (!machine->device_count)
		return;
	if (library && strcmp(library, "ok")) {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "libibverbs cannot be used: %s", library);
		pl_check_remedy(result, "apt install libibverbs1 ibverbs-providers");
	} else if (state && strcmp(state, "done")) {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "asking libibverbs %s%s",
			      strcmp(state, "hangs") ? "failed: " : "", state);
		pl_check_remedy(result, "dmesg | tail -50; the driver may have to be loaded again");
	} else if (pl_facts_number(machine->facts, -1, "verbs.devices") == 0) {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "the kernel has devices, libibverbs finds none");
		pl_check_remedy(result, "apt install ibverbs-providers; ls /etc/libibverbs.d");
	}
}

static void plan_nodes(const struct pl_check_machine *machine, struct pl_check_plan *plan)
{
	if (machine->container)
		return;
	if (!check_module(machine, "ib_uverbs"))
		pl_check_plan_module(plan, "ib_uverbs");
	if (!check_module(machine, "rdma_ucm"))
		pl_check_plan_module(plan, "rdma_ucm");
}

static void probe_memlock(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const char *limit = pl_facts_get(machine->facts, "limit.memlock");
	long long bytes = pl_facts_number(machine->facts, -1, "limit.memlock");

	if (!machine->device_count && !machine->card_count)
		return;
	if (!limit)
		pl_check_unknown(result, NULL, "ulimit -l, as the user and in the service that is meant",
				 "the limit of a process is no file");
	else if (!strcmp(limit, "unlimited"))
		pl_check_note(result, PL_CHECK_OK, NULL, "unlimited");
	else if (pl_facts_number(machine->facts, 0, "process.ipc_lock") == 1)
		pl_check_note(result, PL_CHECK_OK, NULL, "%lld KiB, which CAP_IPC_LOCK goes beyond", bytes >> 10);
	else
		pl_check_note(result, bytes < ENOUGH_MEMLOCK ? PL_CHECK_FAIL : PL_CHECK_WARN, NULL,
			      "only %lld KiB can be locked, so registered", bytes >> 10);
	if (result->status >= PL_CHECK_WARN && machine->container)
		pl_check_remedy(result, "docker run --ulimit memlock=-1 --cap-add=IPC_LOCK ...");
}

static void plan_memlock(const struct pl_check_machine *machine, struct pl_check_plan *plan)
{
	if (!machine->container && !check_exists(machine, "%s", LIMITS_FILE))
		pl_check_plan_file(plan, LIMITS_FILE, "* soft memlock unlimited\n* hard memlock unlimited\n");
}

static void note_file(const struct pl_check_machine *machine, const char *path, void *user)
{
	struct pl_check_result *result = user;
	char text[512], *line, *rest;

	if (check_text(machine, text, "%s", path) < 0)
		return;
	/* "mlx5_0 hca_handle=2 hca_object=2000", or max in place of a number. */
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (strstr(line, "hca_handle=") && !strstr(line, "hca_handle=max"))
			pl_check_note(result, strstr(line, "hca_handle=0") ? PL_CHECK_FAIL : PL_CHECK_WARN, NULL,
				      "%s: %s", strrchr(path, '/') + 1, line);
}

/*
 * Checks the limits of the process's control group; from the root group, those of its children, which containers get.
 */
static void probe_cgroup(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	char group[256], *path;

	if (!machine->device_count)
		return;
	if (check_text(machine, group, "proc/self/cgroup") < 0 || !(path = strstr(group, "0::/"))) {
		pl_check_unknown(result, NULL, "cat /sys/fs/cgroup/*/rdma.max",
				 "there is no control group of version 2");
		return;
	}
	path[4 + strcspn(path + 4, "\n")] = '\0';
	for (char file[320]; path[3]; *(strrchr(path + 3, '/')) = '\0') {
		snprintf(file, sizeof(file), "sys/fs/cgroup%s/rdma.max", path + 3);
		if (check_exists(machine, "%s", file))
			note_file(machine, file, result);
	}
	if (!result->count)
		pl_check_note(result, PL_CHECK_OK, NULL, "no limit of RDMA objects");
}

/* True if data of a GPU can only go through host memory. */
static bool stages(const struct pl_check_machine *machine)
{
	char reason[200];

	if (!machine->device_count || check_peer_client(machine))
		return false;
	for (size_t i = 0; i < machine->gpu_count; i++)
		if (check_gpu_dmabuf(machine, &machine->gpus[i], reason, sizeof(reason)) == PL_CHECK_WAY_NO)
			return true;
	return false;
}

static void probe_huge(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	long long total = -1, unused = -1, size = 0, enough;
	char text[4096], *at;

	if (check_text(machine, text, "proc/meminfo") < 0) {
		pl_check_unknown(result, NULL, "grep Huge /proc/meminfo", "there is no /proc/meminfo");
		return;
	}
	if ((at = strstr(text, "HugePages_Total:")))
		total = strtoll(at + 16, NULL, 10);
	if ((at = strstr(text, "HugePages_Free:")))
		unused = strtoll(at + 15, NULL, 10);
	if ((at = strstr(text, "Hugepagesize:")))
		size = strtoll(at + 13, NULL, 10);
	if (total < 0 || unused < 0 || size <= 0 || size > PAGE_MOST) {
		pl_check_unknown(result, NULL, "grep Huge /proc/meminfo", "the kernel has no huge pages");
		return;
	}
	enough = (HUGE_ENOUGH + size - 1) / size;
	if (unused >= enough)
		pl_check_note(result, PL_CHECK_OK, NULL, "%lld pages of %lld KiB, %lld free", total, size, unused);
	else
		pl_check_note(result, stages(machine) ? PL_CHECK_WARN : PL_CHECK_OK, NULL,
			      "%lld pages of %lld KiB, %lld free%s", total, size, unused,
			      stages(machine) ? ": less than 64 MiB for staging" : ", and nothing needs to be staged");
}

const struct pl_check_row pl_check_rows_access[] = {
	{
		.id = "access-nodes",
		.group = GROUP,
		.title = "device nodes of libibverbs",
		.requirement =
			"The process can open /dev/infiniband/uverbsN of the card, and libibverbs has its provider.",
		.how = "ls -l /dev/infiniband; ibv_devinfo",
		.reason = "Without them ibv_get_device_list() returns no device, or ibv_open_device() fails with "
			  "EPERM, as in many "
			  "containers.",
		.remedy = "modprobe ib_uverbs; in a container: --device=/dev/infiniband --cap-add=IPC_LOCK",
		.rank = 14,
		.probe = probe_nodes,
		.plan = plan_nodes,
	},
	{
		.id = "access-memlock",
		.group = GROUP,
		.title = "limit of locked memory",
		.requirement = "The process may lock all memory that it registers: ulimit -l unlimited.",
		.how = "getrlimit(RLIMIT_MEMLOCK); ulimit -l",
		.reason = "With a lower limit, ibv_reg_mr() and ibv_create_qp() fail with ENOMEM, \"Cannot allocate "
			  "memory\".",
		.remedy = "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' > " LIMITS_FILE
			  "; log in again; services: LimitMEMLOCK=infinity",
		.rank = 16,
		.probe = probe_memlock,
		.plan = plan_memlock,
	},
	{
		.id = "access-cgroup",
		.group = GROUP,
		.title = "limit of RDMA objects",
		.requirement = "The control group of the process does not limit handles and objects of RDMA devices.",
		.how = "rdma.max in the process's folder of /sys/fs/cgroup",
		.reason = "At the limit, creating queue pairs and registrations fails with EAGAIN or ENOMEM in "
			  "containers.",
		.remedy = "echo 'mlx5_0 hca_handle=max hca_object=max' > /sys/fs/cgroup/GROUP/rdma.max",
		.rank = 70,
		.probe = probe_cgroup,
	},
	{
		.id = "access-hugepages",
		.group = GROUP,
		.title = "huge pages for staging",
		.requirement = "The system has huge pages for staging buffers.",
		.how = "grep Huge /proc/meminfo",
		.reason =
			"Large staging buffers of small pages register slowly, and miss the card's translation cache.",
		.remedy = "sysctl -w vm.nr_hugepages=128; to keep it: a line in /etc/sysctl.d",
		.rank = 95,
		.probe = probe_huge,
	},
	{ .id = NULL },
};
