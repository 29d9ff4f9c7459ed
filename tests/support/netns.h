/* SPDX-License-Identifier: BSD-2-Clause */
/* Network namespaces, and the commands that configure them. */
#ifndef TEST_NETNS_H
#define TEST_NETNS_H

#include <stdbool.h>

/* Runs a command, split at spaces; returns true if it succeeded. */
bool command_run(const char *words);
/* True if this process may create namespaces and veth pairs. */
bool netns_possible(void);

#endif
