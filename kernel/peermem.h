/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the parts of the module know of each other. */
#ifndef PEERLANE_PEERMEM_H
#define PEERLANE_PEERMEM_H

/* Before any other header: the log names the module. */
#define pr_fmt(format) KBUILD_MODNAME ": " format

#include "peer_memory.h"

#ifndef CONFIG_64BIT
#error "NVIDIA's driver and OFED are for systems with 64 bits, and so is this module"
#endif

#define PM_VERSION "0.1.0"

/* The driver pins in units of this. */
#define PM_GRANULE 65536ul

struct nvidia_p2p_dma_mapping;

/* One way to pin, as IB core knows it. */
struct pm_client {
	struct peer_memory_client_ex ex;
	void *handle; /* NULL: not registered, or not told yet */
	invalidate_peer_memory invalidate;
	bool persistent; /* freeing the memory does not revoke it */
	bool last;       /* nobody of this module is asked after this one */
};

/* What has happened since the module was loaded: /proc/driver/peerlane_peermem. */
enum pm_count {
	PM_REGIONS, /* there now */
	PM_BYTES,   /* pinned now */
	PM_REGISTERED,
	PM_PERSISTENT,
	PM_NOT_OURS,
	PM_REFUSED,
	PM_MAPPED,
	PM_UNMAPPED,
	PM_PAGES,
	PM_ENTRIES,
	PM_REVOKED,
	PM_REVOKED_EARLY,
	PM_OVERTAKEN,
	PM_OLD_CORE,
	PM_DRIVER_ERRORS,
	PM_COUNTS
};

void pm_add(enum pm_count count, s64 amount);
int pm_counters_create(void);
void pm_counters_destroy(void);

/* client.c: the callbacks of a client, but for acquire, whose client nothing else tells. */
int pm_acquire(struct pm_client *client, unsigned long addr, size_t size, void **context);
extern const struct peer_memory_client pm_callbacks;

/*
 * table.c: fills a table with the addresses of that many bytes of a mapping, neighbours as one; on failure the table is
 * as it was.
 */
int pm_table_fill(struct sg_table *table, const struct nvidia_p2p_dma_mapping *mapping, u64 page_size, u64 bytes,
		  struct device *device);

/* report.c: counts and logs why memory is not registered. */
enum pm_step { PM_STEP_PIN, PM_STEP_TAKE, PM_STEP_MAP };
void pm_refuse(enum pm_step step, u64 addr, u64 size, int status);
void pm_refuse_because(u64 addr, u64 size, const char *reason, u32 value);

#endif
