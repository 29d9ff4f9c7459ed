/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane bench --matrix` and `--mpi`: rates and latencies between all pairs of ranks. */
#ifndef PL_BENCH_MATRIX_MATRIX_H
#define PL_BENCH_MATRIX_MATRIX_H

#include <math.h>

#include "bench/matrix/membership.h"
#include "bench/matrix/world.h"

#define MATRIX_HOST 64
#define MATRIX_MEMORY 16
#define MATRIX_ADDRESS 64
#define MATRIX_BOOT_ID 40
#define MATRIX_GPU 16
#define MATRIX_REASON 96
#define MATRIX_RAILS_MAX 8
#define MATRIX_LATENCY_SIZE 8 /* bytes of a message whose latency is measured */

/* Order in which ranks write to others. */
enum matrix_schedule {
	MATRIX_PAIRS,      /* disjoint pairs in rounds, one direction after the other */
	MATRIX_RING,       /* each rank to the next one, all at once */
	MATRIX_ALL_TO_ALL, /* each rank to all others, all at once */
	MATRIX_ONE_TO_ALL, /* rank 0 to all others at once, then all others to it */
};

struct matrix_options {
	struct cli_options common;
	const char *network, *memory; /* network: NULL: any; memory: "host" by default */
	const char *save, *resume;    /* files of results; NULL: none */
	const char *output;           /* file of the document beside the table, "-": behind it; NULL: none */
	uint64_t size, duration;      /* bytes; nanoseconds for each direction of a pair */
	uint64_t min_rate;            /* bytes a second that each direction of a pair must have; 0: any */
	bool rails_apart;             /* each network, or each device, is a rail, measured by itself */
	int rail_count;               /* 1 unless rails are apart */
	bool matrix, rank_options;    /* --matrix, or an option about its ranks, is given */
	bool mpi;                     /* MPI started the ranks */
	enum matrix_schedule schedule;
	unsigned rounds;       /* of MATRIX_PAIRS; 0: all */
	uint64_t step_timeout; /* nanoseconds for connecting a pair, and for each operation */
	uint64_t join_timeout; /* nanoseconds */
	unsigned minimum;      /* ranks without which nothing is measured */
	struct membership_options membership;
	char **command;
	int command_count;
};

/* Data that each rank sends to all others. */
struct matrix_rank {
	char host[MATRIX_HOST], memory[MATRIX_MEMORY];
	char boot_id[MATRIX_BOOT_ID];
	char gpu[MATRIX_GPU];  /* PCI address of the GPU that "cuda" chose; "": none */
	uint32_t start_failed; /* this rank failed to start */
};

/* Listener and memory of a rank on a rail, which it sends to all others. */
struct matrix_end {
	char address[MATRIX_ADDRESS];
	uint8_t token[PL_TOKEN_MAX];
	uint32_t token_length;
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

#define MATRIX_FAILURES_MAX 3 /* partners in a row after which a rank is left out */

#define MATRIX_RECENT 16u /* last results of a rank, among which a success connects it with its partner */

/* Failures in a row that speak against a rank, rather than against its partners. */
struct matrix_failures {
	int partners[MATRIX_FAILURES_MAX], count;
	int recent[MATRIX_RECENT]; /* a ring of the last results: the partner; -1: a failure */
	unsigned results;          /* number of all results */
};

/* Result of a rank in one turn. */
struct matrix_outcome {
	int partner; /* -1: it measured with none */
	bool failed; /* a direction, on one of the rails */
};

/* File of results, at rank 0 (save.c). */
struct matrix_save;

struct matrix {
	struct world *world; /* NULL: not open */
	int rank, size;
	char host[MATRIX_HOST]; /* of this rank */
	int *hosts; /* by rank: first rank on the same host */
	struct matrix_rank *ranks;
	struct matrix_end *ends;   /* by rail and rank */
	struct matrix_cell *cells; /* rank 0: the rows of all ranks; else the own row.  Of several rails the worst */
	int rails;                 /* measured apart; 0 and 1: one */
	struct matrix_cell *rail_cells; /* rank 0: by rail, row and column; NULL: there is one rail */
	uint8_t *measured;         /* by row and column: an earlier run has the result, as all ranks know */
	struct matrix_slow *slow;
	size_t slow_count;
	struct matrix_medians {
		double bytes_per_second, latency_us; /* NAN: there are no such pairs */
	} medians[2];                                /* of pairs between two hosts, and within one */
	int measured_again;                          /* slow pairs that were measured twice */
	double seconds, earlier_seconds;             /* of all runs; of those before this one */
	uint64_t begun;                              /* time of this run */
	struct matrix_failures *failures;            /* rank 0: by rank */
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
/*
 * Sets matrix->hosts from the names and boot ids in matrix->ranks.  Of several hosts with one name, the second one becomes
 * NAME#2.
 */
void matrix_find_hosts(struct matrix *matrix);
/*
 * Orders the pairs of a round so that pairs that share a host take turns; omits pairs in matrix->measured, and ranks that
 * are left out.  Returns the turn of the pair of `rank`, from 0 on, INT32_MAX if it has none, or -ENOMEM; *turns is the
 * number of turns.
 */
int matrix_turn(const struct matrix *matrix, int round, int rank, int *turns);
const char *matrix_schedule_name(enum matrix_schedule schedule);
/* Returns the number of phases of a turn; all ranks wait for each other between two. */
int matrix_phases(enum matrix_schedule schedule);
/* True if a rank writes to another one in a phase of a schedule in which all ranks write at once. */
bool matrix_writes(const struct matrix *matrix, enum matrix_schedule schedule, int phase, int from, int to);
/* True if an earlier run has the results of all writes of such a schedule between ranks that take part. */
bool matrix_is_measured(const struct matrix *matrix, enum matrix_schedule schedule);
/* Returns the round of the tournament that the n-th measured round is: --rounds spreads them. */
int matrix_spread_round(int rounds, int wanted, int number);
/*
 * Marks slow pairs to measure again in `suspects`, zeros by row and column, in the row of the lower rank (again.c).  Returns
 * their number, or -ENOMEM.
 */
int matrix_mark_suspects(struct matrix *matrix, uint8_t *suspects);
/* Returns the partner of a rank in a turn of these pairs; -1: none; -ENOMEM.  *turns is the number of turns. */
int matrix_plan_suspects(const struct matrix *matrix, const uint8_t *suspects, int turn, int rank, int *turns);
/* Keeps the better values of two measurements of a pair. */
void matrix_keep_better(struct matrix_cell *cell, const struct matrix_cell *again);
/* Copies the element of a list that is divided by commas.  Returns `rail`; NULL if the list is NULL. */
const char *matrix_copy_rail(const char *list, int number, char *rail, size_t size);
/* Computes medians and finds slow pairs, again after each change.  Returns 0 or -ENOMEM. */
int matrix_judge(struct matrix *matrix);

static inline struct matrix_cell *matrix_cell(const struct matrix *matrix, int from, int to)
{
	return &matrix->cells[(size_t)from * (size_t)matrix->size + (size_t)to];
}

static inline struct matrix_cell *matrix_rail_cell(const struct matrix *matrix, int rail, int from, int to)
{
	return &matrix->rail_cells[((size_t)rail * (size_t)matrix->size + (size_t)from) * (size_t)matrix->size +
				   (size_t)to];
}

/* True unless a rank is left out. */
static inline bool matrix_has_rank(const struct matrix *matrix, int rank)
{
	return !matrix->world || world_has(matrix->world, rank);
}

/* True if ranks were left out; the rest was measured. */
static inline bool matrix_lost_ranks(const struct matrix *matrix)
{
	return matrix->world && world_present(matrix->world) < matrix->size;
}

static inline struct matrix_cell matrix_empty_cell(void)
{
	return (struct matrix_cell){ .bytes_per_second = NAN, .latency_us = NAN };
}

static inline unsigned matrix_pairs(const struct matrix *matrix)
{
	return (unsigned)matrix->size * (unsigned)(matrix->size - 1) / 2;
}

/*
 * Counts the results of a turn, by rank; both ranks of a pair have the same.  A failed pair speaks against its rank outside
 * of the majority, which recent pairs connect.  Returns 0 or -ENOMEM.
 */
int matrix_count_turn(struct matrix *matrix, const struct matrix_outcome *outcomes);
/* True if MATRIX_FAILURES_MAX failures in a row speak against a rank. */
bool matrix_keeps_failing(const struct matrix *matrix, int rank);
/* Failures with a rank that is left out speak against nobody. */
void matrix_forgive_failures(struct matrix *matrix, int lost);
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
/* Writes the document into the file of --output, or on standard output. */
int matrix_write_output(const struct matrix *matrix, const struct matrix_options *options, struct pl_error *error);
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

/* Runs the command with --matrix or --mpi; returns an exit status. */
int bench_matrix(int argc, char **argv);

#endif
