/* SPDX-License-Identifier: BSD-2-Clause */
/* The GPUs and the cards that can do RDMA, among the PCI devices. */
#include "check/machine.h"

#include <stdio.h>
#include <stdlib.h>

#define DEVICES "sys/bus/pci/devices"
#define CLASS_NETWORK 0x02
#define CLASS_INFINIBAND 0x0207
#define CLASS_DISPLAY 0x03
#define CLASS_ACCELERATOR 0x1200

struct pci {
	const char *address;
	unsigned class, vendor, device;
	char driver[32];
};

static unsigned hexadecimal(const struct pl_check_machine *machine, const char *address, const char *name)
{
	uint64_t value;

	return pl_sysroot_number(machine->root, 16, &value, DEVICES "/%s/%s", address, name) < 0 ? 0 : (unsigned)value;
}

/* NVIDIA's numbers of devices follow the generations, with exceptions of little consequence. */
static unsigned capability_of_number(unsigned device)
{
	static const struct {
		unsigned from, capability;
	} steps[] = {
		{ 0x0fc0, 35 }, { 0x1300, 50 },  { 0x15f0, 60 },  { 0x1d80, 70 },  { 0x1e00, 75 },
		{ 0x20b0, 80 }, { 0x2180, 75 },  { 0x2200, 86 },  { 0x2300, 90 },  { 0x2400, 86 },
		{ 0x2600, 89 }, { 0x2900, 100 }, { 0x2b00, 120 }, { 0x3180, 103 }, { 0x3200, 0 },
	};
	unsigned capability = 0;

	for (size_t i = 0; i < PL_ARRAY_SIZE(steps) && steps[i].from <= device; i++)
		capability = steps[i].capability;
	return capability;
}

/* "Model: \t\t NVIDIA H100 80GB HBM3", of the driver; else what libcuda said. */
static void read_model(const struct pl_check_machine *machine, struct check_gpu *gpu)
{
	const char *name = pl_facts_get(machine->facts, "cuda.gpu.%s.name", gpu->address);
	char text[2048], *model;

	if (name) {
		snprintf(gpu->model, sizeof(gpu->model), "%s", name);
		return;
	}
	if (check_text(machine, text, "proc/driver/nvidia/gpus/%s/information", gpu->address) > 0 &&
	    (model = strstr(text, "Model:"))) {
		model += 6 + strspn(model + 6, " \t");
		snprintf(gpu->model, sizeof(gpu->model), "%.*s", (int)strcspn(model, "\n"), model);
		return;
	}
	snprintf(gpu->model, sizeof(gpu->model), "%s GPU %04x",
		 gpu->vendor == PL_VENDOR_NVIDIA ? "NVIDIA"
		 : gpu->vendor == PL_VENDOR_AMD  ? "AMD"
						 : "Intel",
		 gpu->device);
}

static int add_gpu(struct pl_check_machine *machine, const struct pci *pci)
{
	struct check_gpu *more = realloc(machine->gpus, (machine->gpu_count + 1) * sizeof(*more)), *gpu;
	long long major, minor;

	if (!more)
		return -ENOMEM;
	machine->gpus = more;
	gpu = &more[machine->gpu_count++];
	*gpu = (struct check_gpu){ .vendor = pci->vendor, .device = pci->device };
	snprintf(gpu->address, sizeof(gpu->address), "%.15s", pci->address);
	snprintf(gpu->driver, sizeof(gpu->driver), "%s", pci->driver);
	read_model(machine, gpu);
	if (pci->vendor != PL_VENDOR_NVIDIA)
		return 0;
	major = pl_facts_number(machine->facts, -1, "cuda.gpu.%s.attribute.75", gpu->address);
	minor = pl_facts_number(machine->facts, -1, "cuda.gpu.%s.attribute.76", gpu->address);
	gpu->capability = major > 0 && major < 100 && minor >= 0 && minor < 10 ? (unsigned)(major * 10 + minor)
									       : capability_of_number(pci->device);
	return 0;
}

/* The driver that a card should have, as far as its number tells; "" if it is of no RDMA card. */
static const char *wanted_driver(const struct pci *pci)
{
	static const struct {
		unsigned vendor, from, to;
		const char *driver;
	} numbers[] = {
		{ PL_VENDOR_MELLANOX, 0x1002, 0x1010, "mlx4_core" },
		{ PL_VENDOR_MELLANOX, 0x6340, 0x6778, "mlx4_core" },
		{ PL_VENDOR_MELLANOX, 0x1011, 0x10ff, "mlx5_core" },
		{ PL_VENDOR_MELLANOX, 0xa2d0, 0xa2df, "mlx5_core" },
		{ PL_VENDOR_AMAZON, 0xefa0, 0xefaf, "efa" },
		{ 0x14e4, 0x16c0, 0x16ff, "bnxt_en" },
		{ 0x14e4, 0x1750, 0x1769, "bnxt_en" },
		{ PL_VENDOR_INTEL, 0x1591, 0x159b, "ice" },
		{ PL_VENDOR_INTEL, 0x579c, 0x579f, "ice" },
		{ 0x1dd8, 0x1002, 0x1003, "ionic" },
		{ 0x1414, 0x00b9, 0x00bb, "mana" },
	};

	for (size_t i = 0; i < PL_ARRAY_SIZE(numbers); i++)
		if (pci->vendor == numbers[i].vendor && pci->device >= numbers[i].from && pci->device <= numbers[i].to)
			return numbers[i].driver;
	return "";
}

static int add_card(struct pl_check_machine *machine, const struct pci *pci, const char *wanted)
{
	struct check_card *more = realloc(machine->cards, (machine->card_count + 1) * sizeof(*more)), *card;

	if (!more)
		return -ENOMEM;
	machine->cards = more;
	card = &more[machine->card_count++];
	*card = (struct check_card){ .vendor = pci->vendor, .device = pci->device };
	snprintf(card->address, sizeof(card->address), "%.15s", pci->address);
	snprintf(card->driver, sizeof(card->driver), "%s", pci->driver);
	snprintf(card->wanted, sizeof(card->wanted), "%s", wanted);
	card->virtual_function = check_exists(machine, DEVICES "/%s/physfn", pci->address);
	return 0;
}

static bool is_gpu(const struct pci *pci)
{
	if (pci->vendor == PL_VENDOR_NVIDIA)
		return pci->class >> 8 == CLASS_DISPLAY;
	/* Those of AMD and Intel that only draw are part of the processor. */
	return (pci->vendor == PL_VENDOR_AMD && (pci->class == 0x0380 || pci->class == CLASS_ACCELERATOR)) ||
	       (pci->vendor == PL_VENDOR_INTEL && pci->class == 0x0380);
}

/* Cards that could do RDMA and only do Ethernet are none, unless their maker makes no others. */
static bool is_card(const struct pl_check_machine *machine, const struct pci *pci, const char *wanted)
{
	if (check_exists(machine, DEVICES "/%s/infiniband", pci->address))
		return true;
	if (pci->class >> 8 != CLASS_NETWORK)
		return pci->vendor == PL_VENDOR_AMAZON && *wanted;
	return pci->class == CLASS_INFINIBAND || pci->vendor == PL_VENDOR_MELLANOX || pci->vendor == PL_VENDOR_AMAZON
		       ? *wanted || pci->class == CLASS_INFINIBAND
		       : *wanted && !*pci->driver;
}

static int add(struct pl_check_machine *machine, const char *address)
{
	struct pci pci = { .address = address, .class = hexadecimal(machine, address, "class") >> 8 };
	const char *wanted;

	if (strlen(address) > 15)
		return 0;
	pci.vendor = hexadecimal(machine, address, "vendor");
	pci.device = hexadecimal(machine, address, "device");
	if (pl_sysroot_link_name(machine->root, pci.driver, sizeof(pci.driver), DEVICES "/%s/driver", address) < 0)
		pci.driver[0] = '\0';
	if (is_gpu(&pci))
		return add_gpu(machine, &pci);
	wanted = wanted_driver(&pci);
	return is_card(machine, &pci, wanted) ? add_card(machine, &pci, wanted) : 0;
}

int check_read_pci(struct pl_check_machine *machine)
{
	struct pl_sysroot_list list;
	int rc = 0;

	if (pl_sysroot_list(machine->root, &list, DEVICES) < 0)
		return 0;
	for (size_t i = 0; rc == 0 && i < list.count; i++)
		rc = add(machine, list.names[i]);
	pl_sysroot_list_free(&list);
	return rc;
}
