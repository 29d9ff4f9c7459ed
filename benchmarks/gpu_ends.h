/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes with GPU memory: one shares a region, the other accesses it over the local fabric. They exit at an error. */
#ifndef PL_BENCHMARKS_GPU_ENDS_H
#define PL_BENCHMARKS_GPU_ENDS_H

#include "support.h"

struct gpu_server {
	char address[96];
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
};

/*
 * Shares `bytes` of memory of a GPU, which `allocate` allocates (NULL: the library), writes a struct gpu_server to `fd`,
 * accepts so many peers, and ends when a byte arrives at `fd`.
 */
_Noreturn void gpu_serve(int fd, int gpu, void *(*allocate)(int gpu), size_t bytes, unsigned peers);

struct gpu_session {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct pl_region *region; /* of as many bytes, on this process's GPU */
};

void gpu_session_open(struct gpu_session *session, const struct gpu_server *server, const struct pl_options *options,
		      int gpu, size_t bytes);

#endif
