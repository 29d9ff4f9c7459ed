/* SPDX-License-Identifier: BSD-2-Clause */
/* Session of two processes with GPU memory over the local fabric: the test and an agent. */
#ifndef TEST_GPU_SESSION_H
#define TEST_GPU_SESSION_H

#include "support/agent.h"
#include "support/environment.h"
#include "support/gpu_standin.h"

extern const struct setting gpu_setting;

/* pl_options.gpu_multiprocessors of the sessions of this process. */
extern unsigned gpu_session_multiprocessors;
/* pl_options.staging_bytes of new sessions; 0: the default. */
extern size_t gpu_session_staging;

struct gpu_session {
	struct agent agent;
	struct scenario_environment environment; /* only `near` is open */
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct buffer buffer;
};

/* Place the agent's memory on the GPU, as gpu_session_open()'s `prepare`.  support/gpu.h describes the kinds. */
void gpu_agent_alloc(int fd);
void gpu_agent_pool(int fd);

/*
 * Opens a session.  The agent starts first, as a driver does not survive fork(2).  `kind` is this process's kind of
 * memory; NULL: host memory.
 */
void gpu_session_open(struct gpu_session *session, void (*prepare)(int), const char *kind, size_t size);
/* Closes the session and checks that no descriptor of the agent stays open. */
void gpu_session_close(struct gpu_session *session);
/* Connects this process to the agent of an open session, and disconnects it. */
void gpu_session_connect(struct gpu_session *session, size_t size);
void gpu_session_disconnect(struct gpu_session *session);
int gpu_session_transfer(struct gpu_session *session, bool write, uint64_t offset, uint64_t length,
			 const struct pl_attributes *attributes, struct pl_completion *receipt, struct pl_error *error);
/* Checks that writes and reads of several sizes arrive by this route and with this reason. */
void gpu_session_check(struct gpu_session *session, size_t size, enum pl_route route, const char *reason);
/* The same, with sizes of at least that many bytes. */
void gpu_session_check_from(struct gpu_session *session, size_t least, size_t size, enum pl_route route,
			    const char *reason);

#endif
