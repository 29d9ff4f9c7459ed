/* SPDX-License-Identifier: BSD-2-Clause */
/* Listing of a server: the entries that it publishes. */
#ifndef PL_CMD_TRANSFER_LISTING_H
#define PL_CMD_TRANSFER_LISTING_H

#include "cmd/transfer/session.h"

struct listing {
	struct service_entry *entries;
	size_t count, room;
};

/* Fetches all entries.  The caller frees `entries`, also on failure. */
int listing_fetch(struct session *session, struct listing *listing, struct pl_error *error);

/* Prints a table, and below it the number of entries unless `quiet`. */
void listing_print_table(const struct listing *listing, bool quiet);
/* Returns CLI_OK, or CLI_OUTPUT with a message. */
int listing_print_json(const struct listing *listing, const struct session *session);

#endif
