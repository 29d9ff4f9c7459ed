/* SPDX-License-Identifier: BSD-2-Clause */
/* Another process of this command that serves this one, on a free port of loopback, and does not outlive it. */
#ifndef PL_CLI_SPAWN_H
#define PL_CLI_SPAWN_H

#include <sys/types.h>

#include "cmd/common/cli.h"

struct cli_child {
	pid_t pid; /* 0: none */
	char address[80];
};

/*
 * Runs `peerlane ARGUMENT...` with the options that the connection needs, "--announce" and a descriptor, to which it is
 * to write its address in a line.  `arguments` ends with NULL.
 */
int cli_child_start(struct cli_child *child, const char *const *arguments, const struct cli_options *options,
		    struct pl_error *error);
/* Waits a little for its end, which that of the connection causes; kills it if that does not come. */
void cli_child_stop(struct cli_child *child);

/*
 * Encryption needs a key.  Makes one that nobody else knows, in a file in memory, which children inherit, unless the
 * user has given one or none is needed.  `path` becomes options->key_file and has to stay.  The descriptor, or -1.
 */
int cli_child_key(struct cli_options *options, char path[32], int *key, struct pl_error *error);

#endif
