/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes with GPU memory: one shares a region, the other accesses it over the local fabric. They exit at an error. */
#ifndef PL_BENCHMARKS_GPU_ENDS_H
#define PL_BENCHMARKS_GPU_ENDS_H

#include "support.h"

/*
 * Starts a process that shares `bytes` of memory of a GPU (-1: of the host), which `allocate` allocates (NULL: the library), and
 * accepts so many peers. Call this before any call of CUDA's driver.
 */
struct gpu_server {
	int fd; /* of this process */
	pid_t process;
	char address[96];
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
};

void gpu_server_start(struct gpu_server *server, int gpu, void *(*allocate)(int gpu), size_t bytes, unsigned peers);
/* Ends the process. */
void gpu_server_end(const struct gpu_server *server);

struct gpu_session {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct pl_region *region; /* of as many bytes, on this process's GPU */
};

void gpu_session_open(struct gpu_session *session, const struct gpu_server *server, const struct pl_options *options,
		      int gpu, size_t bytes);

#endif
