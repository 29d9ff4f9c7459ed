/* SPDX-License-Identifier: BSD-2-Clause */
/* Command lines that run a command on a host: ssh, srun, kubectl or another launcher. */
#ifndef PL_CMD_FLEET_LAUNCH_H
#define PL_CMD_FLEET_LAUNCH_H

#include "cmd/common/cli.h"

#define LAUNCH_DEFAULT "ssh {host}"

/* A launcher's command line, with {host} and {command} in its words. */
struct launch {
	char **words;
	size_t count;
	bool shell; /* the launcher gives one text to a shell of the host */
};

/*
 * Divides a command line into words as a shell does with blanks, quotes and backslashes; nothing else is special.  ssh
 * gets the options that keep it from asking questions and from waiting for ever, unless the line has them.
 */
int launch_parse(struct launch *launch, const char *line, struct pl_error *error);
/* Returns the words for one host, which end with NULL, to be freed with launch_free_words(); NULL without memory. */
char **launch_make_words(const struct launch *launch, const char *host, const char *const *command);
void launch_free_words(char **words);
void launch_free(struct launch *launch);

#endif
