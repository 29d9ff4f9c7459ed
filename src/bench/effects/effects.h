/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Effects in matrices of all pairs: groups, hosts, ranks and pairs that differ from the others.  A value of a pair is the
 * sum of a usual value, an effect of the sending rank, one of the receiving rank, and a rest; all are logarithms.  Medians
 * find them, so that a few slow hosts and pairs do not change what is usual (median polish, J. W. Tukey, 1977).
 */
#ifndef PL_BENCH_EFFECTS_EFFECTS_H
#define PL_BENCH_EFFECTS_EFFECTS_H

#include "cmd/common/cli.h"

/* Fewer hosts do not tell what is usual: of 4,000 matrices of 6 hosts, noise stood out in 29; of 8 hosts, in 3. */
#define EFFECTS_HOSTS_MIN 8u
#define EFFECTS_NONE SIZE_MAX
#define EFFECTS_NO_NAME "?" /* of a host that is unknown */
#define EFFECTS_TEXT 640

/* Hosts and groups of ranks: numbers from 0 on. */
struct effects_ranks {
	size_t count, host_count, group_count;
	size_t *host;         /* by rank */
	size_t *group;        /* by rank; EFFECTS_NONE: the rank is in no group */
	char **host_names;    /* by host */
	char **group_names;   /* by group, as of leaf switches */
	size_t *rank_on_host; /* by rank: number among the ranks of its host */
};

/* Names hosts by rank.  Copies the names; NULL is a host without a name.  Returns 0 or -ENOMEM. */
int effects_ranks_make(struct effects_ranks *ranks, const char *const *hosts, size_t count);
/* Reads groups from a file with lines of "HOSTS GROUP", such as "gpu[001-020] leaf1"; other hosts stay in no group. */
int effects_ranks_read_groups(struct effects_ranks *ranks, const char *path, struct pl_error *error);
void effects_ranks_free(struct effects_ranks *ranks);

enum effect_kind { EFFECT_GROUP, EFFECT_HOST, EFFECT_RANK, EFFECT_PAIR };

struct effect {
	enum effect_kind kind;
	size_t at, to;                 /* group, host or rank; of a pair: sending and receiving rank */
	bool sends, receives;          /* directions with an effect; of a pair: from `at` to `to`, and back */
	double sending, receiving;     /* logarithms of factors: -0.22 is 20 % less */
	double value, usual;           /* logarithms, of the first direction */
	bool outside;                  /* of a group: values within it are usual, so the links to the others differ */
	bool inside;                   /* of a group: pairs within it have the effect as well; else there are none */
	bool unconfirmed; /* of a changed pair: the other direction did not change, as after a passing dip */
	size_t *members, member_count; /* of a group: its hosts */
};

struct effects {
	const struct effects_ranks *ranks;
	double usual, noise;    /* median of all; robust standard deviation of the rests */
	double *send, *receive; /* by rank; NAN: too few values */
	double *rest;           /* by pair; NAN: no value, or one of a rank with too few */
	struct effect *list;    /* groups, hosts, ranks, pairs, unconfirmed pairs; the largest first */
	size_t count;
	size_t unconfirmed;           /* those at the end of the list */
	size_t *silent, silent_count; /* hosts without any value, which the other hosts have */
};

/*
 * True if enough hosts have three values or more as senders and as receivers; fewer have no median that tells something.
 * False as well if there is no memory (polish.c).
 */
bool effects_possible(const struct effects_ranks *ranks, const double *values);
/* True if values of this schedule are of all pairs, which can be judged; NULL: the document names none (polish.c). */
bool effects_judge_schedule(const char *schedule);
/*
 * Finds effects.  `values` has a logarithm for each pair, larger ones are better; NAN: none.  Values within a host are left
 * out.  With `changes`, values are ratios of two measurements: gains count as well, and pairs only if both directions
 * changed.  Returns 0 or -ENOMEM.
 */
int effects_find(struct effects *effects, const struct effects_ranks *ranks, const double *values, bool changes);
void effects_free(struct effects *effects);

/* Quantity of the values that effects_describe() names. */
enum effects_unit { EFFECTS_RATE, EFFECTS_LATENCY };

/* Returns the logarithms of a matrix of rates or latencies, larger ones are better; to be freed.  NULL: no memory. */
double *effects_logarithms(const double *values, size_t count, enum effects_unit unit);
/* Writes a sentence, such as "host gpu017 receives at 48 % of the others (24.1 GB/s, usual 50.2 GB/s)". */
void effects_describe(const struct effects *effects, const struct effect *effect, enum effects_unit unit, bool changes,
		      char text[EFFECTS_TEXT]);
/* Copies a text in UTF-8, cut between characters to the size of the buffer.  Returns the buffer. */
const char *effects_cut(char *buffer, size_t size, const char *text);
/* Writes the names of hosts in compressed form, cut to the size. */
void effects_fold_hosts(const struct effects_ranks *ranks, const size_t *hosts, size_t count, char *text, size_t size);
/* Writes a part as percent: 0.152 as "15.2 %".  Returns text. */
const char *effects_percent_text(double part, char text[32]);
/* Writes a rate or a latency from its logarithm. */
void effects_value_text(double value, enum effects_unit unit, char text[32]);

/* -- steps of effects_find() ------------------------------------------------------------------------ */

/* Median polish of the values, which leaves `effects->rest` (polish.c).  Returns 0 or -ENOMEM. */
int effects_polish(struct effects *effects, const double *values);
/* Sets `effects->noise` from the rests, if there is memory (polish.c). */
void effects_measure_noise(struct effects *effects);
/* Returns the number of values of a row or column that are not NAN.  `step` leads to its next value. */
size_t effects_count_values(const double *line, size_t step, size_t count);
/* Returns the median of unsorted values without the NAN among them, which it sorts; NAN if there are none. */
double effects_median(double *values, size_t count);
/* Returns 1.4826 times the median of the absolute values: the standard deviation if most are normal around 0. */
double effects_deviation(double *values, size_t count);

#endif
