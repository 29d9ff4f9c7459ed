/* SPDX-License-Identifier: BSD-2-Clause */
/* Command line of `peerlane bench`. */
#ifndef PL_BENCH_PERF_OPTIONS_H
#define PL_BENCH_PERF_OPTIONS_H

#include "bench/perf/plan.h"
#include "cmd/common/cli.h"

struct bench_options {
	struct cli_options common;
	const char *addresses[BENCH_CONNECTIONS_MAX];
	uint32_t address_count;
	const char *memory, *peer_memory; /* peer_memory: NULL: the server's choice */
	const char *cpus, *peer_cpus;     /* NULL: any */
	int node;                         /* NUMA node; -1: any */
	bool huge, csv, perftest, gbits, all, with_machine, events;
	uint64_t sample_interval, rate_bytes;
	uint64_t min_rate; /* bytes a second that each result must have; 0: any */
	int argc;
	char **argv;
	struct bench_plan plan;
	struct bench_run_settings settings;
	uint64_t sizes[BENCH_SIZES_MAX];
	uint32_t size_count, repeat, step;
	const char *size_text;
	bool depth_given, warmup_given, duration_given, manual, server, once;
	int announce; /* descriptor to which the server's address is written, or -1 */
};

/* Options about the method: duration, rate, memory, affinity, output format. */
extern const struct argp bench_method_argp;
/* Check combinations of options, after all were parsed.  They exit if one is wrong. */
void bench_finish_method(struct bench_options *options, struct argp_state *state);
void bench_finish_sizes(struct bench_options *options, struct argp_state *state);
/* Adds an ADDRESS of the command line, which must be one of at most 64. */
void bench_add_address(struct bench_options *options, const char *address, struct argp_state *state);

/* Applies --cpu and --numa to this process; call it before the library starts threads.  0 or a negative errno. */
int bench_set_affinity(const struct bench_options *options, struct pl_error *error);
/* True if the text is a list of cores, such as 0-3,8. */
bool bench_cpu_list_valid(const char *text);

#endif
