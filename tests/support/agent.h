/* SPDX-License-Identifier: BSD-2-Clause */
/* Agent: the far end of a test in a child process, which takes commands over a socket pair. */
#ifndef TEST_AGENT_H
#define TEST_AGENT_H

#include "support/environment.h"

struct agent {
	pid_t pid;
	int fd;
	char address[96];
	uint8_t token[PL_TOKEN_MAX]; /* of a region that grants all access rights */
	size_t token_length;
};

/*
 * Forks the agent.  Call this function before this process opens a context or starts a thread.  The agent listens as
 * `setting` says and shares a region of `size` bytes.  If `prepare` is not NULL, the agent calls it first, with the
 * agent's end of the socket pair.  agent_ready() then waits until the agent listens.
 */
void agent_fork(struct agent *agent, const struct setting *setting, size_t size, void (*prepare)(int fd));
/* Waits until the agent listens. */
void agent_ready(struct agent *agent);
/* Forks the agent and waits until the agent listens. */
void agent_start(struct agent *agent, const struct setting *setting, size_t size);

/* Ends the agent in an orderly way.  The agent must exit with status 0. */
void agent_stop(struct agent *agent);
/* Kills the agent by a signal. */
void agent_kill(struct agent *agent);

/* Makes the next peer that connects the peer of all later commands. */
void agent_accept(struct agent *agent);
void agent_fill(struct agent *agent, uint64_t seed);
bool agent_matches(struct agent *agent, uint64_t seed, uint64_t offset, uint64_t length);
/* Posts a message from, or a receive into, the first bytes of the agent's region.  Does not wait for the operation. */
void agent_send(struct agent *agent, uint64_t tag, uint64_t length);
void agent_receive(struct agent *agent, uint64_t tag, uint64_t length);
/* Waits for the agent's last operation and returns its status. */
int agent_wait(struct agent *agent);
/* Imports the token at the agent and writes the first bytes of the agent's region there. */
void agent_write(struct agent *agent, const uint8_t *token, size_t token_length, uint64_t length);
/* Revokes the agent's token. */
void agent_revoke(struct agent *agent);
/* Repeats the write of agent_write() to the region that agent_write() imported. */
void agent_rewrite(struct agent *agent, uint64_t length);

#endif
