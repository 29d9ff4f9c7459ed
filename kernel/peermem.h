/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Declarations that the module's files share. */
#ifndef PEERLANE_PEERMEM_H
#define PEERLANE_PEERMEM_H

/* Prefix of log lines.  Must be defined before any other header. */
#define pr_fmt(format) KBUILD_MODNAME ": " format

#include "peer_memory.h"

#ifndef CONFIG_64BIT
#error "this module needs a 64-bit kernel, as NVIDIA's driver and OFED do"
#endif

#define PM_VERSION "0.1.0"

/* Unit of the driver's pins, in bytes. */
#define PM_GRANULE 65536ul

struct nvidia_p2p_dma_mapping;

/* Client of IB core for one kind of pin. */
struct pm_client {
	struct peer_memory_client_ex ex;
	void *handle; /* NULL: not registered, or registration has not returned yet */
	invalidate_peer_memory invalidate;
	bool persistent; /* freeing the memory does not revoke it */
	bool last;       /* the module has no client that IB core asks after this one */
};

/* Counters since the module was loaded, shown in /proc/driver/peerlane_peermem. */
enum pm_count {
	PM_REGIONS, /* registered now */
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

/*
 * client.c: the callbacks of a client.  IB core's acquire() has no parameter that names the client, so each client has
 * its own, which calls pm_acquire().
 */
int pm_acquire(struct pm_client *client, unsigned long addr, size_t size, void **context);
extern const struct peer_memory_client pm_callbacks;

/*
 * table.c: fills a scatter table with the DMA addresses of the first `bytes` bytes of a mapping.  Adjacent pages become
 * one entry.  On failure the table is unchanged.
 */
int pm_table_fill(struct sg_table *table, const struct nvidia_p2p_dma_mapping *mapping, u64 page_size, u64 bytes,
		  struct device *device);

/* report.c: counts a refusal and logs its reason. */
enum pm_step { PM_STEP_PIN, PM_STEP_TAKE, PM_STEP_MAP };
void pm_refuse(enum pm_step step, u64 addr, u64 size, int status);
void pm_refuse_because(u64 addr, u64 size, const char *reason, u32 value);

#endif
