/* SPDX-License-Identifier: BSD-2-Clause */
/* Peer memory client, and the interface of the RDMA core that it needs. */
#include <stdio.h>
#include <stdlib.h>

#include "diag/check/row.h"

#define GROUP "Peer memory"
#define PEERS "sys/kernel/mm/memory_peers"

static bool is_candidate(const struct pl_check_machine *machine, const struct check_gpu *gpu)
{
	char reason[200];

	return gpu->pci->vendor == PL_PCI_VENDOR_NVIDIA &&
	       check_gpu_capable(machine, gpu, reason, sizeof(reason)) != PL_CHECK_WAY_NO;
}

/* True if a GPU has no other direct path. */
static bool needed(const struct pl_check_machine *machine)
{
	char reason[200];
	bool dmabuf = false;

	for (size_t i = 0; i < machine->gpu_count; i++)
		if (is_candidate(machine, &machine->gpus[i]) &&
		    check_gpu_dmabuf(machine, &machine->gpus[i], reason, sizeof(reason)) != PL_CHECK_WAY_YES)
			return true;
	for (size_t i = 0; i < machine->device_count; i++)
		dmabuf = dmabuf ||
			 check_device_dmabuf(machine, &machine->devices[i], reason, sizeof(reason)) == PL_CHECK_WAY_YES;
	return !dmabuf;
}

static bool applies(const struct pl_check_machine *machine)
{
	for (size_t i = 0; i < machine->gpu_count; i++)
		if (is_candidate(machine, &machine->gpus[i]))
			return machine->card_count > 0;
	return false;
}

/* True if Peerlane's module is installed with its package. */
static bool is_installed(const struct pl_check_machine *machine)
{
	return check_exists(machine, "usr/sbin/peerlane-peermem");
}

static void probe_client(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const char *client = check_peer_client(machine);

	if (!applies(machine))
		return;
	if (client) {
		pl_check_note(result, PL_CHECK_OK, NULL, "%s is loaded", client);
	} else if (!needed(machine)) {
		pl_check_note(result, PL_CHECK_OK, NULL, "none is loaded, and none is needed: dma-buf works");
	} else if (check_module(machine, "nvidia_peermem") || check_module(machine, "nv_peer_mem")) {
		pl_check_note(result, PL_CHECK_FAIL, NULL,
			      "the module is loaded, but not registered with the RDMA core");
		pl_check_remedy(result, "rmmod nvidia_peermem; modprobe nvidia-peermem; dmesg | tail   "
					"# after the RDMA drivers, and built for them");
	} else {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "no peer memory client is loaded");
		if (is_installed(machine))
			pl_check_remedy(result, "peerlane-peermem start");
		if (check_peer_core(machine) == PL_CHECK_WAY_NO)
			pl_check_remedy(
				result,
				"install MLNX_OFED or DOCA; then reinstall the NVIDIA driver; modprobe nvidia-peermem");
	}
}

static void plan_client(const struct pl_check_machine *machine, struct pl_check_plan *plan)
{
	if (check_module(machine, "nvidia") && check_peer_core(machine) != PL_CHECK_WAY_NO &&
	    !check_module(machine, "nvidia_peermem"))
		pl_check_plan_module(plan, is_installed(machine) ? "peerlane_peermem" : "nvidia-peermem");
}

struct search {
	const char *const *words;
	bool found;
};

static void look_into(const struct pl_check_machine *machine, const char *path, void *user)
{
	struct search *search = user;
	char text[4096], *line, *rest;

	if (search->found || check_text(machine, text, "%s", path) < 0)
		return;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		line += strspn(line, " \t");
		for (const char *const *word = search->words; *word; word++)
			if (!strncmp(line, *word, strlen(*word)))
				search->found = true;
	}
}

static bool starts_at_boot(const struct pl_check_machine *machine)
{
	static const char *const words[] = { "nvidia-peermem",   "nvidia_peermem", "nv_peer_mem", "peerlane_peermem",
					     "peerlane-peermem", "efa_nv_peermem", NULL };
	static const char *const places[] = { "etc/modules-load.d/*.conf",
					      "usr/lib/modules-load.d/*.conf",
					      "usr/local/lib/modules-load.d/*.conf",
					      "run/modules-load.d/*.conf",
					      "etc/modules",
					      "etc/rc.modules",
					      NULL };
	static const char *const services[] = { "etc/init.d/nv_peer_mem", "etc/rc3.d/*nv_peer_mem", NULL };
	static const char *const off[] = { "ONBOOT=no", "ONBOOT=No", "ONBOOT=NO", "ONBOOT=0", "ONBOOT=false", NULL };
	struct search denied = { off, false };
	struct search search = { words, false };

	for (size_t i = 0; places[i]; i++)
		check_glob(machine, places[i], look_into, &search);
	for (size_t i = 0; services[i]; i++)
		search.found = search.found || check_exists(machine, "%s", services[i]);
	/* Peerlane's module has a service, and a setting for it. */
	look_into(machine, "etc/peerlane/peermem.conf", &denied);
	return search.found || (!denied.found && check_exists(machine, "etc/systemd/system/multi-user.target.wants/"
								       "peerlane-peermem.service"));
}

static void probe_boot(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	if (!applies(machine) || !needed(machine))
		return;
	if (!check_exists(machine, "etc"))
		pl_check_unknown(result, NULL, "a capture that has /etc/modules-load.d",
				 "there is no /etc to look into");
	else if (starts_at_boot(machine))
		pl_check_note(result, PL_CHECK_OK, NULL, "it is loaded when the machine starts");
	else
		pl_check_note(result, PL_CHECK_WARN, NULL, "nothing loads it when the machine starts");
	if (is_installed(machine))
		pl_check_remedy(result, "ONBOOT=yes in /etc/peerlane/peermem.conf; systemctl enable peerlane-peermem");
}

static void plan_boot(const struct pl_check_machine *machine, struct pl_check_plan *plan)
{
	if (!is_installed(machine) && !check_exists(machine, "etc/modules-load.d/peerlane.conf"))
		pl_check_plan_file(plan, "/etc/modules-load.d/peerlane.conf", "nvidia-peermem\n");
}

static void probe_single(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	static const char *const modules[] = { "nvidia_peermem", "nv_peer_mem", "peerlane_peermem" };
	const char *first = NULL, *second = NULL;

	for (size_t i = 0; i < PL_ARRAY_SIZE(modules); i++) {
		if (!check_module(machine, modules[i]))
			continue;
		second = first ? modules[i] : second;
		first = first ? first : modules[i];
	}
	if (second) {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "both %s and %s are loaded", first, second);
		if (strcmp(second, "nv_peer_mem"))
			pl_check_remedy(result, "rmmod %s", strcmp(first, "nv_peer_mem") ? second : first);
	} else if (first) {
		pl_check_note(result, PL_CHECK_OK, NULL, "only %s", first);
	}
}

static void probe_core(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	enum pl_check_way way = check_peer_core(machine);
	bool wanted = needed(machine);

	if (!applies(machine) || !check_module(machine, "ib_core"))
		return;
	if (way == PL_CHECK_WAY_YES)
		pl_check_note(result, PL_CHECK_OK, NULL, "the RDMA core has the interface for peer memory clients");
	else if (way == PL_CHECK_WAY_NO)
		pl_check_note(result, wanted ? PL_CHECK_FAIL : PL_CHECK_OK, NULL,
			      "the RDMA core is the kernel's own, without the interface for peer memory clients%s",
			      wanted ? "" : ", which dma-buf does not need");
	else if (!wanted)
		pl_check_note(result, PL_CHECK_OK, NULL, "not needed: dma-buf works");
	else
		pl_check_unknown(result, NULL, "grep ib_register_peer_memory_client /proc/kallsyms",
				 "the symbols of the kernel were not read");
}

struct version {
	char text[64];
};

/* ofed_info is a shell script that contains the release: "MLNX_OFED_LINUX-5.4-1.0.3.0 (OFED-5.4-1.0.3):". */
static void read_ofed_info(const struct pl_check_machine *machine, struct version *version)
{
	char text[4096], *mark;
	int length = pl_sysroot_bytes(machine->root, text, sizeof(text) - 1, "usr/bin/ofed_info");

	text[PL_MAX(length, 0)] = '\0';
	mark = strstr(text, "MLNX_OFED_LINUX-");
	if (mark)
		snprintf(version->text, sizeof(version->text), "%.*s", (int)strspn(mark + 16, "0123456789.-"),
			 mark + 16);
	mark = mark ? NULL : strstr(text, "OFED-internal-");
	if (mark)
		snprintf(version->text, sizeof(version->text), "%.*s", (int)strspn(mark + 14, "0123456789.-"),
			 mark + 14);
}

/* Finds the release of out-of-tree drivers; "" for the kernel's own. */
static void find_ofed(const struct pl_check_machine *machine, struct version *version)
{
	static const char *const modules[] = { "mlx5_core", "mlx4_core", "mlx_compat" };

	version->text[0] = '\0';
	read_ofed_info(machine, version);
	for (size_t i = 0; !version->text[0] && i < PL_ARRAY_SIZE(modules); i++) {
		check_text(machine, version->text, "sys/module/%s/version", modules[i]);
		/* The kernel's own mlx4 has "4.0-0", its early mlx5 "5.0-0". */
		if (!strcmp(version->text, "4.0-0") || !strcmp(version->text, "5.0-0"))
			version->text[0] = '\0';
	}
}

static void probe_ofed(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const char *module = check_module(machine, "peerlane_peermem") ? "peerlane_peermem" : "nvidia_peermem";
	int64_t support = check_number(machine, "sys/module/%s/parameters/peerdirect_support", module);
	struct version version;

	if (!applies(machine) || !check_module(machine, "ib_core"))
		return;
	find_ofed(machine, &version);
	if (!version.text[0]) {
		pl_check_note(result, PL_CHECK_OK, NULL, "the kernel's own RDMA drivers, no OFED");
	} else if (!strncmp(version.text, "4.9", 3)) {
		pl_check_note(result, support == 1 || !check_peer_client(machine) ? PL_CHECK_OK : PL_CHECK_FAIL, NULL,
			      "OFED %s, %s %s%s", version.text, support == 1 ? "and" : "for which", module,
			      support == 1 ? " is set for it" : " needs peerdirect_support=1");
		pl_check_remedy(result,
				"echo options %s peerdirect_support=1 > /etc/modprobe.d/peerdirect.conf; rmmod %s; "
				"modprobe %s",
				module, module, module);
	} else if (check_compare_versions(version.text, "5.5") < 0 && check_module(machine, "peerlane_peermem")) {
		pl_check_note(result, PL_CHECK_OK, NULL,
			      "OFED %s: without the correction of 5.5, which peerlane_peermem gets along without",
			      version.text);
	} else if (check_compare_versions(version.text, "5.5") < 0) {
		pl_check_note(result, PL_CHECK_WARN, NULL,
			      "OFED %s: freeing GPU memory while a registration ends can deadlock before 5.5",
			      version.text);
	} else {
		pl_check_note(result, PL_CHECK_OK, NULL, "OFED %s", version.text);
	}
}

static void judge_pins(const struct pl_check_machine *machine, const char *client, struct pl_check_result *result)
{
	int64_t made = check_number(machine, PEERS "/%s/num_alloc_mrs", client),
		gone = check_number(machine, PEERS "/%s/num_dealloc_mrs", client);
	long long holders = pl_facts_number(machine->facts, -1, "pins.holders"), pinned;

	if (made < 0 || gone < 0)
		return;
	pinned = made > gone ? made - gone : 0;
	if (!pinned)
		pl_check_note(result, PL_CHECK_OK, client, "nothing is pinned");
	else if (holders > 0)
		pl_check_note(result, PL_CHECK_OK, client, "%lld regions are pinned, %lld processes use RDMA", pinned,
			      holders);
	else if (holders == 0)
		pl_check_note(result, PL_CHECK_WARN, client, "%lld regions are pinned, and no process uses RDMA",
			      pinned);
	else
		pl_check_unknown(result, client, "run it as root, which sees who uses RDMA", "%lld regions are pinned",
				 pinned);
}

static void probe_pins(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	struct pl_sysroot_list list;

	if (pl_sysroot_list(machine->root, &list, PEERS) < 0)
		return;
	for (size_t i = 0; i < list.count; i++)
		judge_pins(machine, list.names[i], result);
	pl_sysroot_list_free(&list);
}

const struct pl_check_row pl_check_rows_peer[] = {
	{
		.id = "peer-client",
		.group = GROUP,
		.title = "peer memory client",
		.requirement =
			"Where dma-buf does not work, nvidia-peermem, nv_peer_mem or a like module is loaded and "
			"registered.",
		.how = "/sys/kernel/mm/memory_peers/*/version; /sys/module/nvidia_peermem, nv_peer_mem, efa_nv_peermem",
		.reason = "Without it ibv_reg_mr() of a GPU's address fails with EFAULT, \"Bad address\".",
		.remedy = "modprobe nvidia-peermem",
		.rank = 20,
		.probe = probe_client,
		.plan = plan_client,
	},
	{
		.id = "peer-boot",
		.group = GROUP,
		.title = "peer memory client at boot",
		.requirement = "The peer memory client is loaded when the machine starts.",
		.how = "/etc/modules-load.d, /etc/modules, the init script nv_peer_mem, peerlane-peermem.service",
		.reason = "A client that was loaded by hand is gone after the next reboot.",
		.remedy = "echo nvidia-peermem > /etc/modules-load.d/peerlane.conf",
		.rank = 90,
		.probe = probe_boot,
		.plan = plan_boot,
	},
	{
		.id = "peer-single",
		.group = GROUP,
		.title = "only one peer memory client",
		.requirement = "nvidia-peermem, nv_peer_mem and others for the same GPUs are not loaded together.",
		.how = "/sys/module",
		.reason = "Both claim the same addresses, and either one may get them.",
		.remedy = "rmmod nv_peer_mem; apt purge nvidia-peer-memory-dkms",
		.rank = 25,
		.probe = probe_single,
	},
	{
		.id = "peer-core",
		.group = GROUP,
		.title = "interface of the RDMA core for peer memory",
		.requirement =
			"ib_core has ib_register_peer_memory_client(), which only MLNX_OFED, DOCA and some vendors' "
			"kernels have.",
		.how = "/sys/kernel/mm/memory_peers; /proc/kallsyms",
		.reason = "Without it modprobe nvidia-peermem fails with \"Invalid argument\" or \"Unknown symbol\".",
		.remedy = "install MLNX_OFED or DOCA; then reinstall the NVIDIA driver, which is built against it",
		.rank = 18,
		.probe = probe_core,
	},
	{
		.id = "peer-ofed",
		.group = GROUP,
		.title = "release of OFED",
		.requirement = "MLNX_OFED, if installed, has version 5.5 or later; with 4.9, nvidia-peermem has "
			       "peerdirect_support=1.",
		.how = "ofed_info -n; /sys/module/mlx5_core/version (the kernel's own driver has none)",
		.reason = "Before 5.5 ending a registration and freeing GPU memory can deadlock (reference 2696789).",
		.remedy = "install DOCA-OFED or a later MLNX_OFED; then reinstall the NVIDIA driver",
		.rank = 64,
		.probe = probe_ofed,
	},
	{
		.id = "peer-pins",
		.group = GROUP,
		.title = "no leaked pins",
		.requirement = "A process holds all memory that peer memory clients pinned.",
		.how = "/sys/kernel/mm/memory_peers/*/num_alloc_mrs less num_dealloc_mrs; who has /dev/infiniband open",
		.reason = "Leaked pins fill BAR1 until no registration succeeds.",
		.remedy = "end all programs that use the GPUs, then: rmmod nvidia_peermem; modprobe nvidia-peermem",
		.rank = 55,
		.probe = probe_pins,
	},
	{ .id = NULL },
};
