/* SPDX-License-Identifier: BSD-2-Clause */
/* What the identity of a client may do at the server: struct pl_rights. */
#ifndef PL_CMD_TRANSFER_PERMISSION_H
#define PL_CMD_TRANSFER_PERMISSION_H

#include "cmd/transfer/server.h"

/*
 * True if one of the patterns, separated by commas, fits a name.  '*' stands for any text, '?' for a character; a pattern
 * that ends in '/' means everything below that directory.  No patterns: all names.
 */
bool permission_name_fits(const char *patterns, const char *name);

/* Reads what the client proved.  Fails if its rights do not allow one more connection. */
int permission_admit(struct client *client, struct pl_error *error);

/* Reads the rights of a client again, after a reload. */
void permission_refresh(struct client *client);

/* Checks the rights of a client to read or write (PL_ACCESS_...) a name. */
int permission_check(const struct client *client, const char *name, unsigned access, struct pl_error *error);

/* True if the rights of a client have ended by now. */
bool permission_is_over(const struct client *client);

#endif
