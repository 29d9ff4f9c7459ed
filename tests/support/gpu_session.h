/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes with memory of GPUs, over the local fabric: the test's own, and an agent. */
#ifndef TEST_GPU_SESSION_H
#define TEST_GPU_SESSION_H

#include "support/agent.h"
#include "support/environment.h"
#include "support/gpu_standin.h"

extern const struct setting gpu_setting;

struct gpu_session {
	struct agent agent;
	struct scenario_environment environment; /* only near */
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct buffer buffer;
};

/* For gpu_session_open(): the agent's memory is the GPU's, of these kinds (support/gpu.h). */
void gpu_agent_alloc(int fd);
void gpu_agent_pool(int fd);

/* A driver does not survive fork(2), so the agent comes first; `kind` is this process's memory, NULL: the host's. */
void gpu_session_open(struct gpu_session *session, void (*prepare)(int), const char *kind, size_t size);
/* And checks that nothing of the other process stays open. */
void gpu_session_close(struct gpu_session *session);
int gpu_session_transfer(struct gpu_session *session, bool write, uint64_t offset, uint64_t length,
			 const struct pl_attributes *attributes, struct pl_receipt *receipt, struct pl_error *error);
/* Writes and reads of several sizes arrive, by that way. */
void gpu_session_check(struct gpu_session *session, size_t size, enum pl_route route, const char *reason);

#endif
