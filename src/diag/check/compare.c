/* SPDX-License-Identifier: BSD-2-Clause */
/* Comparison of a machine with an earlier check: lost, narrower, slower and changed devices fail; new ones warn. */
#include <stdio.h>

#include "diag/check/policy.h"
#include "diag/check/row.h"

/* Compares two versions; an empty text is unknown. */
static void compare_versions(struct pl_check_result *result, const char *object, const char *name, const char *now,
			     const char *before)
{
	if (!*before || !strcmp(now, before))
		return;
	if (*now)
		pl_check_note(result, PL_CHECK_FAIL, object, "%s %s, was %s", name, now, before);
	else
		pl_check_unknown(result, object, "run it as root", "%s not known, was %s", name, before);
}

static const struct pl_inventory_device *find_device(const struct pl_inventory_device *devices, size_t count,
						     const char *address)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(devices[i].address, address))
			return &devices[i];
	return NULL;
}

static void compare_link(struct pl_check_result *result, const struct pl_inventory_device *now,
			 const struct pl_inventory_device *before)
{
	const char *object = now->address;
	char new_text[40], old_text[40];
	/* An idle GPU lowers its speed. */
	bool speeds = !now->idle && !before->idle && before->link.speed;

	if ((before->link.width && !now->link.width) || (speeds && !now->link.speed))
		pl_check_unknown(result, object, "lspci -vv | grep LnkSta", "link not known, was %s",
				 pl_pci_link_text(old_text, sizeof(old_text), before->link));
	else if (now->link.width < before->link.width || (speeds && now->link.speed < before->link.speed))
		pl_check_note(result, PL_CHECK_FAIL, object, "link %s, was %s",
			      pl_pci_link_text(new_text, sizeof(new_text), now->link),
			      pl_pci_link_text(old_text, sizeof(old_text), before->link));
}

static void compare_pci_devices(struct pl_check_result *result, const char *kind, const struct pl_inventory_device *now,
				size_t count, const struct pl_inventory_device *before, size_t before_count)
{
	for (size_t i = 0; i < before_count; i++) {
		const struct pl_inventory_device *same = find_device(now, count, before[i].address);

		if (!same) {
			pl_check_note(result, PL_CHECK_FAIL, before[i].address, "no %s, was %s", kind,
				      *before[i].model ? before[i].model : "there");
			continue;
		}
		compare_versions(result, same->address, "model", same->model, before[i].model);
		compare_link(result, same, &before[i]);
	}
	for (size_t i = 0; i < count; i++)
		if (!find_device(before, before_count, now[i].address))
			pl_check_note(result, PL_CHECK_WARN, now[i].address, "%s%s%s, was not there", kind,
				      *now[i].model ? " " : "", now[i].model);
}

static const struct pl_inventory_rdma *find_rdma(const struct pl_inventory *inventory, const char *name)
{
	for (size_t i = 0; i < inventory->device_count; i++)
		if (!strcmp(inventory->devices[i].name, name))
			return &inventory->devices[i];
	return NULL;
}

static void compare_rdma_devices(struct pl_check_result *result, const struct pl_inventory *now,
				 const struct pl_inventory *before)
{
	for (size_t i = 0; i < before->device_count; i++) {
		const struct pl_inventory_rdma *was = &before->devices[i], *is = find_rdma(now, was->name);

		if (!is)
			pl_check_note(result, PL_CHECK_FAIL, was->name, "no RDMA device, was there");
		else
			compare_versions(result, is->name, "firmware", is->firmware, was->firmware);
	}
	for (size_t i = 0; i < now->device_count; i++)
		if (!find_rdma(before, now->devices[i].name))
			pl_check_note(result, PL_CHECK_WARN, now->devices[i].name, "RDMA device, was not there");
}

static const struct pl_inventory_port *find_port(const struct pl_inventory *inventory,
						 const struct pl_inventory_port *like)
{
	for (size_t i = 0; i < inventory->port_count; i++)
		if (inventory->ports[i].number == like->number && !strcmp(inventory->ports[i].device, like->device))
			return &inventory->ports[i];
	return NULL;
}

static void compare_port(struct pl_check_result *result, const struct pl_inventory_port *is,
			 const struct pl_inventory_port *was, const char *name)
{
	/* An inactive port has no rate that counts. */
	if (was->active && !is->active) {
		pl_check_note(result, PL_CHECK_FAIL, name, "%s, was %s", *is->state ? is->state : "state not known",
			      was->state);
		return;
	}
	compare_versions(result, name, "link layer", is->layer, was->layer);
	if (!was->active || !was->rate)
		return;
	if (!is->rate)
		pl_check_unknown(result, name, "ibstat", "rate not known, was %.4g Gbit/s", (double)was->rate * 8e-9);
	else if (is->rate < was->rate)
		pl_check_note(result, PL_CHECK_FAIL, name, "%.4g Gbit/s, was %.4g Gbit/s", (double)is->rate * 8e-9,
			      (double)was->rate * 8e-9);
}

static void compare_ports(struct pl_check_result *result, const struct pl_inventory *now,
			  const struct pl_inventory *before)
{
	char name[48];

	for (size_t i = 0; i < before->port_count; i++) {
		const struct pl_inventory_port *was = &before->ports[i], *is = find_port(now, was);

		pl_inventory_port_name(name, sizeof(name), was);
		if (is)
			compare_port(result, is, was, name);
		else if (find_rdma(now, was->device))
			pl_check_note(result, PL_CHECK_FAIL, name, "no port, was there");
	}
	for (size_t i = 0; i < now->port_count; i++)
		if (find_rdma(before, now->ports[i].device) && !find_port(before, &now->ports[i]))
			pl_check_note(result, PL_CHECK_WARN, pl_inventory_port_name(name, sizeof(name), &now->ports[i]),
				      "port, was not there");
}

void pl_check_compare(struct pl_check_result *result, const struct pl_inventory *now,
		      const struct pl_check_baseline *baseline)
{
	const struct pl_inventory *before = &baseline->inventory;

	if (*before->driver && !*now->driver)
		pl_check_note(result, PL_CHECK_FAIL, "driver", "no driver of NVIDIA, was %s", before->driver);
	else if (!*before->driver && *now->driver)
		pl_check_note(result, PL_CHECK_WARN, "driver", "driver %s, was not there", now->driver);
	else
		compare_versions(result, "driver", "driver", now->driver, before->driver);
	compare_pci_devices(result, "GPU", now->gpus, now->gpu_count, before->gpus, before->gpu_count);
	compare_pci_devices(result, "card", now->cards, now->card_count, before->cards, before->card_count);
	compare_rdma_devices(result, now, before);
	compare_ports(result, now, before);
}
