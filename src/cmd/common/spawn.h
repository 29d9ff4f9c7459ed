/* SPDX-License-Identifier: BSD-2-Clause */
/* Child process that runs `peerlane` as a server on a free loopback port and dies with its parent. */
#ifndef PL_CMD_COMMON_SPAWN_H
#define PL_CMD_COMMON_SPAWN_H

#include <sys/types.h>

#include "cmd/common/cli.h"

struct cli_child {
	pid_t pid; /* 0: not running */
	char address[80];
};

/*
 * Runs `peerlane ARGUMENT...` with the connection options of `options` and waits for the address of the server.  The
 * child writes its address as one line to the descriptor passed with "--announce".  `arguments` ends with NULL.
 */
int cli_child_start(struct cli_child *child, const char *const *arguments, const struct cli_options *options,
		    struct pl_error *error);
/* Waits up to 3 s for the child, which exits when its connection is closed; then kills it. */
void cli_child_stop(struct cli_child *child);

/*
 * Makes a random key in a memory file, which child processes inherit.  `path`, its name for this process and for the
 * children, becomes options->key_file and must outlive `options`.  *key is the descriptor of the file, or -1 if there is
 * no file.
 */
int cli_child_make_key(struct cli_options *options, char path[32], int *key, struct pl_error *error);
/* Makes a key if the options ask for encryption and name no key file; else sets *key to -1. */
int cli_child_key(struct cli_options *options, char path[32], int *key, struct pl_error *error);

#endif
