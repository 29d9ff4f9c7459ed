/* SPDX-License-Identifier: BSD-2-Clause */
/* Helpers of emulated_gpu's cases: two ends in one process, one with host memory, the other with the GPU. */
#ifndef GPU_ENDS_H
#define GPU_ENDS_H

#include "emulated/emulated.h"
#include "support/environment.h"

#define MIB ((size_t)1 << 20)

extern const struct setting gpu_setting;

/* Both ends of a connection.  `near` has host memory with a pattern. */
struct gpu_ends {
	struct scenario_environment environment;
	struct buffer host;
};

void gpu_ends_open(struct gpu_ends *ends);
void gpu_ends_close(struct gpu_ends *ends);
/* Registers GPU memory at `far`. */
struct pl_region *gpu_ends_register(struct gpu_ends *ends, void *memory, size_t length);
/* Writes or reads host memory at `offset`, without staging.  Returns the status. */
int gpu_ends_transfer(struct gpu_ends *ends, bool write, struct pl_remote *remote, size_t remote_offset, size_t offset,
		      size_t length);
/*
 * Writes the pattern and reads it back to the second half of the host memory.  Checks that the copy engine stays idle.
 */
void gpu_ends_round_trip(struct gpu_ends *ends, struct pl_remote *remote, size_t at, size_t length);
/* Checks that GPU memory holds the pattern from `position` on. */
void gpu_check_pattern(const uint8_t *memory, size_t length, uint64_t position);
/* Checks memory that was not written since its allocation. */
void gpu_check_untouched(const uint8_t *memory, size_t length);

/* Cases in other files. */
void gpu_visible_case(struct gpu_ends *ends);
void gpu_loopback_case(struct gpu_ends *ends);
void gpu_notified_case(struct gpu_ends *ends);
void gpu_messages_case(struct gpu_ends *ends);
void gpu_dmabuf_case(struct gpu_ends *ends);

#endif
