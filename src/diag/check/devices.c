/* SPDX-License-Identifier: BSD-2-Clause */
/* GPUs, cards and RDMA devices of the check: those of the topology, with more facts. */
#include <stdio.h>
#include <stdlib.h>

#include "diag/check/machine.h"

#define CLASS_VGA 0x0300

/* NVIDIA's device numbers follow the generations, with few exceptions. */
static unsigned capability_of_number(unsigned device)
{
	static const struct {
		unsigned from, capability;
	} steps[] = {
		{ 0x0001, 20 },  { 0x0fc0, 30 },  { 0x1001, 35 }, { 0x1040, 20 }, { 0x1180, 30 }, { 0x1200, 20 },
		{ 0x1280, 35 },  { 0x1300, 50 },  { 0x15f0, 60 }, { 0x1d80, 70 }, { 0x1e00, 75 }, { 0x20b0, 80 },
		{ 0x2180, 75 },  { 0x2200, 86 },  { 0x2300, 90 }, { 0x2400, 86 }, { 0x2600, 89 }, { 0x2900, 100 },
		{ 0x2b00, 120 }, { 0x3180, 103 }, { 0x3200, 0 },
	};
	unsigned capability = 0;

	for (size_t i = 0; i < PL_ARRAY_SIZE(steps) && steps[i].from <= device; i++)
		capability = steps[i].capability;
	return capability;
}

/* Takes the name from libcuda, else from the driver. */
static void name_check_gpu(const struct pl_check_machine *machine, struct check_gpu *gpu, const char *model)
{
	const char *name = pl_facts_get(machine->facts, "cuda.gpu.%s.name", gpu->pci->address);

	if (name || *model)
		snprintf(gpu->model, sizeof(gpu->model), "%s", name ? name : model);
	else
		snprintf(gpu->model, sizeof(gpu->model), "%s GPU %04x",
			 gpu->pci->vendor == PL_PCI_VENDOR_NVIDIA ? "NVIDIA"
			 : gpu->pci->vendor == PL_PCI_VENDOR_AMD  ? "AMD"
								  : "Intel",
			 gpu->pci->device);
}

static void add_gpu(struct pl_check_machine *machine, const struct pl_gpu *from)
{
	struct check_gpu *gpu = &machine->gpus[machine->gpu_count];
	const struct pl_pci_node *pci = &machine->here->nodes[from->node];
	long long major, minor;

	/* GPUs of other vendors with a display are mostly part of the processor. */
	if (from->vendor == PL_GPU_OTHER || (from->vendor != PL_GPU_NVIDIA && pci->class >> 8 == CLASS_VGA))
		return;
	machine->gpu_count++;
	gpu->pci = pci;
	name_check_gpu(machine, gpu, from->model);
	if (pci->vendor != PL_PCI_VENDOR_NVIDIA)
		return;
	major = pl_facts_number(machine->facts, -1, "cuda.gpu.%s.attribute.75", pci->address);
	minor = pl_facts_number(machine->facts, -1, "cuda.gpu.%s.attribute.76", pci->address);
	gpu->capability = major > 0 && major < 100 && minor >= 0 && minor < 10 ? (unsigned)(major * 10 + minor)
									       : capability_of_number(pci->device);
}

/* A card can have two RDMA devices. */
static struct check_card *find_card(struct pl_check_machine *machine, const struct pl_pci_node *pci)
{
	struct check_card *card;
	const char *wanted;

	for (size_t i = 0; i < machine->card_count; i++)
		if (machine->cards[i].pci == pci)
			return &machine->cards[i];
	card = &machine->cards[machine->card_count++];
	wanted = pl_pci_rdma_driver(pci->vendor, pci->device);
	card->pci = pci;
	card->wanted = wanted ? wanted : "";
	return card;
}

static void add_check_device(struct pl_check_machine *machine, const struct pl_card *rdma)
{
	const struct check_card *card = NULL;

	if (rdma->node >= 0 && !rdma->software)
		card = find_card(machine, &machine->here->nodes[rdma->node]);
	if (rdma->name[0])
		machine->devices[machine->device_count++] = (struct check_device){ rdma->name, rdma, card };
}

int check_find_devices(struct pl_check_machine *machine)
{
	const struct pl_topology *here = machine->here;

	machine->gpus = calloc(here->gpu_count + 1, sizeof(*machine->gpus));
	machine->cards = calloc(here->card_count + 1, sizeof(*machine->cards));
	machine->devices = calloc(here->card_count + 1, sizeof(*machine->devices));
	if (!machine->gpus || !machine->cards || !machine->devices)
		return -ENOMEM;
	for (size_t i = 0; i < here->gpu_count; i++)
		add_gpu(machine, &here->gpus[i]);
	for (size_t i = 0; i < here->card_count; i++)
		add_check_device(machine, &here->cards[i]);
	return 0;
}
