/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that run a command on many hosts, several at a time. */
#ifndef PL_CMD_FLEET_RUN_H
#define PL_CMD_FLEET_RUN_H

#include "cmd/fleet/launch.h"

#define RUN_OUTPUT_MAX (4u << 20) /* bytes of standard output of a host, unless a command needs more */
#define RUN_ERRORS_MAX 4096u      /* bytes of standard error that are kept: the first, or the last */
#define RUN_PARALLEL_MAX 256u     /* each takes two descriptors */

enum run_end {
	RUN_EXITED,   /* `status` is the exit status, or the negative number of the signal */
	RUN_TIMEOUT,  /* killed at the time limit */
	RUN_TOO_LONG, /* killed after `output_max` bytes */
	RUN_NO_START, /* `status` is a negative errno */
};

/* End of the command on one host. */
struct run_result {
	enum run_end end;
	int status;
	char *output; /* ends with NUL; of a host whose output is dropped, what came last */
	size_t length;
	char errors[RUN_ERRORS_MAX + 1];
	uint64_t limit;                  /* nanoseconds it had */
	uint64_t begun, ended;           /* CLOCK_MONOTONIC */
	uint64_t begun_wall, ended_wall; /* CLOCK_REALTIME */
};

struct run_options {
	const struct launch *launch;
	char *const *hosts;
	size_t count;
	const char *const *command;
	/* Returns the command for a host, which is valid until the next call; NULL: `command` is that of all hosts. */
	const char *const *(*command_of)(void *user, size_t host);
	unsigned parallel;
	uint64_t timeout;  /* nanoseconds of one host */
	size_t output_max; /* bytes of standard output of one host; 0: RUN_OUTPUT_MAX */
	bool first_only;   /* drops the standard output of all hosts but the first */
	bool last_errors;  /* keeps the end of standard error, not its beginning */
	/* Gets each result once, in the order of their ends; the result is valid during the call. */
	void (*ended)(void *user, size_t host, const struct run_result *result);
	/* Is called at least once in 250 ms with the state of each host. */
	void (*progress)(void *user, const unsigned char *states);
	void *user;
};

/* States of hosts. */
enum run_state { RUN_WAITING, RUN_RUNNING, RUN_ENDED };

/*
 * Runs the command on all hosts, and once more on those whose ssh was dropped before its login.  Each child process leads
 * a session of its own, which is killed as a whole.  Returns 0, or -EINTR after SIGINT or SIGTERM, which stay pending; no
 * child is left then.
 */
int run_on_hosts(const struct run_options *options, struct pl_error *error);

#endif
