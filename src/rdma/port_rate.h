/* SPDX-License-Identifier: BSD-2-Clause */
/* Rates of ports, from the encodings of ibv_query_port(3). */
#ifndef PL_RDMA_PORT_RATE_H
#define PL_RDMA_PORT_RATE_H

/* Returns the rate of a port in units of 100 Mb/s; 0: unknown. */
unsigned rdma_port_rate(unsigned active_speed, unsigned active_width);

#endif
