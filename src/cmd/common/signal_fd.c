/* SPDX-License-Identifier: BSD-2-Clause */
#include <signal.h>
#include <sys/signalfd.h>

#include "cmd/common/cli.h"

int cli_signal_fd(int other, struct pl_error *error)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (other)
		sigaddset(&set, other);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? cli_fail_errno(error, -errno, "signalfd", NULL) : fd;
}

bool cli_signal_pending(void)
{
	sigset_t pending;

	sigpending(&pending);
	return sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM) || sigismember(&pending, SIGHUP);
}

void cli_signal_ignore(void)
{
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
}

int cli_signal_hangup(void)
{
	struct sigaction action;

	return sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN ? 0 : SIGHUP;
}
