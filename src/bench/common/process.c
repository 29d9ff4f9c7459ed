/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/common/process.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cmd/common/output.h"

void bench_block_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM };
	struct sigaction action;
	sigset_t set;

	sigemptyset(&set);
	/* An ignored signal, as in a job that a script starts with &, would be pending if it were blocked. */
	for (size_t i = 0; i < CLI_ARRAY_SIZE(signals); i++)
		if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(&set, signals[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

bool bench_signal_pending(void)
{
	return cli_signal_pending();
}

void bench_name_signal(struct pl_error *error)
{
	if (bench_signal_pending())
		cli_fail(error, -EINTR, "INTERRUPTED", NULL, NULL, "interrupted by a signal");
}

uint64_t bench_processor_time(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * CLI_NS_PER_S +
	       ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000;
}

const char *bench_default_address(const struct cli_options *options)
{
	return options->key_file || options->insecure ? ":" CLI_DEFAULT_PORT : "127.0.0.1:" CLI_DEFAULT_PORT;
}

void bench_announce_address(const struct cli_options *options, int announce, struct pl_listener *listener)
{
	struct json_object *object;
	char address[80];

	pl_listener_address(listener, address, sizeof(address));
	if (announce >= 0) {
		dprintf(announce, "%s\n", address);
		close(announce);
	} else if (options->json) {
		object = json_object_new_object();
		cli_json_add(object, "event", cli_json_text("listening"));
		cli_json_add(object, "address", cli_json_text(address));
		cli_json_print(object, false);
	} else if (!options->quiet) {
		printf("listening on %s\n", address);
	}
	fflush(stdout);
}
