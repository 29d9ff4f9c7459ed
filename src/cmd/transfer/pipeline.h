/* SPDX-License-Identifier: BSD-2-Clause */
/* Moves a range in pieces, several at a time, so that there is progress to show and to keep. */
#ifndef PL_CLI_PIPELINE_H
#define PL_CLI_PIPELINE_H

#include "cmd/transfer/session.h"

#define PIPELINE_DEPTH_MAX 16

/* What became of a transfer, from the receipts of its pieces. */
struct pipeline_result {
	uint64_t bytes, nanoseconds, staged;
	enum pl_route route;
	const char *fabric, *reason; /* NULL if no byte moved */
	unsigned streams;            /* the most that one piece used */
};

struct pipeline {
	struct session *session;
	bool write; /* pl_write(), else pl_read() */
	struct pl_remote *remote;
	uint64_t remote_offset;
	struct pl_region *region;
	uint64_t offset;
	uint64_t length;
	unsigned depth; /* pieces at a time; 0: the default */
	uint64_t piece; /* bytes of a piece; 0: found out, so that each takes a fraction of a second */
	/* Called in order as the first `done` bytes of the range are there; may be NULL. Nonzero ends the transfer. */
	int (*advance)(void *user, uint64_t done, struct pl_error *error);
	/* Called now and then, also while nothing advances; may be NULL. */
	void (*idle)(void *user);
	void *user;
};

/* Adds to *result.  When this returns no piece is under way. */
int pipeline_run(const struct pipeline *pipeline, struct pipeline_result *result, struct pl_error *error);

#endif
