/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Results as `peerlane bench --json` and the scripts of bench/ write them, read again.  Whatever the file has, it is
 * either understood or refused: limits bound its size, its rows and their runs.
 */
#ifndef PL_CLI_BENCH_DOCUMENT_H
#define PL_CLI_BENCH_DOCUMENT_H

#include "cmd/common/cli.h"

#define DOCUMENT_BYTES_MAX (16u << 20)
#define DOCUMENT_ROWS_MAX 1024u
#define DOCUMENT_RUNS_MAX 1000u

/* What was measured; rows of two documents that agree in all of this are compared. */
struct document_key {
	char operation[32]; /* or a workflow's arm */
	char mode[32];      /* "bandwidth", "latency", "frames" */
	char fabric[16];
	char memory[24], peer_memory[24];
	uint64_t size;
	bool both_ways;
};

struct document_row {
	struct document_key key;
	char tool[24];
	double *runs; /* sorted */
	uint32_t run_count;
	bool less;  /* less is better: microseconds, else something per second */
	bool wrong; /* its content was not as it should be */
};

struct document {
	struct document_row *rows;
	uint32_t count;
	char version[32], time[40], host[80];
	bool failed; /* says that the measurement ended with an error */
};

/* 0; -EINVAL if it is none, -ENOMEM. */
int document_parse(const char *text, size_t length, const char *name, struct document *document,
		   struct pl_error *error);
/* The same for a file ("-": standard input); also errors of open(2) and read(2). */
int document_read(const char *path, struct document *document, struct pl_error *error);
void document_free(struct document *document);

/* Whether they measured the same; tools have names of their own for their fabrics, so there these need not agree. */
bool document_same(const struct document_row *a, const struct document_row *b);

#endif
