/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of a GPU, as a card knows it: by a dma-buf that the GPU's driver exports, else by its address, where a
 * module of the kernel gives the card the pages (peer memory).  Why neither was possible is told by name.
 */
#include <unistd.h>

#include "fabric/verbs/verbs.h"

#define STAGED "GPU memory is staged: "
#define NO_PEER "; by its address: no peer memory module is loaded"
#define REFUSED "; by its address: the device's driver refuses"

/* What became of the dma-buf. */
enum outcome { NOT_EXPORTED, NO_CALL, NOT_BY_DEVICE, IMPORT_FAILED, OUTCOMES };

static const char *const reasons[OUTCOMES][2] = {
	[NOT_EXPORTED] = { STAGED "dma-buf: the GPU's driver exports none" NO_PEER,
			   STAGED "dma-buf: the GPU's driver exports none" REFUSED },
	[NO_CALL] = { STAGED "dma-buf: rdma-core is older than 34" NO_PEER,
		      STAGED "dma-buf: rdma-core is older than 34" REFUSED },
	[NOT_BY_DEVICE] = { STAGED "dma-buf: the network device's driver takes none" NO_PEER,
			    STAGED "dma-buf: the network device's driver takes none" REFUSED },
	[IMPORT_FAILED] = { STAGED "dma-buf: the network device could not import it" NO_PEER,
			    STAGED "dma-buf: the network device could not import it" REFUSED },
};

static int by_dmabuf(const struct verbs_library *library, struct ibv_pd *pd, struct pl_memory *memory, size_t offset,
		     size_t length, unsigned access, struct ibv_mr **mr, enum outcome *outcome)
{
	uintptr_t address = (uintptr_t)memory->address + offset;
	uint64_t skew = 0;
	int fd, rc;

	*outcome = NO_CALL;
	if (!library->ibv_reg_dmabuf_mr)
		return -ENOSYS;
	*outcome = NOT_EXPORTED;
	fd = memory->ops->export_dmabuf(memory, offset, length, &skew);
	if (fd < 0)
		return fd;
	*mr = library->ibv_reg_dmabuf_mr(pd, skew, length, address, fd, (int)access);
	rc = verbs_made(*mr);
	/* The registration holds the buffer itself. */
	close(fd);
	*outcome = rc == -EOPNOTSUPP || rc == -EPROTONOSUPPORT || rc == -ENOSYS ? NOT_BY_DEVICE : IMPORT_FAILED;
	return rc;
}

int verbs_reg_device_memory(const struct verbs_library *library, struct ibv_pd *pd, struct pl_memory *memory,
			    size_t offset, size_t length, unsigned access, struct ibv_mr **mr, const char **reason)
{
	enum outcome outcome;
	int rc = by_dmabuf(library, pd, memory, offset, length, access, mr, &outcome);

	if (rc == 0)
		return 0;
	rc = verbs_reg_mr(library, pd, (uint8_t *)memory->address + offset, length, access, mr);
	if (rc < 0)
		*reason = reasons[outcome][rc != -EFAULT];
	return rc;
}
