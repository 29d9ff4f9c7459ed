/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections with ep->peer.  Functions return 0, or a negative errno with the error in ep->error. */
#ifndef PL_BENCH_PERF_CONNECTIONS_H
#define PL_BENCH_PERF_CONNECTIONS_H

#include "bench/perf/endpoint.h"

/* Client: opens connections until there are `count`. */
int bench_connections_open(struct bench_endpoint *ep, uint32_t count);
/* Server: accepts connections until there are `count`. */
int bench_connections_accept(struct bench_endpoint *ep, uint32_t count);
int bench_connections_import(struct bench_endpoint *ep, const void *token, size_t length);
void bench_connections_release(struct bench_endpoint *ep);
void bench_connections_close(struct bench_endpoint *ep);

#endif
