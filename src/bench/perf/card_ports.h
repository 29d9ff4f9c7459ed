/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports of RDMA cards that the connections of a measurement use. */
#ifndef PL_BENCH_PERF_CARD_PORTS_H
#define PL_BENCH_PERF_CARD_PORTS_H

#include "bench/counters/counters.h"
#include "bench/perf/endpoint.h"

/* Begins to watch the ports of all connections over verbs, as the events of their rails name them. */
void bench_watch_card_ports(const struct bench_endpoint *ep, struct card_watch *watch);

#endif
