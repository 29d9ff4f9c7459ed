/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane bench`: rates, latencies and processor time of operations between two processes, client and server. */
#ifndef PL_BENCH_PERF_PERF_H
#define PL_BENCH_PERF_PERF_H

struct bench_options;

/* Run `peerlane bench` and `peerlane bench kv`; return an exit status. */
int bench_perf(int argc, char **argv);
int bench_kv(int argc, char **argv);

/* Measures and prints the results (client.c); serves clients (server.c).  Return an exit status. */
int bench_measure(struct bench_options *options);
int bench_serve(const struct bench_options *options);

#endif
