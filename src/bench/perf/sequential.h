/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations that run one after the other, timed by the client's clock: registrations and connections. */
#ifndef PL_BENCH_PERF_SEQUENTIAL_H
#define PL_BENCH_PERF_SEQUENTIAL_H

#include "bench/perf/endpoint.h"

int bench_sequential_client(struct bench_endpoint *ep, struct bench_result *result);
int bench_sequential_server(struct bench_endpoint *ep);

/* Implementations of bench_operation.measure_once(). */
int bench_register_once(struct bench_endpoint *ep, struct stats *cold, struct registration_times *times);
int bench_connect_once(struct bench_endpoint *ep, struct stats *stats, struct registration_times *times);

#endif
