/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the stand-ins for NVIDIA's driver (/dev/standin_gpu) and for IB core (/dev/standin_core) do for a test. */
#ifndef STANDIN_H
#define STANDIN_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define GPU_PAGE 65536

/*
 * Places that a test can make a task wait at: those of a region's task, in the order in which it comes there, and those
 * of the task that frees the memory.
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

/* The region's task waits at one point until the other has come to its own, which then waits until the first is done. */
struct gpu_walk {
	__u32 region;
	__u32 freer;
};

enum standin_role { ROLE_NONE, ROLE_REGION, ROLE_FREER };

enum gpu_call { CALL_GET, CALL_GET_PERSISTENT, CALL_PUT, CALL_MAP, CALL_UNMAP, CALLS };

/* What the driver does wrong until the next setting; a call fails so many `times` at most. */
struct gpu_fault {
	__u32 call;
	__s32 status;        /* to fail with */
	__u32 table_version; /* 0: the right one; likewise below */
	__u32 mapping_version;
	__u32 page_size; /* enum nvidia_p2p_page_size_type + 1 */
	__u32 missing;   /* entries of tables and mappings that are left out */
	__u32 scattered; /* no two pages are neighbours */
	__u32 times;
	__u32 naps; /* that the call takes before it does anything */
};

#define GPU_FREE _IOW('G', 1, __u64) /* the allocation at an address, like cudaFree() */
#define GPU_PINS _IO('G', 2)         /* that there are */
#define GPU_VIOLATIONS _IO('G', 3)   /* of the interface, seen so far */
#define GPU_FAULT _IOW('G', 4, struct gpu_fault)
#define GPU_WALK _IOW('G', 5, struct gpu_walk)
#define GPU_ROLE _IO('G', 6)      /* enum standin_role: what the calling thread is from now on */
#define GPU_ROLE_DONE _IO('G', 7) /* its part is over; returns whether it waited at its point */

/* Offsets for mmap(2): below 64 MiB those of the GPU's memory. */
#define GPU_ANYWHERE (1ull << 40) /* where there is room, above */
#define GPU_PAGES (1ull << 41)    /* added to an offset: the same memory in a way that any program can pin */

/* Of an allocation: whole pages of the host's. */
struct gpu_export {
	__u64 address;
	__u64 length;
};

#define GPU_EXPORT _IOW('G', 8, struct gpu_export) /* returns a dma-buf */
#define GPU_EXPORTS _IO('G', 9)                    /* dma-bufs that there are */
#define GPU_WHERE _IOWR('G', 10, __u64)            /* an address in; its offset in the GPU's memory out */
#define GPU_OVERSLEPT _IO('G', 12) /* calls during whose naps the page table was freed, which is not theirs to see */
#define GPU_EXPORT_MAPPABLE _IOW('G', 11, struct gpu_export) /* returns a dma-buf that the processor may map */

enum core_device { DEVICE_EDU, DEVICE_NOT_PCI };

struct core_region {
	__u64 address;
	__u64 length;
	__u32 device;  /* enum core_device */
	__u32 again;   /* map, unmap and map again */
	__u32 abandon; /* release before get_pages; with 2, after get_pages was asked for another range */
	__u32 starve;  /* without memory for a scatter table */
	__u32 unused;
	/* What came of it. */
	__u32 entries;
	__u64 handle;
	__u64 first; /* DMA address and length of the first entry */
	__u64 first_length;
	__u64 total;
	char client[64];
};

/* A copy by the device: from the region to its own memory, or back. */
struct core_dma {
	__u64 handle;
	__u64 offset; /* from the address that was registered */
	__u32 length; /* up to 2048 */
	__u32 into_region;
};

#define CORE_REGISTER _IOWR('C', 1, struct core_region)
#define CORE_DEREGISTER _IOW('C', 2, __u64)
#define CORE_REGIONS _IO('C', 3) /* that there are */
#define CORE_INVALIDATED _IO('C', 4)
#define CORE_DMA _IOW('C', 5, struct core_dma)
#define CORE_CYCLE _IOWR('C', 6, struct core_region) /* register, deregister */

#endif
