/* SPDX-License-Identifier: BSD-2-Clause */
/* What the client commands show: each for people and as JSON. */
#ifndef PL_CLI_RENDER_H
#define PL_CLI_RENDER_H

#include "cmd/transfer/hash.h"
#include "cmd/common/output.h"
#include "cmd/transfer/pipeline.h"

/* -- list (render_list.c) ------------------------------------------------------------------------ */

struct listing {
	struct service_entry *entries;
	size_t count, room;
};

void render_list_table(const struct listing *listing, bool quiet);
void render_list_json(const struct listing *listing, const struct session *session);

/* -- get, put (render_transfer.c) ---------------------------------------------------------------- */

/* One file that was, or was to be, transferred. */
struct transfer {
	const char *name; /* at the server */
	const char *file; /* here */
	uint64_t size;
	uint64_t resumed; /* bytes that were there already */
	struct pipeline_result result;
	bool verified;
	struct hash hash; /* if verified */
	int status;       /* 0 or a negative errno */
	struct pl_error error;
	uint64_t kept; /* failed: bytes from which the same command goes on */
};

/* "NAME: 1.2 GB in 0.3 s, 4 GB/s" on standard output. */
void render_transfer(const struct transfer *transfer);
/* Why it failed, and what is kept nevertheless, on standard error. */
void render_transfer_failure(const struct transfer *transfer);
void render_transfers_json(const struct transfer *transfers, size_t count, const struct session *session);
/* CLI_OK, CLI_DEGRADED if bytes were staged, CLI_FAILED. */
enum cli_exit transfers_status(const struct transfer *transfers, size_t count);
/* Members of a result: bytes, seconds, rate, fabric, route, reason, streams. */
void render_result_json(struct json_object *object, const struct pipeline_result *result);

#endif
