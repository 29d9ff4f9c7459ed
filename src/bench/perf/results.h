/* SPDX-License-Identifier: BSD-2-Clause */
/* What `peerlane bench` found, and the forms in which it is shown. */
#ifndef PL_CLI_BENCH_REPORT_H
#define PL_CLI_BENCH_REPORT_H

#include "bench/perf/endpoint.h"

struct bench_latency {
	uint64_t minimum, p50, p90, p95, p99, p999, p9999, maximum; /* nanoseconds */
	double mean, deviation;
};

/* What one server of several had of a row. */
struct bench_share {
	double bytes_per_second, operations_per_second; /* both directions */
	double bytes_out, bytes_in;                     /* each direction */
	uint64_t operations, elapsed;
	struct bench_latency latency;
	double server_cpu;
};

struct bench_row {
	struct bench_plan plan;
	struct pl_receipt sample;
	unsigned streams;
	double bytes_per_second, operations_per_second; /* both directions */
	double bytes_out, bytes_in;                     /* each direction */
	uint64_t operations, elapsed;
	struct bench_latency latency;
	double cpu, server_cpu; /* percent of one core */
	bool verified;
	struct bench_spent spent;
	double *runs; /* of the row: each run's rate, or with latency its p50 in microseconds; as they came */
	uint32_t run_count;
	double *samples; /* bytes per second in each whole interval */
	uint32_t sample_count;
	double cached, operation;   /* registration: medians of the cached one, and of the write alone; nanoseconds */
	struct bench_share *shares; /* of each server, if there are several */
};

struct bench_report {
	struct bench_row rows[BENCH_SIZES_MAX];
	uint32_t count;
	struct bench_peer {
		struct pl_peer_info info;
		struct machine machine;
		char memory[BENCH_KIND]; /* empty: it did not come to that */
	} peers[BENCH_PEERS_MAX];
	uint32_t peer_count;
	char memory[BENCH_KIND];
	const char *pages;
	struct bench_cost cost; /* for its reasons */
	uint64_t staging;       /* bytes that this end locked for those of GPUs */
	bool failed;
	struct pl_error error;
};

/* A row of one run (bench_row.c), which frees what the row had of an earlier one.  0 or a negative errno. */
int bench_row_fill(struct bench_end *end, const struct bench_result *ours, struct bench_row *row);
void bench_row_free(struct bench_row *row);
void bench_latency_fill(struct bench_latency *latency, const struct stats *stats);

void bench_render_table(const struct bench_options *options, const struct bench_report *report);
/* (bench_render_json.c, bench_render_csv.c, bench_render_perftest.c) */
void bench_render_json(const struct bench_options *options, const struct bench_report *report);
void bench_render_csv(const struct bench_options *options, const struct bench_report *report);
void bench_render_perftest(const struct bench_options *options, const struct bench_report *report);

#endif
