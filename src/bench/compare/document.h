/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Documents of `peerlane bench --json` and of the scripts in benchmarks/, and runs of `peerlane fleet`. Files are either read
 * completely or refused: limits bound their size, their rows and the runs of a row.
 */
#ifndef PL_BENCH_COMPARE_DOCUMENT_H
#define PL_BENCH_COMPARE_DOCUMENT_H

#include "cmd/common/cli.h"
#include "cmd/fleet/saved.h"

#define DOCUMENT_ROWS_MAX 1024u
#define DOCUMENT_RUNS_MAX 1000u
#define DOCUMENT_RANKS_MAX 1024u   /* of a matrix */
#define DOCUMENT_RAILS_MAX 16u     /* of a matrix */
#define DOCUMENT_ROW_RANKS_MAX 64u /* of a matrix with a row for each pair; larger ones have rows of few pairs */

/* Key of a result.  Rows of two documents with the same key are compared. */
struct document_key {
	char operation[32]; /* or method of a workflow, or pair of ranks */
	char mode[32];      /* "bandwidth", "latency", "frames" */
	char fabric[16];    /* "": the document does not tell */
	char memory[24], peer_memory[24];
	uint64_t size;
	bool both_ways;
};

struct document_row {
	struct document_key key;

	char tool[24];
	double *runs; /* sorted */
	uint32_t run_count;
	bool lower_is_better; /* lower values are better: microseconds; else rates */
	bool wrong_content;   /* the received content was wrong */
};

/* Matrix of all pairs. */
struct document_matrix {
	size_t ranks;           /* 0: the document is no matrix */
	bool judged;            /* its schedule measures all pairs, so that hosts can be judged */
	uint64_t size;          /* bytes of a message */
	char **hosts, **memory; /* by rank; NULL: unknown */
	struct document_values {
		char *rail;        /* NULL: all rails, of which the worst counts */
		double *values[2]; /* bytes a second, and microseconds; NAN: this pair has no result */
	} * sets;                  /* the first one is of all rails */
	size_t set_count;
};

struct document {
	struct document_row *rows;
	uint32_t count;
	char version[32], time[40], host[80];
	struct document_matrix matrix;
	struct saved run;           /* of `peerlane fleet`, or a document of `peerlane check` or `topo` */
	bool failed;                /* the measurement ended with an error */
	uint32_t pairs, pairs_left; /* of an interrupted matrix: those of two ranks, and those without a rate */
};

/* Returns 0, -EINVAL if the text is not a document, or -ENOMEM.  A run keeps the name. */
int document_parse(const char *text, size_t length, const char *name, struct document *document,
		   struct pl_error *error);
/* Reads a file ("-": standard input) or a folder of a run.  Also returns errors of open(2) and read(2). */
int document_read(const char *path, struct document *document, struct pl_error *error);
void document_free(struct document *document);

/* True if the document is a run of `peerlane fleet`, or a document of `peerlane check` or `topo`. */
bool document_is_run(const struct document *document);

/*
 * True if two rows have the same key.  The fabric counts only within one tool, as other tools have names of their own.
 */
bool document_rows_match(const struct document_row *a, const struct document_row *b);

#endif
