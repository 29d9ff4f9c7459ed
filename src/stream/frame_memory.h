/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of a subscriber's frames. */
#ifndef PL_STREAM_FRAME_MEMORY_H
#define PL_STREAM_FRAME_MEMORY_H

#include "core/region.h"
#include "stream/check.h"
#include "stream/frame.h"

struct pl_frame_memory {
	struct pl_region *control; /* cursors of the checks, then for each frame a descriptor with its metadata */
	struct pl_region *payloads;       /* slots of the frames */
	struct pl_frame_status *statuses; /* of each frame, locked for the GPU of the payloads; NULL: there are none */
	void *holder;                     /* of the lock */
	struct pl_stream_frame *frames;
	unsigned count;
	uint64_t slot_stride, descriptor_stride; /* bytes of a frame in `payloads` and in `control` */
};

/* Returns the bytes of all regions of `count` frames. */
uint64_t pl_frame_memory_size(const struct pl_ring_geometry *geometry, unsigned count);
/*
 * Allocates memory for `count` frames, with payloads in memory of a kind, which peers may be given `access` to. All frames are
 * free. Returns -ENOMEM, -ENODEV, -EINVAL.
 */
int pl_frame_memory_open(struct pl_frame_memory *memory, struct pl_context *context, const char *kind,
			 const struct pl_ring_geometry *geometry, unsigned count, unsigned access,
			 struct pl_error *error);
/* Frees what was allocated, if anything. */
void pl_frame_memory_close(struct pl_frame_memory *memory, struct pl_context *context);

#endif
