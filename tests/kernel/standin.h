/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* ioctl interface of the stand-ins for NVIDIA's driver (/dev/standin_gpu) and IB core (/dev/standin_core). */
#ifndef STANDIN_H
#define STANDIN_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define GPU_PAGE 65536

/*
 * Points in the stand-ins' code where a test can make a task wait.  First the points of a region's task, in the order
 * of a region's life; then the points of the task that frees the memory.
 */
enum standin_point {
	POINT_NONE,
	POINT_BEGIN,
	POINT_GET_ENTER,
	POINT_GET_LOCKED,
	POINT_GET_LEAVE,
	POINT_ACQUIRED,
	POINT_TAKEN,
	POINT_MAP_ENTER,
	POINT_MAP_LOCKED,
	POINT_MAP_LEAVE,
	POINT_LIVE,
	POINT_CLOSING,
	POINT_UNMAP_ENTER,
	POINT_UNMAP_LOCKED,
	POINT_UNMAP_LEAVE,
	POINT_UNMAPPED,
	POINT_PUT_ENTER,
	POINT_PUT_LOCKED,
	POINT_PUT_LEAVE,
	POINT_PUT,
	POINT_RELEASED,
	POINT_REGION_END,

	POINT_FREE = POINT_REGION_END,
	POINT_UNLINKED,
	POINT_INVALIDATE,
	POINT_INVALIDATED,
	POINT_FREE_MAPPING,
	POINT_FREE_TABLE,
	POINT_CALLED_BACK,
	POINT_FREED,
	POINT_FREE_END
};

/*
 * Order of two tasks.  The region's task waits at point `region` for the freeing task.  The freeing task waits at point
 * `freer` until the region's task has ended its role.
 */
struct gpu_walk {
	__u32 region;
	__u32 freer;
};

enum standin_role { ROLE_NONE, ROLE_REGION, ROLE_FREER };

enum gpu_call { CALL_GET, CALL_GET_PERSISTENT, CALL_PUT, CALL_MAP, CALL_UNMAP, CALLS };

/* Errors that the driver makes until the next GPU_FAULT. */
struct gpu_fault {
	__u32 call;
	__s32 status;        /* of the failing call */
	__u32 table_version; /* 0: the correct one; the same for the members below */
	__u32 mapping_version;
	__u32 page_size; /* enum nvidia_p2p_page_size_type + 1 */
	__u32 missing;   /* number of entries left out of tables and mappings */
	__u32 scattered; /* no two pages are adjacent */
	__u32 times;     /* the call fails at most this number of times */
	__u32 naps;      /* number of short sleeps before the call does its work */
};

#define GPU_FREE _IOW('G', 1, __u64) /* frees the allocation at an address, like cudaFree() */
#define GPU_PINS _IO('G', 2)         /* returns the number of pins */
#define GPU_VIOLATIONS _IO('G', 3)   /* returns the number of violations of the interface so far */
#define GPU_FAULT _IOW('G', 4, struct gpu_fault)
#define GPU_WALK _IOW('G', 5, struct gpu_walk)
#define GPU_ROLE _IO('G', 6)      /* sets the calling thread's enum standin_role */
#define GPU_ROLE_DONE _IO('G', 7) /* ends the thread's role; returns 1 if the thread waited at its point */

/* Offsets for mmap(2).  Offsets below 64 MiB are offsets of the GPU's memory. */
#define GPU_ANYWHERE (1ull << 40) /* free memory at any offset above 64 MiB */
#define GPU_PAGES (1ull << 41)    /* added to an offset: maps pages that any program can pin */

/* Range of an allocation to export: whole pages of the host. */
struct gpu_export {
	__u64 address;
	__u64 length;
};

#define GPU_EXPORT _IOW('G', 8, struct gpu_export) /* returns a dma-buf */
#define GPU_EXPORTS _IO('G', 9)                    /* returns the number of dma-bufs */
#define GPU_WHERE _IOWR('G', 10, __u64)            /* replaces an address by its offset in the GPU's memory */
#define GPU_OVERSLEPT _IO('G', 12) /* returns the number of calls that lost their page table while they slept */
#define GPU_EXPORT_MAPPABLE _IOW('G', 11, struct gpu_export) /* returns a dma-buf that the processor may map */

enum core_device { DEVICE_EDU, DEVICE_NOT_PCI };

struct core_region {
	__u64 address;
	__u64 length;
	__u32 device;  /* enum core_device */
	__u32 again;   /* map, unmap and map again */
	__u32 abandon; /* 1: release before get_pages; 2: release after get_pages for another range */
	__u32 starve;  /* the allocation of the scatter table fails */
	__u32 unused;
	/* Results. */
	__u32 entries;
	__u64 handle;
	__u64 first; /* DMA address and length of the first entry */
	__u64 first_length;
	__u64 total;
	char client[64];
};

/* Copy by the device: from the region to the device's memory, or back. */
struct core_dma {
	__u64 handle;
	__u64 offset; /* from the registered address */
	__u32 length; /* up to 2048 */
	__u32 into_region;
};

#define CORE_REGISTER _IOWR('C', 1, struct core_region)
#define CORE_DEREGISTER _IOW('C', 2, __u64)
#define CORE_REGIONS _IO('C', 3)     /* returns the number of regions */
#define CORE_INVALIDATED _IO('C', 4) /* returns the number of invalidations */
#define CORE_DMA _IOW('C', 5, struct core_dma)
#define CORE_CYCLE _IOWR('C', 6, struct core_region) /* registers and deregisters */

#endif
