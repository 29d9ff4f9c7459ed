/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane bench --mpi`: rates and latencies between all pairs of ranks. */
#ifndef PL_BENCH_MATRIX_MATRIX_H
#define PL_BENCH_MATRIX_MATRIX_H

#include "bench/matrix/mpi.h"

#define MATRIX_RANKS_MAX 1024
#define MATRIX_HOST 64
#define MATRIX_MEMORY 16
#define MATRIX_ADDRESS 64
#define MATRIX_REASON 96

struct matrix_options {
	struct cli_options common;
	const char *network, *memory; /* network: NULL: any; memory: "host" by default */
	uint64_t size, duration;      /* bytes; nanoseconds for each direction of a pair */
	char **command;
	int command_count;
};

/* Data that each rank sends to all others. */
struct matrix_rank {
	char host[MATRIX_HOST], memory[MATRIX_MEMORY], address[MATRIX_ADDRESS];
	uint8_t token[PL_TOKEN_MAX];
	uint32_t token_length;
	uint32_t start_failed; /* this rank failed to start */
};

/* Result of a rank with one other; NAN if the measurement failed. */
struct matrix_cell {
	double bytes_per_second, latency_us;
	char fabric[16], reason[MATRIX_REASON]; /* reason of the route, or of the failure */
	uint32_t staged, failed;
};

/* Pair that is slow compared with others. */
struct matrix_slow {
	int from, to;
	bool latency;
	double value, median;
};

struct matrix {
	struct mpi *mpi;
	int rank, size;
	int *hosts; /* by rank: first rank on the same host */
	struct matrix_rank *ranks;
	struct matrix_cell *cells; /* all rows at rank 0 after the measurement, else the own row */
	struct matrix_slow *slow;
	size_t slow_count;
	struct matrix_medians {
		double bytes_per_second, latency_us; /* NAN: there are no such pairs */
	} medians[2];                                /* of pairs between two hosts, and within one */
	double seconds;
	bool start_failed; /* a rank failed to start, and all ranks know that */
};

/*
 * Schedule of a round-robin tournament: in each round a rank is in one pair at most.  There are size - 1 rounds, or
 * size if that is odd.  Returns the partner of `rank` in `round`, or -1 if it has none.
 */
int matrix_rounds(int size);
int matrix_partner(int size, int round, int rank);
/* Sets matrix->hosts from the names in matrix->ranks. */
void matrix_find_hosts(struct matrix *matrix);
/*
 * Orders the pairs of a round so that pairs that share a host take turns.  Returns the turn of the pair of `rank`, from
 * 0 on, INT32_MAX if it has none, or -ENOMEM; *turns is the number of turns.
 */
int matrix_turn(const struct matrix *matrix, int round, int rank, int *turns);
/* Computes medians and finds slow pairs.  Returns 0 or -ENOMEM. */
int matrix_judge(struct matrix *matrix);

/* Measures all pairs and judges them.  Returns 0 or a negative errno. */
int matrix_run(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error);

void matrix_print(const struct matrix *matrix, const struct matrix_options *options);
void matrix_print_json(const struct matrix *matrix, const struct matrix_options *options);

/* Runs the command; returns an exit status. */
int bench_mpi(int argc, char **argv);

#endif
