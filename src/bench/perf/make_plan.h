/* SPDX-License-Identifier: BSD-2-Clause */
/* The plan of a size and the settings of a run, from the options of the command line. */
#ifndef PL_BENCH_PERF_MAKE_PLAN_H
#define PL_BENCH_PERF_MAKE_PLAN_H

#include "bench/perf/perf.h"
#include "bench/perf/results.h"

/* Returns the plan of a size. `memory`: kind of this end's; the report has the servers'. */
struct bench_plan bench_make_plan(const struct bench_options *options, const struct bench_report *report,
				  const char *memory, uint64_t size);
struct bench_run_settings bench_make_settings(const struct bench_options *options, const struct bench_plan *plan);

#endif
