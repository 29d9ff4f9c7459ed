/* SPDX-License-Identifier: BSD-2-Clause */
/* Server process that the client starts on the same machine. */
#include "bench/perf/local_server.h"

#include <unistd.h>

int bench_local_server_start(struct bench_local_server *child, struct bench_options *options, struct pl_error *error)
{
	const char *arguments[16] = { "bench", "--server", "--once", "--quiet" };
	size_t count = 4;
	int rc;

	*child = (struct bench_local_server){ .key = -1 };
	arguments[count++] = options->manual ? "--progress=manual" : "--progress=thread";
	arguments[count++] = "--memory";
	arguments[count++] = options->peer_memory ? options->peer_memory : options->memory;
	if (options->huge)
		arguments[count++] = "--huge-pages";
	if (options->peer_cpus) {
		arguments[count++] = "--cpu";
		arguments[count++] = options->peer_cpus;
	}
	arguments[count++] = "127.0.0.1:0";
	rc = cli_child_key(&options->common, child->key_path, &child->key, error);
	if (rc == 0)
		rc = cli_child_start(&child->process, arguments, &options->common, error);
	if (rc < 0)
		bench_local_server_stop(child);
	return rc;
}

void bench_local_server_stop(struct bench_local_server *child)
{
	cli_child_stop(&child->process);
	if (child->key >= 0)
		close(child->key);
	child->key = -1;
}
