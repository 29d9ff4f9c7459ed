/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* QEMU's edu: a PCI device that copies between its own 4 KiB of memory and addresses on the bus. */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/iopoll.h>
#include <linux/pci.h>

#include "core.h"

#define OWN_MEMORY 0x40000 /* its address inside the device */
#define SOURCE 0x80
#define DESTINATION 0x88
#define COUNT 0x90
#define COMMAND 0x98
#define START 1
#define FROM_OWN 2
/* Longest copy in bytes.  QEMU 7.2 aborts at a copy that reaches the end of the device's memory. */
#define LONGEST 2048

static struct {
	struct pci_dev *pci;
	void __iomem *registers;
	struct mutex lock;
} edu;

struct device *edu_device(void)
{
	return edu.pci ? &edu.pci->dev : NULL;
}

int edu_init(void)
{
	mutex_init(&edu.lock);
	edu.pci = pci_get_device(0x1234, 0x11e8, NULL);
	if (!edu.pci || pci_enable_device(edu.pci))
		return -ENODEV;
	edu.registers = pci_iomap(edu.pci, 0, 0);
	pci_set_master(edu.pci);
	/* The limit that RDMA devices set; with the default, each page becomes an entry of its own. */
	dma_set_max_seg_size(&edu.pci->dev, SZ_2G);
	return edu.registers ? dma_set_mask_and_coherent(&edu.pci->dev, DMA_BIT_MASK(64)) : -EIO;
}

void edu_exit(void)
{
	if (edu.registers)
		pci_iounmap(edu.pci, edu.registers);
	pci_disable_device(edu.pci);
	pci_dev_put(edu.pci);
}

static int edu_run(u64 source, u64 destination, u32 length, u64 direction)
{
	u64 command;

	writeq(source, edu.registers + SOURCE);
	writeq(destination, edu.registers + DESTINATION);
	writeq(length, edu.registers + COUNT);
	writeq(START | direction, edu.registers + COMMAND);
	return readq_poll_timeout(edu.registers + COMMAND, command, !(command & START), 1000, 3000000);
}

int edu_copy(struct region *region, const struct core_dma *dma)
{
	/* The table begins with the page that the address is in. */
	u64 wanted = region->address % GPU_PAGE + dma->offset;
	struct scatterlist *entry;
	int status = -ERANGE, i;
	u64 position = 0;

	if (dma->length > LONGEST)
		return -EINVAL;
	mutex_lock(&edu.lock);
	for_each_sgtable_dma_sg(&region->table, entry, i)
	{
		if (wanted >= position && wanted + dma->length <= position + sg_dma_len(entry)) {
			u64 address = sg_dma_address(entry) + (wanted - position);

			status = dma->into_region ? edu_run(OWN_MEMORY, address, dma->length, FROM_OWN)
						  : edu_run(address, OWN_MEMORY, dma->length, 0);
			break;
		}
		position += sg_dma_len(entry);
	}
	mutex_unlock(&edu.lock);
	return status;
}
