/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Space of uploads.  The extended attribute user.peerlane.owner of a file names the identity that stored it, so that the
 * sums survive restarts, and so that one client does not continue another's partial file.
 */
#ifndef PL_CMD_TRANSFER_QUOTA_H
#define PL_CMD_TRANSFER_QUOTA_H

#include "cmd/transfer/server.h"

/*
 * Checks that a client may store `size` bytes, of which `allocated` exist already: the quota of its identity, and that of
 * the server.  Counts them on success.  -EDQUOT "QUOTA" otherwise.
 */
int quota_reserve(struct client *client, const char *name, uint64_t size, uint64_t allocated, struct pl_error *error);

/*
 * Does the same for a new file that a thread writes later.  Each sum of the files of the folder counts its bytes as well, until
 * quota_end_small().
 */
int quota_reserve_small(struct client *client, const char *name, uint64_t size, struct pl_error *error);

/* Bytes of an unfinished upload of this client under a name (the last component) in a folder. */
uint64_t quota_allocated(const struct client *client, int folder, const char *last);

/* Owner of new files. */
struct quota_owner {
	char fingerprint[PL_FINGERPRINT_MAX]; /* "": none */
	bool limited;                         /* there is a quota, so files without an owner must not be made */
};

struct quota_owner quota_owner_of(const struct client *client);

/* Ends the reservation of a small file of an owner.  Gives its bytes back unless the file is stored. */
void quota_end_small(struct server *server, const struct quota_owner *owner, uint64_t size, bool stored);

/*
 * Marks a file as the owner's.  Any thread.  -ENOTSUP "QUOTA-UNSUPPORTED" if the owner has a quota and the file system has
 * no attributes.
 */
int quota_mark(const struct quota_owner *owner, int fd, const char *name, struct pl_error *error);

enum quota_owned { OWNED_BY_NOBODY, OWNED_BY_CLIENT, OWNED_BY_OTHER };

/* Tells whether a client, nobody or another identity is the owner of a file. */
enum quota_owned quota_owned_by(const struct client *client, int fd);

/* Gives the bytes of a deleted file back to its owner and to the server. */
void quota_give_back(const struct client *client, enum quota_owned owned, uint64_t bytes);

/* Removes partial files that did not change for `server->keep_parts`, at most once an hour. */
void quota_expire_parts(struct server *server);
/* Time of the next call that does so; UINT64_MAX: never. */
uint64_t quota_next_expiry(const struct server *server);

/* Frees what the server remembers. */
void quota_close(struct server *server);

#endif
