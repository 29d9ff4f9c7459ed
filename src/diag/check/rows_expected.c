/* SPDX-License-Identifier: BSD-2-Clause */
/* Expectations of the operator. The rows do not apply where nothing is expected. */
#include <fnmatch.h>
#include <stdio.h>

#include "diag/check/policy.h"
#include "diag/check/row.h"

#define GROUP "Expected"

static void probe_expected_rate(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_inventory *inventory = &machine->inventory;
	uint64_t rate = machine->policy->expected.rate;
	double expected = (double)rate * 8e-9;
	char name[48];

	if (!rate)
		return;
	for (size_t i = 0; i < inventory->port_count; i++) {
		const struct pl_inventory_port *port = &inventory->ports[i];

		if (port->software)
			continue;
		pl_inventory_port_name(name, sizeof(name), port);
		if (!port->active && *port->state)
			pl_check_note(result, PL_CHECK_FAIL, name, "%s, %.4g Gbit/s expected", port->state, expected);
		else if (!port->active || !port->rate)
			pl_check_unknown(result, name, "ibstat", "rate not known, %.4g Gbit/s expected", expected);
		else
			pl_check_note(result, port->rate < rate ? PL_CHECK_FAIL : PL_CHECK_OK, name,
				      "%.4g Gbit/s, %.4g expected", (double)port->rate * 8e-9, expected);
	}
	if (!result->count)
		pl_check_note(result, PL_CHECK_FAIL, NULL, "no port of an RDMA card, %.4g Gbit/s expected", expected);
}

static void judge_expected_link(const struct pl_inventory_device *device, struct pl_pci_link expected,
				struct pl_check_result *result)
{
	char now[40], wanted[40];
	bool slow = !device->idle && device->link.speed < expected.speed;

	/* A virtual function has no link of its own. */
	if (device->function)
		return;
	pl_pci_link_text(wanted, sizeof(wanted), expected);
	if (!device->link.width || !device->link.speed)
		pl_check_unknown(result, device->address, "lspci -vv | grep LnkSta, on the host of a virtual machine",
				 "link not known, %s expected", wanted);
	else
		pl_check_note(result, device->link.width < expected.width || slow ? PL_CHECK_FAIL : PL_CHECK_OK,
			      device->address, "%s%s, %s expected", pl_pci_link_text(now, sizeof(now), device->link),
			      device->idle ? " (idle)" : "", wanted);
}

static void probe_expected_links(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_check_expected *expected = &machine->policy->expected;
	struct pl_pci_link link = { pl_check_generation_speed(expected->generation), expected->lanes };

	if (!expected->lanes)
		return;
	for (size_t i = 0; i < machine->inventory.gpu_count; i++)
		judge_expected_link(&machine->inventory.gpus[i], link, result);
	for (size_t i = 0; i < machine->inventory.card_count; i++)
		judge_expected_link(&machine->inventory.cards[i], link, result);
	if (!result->count)
		pl_check_unknown(result, NULL, "lspci -vv | grep LnkSta, on the host of a virtual machine",
				 "no GPU or card with a link of its own");
}

static void probe_expected_driver(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const char *pattern = machine->policy->expected.driver, *driver = machine->inventory.driver;

	if (!*pattern)
		return;
	if (*driver)
		pl_check_note(result, fnmatch(pattern, driver, 0) ? PL_CHECK_FAIL : PL_CHECK_OK, NULL,
			      "driver %s, %s expected", driver, pattern);
	else if (check_module(machine, "nvidia"))
		pl_check_unknown(result, NULL, "modinfo nvidia", "driver not known, %s expected", pattern);
	else
		pl_check_note(result, PL_CHECK_FAIL, NULL, "no driver of NVIDIA, %s expected", pattern);
}

static void probe_baseline(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_check_policy *policy = machine->policy;
	const struct pl_check_baseline *baseline = policy->baseline;

	if (!baseline)
		return;
	if (*policy->host && *baseline->host && strcmp(policy->host, baseline->host))
		pl_check_note(result, PL_CHECK_WARN, "host", "%.100s, and the baseline is of %.100s", policy->host,
			      baseline->host);
	pl_check_compare(result, &machine->inventory, baseline);
	if (!result->count)
		pl_check_note(result, PL_CHECK_OK, NULL, "as at %s", baseline->time);
}

const struct pl_check_row pl_check_rows_expected[] = {
	{
		.id = "expect-rate",
		.group = GROUP,
		.title = "expected rate of the ports",
		.requirement = "Each port of a card is active, and has at least the rate of --expect rate=GBITS.",
		.how = "/sys/class/infiniband/*/ports/*/{state,rate}",
		.reason = "A port that negotiated less limits all transfers of its GPU, and all ranks wait for it.",
		.remedy = "clean or change the cable, then look at the switch's port: mlxlink -d DEVICE -c; for a "
			  "port without a cable, pass --ignore expect-rate:DEVICE/PORT=uncabled",
		.rank = 44,
		.probe = probe_expected_rate,
	},
	{
		.id = "expect-links",
		.group = GROUP,
		.title = "expected links of GPUs and cards",
		.requirement = "The PCI Express link of each GPU and card has at least the lanes and the generation of "
			       "--expect links=LANESxGENERATION. An idle GPU may be slower.",
		.how = "current_link_width and current_link_speed in D",
		.reason = "A link that trained with fewer lanes works, at a fraction of the rate.",
		.remedy = "look at dmesg; switch the machine off and on; reseat the card, and look at its riser",
		.rank = 45,
		.probe = probe_expected_links,
	},
	{
		.id = "expect-driver",
		.group = GROUP,
		.title = "expected driver of NVIDIA",
		.requirement = "The version of NVIDIA's kernel module matches the pattern of --expect driver=PATTERN.",
		.how = "/sys/module/nvidia/version",
		.reason = "Hosts with different drivers behave differently, which is hard to find in a job of many hosts.",
		.remedy = "install the expected driver, then reboot",
		.rank = 46,
		.probe = probe_expected_driver,
	},
	{
		.id = "baseline",
		.group = GROUP,
		.title = "as in an earlier check",
		.requirement = "GPUs, cards, RDMA devices, ports, links, rates, firmware and the driver are as in the "
			       "file of --baseline.",
		.how = "inventory in the JSON of both checks",
		.reason = "A device that is missing, narrower or slower than before is broken, or was changed.",
		.remedy = "look at what differs; if it is intended: peerlane check --format json --output FILE",
		.rank = 47,
		.probe = probe_baseline,
	},
	{ .id = NULL },
};
