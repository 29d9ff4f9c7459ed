/* SPDX-License-Identifier: BSD-2-Clause */
/* Budgets of clients: requests a second, and reports of clients that reach their limits. */
#ifndef PL_CMD_TRANSFER_BUDGET_H
#define PL_CMD_TRANSFER_BUDGET_H

#include "cmd/transfer/server.h"

/*
 * Takes one request from a budget of `rate` requests a second, of which those of the last second may be saved up.
 * `paced`: the time until which requests are taken.  Returns its new value; a time after `now`: the next request waits.
 */
uint64_t budget_take(uint64_t paced, unsigned rate, uint64_t now);

/* Counts a request of the client. */
void budget_count_request(struct client *client);
/* Counts a report of progress, which is no request. */
void budget_count_report(struct client *client);
/* True if the server must not receive the client's next request yet; budget_resume() receives it in time. */
bool budget_pauses(struct client *client);
/* Calls receive() for each client whose pause has ended.  receive() may free the client. */
void budget_resume(struct server *server, void (*receive)(struct client *client));

/* Notes that a client with a rate connected. */
void budget_watch_rate(struct client *client);
/* Reports clients that had to wait for their rate, each at most once a minute. */
void budget_report_rates(struct server *server);

#endif
