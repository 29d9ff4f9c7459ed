/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection of a rank with another one, on which it measures (link.c). */
#ifndef PL_BENCH_MATRIX_LINK_H
#define PL_BENCH_MATRIX_LINK_H

#include "bench/matrix/matrix.h"
#include "cmd/common/stats.h"

/* Own end of all links: context and memory of one rail. */
struct link_end {
	const struct matrix *matrix;
	const struct matrix_options *options;
	const struct matrix_end *ends; /* of all ranks, by rank */
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_region *region;
	struct stats *stats;
};

struct link {
	int rank; /* of the other end */
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct pl_operation *operation; /* in flight while the link connects; NULL: none */
	struct pl_error error;
	int rc;                  /* 0, or the first failure */
	struct matrix_cell cell; /* from this rank to the other end */
};

/*
 * Connects links of this rank, in each of which the rank with the lower number connects.  `turn` is equal at all ranks
 * and differs between calls.  Links that fail have an error in `rc`, and delay no other link.
 */
void links_connect(const struct link_end *end, struct link *links, int count, uint32_t turn);
void links_close(struct link *links, int count);

/* Measures rate and latency, alone (measure.c). */
void link_measure(const struct link_end *end, struct link *link);
/* Measures the rates of several links while all are written to. */
void links_measure(const struct link_end *end, struct link *const *links, int count);

#endif
