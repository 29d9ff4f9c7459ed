/* SPDX-License-Identifier: BSD-2-Clause */
/* Server process that the client starts for a measurement on one machine. */
#ifndef PL_BENCH_PERF_LOCAL_SERVER_H
#define PL_BENCH_PERF_LOCAL_SERVER_H

#include "bench/perf/options.h"
#include "cmd/common/spawn.h"

struct bench_local_server {
	struct cli_child process;
	int key; /* descriptor of a file in memory with the key, or -1 */
	char key_path[32];
};

/* Starts the server on a free port of loopback; makes a key if one is needed and none was given. */
int bench_local_server_start(struct bench_local_server *server, struct bench_options *options, struct pl_error *error);
/* Waits for the server to exit after the connection's end; kills it after a time-out. */
void bench_local_server_stop(struct bench_local_server *server);

#endif
