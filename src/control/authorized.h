/* SPDX-License-Identifier: BSD-2-Clause */
/* List of identities that may connect, with their rights (file of pl_options.authorized; peerlane-identity(7)). */
#ifndef PL_AUTHORIZED_H
#define PL_AUTHORIZED_H

#include "control/identity.h"

struct pl_authorized;

enum pl_listed { PL_UNLISTED, PL_LISTED, PL_LISTED_REVOKED };

/*
 * Parses the lines of a file; `path` is for messages. An unknown word refuses the whole file: "AUTHORIZED-SYNTAX" with
 * -EINVAL. The caller frees the list with pl_authorized_free(), which accepts NULL.
 */
int pl_authorized_parse(const struct pl_allocator *allocator, const char *path, const char *text,
			struct pl_authorized **list, struct pl_error *error);
void pl_authorized_free(struct pl_authorized *list);

/*
 * Finds the other end: a revocation first, then its fingerprint, then its certified name, then a pattern of names, then
 * the line of everybody. `fingerprint` NULL: it has no identity; `name`: certified by an authority, or "". `rights` is
 * filled if it is listed.
 */
enum pl_listed pl_authorized_find(const struct pl_authorized *list, const uint8_t *fingerprint, const char *name,
				  struct pl_rights *rights);

#endif
