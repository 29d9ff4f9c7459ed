/* SPDX-License-Identifier: BSD-2-Clause */
/* Logs of the clients of `peerlane serve`: on SIGUSR1, and when a client leaves. */
#ifndef PL_CMD_TRANSFER_CONNECTION_LOG_H
#define PL_CMD_TRANSFER_CONNECTION_LOG_H

#include "cmd/transfer/server.h"

/*
 * Blocks SIGUSR1 and opens a descriptor that receives it.  Called before the library creates threads, which inherit the
 * blocked signal.
 */
int connection_log_open(struct pl_error *error);

/* Prints the logs of all clients on standard error if the descriptor has a signal.  Never waits for a full pipe. */
void connection_log_print(int signal_fd, const struct server *server);

/* Prints the log of a client whose connection is about to be closed. */
void connection_log_print_client(const struct client *client);

#endif
