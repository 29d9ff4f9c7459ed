/* SPDX-License-Identifier: BSD-2-Clause */
/* Items: memory that clients access.  A published file, a block of memory, or a file being uploaded; each is a region. */
#ifndef PL_CMD_TRANSFER_ITEM_H
#define PL_CMD_TRANSFER_ITEM_H

#include <sys/stat.h>

#include "cmd/transfer/hash.h"
#include "cmd/transfer/partial_file.h"

enum item_kind { ITEM_FILE, ITEM_MEMORY, ITEM_PARTIAL_FILE };

struct item {
	struct item *next;
	enum item_kind kind;
	unsigned users;
	int fd; /* ITEM_FILE: the file; ITEM_PARTIAL_FILE: its folder; ITEM_MEMORY: -1 */
	dev_t device;
	ino_t inode;
	struct file_version version; /* ITEM_MEMORY: only the size */
	struct partial_file partial; /* ITEM_PARTIAL_FILE */
	uint8_t *bytes;              /* mapping; NULL if empty or if the CPU cannot access the memory */
	struct pl_region *region;
};

/* Items in use.  All clients of a file share one item. */
struct items {
	struct pl_context *context;
	const struct partial_key *key; /* of partial files; NULL: none is resumed */
	struct item *first;
};

/* Maps a file.  Owns `fd` afterwards, also on failure. */
int item_open_file(struct items *items, int fd, const struct stat *status, const char *name, struct item **item,
		   struct pl_error *error);
/* Opens the partial file of an upload; `data` as for partial_file_open().  Owns `folder` afterwards, also on failure. */
int item_open_partial_file(struct items *items, int folder, const char *name, const struct file_version *source,
			   uint64_t data, struct item **item, struct pl_error *error);
/* Allocates a block of a kind of memory, such as "host", "cuda" or "cuda:1". */
int item_allocate_memory(struct items *items, const char *kind, uint64_t size, struct item **item,
			 struct pl_error *error);

/* Adds a user. */
void item_acquire(struct item *item);
/* Removes a user.  The last one frees the item; `discard` removes an uncommitted file. */
void item_release(struct items *items, struct item *item, bool discard);

/* Deregisters the region of an uploaded file before its commit, which ends all access of peers. */
void item_end_access(struct item *item);
/* Returns the current version of the file. */
struct file_version item_current_version(const struct item *item);
/* Adds a range of the item to a hash. */
int item_hash(const struct item *item, struct hash_state *state, uint64_t offset, uint64_t length);

#endif
