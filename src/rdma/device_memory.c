/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registration of GPU memory with a card: by a dma-buf of the GPU's driver, else by its address if a kernel module
 * gives the card the pages (peer memory). If neither works the error names the reasons.
 */
#include "rdma/device_memory.h"

#include <unistd.h>

#include "memory/dmabuf.h"
#include "rdma/data_direct.h"

#define STAGED "memory of a device is staged: dma-buf: "
#define NO_PEER "; by its address: no peer memory module is loaded"
#define REFUSED "; by its address: the device's driver refuses"

/* Result of the dma-buf path. */
enum outcome { NOT_EXPORTED, NO_CALL, NOT_BY_DEVICE, NO_ROOM, LIMITED, IMPORT_FAILED, DATA_DIRECT, OUTCOMES };

#define WORDS_NOT_EXPORTED "the GPU's driver exports none"
#define WORDS_NO_CALL "rdma-core is older than 34"
#define WORDS_NOT_BY_DEVICE "the network device's driver takes none"
#define WORDS_NO_ROOM \
	"no room for it in the GPU's BAR1 (ENOMEM), whose size and use `peerlane check` shows in gpu-bar1; deregister or " \
	"revoke other regions"
#define WORDS_LIMITED "the cgroup allows no further objects of the network device (EAGAIN); raise its limits, rdma.max"
#define WORDS_IMPORT_FAILED "the network device could not import it"

/* Reasons: for the dma-buf alone, and with each of two results of the registration by address. */
static const char *const reasons[OUTCOMES][3] = {
	[NOT_EXPORTED] = { WORDS_NOT_EXPORTED, STAGED WORDS_NOT_EXPORTED NO_PEER, STAGED WORDS_NOT_EXPORTED REFUSED },
	[NO_CALL] = { WORDS_NO_CALL, STAGED WORDS_NO_CALL NO_PEER, STAGED WORDS_NO_CALL REFUSED },
	[NOT_BY_DEVICE] = { WORDS_NOT_BY_DEVICE, STAGED WORDS_NOT_BY_DEVICE NO_PEER,
			    STAGED WORDS_NOT_BY_DEVICE REFUSED },
	[NO_ROOM] = { WORDS_NO_ROOM, STAGED WORDS_NO_ROOM NO_PEER, STAGED WORDS_NO_ROOM REFUSED },
	[LIMITED] = { WORDS_LIMITED, STAGED WORDS_LIMITED NO_PEER, STAGED WORDS_LIMITED REFUSED },
	[IMPORT_FAILED] = { WORDS_IMPORT_FAILED, STAGED WORDS_IMPORT_FAILED NO_PEER,
			    STAGED WORDS_IMPORT_FAILED REFUSED },
	[DATA_DIRECT] = { rdma_data_direct_reason, rdma_data_direct_reason, rdma_data_direct_reason },
};

/* Registers GPU memory by Data Direct, for a device that has it. Returns 0 or a negative errno. */
static int by_data_direct(struct ibv_pd *pd, const struct rdma_range *range, unsigned access, struct ibv_mr **mr)
{
	struct pl_memory *memory = range->memory;
	const struct pl_memory_ops *ops = memory->ops;
	const size_t offset = range->offset, length = range->length;
	uint64_t skew = 0;
	int rc, fd = ops->export_dmabuf_pcie ? ops->export_dmabuf_pcie(memory, offset, length, &skew) : -ENOTSUP;

	/* The driver has such mappings beside some processors only. */
	if (fd < 0)
		fd = ops->export_dmabuf(memory, offset, length, &skew);
	if (fd < 0)
		return fd;
	rc = rdma_data_direct_register(pd, skew, length, range->iova, fd, access, mr);
	close(fd);
	if (rc == 0)
		__atomic_store_n(&memory->data_direct, true, __ATOMIC_RELAXED);
	return rc;
}

static int by_dmabuf(const struct rdma_domain *domain, const struct rdma_range *range, unsigned access,
		     struct ibv_mr **mr, enum outcome *outcome)
{
	const struct verbs_library *library = domain->library;
	struct pl_memory *memory = range->memory;
	const size_t offset = range->offset, length = range->length;
	uint64_t skew = 0;
	bool limited;
	int fd, rc;

	*outcome = NO_CALL;
	if (!library->ibv_reg_dmabuf_mr)
		return -ENOSYS;
	*outcome = DATA_DIRECT;
	if (!memory->dmabuf && memory->ops->export_dmabuf && domain->data_direct &&
	    by_data_direct(domain->pd, range, access, mr) == 0)
		return 0;
	*outcome = NOT_EXPORTED;
	if (memory->dmabuf)
		fd = pl_dmabuf_export(memory, offset, &skew);
	else
		fd = memory->ops->export_dmabuf ? memory->ops->export_dmabuf(memory, offset, length, &skew) : -ENOTSUP;
	if (fd < 0)
		return fd;
	*mr = library->ibv_reg_dmabuf_mr(domain->pd, skew, length, range->iova, fd, (int)access);
	limited = !*mr && errno == EAGAIN;
	rc = verbs_made(*mr);
	/* The registration holds a reference to the dma-buf. */
	close(fd);
	*outcome = rc == -EOPNOTSUPP || rc == -EPROTONOSUPPORT || rc == -ENOSYS ? NOT_BY_DEVICE
		   : limited							? LIMITED
		   : rc == -ENOMEM && !memory->dmabuf				? NO_ROOM
										: IMPORT_FAILED;
	return rc;
}

int verbs_reg_dmabuf(const struct rdma_domain *domain, struct pl_memory *memory, size_t offset, size_t length,
		     unsigned access, struct ibv_mr **mr, const char **reason)
{
	enum outcome outcome;
	const struct rdma_range range = { memory, offset, length, (uintptr_t)memory->address + offset };
	int rc = by_dmabuf(domain, &range, access, mr, &outcome);

	*reason = reasons[outcome][0];
	return rc;
}

static int by_address(const struct rdma_domain *domain, const struct rdma_range *range, unsigned access,
		      struct ibv_mr **mr)
{
	return verbs_reg_mr_iova(domain->library, domain->pd, (uint8_t *)range->memory->address + range->offset,
				 range->length, range->iova, access, mr);
}

int verbs_reg_memory(const struct rdma_domain *domain, const struct rdma_range *range, unsigned access,
		     bool address_first, struct ibv_mr **mr, const char **reason)
{
	bool host = !pl_memory_staged(range->memory) && !range->memory->dmabuf;
	enum outcome outcome;
	int rc, first = host || address_first ? by_address(domain, range, access, mr) : 0;

	if (host)
		return first;
	if (address_first && first == 0)
		return 0;
	rc = by_dmabuf(domain, range, access, mr, &outcome);
	if (rc == 0 && outcome == DATA_DIRECT)
		*reason = reasons[outcome][0];
	if (rc == 0)
		return 0;
	rc = address_first ? first : by_address(domain, range, access, mr);
	if (rc < 0)
		*reason = reasons[outcome][1 + (rc != -EFAULT)];
	/* There may be room later. */
	return rc < 0 && (outcome == NO_ROOM || outcome == LIMITED) ? -ENOMEM : rc;
}
