/* SPDX-License-Identifier: BSD-2-Clause */
/* Child process that runs the command on one host. */
#ifndef PL_CMD_FLEET_CHILD_H
#define PL_CMD_FLEET_CHILD_H

#include <sys/types.h>

#include "cmd/fleet/run.h"

struct child {
	size_t host;
	pid_t pid;          /* 0: none */
	int output, errors; /* descriptors of pipes; -1: at their end */
	uint64_t deadline;  /* of the next step */
	unsigned kills;     /* steps taken: SIGTERM, SIGKILL, given up */
	bool again;         /* second start of this host */
	bool drops;         /* standard output is read and dropped */
	bool last_errors;   /* the end of standard error is kept */
	size_t output_max, room, errors_length;
	struct run_result result;
};

/* Starts the words for a host; returns a negative errno. */
int child_start(struct child *child, size_t host, char *const *words, const struct run_options *options);
/* Reads what is there, at most some blocks, or up to the end of the child.  Kills a child with too much output. */
void child_read(struct child *child);
/*
 * Ends a child that exited.  Returns true then: the result is complete, and nothing of its session runs unless it began
 * another session.
 */
bool child_reap(struct child *child);
/* Asks the child's session to end, then kills it, then gives it up.  Returns true if it was given up. */
bool child_kill(struct child *child, enum run_end reason);
/* Frees the result. */
void child_release(struct child *child);

#endif
