/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane bench compare`: what changed from one set of results to another, beyond noise. */
#ifndef PL_CLI_BENCH_COMPARE_H
#define PL_CLI_BENCH_COMPARE_H

#include "bench/compare/document.h"
#include "bench/compare/ratio.h"

enum verdict {
	VERDICT_SAME,
	VERDICT_BETTER,
	VERDICT_WORSE,
	VERDICT_ONLY_BEFORE,
	VERDICT_ONLY_AFTER,
};

struct comparison {
	const struct document_row *before, *after; /* one of them is NULL if only the other document has it */
	struct ratio ratio;                        /* if both have it */
	enum verdict verdict;
};

struct comparisons {
	struct cli_options common;
	const char *names[2];
	struct document documents[2];
	struct comparison *list;
	uint32_t count, compared;
	uint32_t verdicts[VERDICT_ONLY_AFTER + 1]; /* how many there are of each */
	double threshold;                          /* percent */
};

const char *verdict_name(enum verdict verdict);

/* (bench_compare_render.c) */
void compare_render_table(const struct comparisons *comparisons);
void compare_render_json(const struct comparisons *comparisons);

#endif
