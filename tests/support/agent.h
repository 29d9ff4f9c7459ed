/* SPDX-License-Identifier: BSD-2-Clause */
/* The far end in a process of its own, told what to do over a socket pair. */
#ifndef TEST_AGENT_H
#define TEST_AGENT_H

#include "support/environment.h"

struct agent {
	pid_t pid;
	int fd;
	char address[96];
	uint8_t token[PL_TOKEN_MAX]; /* of a region that allows everything */
	size_t token_length;
};

/*
 * Forks the agent; call it before this process opens a context or starts a thread.  It listens as the
 * setting says and shares a region of `size` bytes.  `prepare`, if not NULL, runs first, at the
 * agent's end of the socket pair; agent_ready() then waits until it listens.
 */
void agent_fork(struct agent *agent, const struct setting *setting, size_t size, void (*prepare)(int fd));
/* Waits until it listens. */
void agent_ready(struct agent *agent);
/* Both. */
void agent_start(struct agent *agent, const struct setting *setting, size_t size);

/* Ends it in an orderly way; it must exit with 0. */
void agent_stop(struct agent *agent);
/* Ends it by a signal. */
void agent_kill(struct agent *agent);

/* The peer that connects next becomes the one that the other commands use. */
void agent_accept(struct agent *agent);
void agent_fill(struct agent *agent, uint64_t seed);
bool agent_matches(struct agent *agent, uint64_t seed, uint64_t offset, uint64_t length);
/* Posts, and does not wait for, a message of or into its region's first bytes. */
void agent_send(struct agent *agent, uint64_t tag, uint64_t length);
void agent_receive(struct agent *agent, uint64_t tag, uint64_t length);
/* Waits for what was posted last; returns its status. */
int agent_wait(struct agent *agent);
/* A write of its region's first bytes into what the token names. */
void agent_write(struct agent *agent, const uint8_t *token, size_t token_length, uint64_t length);
/* Revokes its token. */
void agent_revoke(struct agent *agent);
/* The same again, into what was imported for that. */
void agent_rewrite(struct agent *agent, uint64_t length);

#endif
