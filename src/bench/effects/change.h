/* SPDX-License-Identifier: BSD-2-Clause */
/* Changes between two matrices of the same hosts. */
#ifndef PL_BENCH_EFFECTS_CHANGE_H
#define PL_BENCH_EFFECTS_CHANGE_H

#include "bench/effects/effects.h"

#define EFFECTS_UNITS 2

/* Matrix of a document.  Its owner is the caller. */
struct effects_matrix {
	size_t count;                             /* ranks */
	const char *const *hosts, *const *memory; /* by rank; NULL: unknown */
	const double *values[EFFECTS_UNITS];      /* by enum effects_unit; NULL: none.  NAN: no result of this pair */
};

struct effects_change {
	struct effects_ranks ranks;    /* that both matrices have: of equal host, memory, and number on the host */
	double *ratios[EFFECTS_UNITS]; /* logarithms, larger ones are better; NULL: no values */
	double before[EFFECTS_UNITS], after[EFFECTS_UNITS]; /* medians of the pairs between hosts that both have */
	size_t pairs[EFFECTS_UNITS];                        /* number of these pairs, in both directions */
	struct effects effects[EFFECTS_UNITS];
	char *only[2]; /* hosts that only the first or the second has, in compressed form; NULL: none */
};

/* Matches the ranks of two matrices, and computes ratios.  Returns 0 or -ENOMEM. */
int effects_change_match(struct effects_change *change, const struct effects_matrix *before,
			 const struct effects_matrix *after);
/* True if both have enough hosts in common. */
bool effects_change_possible(const struct effects_change *change);
/* Finds the effects of both quantities.  Returns 0 or -ENOMEM. */
int effects_change_find(struct effects_change *change);
/* Returns the change of the whole fleet, a logarithm, that noise of single pairs may cause. */
double effects_change_noise(const struct effects_change *change, enum effects_unit unit);
void effects_change_free(struct effects_change *change);

#endif
