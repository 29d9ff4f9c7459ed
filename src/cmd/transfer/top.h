/* SPDX-License-Identifier: BSD-2-Clause */
/* Clients of a server, as `peerlane top` shows them: looks at intervals, and rates between two looks. */
#ifndef PL_CMD_TRANSFER_TOP_H
#define PL_CMD_TRANSFER_TOP_H

#include "cmd/transfer/service_client.h"
#include "cmd/transfer/session.h"

/* Clients of a server at one time. */
struct top_look {
	uint64_t time;
	uint64_t read, written;      /* bytes of all clients since the server began */
	bool routes;                 /* `direct` and `staged` are valid */
	uint64_t direct, staged;     /* the same by route, of clients that report it */
	uint64_t clients;            /* number of clients */
	struct service_client *rows; /* those that this client may see, the newest first */
	size_t count, room;
};

/* Rates of a client, or of all, between two looks. */
struct top_rates {
	double read, write, direct, staged; /* bytes a second */
	double requests;                    /* a second */
};

/* Client in the order of the output. */
struct top_row {
	const struct service_client *client; /* of a look */
	struct top_rates rates;
};

/* Takes a look.  The caller calls top_look_free(), also on failure. */
int top_look(struct session *session, struct top_look *look, struct pl_error *error);
void top_look_free(struct top_look *look);
/* Rates of a client between an earlier look and this one.  A client that was not there is measured since it connected. */
struct top_rates top_rates_of(const struct top_look *before, const struct top_look *now,
			      const struct service_client *row);
/* Rates of all clients, with those that have left. */
struct top_rates top_rates_of_all(const struct top_look *before, const struct top_look *now);
/* Returns the clients of a look, the fastest first, to be freed; NULL without memory. */
struct top_row *top_sort(const struct top_look *before, const struct top_look *now);

/* Prints a look with its sorted rows: on a terminal over the last one, else below it. */
void top_print(const struct session *session, const struct top_look *before, const struct top_look *now,
	       const struct top_row *rows, bool quiet);
/* Prints a line of JSON.  Returns 0 or -ENOMEM. */
int top_print_json(const struct session *session, const struct top_look *before, const struct top_look *now,
		   const struct top_row *rows);

#endif
