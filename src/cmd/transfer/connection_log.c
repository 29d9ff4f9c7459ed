/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/connection_log.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cmd/common/events.h"

int connection_log_open(struct pl_error *error)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? cli_fail_errno(error, -errno, "signalfd", NULL) : fd;
}

void connection_log_print_client(const struct client *client)
{
	struct cli_events events;

	cli_events_read(&events, client->peer);
	cli_events_print(stderr, &events, client->address, false);
}

void connection_log_print(int signal_fd, const struct server *server)
{
	struct signalfd_siginfo signal;

	if (read(signal_fd, &signal, sizeof(signal)) != sizeof(signal))
		return;
	if (!server->client_count && cli_has_room(stderr))
		fputs("no clients are connected\n", stderr);
	for (const struct client *client = server->clients; client; client = client->next)
		if (client->peer)
			connection_log_print_client(client);
}
