/* SPDX-License-Identifier: BSD-2-Clause */
/* Pipeline: moves a range in pieces, several at a time, so that progress can be shown and recorded. */
#ifndef PL_CMD_TRANSFER_PIPELINE_H
#define PL_CMD_TRANSFER_PIPELINE_H

#include "cmd/transfer/session.h"

#define PIPELINE_DEPTH_MAX 16

/* Result of a transfer, summed up from the receipts of its pieces. */
struct pipeline_result {
	uint64_t bytes, nanoseconds, staged;
	enum pl_route route;
	const char *fabric, *reason; /* NULL if no byte was moved */
	unsigned lanes;              /* largest number that one piece used */
};

struct pipeline {
	struct session *session;
	bool write; /* true: pl_write(); false: pl_read() */
	struct pl_remote *remote;
	uint64_t remote_offset;
	struct pl_region *region;
	uint64_t offset;
	uint64_t length;
	unsigned depth; /* pieces at a time; 0: the default */
	uint64_t piece; /* bytes of a piece; 0: adapted so that a piece takes a fraction of a second */
	/* Called in order when the first `done` bytes of the range have arrived; may be NULL.  Nonzero ends the transfer. */
	int (*advance)(void *user, uint64_t done, struct pl_error *error);
	/* Called about every 100 ms or more often; may be NULL. */
	void (*idle)(void *user);
	void *user;
};

/* Runs the transfer and adds to *result.  No piece is under way when this function returns. */
int pipeline_run(const struct pipeline *pipeline, struct pipeline_result *result, struct pl_error *error);

#endif
