/* SPDX-License-Identifier: BSD-2-Clause */
/* Saved answers of a fleet: a folder of --save, a file of --output, or the document of one host. */
#ifndef PL_CMD_FLEET_SAVED_H
#define PL_CMD_FLEET_SAVED_H

#include "cmd/fleet/answer.h"
#include "cmd/fleet/host_list.h"

struct saved {
	const char *path;
	enum fleet_kind kind;
	struct host_list hosts; /* sorted by name */
	struct answer *answers; /* one for each host */
};

/*
 * Reads a folder of HOST.json, a document of `peerlane fleet --output`, or one of `peerlane check` or `topo`.  Files of a
 * folder that are no documents become answers without one.
 */
int saved_read(struct saved *saved, const char *path, struct pl_error *error);
/* Reads a parsed document of `peerlane fleet`, and sorts its hosts. */
int saved_take(struct saved *saved, const char *path, struct json_object *root, struct pl_error *error);
/* Parses a document of `peerlane fleet`, `check` or `topo` into zeros. */
int saved_parse(struct saved *saved, const char *path, const char *text, size_t length, struct pl_error *error);
void saved_free(struct saved *saved);

#endif
