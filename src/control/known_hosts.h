/* SPDX-License-Identifier: BSD-2-Clause */
/* List of the identities of servers, by address (file of pl_options.known_hosts), as OpenSSH's known_hosts. */
#ifndef PL_KNOWN_HOSTS_H
#define PL_KNOWN_HOSTS_H

#include "control/identity.h"

/* "[host]:port", with the NUL. */
#define PL_HOST_MAX 320

enum pl_known {
	PL_HOST_UNKNOWN, /* no line has this address */
	PL_HOST_KNOWN,
	PL_HOST_CHANGED, /* lines of this address have other fingerprints */
	PL_HOST_REVOKED, /* a line revokes this fingerprint */
};

/*
 * Looks an address ("[host]:port") up in the text of a file. `line`: number of the line that decided, from 1. Returns
 * enum pl_known, or -EINVAL with "KNOWN-HOSTS-SYNTAX" for a wrong line anywhere in the file.
 */
int pl_known_hosts_find(const char *path, const char *text, const char *address,
			const uint8_t fingerprint[PL_FINGERPRINT], unsigned *line, struct pl_error *error);

/*
 * Adds a line to the file, which need not exist, unless a line there decides already. `known` and `number` receive the
 * result of pl_known_hosts_find() before; PL_HOST_UNKNOWN: the line was added. Processes that add lines wait for each
 * other; readers see the old or the new file, which keeps its mode, and its owner and group where the process may set them. If
 * `path` is a symbolic link, its target changes. Returns 0, "KNOWN-HOSTS-SYNTAX", or "SYSTEM" with -ETIMEDOUT if others hold
 * the lock for 5 s.
 */
int pl_known_hosts_add(const struct pl_allocator *allocator, const char *path, const char *address,
		       const uint8_t fingerprint[PL_FINGERPRINT], int *known, unsigned *number, struct pl_error *error);

#endif
