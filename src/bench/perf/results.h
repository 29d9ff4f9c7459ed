/* SPDX-License-Identifier: BSD-2-Clause */
/* Results of `peerlane bench`, and the formats in which they are printed. */
#ifndef PL_BENCH_PERF_RESULTS_H
#define PL_BENCH_PERF_RESULTS_H

#include "bench/counters/counters.h"
#include "bench/perf/endpoint.h"
#include "bench/perf/options.h"
#include "cmd/common/events.h"

struct bench_latency {
	uint64_t minimum, p50, p90, p95, p99, p999, p9999, maximum; /* nanoseconds */
	double mean, deviation;
};

/* Results of one of several servers. */
struct bench_share {
	double bytes_per_second, operations_per_second; /* both directions */
	double bytes_out, bytes_in;                     /* each direction */
	uint64_t operations, elapsed;
	struct bench_latency latency;
	double server_cpu;
};

/* Results of one size. */
struct bench_row {
	struct bench_plan plan;
	struct pl_completion sample;
	unsigned lanes;
	double bytes_per_second, operations_per_second; /* both directions */
	double bytes_out, bytes_in;                     /* each direction */
	uint64_t operations, elapsed;
	struct bench_latency latency;
	double cpu, server_cpu; /* percent of one core */
	bool verified;
	struct bench_spent spent;
	double *runs; /* of all runs in their order: rate, or with latency the p50 in microseconds */
	uint32_t run_count;
	double *samples; /* bytes per second in each complete interval */
	uint32_t sample_count;
	/* Registration, medians in nanoseconds: of the cached one with its write, and of the write alone. */
	double cached, operation;
	struct bench_share *shares;     /* of each server; NULL if there is only one */
	struct card_counters *counters; /* changes at the ports in use, during all runs; NULL: none were read */
};

/* Results of all sizes. */
struct bench_report {
	struct bench_row rows[BENCH_SIZES_MAX];
	uint32_t count;
	struct bench_server {
		struct pl_peer_info info;
		struct machine machine;
		char memory[BENCH_KIND_MAX]; /* empty: the server was not asked yet */
		struct cli_events *events;   /* of the connection of control messages; NULL without --events */
	} servers[BENCH_CONNECTIONS_MAX];
	uint32_t server_count;
	char memory[BENCH_KIND_MAX];
	const char *pages;      /* huge pages in use: "hugetlb", "transparent", or NULL */
	struct bench_cost cost; /* for the reasons why values are missing */
	uint64_t staging;       /* bytes of host memory that the library locked to stage GPU memory */
	struct card_watch cards;
	bool failed;
	struct pl_error error;
};

/* Fills a row from the results of one run, and frees what the row held before.  Returns 0 or a negative errno. */
int bench_row_fill(struct bench_endpoint *ep, const struct bench_result *ours, struct bench_row *row);
void bench_row_free(struct bench_row *row);
/* Processor time of client and servers in seconds, for 10^9 bytes; NAN if no bytes moved. */
double bench_row_cpu_seconds(const struct bench_row *row);
/*
 * Returns the share of a processor, in percent, that the ends had which poll without pause: the lower one of both. NAN if none
 * polls, or if the run was too short. Fabrics other than tcp need no polls of the server, and other servers may use threads.
 */
double bench_row_polling_share(const struct bench_options *options, const struct bench_row *row);
/* True if an end that must poll had less than half a processor: the rate says more about the other load than about the fabric. */
bool bench_row_starved(const struct bench_options *options, const struct bench_row *row);
/* Requests of `peerlane bench kv` per second. */
static inline double bench_row_requests(const struct bench_row *row)
{
	return row->operations_per_second / row->plan.vector;
}
void bench_latency_fill(struct bench_latency *latency, const struct stats *stats);

/* True if the result has the rate of --min-rate. */
bool bench_row_meets_rate(const struct bench_options *options, const struct bench_row *row);
/* Makes the report a failed one if a result is below --min-rate. */
void bench_judge_rates(const struct bench_options *options, struct bench_report *report);

void bench_render_table(const struct bench_options *options, const struct bench_report *report);
void bench_render_json(const struct bench_options *options, const struct bench_report *report);
void bench_render_csv(const struct bench_options *options, const struct bench_report *report);
void bench_render_perftest(const struct bench_options *options, const struct bench_report *report);

#endif
