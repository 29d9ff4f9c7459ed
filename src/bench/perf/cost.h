/* SPDX-License-Identifier: BSD-2-Clause */
/* Processor cycles and energy of a run, where the kernel makes them available. */
#ifndef PL_BENCH_PERF_COST_H
#define PL_BENCH_PERF_COST_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_PACKAGES_MAX 16

/* Counters, and their values at the beginning of a run. */
struct bench_cost {
	int cycles;                          /* descriptor of the counter, or -1 */
	bool user_only;                      /* kernel cycles are not counted */
	char no_cycles[120], no_joules[120]; /* reason why the counter cannot be read; empty: it can */
	unsigned packages;
	struct bench_energy {
		char path[112];
		uint64_t range, begin;
	} energy[BENCH_PACKAGES_MAX];
	double begin; /* cycles */
};

/* Cycles and energy that one run used. */
struct bench_spent {
	bool has_cycles, has_joules;
	double cycles, joules;
};

/* Opens the counters; call it before the library starts threads, so that they are counted. */
void bench_cost_open(struct bench_cost *cost, const char *sysfs);
void bench_cost_close(struct bench_cost *cost);
void bench_cost_begin(struct bench_cost *cost);
void bench_cost_end(struct bench_cost *cost, struct bench_spent *spent);

#endif
