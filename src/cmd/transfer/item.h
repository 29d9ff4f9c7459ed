/* SPDX-License-Identifier: BSD-2-Clause */
/* What clients reach: a published file, a block of memory, or a file being written.  Each is mapped and is a region. */
#ifndef PL_CLI_ITEM_H
#define PL_CLI_ITEM_H

#include <sys/stat.h>

#include "cmd/transfer/hash.h"
#include "cmd/transfer/partial_file.h"

enum item_kind { ITEM_FILE, ITEM_MEMORY, ITEM_PART };

struct item {
	struct item *next;
	enum item_kind kind;
	unsigned users;
	int fd; /* of the file; ITEM_PART: of its folder */
	dev_t device;
	ino_t inode;
	struct part_source source;
	struct part part; /* ITEM_PART */
	uint8_t *bytes;   /* NULL if there are none, or none that the processor reaches */
	struct pl_region *region;
};

/* A list of those in use, so that all clients of a file share one mapping. */
struct items {
	struct pl_context *context;
	struct item *first;
};

/* Both take the descriptor over, also on failure. */
int item_of_file(struct items *items, int fd, const struct stat *status, const char *name, struct item **item,
		 struct pl_error *error);
int item_of_part(struct items *items, int folder, const char *name, const struct part_source *source,
		 struct item **item, struct pl_error *error);
/* A block of a kind of memory: "host", "cuda", "cuda:1". */
int item_of_memory(struct items *items, const char *kind, uint64_t size, struct item **item, struct pl_error *error);

void item_use(struct item *item);
/* The last one to do so ends it; `discard` removes what was written. */
void item_release(struct items *items, struct item *item, bool discard);

/* No peer can write any more: gives the written file its name. */
int item_commit(struct item *item, struct pl_error *error);
/* The file as it is now. */
struct part_source item_source_now(const struct item *item);
/* Adds a range to a hash. */
int item_hash(const struct item *item, struct hash_state *state, uint64_t offset, uint64_t length);

#endif
