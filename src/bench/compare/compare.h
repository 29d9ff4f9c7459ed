/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane bench compare`: differences between two sets of results, told from noise. */
#ifndef PL_BENCH_COMPARE_COMPARE_H
#define PL_BENCH_COMPARE_COMPARE_H

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
	uint32_t verdicts[VERDICT_ONLY_AFTER + 1]; /* count of each verdict */
	double threshold;                          /* percent */
};

const char *verdict_name(enum verdict verdict);

/* Runs the command; argv[0] is "peerlane bench compare".  Returns an exit status. */
int bench_compare(int argc, char **argv);

void compare_render_table(const struct comparisons *comparisons);
void compare_render_json(const struct comparisons *comparisons);

#endif
