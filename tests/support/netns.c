/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/netns.h"

#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/process.h"

bool command_run(const char *words)
{
	char copy[256], *arguments[32], *rest = copy;
	extern char **environ;
	unsigned count = 0;
	pid_t pid;
	int status;

	snprintf(copy, sizeof(copy), "%s", words);
	for (char *word; count < 31 && (word = strsep(&rest, " "));)
		arguments[count++] = word;
	arguments[count] = NULL;
	if (posix_spawnp(&pid, arguments[0], NULL, NULL, arguments, environ))
		return false;
	status = process_wait(pid);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

bool netns_possible(void)
{
	pid_t pid = process_fork();

	if (!pid)
		_exit(!unshare(CLONE_NEWNET) && command_run("ip link add pl0 type veth peer name pl1") ? 0 : 1);
	return process_wait(pid) == 0;
}
