/* SPDX-License-Identifier: BSD-2-Clause */
/* Cards and their drivers. */
#include <stdio.h>

#include "diag/check/row.h"

#define GROUP "RDMA card"
#define CONNECTX3_FIRST 0x1003
#define CONNECTX3_LAST 0x1007
#define CONNECT_IB_FIRST 0x1011
#define CONNECT_IB_LAST 0x1012

static bool has_device(const struct pl_check_machine *machine, const struct check_card *card)
{
	for (size_t i = 0; i < machine->device_count; i++)
		if (machine->devices[i].card == card)
			return true;
	return false;
}

static void judge_driver(const struct pl_check_machine *machine, const struct check_card *card,
			 struct pl_check_result *result)
{
	const char *ib = !strcmp(card->pci->driver, "mlx4_core")   ? "mlx4_ib"
			 : !strcmp(card->pci->driver, "mlx5_core") ? "mlx5_ib"
			 : !strcmp(card->pci->driver, "bnxt_en")   ? "bnxt_re"
			 : !strcmp(card->pci->driver, "ice")       ? "irdma"
			 : !strcmp(card->pci->driver, "mana")      ? "mana_ib"
								   : "ib_uverbs";

	if (!strncmp(card->pci->driver, "vfio", 4)) {
		pl_check_note(result, PL_CHECK_WARN, card->pci->address, "%s has it: it is given to a virtual machine",
			      card->pci->driver);
		pl_check_remedy(result, "nothing, if that is meant; else: driverctl unset-override %s",
				card->pci->address);
	} else if (!*card->pci->driver) {
		pl_check_note(result, PL_CHECK_FAIL, card->pci->address, "no driver is bound to it%s%s",
			      *card->wanted ? ", it should be " : "", card->wanted);
		pl_check_remedy(result,
				"modprobe %s; if it stays unbound: echo 1 > /sys/bus/pci/devices/%s/remove; "
				"echo 1 > /sys/bus/pci/rescan; then: dmesg | tail",
				*card->wanted ? card->wanted : "mlx5_core", card->pci->address);
	} else if (!has_device(machine, card)) {
		pl_check_note(result, PL_CHECK_FAIL, card->pci->address, "%s has it, but there is no RDMA device",
			      card->pci->driver);
		pl_check_remedy(result, "modprobe %s", ib);
	} else {
		pl_check_note(result, PL_CHECK_OK, card->pci->address, "driver %s", card->pci->driver);
	}
}

static void probe_card_driver(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	for (size_t i = 0; i < machine->card_count; i++)
		judge_driver(machine, &machine->cards[i], result);
	if (machine->card_count < machine->policy->expected.cards) {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "%zu card%s on the PCI bus, %u expected",
			      machine->card_count, machine->card_count == 1 ? "" : "s", machine->policy->expected.cards);
		pl_check_remedy(result,
				"lspci -d ::0207; lspci -d ::0200; dmesg; echo 1 > /sys/bus/pci/rescan; each port of "
				"a card may be a card of its own here");
	}
	if (machine->card_count)
		return;
	if (machine->device_count) {
		pl_check_note(result, PL_CHECK_WARN, NULL, "no card, only RDMA by software (%s)",
			      machine->devices[0].name);
		pl_check_remedy(result, "put a card in; soft-RoCE is for trying things out");
	} else {
		pl_check_note(result, PL_CHECK_FAIL, NULL, "there is no RDMA card");
	}
}

static void plan_card_driver(const struct pl_check_machine *machine, struct pl_check_plan *plan)
{
	for (size_t i = 0; i < machine->card_count; i++) {
		const struct check_card *card = &machine->cards[i];

		if (!*card->pci->driver && *card->wanted && !check_module(machine, card->wanted))
			pl_check_plan_module(plan, card->wanted);
		if (!*card->pci->driver)
			pl_check_plan_rescan(plan, card->pci->address);
		else if (!has_device(machine, card) && !strncmp(card->pci->driver, "mlx", 3))
			pl_check_plan_module(plan, !strcmp(card->pci->driver, "mlx4_core") ? "mlx4_ib" : "mlx5_ib");
	}
}

static void describe_card(const struct check_device *device, char *text, size_t size)
{
	const struct pl_card *rdma = device->rdma;

	if (!*rdma->type)
		snprintf(text, size, "%s", device->card ? device->card->pci->driver : "made of software");
	else
		snprintf(text, size, "%s%s%s%s%s", rdma->type, *rdma->firmware ? ", firmware " : "", rdma->firmware,
			 *rdma->board ? ", board " : "", rdma->board);
}

static void probe_card_model(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	char text[160];

	for (size_t i = 0; i < machine->device_count; i++) {
		const struct check_device *device = &machine->devices[i];
		const struct check_card *card = device->card;
		unsigned number = card && card->pci->vendor == PL_PCI_VENDOR_MELLANOX ? card->pci->device : 0;

		describe_card(device, text, sizeof(text));
		if (number >= CONNECTX3_FIRST && number <= CONNECTX3_LAST)
			pl_check_note(result, PL_CHECK_WARN, device->name,
				      "ConnectX-3 (%s): GPU memory only by peer memory, with MLNX_OFED 4.9", text);
		else if (number >= CONNECT_IB_FIRST && number <= CONNECT_IB_LAST)
			pl_check_note(result, PL_CHECK_WARN, device->name,
				      "Connect-IB (%s): GPU memory only by peer memory, with MLNX_OFED 4.9", text);
		else
			pl_check_note(result, PL_CHECK_OK, device->name, "%s", text);
	}
	if (result->status == PL_CHECK_WARN && !machine->gpu_count)
		pl_check_remedy(result, "for memory of the host: nothing, it works; for GPUs: a newer card, "
					"or MLNX_OFED 4.9");
	for (size_t i = 0; i < machine->card_count; i++) {
		const struct check_card *card = &machine->cards[i];

		if (!has_device(machine, card))
			pl_check_unknown(result, card->pci->address, "bind its driver, then run it again",
					 "model %04x:%04x, without a driver", card->pci->vendor, card->pci->device);
	}
}

static void probe_card_dmabuf(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	enum pl_check_status no = check_peer_client(machine) || !machine->gpu_count ? PL_CHECK_OK : PL_CHECK_WARN;
	char reason[200];

	for (size_t i = 0; i < machine->device_count; i++) {
		const struct check_device *device = &machine->devices[i];
		enum pl_check_way way = check_device_dmabuf(machine, device, reason, sizeof(reason));

		if (way == PL_CHECK_WAY_UNKNOWN)
			pl_check_unknown(result, device->name,
					 "run it on the machine itself, as a user who may open "
					 "the device",
					 "%s", reason);
		else
			pl_check_note(result, way == PL_CHECK_WAY_YES ? PL_CHECK_OK : no, device->name, "%s", reason);
	}
}

const struct pl_check_row pl_check_rows_card[] = {
	{
		.id = "card-driver",
		.group = GROUP,
		.title = "RDMA card with its driver",
		.requirement =
			"There is an RDMA card, its driver (mlx4_core, mlx5_core, bnxt_en, ice, efa, ...) is bound "
			"to it, and made an RDMA device.",
		.how = "readlink /sys/bus/pci/devices/ADDRESS/driver; ls /sys/class/infiniband",
		.reason = "Without the driver, ibv_get_device_list() does not return the card.",
		.remedy = "without a card use the tcp fabric; to try RDMA in software: modprobe rdma_rxe; "
			  "rdma link add rxe0 type rxe netdev INTERFACE",
		.rank = 12,
		.probe = probe_card_driver,
		.plan = plan_card_driver,
	},
	{
		.id = "card-model",
		.group = GROUP,
		.title = "model and firmware",
		.requirement =
			"The card is no ConnectX-3 and no Connect-IB, whose last drivers with peer memory are those "
			"of MLNX_OFED 4.9.",
		.how = "/sys/class/infiniband/*/{hca_type,fw_ver,board_id}",
		.reason = "Newer drivers no longer support these cards, or features are missing.",
		.remedy = "use a newer card; or MLNX_OFED 4.9, and nvidia-peermem peerdirect_support=1; "
			  "firmware: mlxfwmanager --online -u",
		.rank = 66,
		.probe = probe_card_model,
	},
	{
		.id = "card-dmabuf",
		.group = GROUP,
		.title = "registration of dma-bufs",
		.requirement = "The card's driver registers dma-bufs: mlx5, efa, irdma, bnxt_re, mana, ionic, with "
			       "Linux 5.12.",
		.how = "ibv_reg_dmabuf_mr() of the descriptor -1: EBADF is yes; EOPNOTSUPP or EPROTONOSUPPORT is no",
		.reason = "With other drivers, only a peer memory client can register GPU memory.",
		.remedy = "update kernel and rdma-core (apt install rdma-core); the kernel needs "
			  "CONFIG_INFINIBAND_ON_DEMAND_PAGING; else use peer memory: modprobe nvidia-peermem",
		.rank = 61,
		.probe = probe_card_dmabuf,
	},
	{ .id = NULL },
};
