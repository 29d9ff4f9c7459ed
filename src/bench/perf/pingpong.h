/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages to and fro, whose latency is half the round-trip time. */
#ifndef PL_BENCH_PERF_PINGPONG_H
#define PL_BENCH_PERF_PINGPONG_H

#include "bench/perf/endpoint.h"

/* Runs the client, which measures; parameters as of bench_pipeline_run().  With stats this is the end of the run. */
int bench_pingpong_client(struct bench_endpoint *ep, uint64_t iterations, uint64_t duration, struct stats *stats);
/* Runs the server, which answers until the client's last message. */
int bench_pingpong_server(struct bench_endpoint *ep);

#endif
