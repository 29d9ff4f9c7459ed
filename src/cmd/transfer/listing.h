/* SPDX-License-Identifier: BSD-2-Clause */
/* Listing of a server: the entries that it publishes. */
#ifndef PL_CMD_TRANSFER_LISTING_H
#define PL_CMD_TRANSFER_LISTING_H

#include "cmd/transfer/session.h"

/* Most entries, and bytes of their names, that a server may list. */
#define LISTING_MAX (1u << 20)
#define LISTING_NAMES_MAX ((size_t)128 << 20)

struct listing_entry {
	uint8_t kind; /* enum service_kind */
	uint64_t size, modified;
	char *name;
};

struct listing {
	struct listing_entry *entries; /* in ascending order of their names */
	size_t count, room, names;     /* names: bytes of all names */
};

/* Fetches all entries.  The caller calls listing_free(), also on failure. */
int listing_fetch(struct session *session, struct listing *listing, struct pl_error *error);
void listing_free(struct listing *listing);

/* Prints a table, and below it the number of entries unless `quiet`. */
void listing_print_table(const struct listing *listing, bool quiet);
/* Returns CLI_OK, or CLI_OUTPUT with a message. */
int listing_print_json(const struct listing *listing, const struct session *session);

#endif
