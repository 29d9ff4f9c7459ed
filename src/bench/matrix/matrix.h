/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane bench --mpi`: rates and latencies between all pairs of ranks. */
#ifndef PL_BENCH_MATRIX_MATRIX_H
#define PL_BENCH_MATRIX_MATRIX_H

#include <math.h>

#include "bench/matrix/mpi.h"

#define MATRIX_RANKS_MAX 1024
#define MATRIX_HOST 64
#define MATRIX_MEMORY 16
#define MATRIX_ADDRESS 64
#define MATRIX_REASON 96

struct matrix_options {
	struct cli_options common;
	const char *network, *memory; /* network: NULL: any; memory: "host" by default */
	const char *save, *resume;    /* files of results; NULL: none */
	uint64_t size, duration;      /* bytes; nanoseconds for each direction of a pair */
	uint64_t min_rate;            /* bytes a second that each direction of a pair must have; 0: any */
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

/* Result of a rank with one other; NAN if the pair was not measured, or failed. */
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

/* File of results, at rank 0 (save.c). */
struct matrix_save;

struct matrix {
	struct mpi *mpi;
	int rank, size;
	int *hosts; /* by rank: first rank on the same host */
	struct matrix_rank *ranks;
	struct matrix_cell *cells; /* rank 0: the rows of all ranks; else the own row */
	uint8_t *measured;         /* by row and column: an earlier run has the result, as all ranks know */
	struct matrix_slow *slow;
	size_t slow_count;
	struct matrix_medians {
		double bytes_per_second, latency_us; /* NAN: there are no such pairs */
	} medians[2];                                /* of pairs between two hosts, and within one */
	double seconds, earlier_seconds;             /* of all runs; of those before this one */
	uint64_t begun;                              /* time of this run */
	struct matrix_save *save;                    /* NULL: no file, or another rank than 0 */
	bool measured_all;                           /* all ranks end in order from now on */
	bool start_failed;                           /* a rank failed to start, and all ranks know that */
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
 * Orders the pairs of a round so that pairs that share a host take turns; leaves out pairs in matrix->measured.  Returns
 * the turn of the pair of `rank`, from 0 on, INT32_MAX if it has none, or -ENOMEM; *turns is the number of turns.
 */
int matrix_turn(const struct matrix *matrix, int round, int rank, int *turns);
/* Computes medians and finds slow pairs, again after each change.  Returns 0 or -ENOMEM. */
int matrix_judge(struct matrix *matrix);

static inline struct matrix_cell *matrix_cell(const struct matrix *matrix, int from, int to)
{
	return &matrix->cells[(size_t)from * (size_t)matrix->size + (size_t)to];
}

static inline struct matrix_cell matrix_empty_cell(void)
{
	return (struct matrix_cell){ .bytes_per_second = NAN, .latency_us = NAN };
}

static inline unsigned matrix_pairs(const struct matrix *matrix)
{
	return (unsigned)matrix->size * (unsigned)(matrix->size - 1) / 2;
}

/* True if rank 0 has both results of a pair. */
bool matrix_has_pair(const struct matrix *matrix, int from, int to);
/* Sets matrix->seconds to the time until now. */
void matrix_stop_clock(struct matrix *matrix);
/* Returns the number of pairs of which rank 0 has both results. */
unsigned matrix_count_pairs(const struct matrix *matrix);

/* Measures all pairs and judges them.  Returns 0 or a negative errno. */
int matrix_run(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error);

/* True if the rate of a pair is below --min-rate. */
bool matrix_is_below(const struct matrix *matrix, const struct matrix_options *options, int from, int to);
/* Fails at rank 0 if a pair is below --min-rate. */
int matrix_check_rates(const struct matrix *matrix, const struct matrix_options *options, struct pl_error *error);

void matrix_print(const struct matrix *matrix, const struct matrix_options *options);
int matrix_print_json(const struct matrix *matrix, const struct matrix_options *options, struct pl_error *error);
/* Returns the document of the results; `complete`: all pairs were measured. */
struct json_object *matrix_document(const struct matrix *matrix, const struct matrix_options *options, bool complete);
/* True if a document has a line for each value: those of more ranks would be too large for `peerlane report`. */
bool matrix_has_lines(const struct matrix *matrix);
/* Returns the options that change results: those of a resumed measurement must be equal. */
struct json_object *matrix_json_options(const struct matrix_options *options);
/*
 * Reads the results of an interrupted measurement into matrix->cells, and marks them in matrix->measured.  Fails if
 * the file is damaged, or if hosts, options or the version differ.
 */
int matrix_resume(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error);

/* Opens matrix->save, and writes the results so far.  matrix->save is NULL if the options name no file. */
int matrix_save_open(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error);
/* Writes the results if the last time is long enough ago.  Prints a warning if that fails.  NULL is allowed. */
void matrix_save_part(struct matrix_save *save);
/* Writes the results of the whole measurement.  NULL is allowed. */
int matrix_save_all(struct matrix_save *save, struct pl_error *error);
void matrix_save_close(struct matrix_save *save);

/* Runs the command; returns an exit status. */
int bench_mpi(int argc, char **argv);

#endif
