/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane bench --mpi`: rates and latencies between all pairs of ranks. */
#ifndef PL_CLI_MATRIX_H
#define PL_CLI_MATRIX_H

#include "bench/matrix/mpi.h"

#define MATRIX_RANKS_MAX 1024
#define MATRIX_HOST 64
#define MATRIX_MEMORY 16
#define MATRIX_ADDRESS 64
#define MATRIX_REASON 96

struct matrix_options {
	struct cli_options common;
	const char *network, *memory; /* NULL: whichever; "host" */
	uint64_t size, duration;      /* bytes; nanoseconds for each direction of a pair */
	char **command;
	int command_count;
};

/* What each rank tells the others. */
struct matrix_rank {
	char host[MATRIX_HOST], memory[MATRIX_MEMORY], address[MATRIX_ADDRESS];
	uint8_t token[PL_TOKEN_MAX];
	uint32_t token_length;
	uint32_t unfit; /* it cannot take part */
};

/* What a rank measured with one other; NAN if it could not. */
struct matrix_cell {
	double bytes_per_second, latency_us;
	char fabric[16], reason[MATRIX_REASON]; /* why this route, or why there is no figure */
	uint32_t staged, failed;
};

struct matrix_slow {
	int from, to;
	bool latency;
	double value, median;
};

struct matrix {
	struct mpi *mpi;
	int rank, size;
	int *hosts; /* of each rank: the first rank that is on the same one */
	struct matrix_rank *ranks;
	struct matrix_cell *cells; /* rank 0 in the end: all rows; before: the own one */
	struct matrix_slow *slow;
	size_t slow_count;
	struct matrix_medians {
		double bytes_per_second, latency_us; /* NAN: there are no such pairs */
	} medians[2];                                /* of pairs on two hosts, and on one */
	double seconds;
	bool unfit; /* some rank is, and all know */
};

/* -- who meets whom (matrix_plan.c) --------------------------------------------------------------- */

/*
 * Rounds of a tournament: in each, a rank is in one pair at most.  The partner of `rank` in `round`, -1 if it has none.
 * There are size - 1 rounds, or size if that is odd.
 */
int matrix_rounds(int size);
int matrix_partner(int size, int round, int rank);
void matrix_find_hosts(struct matrix *matrix);
/*
 * Pairs of a round that share a host disturb each other, so they take turns.  The turn of the pair of `rank`, from 0
 * on, INT32_MAX if it has none; *turns: how many there are.  Or -ENOMEM.
 */
int matrix_turn(const struct matrix *matrix, int round, int rank, int *turns);
/* Medians, and pairs that are far beyond; 0 or -ENOMEM. */
int matrix_judge(struct matrix *matrix);

/* -- measuring (matrix_run.c) -------------------------------------------------------------------- */

int matrix_run(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error);

/* -- showing (matrix_render.c) ------------------------------------------------------------------- */

void matrix_print(const struct matrix *matrix, const struct matrix_options *options);
void matrix_print_json(const struct matrix *matrix, const struct matrix_options *options);

int pl_cli_matrix(int argc, char **argv);

#endif
