/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane bench`: dispatches to the measurement that the first words of the command line choose. */
#include <string.h>

#include "bench/common/arguments.h"
#include "bench/compare/compare.h"
#include "bench/matrix/matrix.h"
#include "bench/perf/perf.h"
#include "bench/workflow/workflow.h"

/* Words in place of an ADDRESS that choose another measurement. */
static const struct bench_subcommand {
	const char *name;
	int (*run)(int argc, char **argv);
} bench_subcommands[] = {
	{ "compare", bench_compare },
	{ "kv", bench_kv },
	{ "proxy", bench_proxy },
	{ "workflow", bench_workflow },
};

static const struct bench_subcommand *find_bench_subcommand(const char *name)
{
	for (size_t i = 0; i < CLI_ARRAY_SIZE(bench_subcommands); i++)
		if (!strcmp(bench_subcommands[i].name, name))
			return &bench_subcommands[i];
	return NULL;
}

static int run_bench_subcommand(const struct bench_subcommand *subcommand, int argc, char **argv)
{
	char name[48];

	/* argp prints argv[0] as the program's name. */
	snprintf(name, sizeof(name), "peerlane bench %s", subcommand->name);
	argv[1] = name;
	return subcommand->run(argc - 1, argv + 1);
}

int pl_cli_bench(int argc, char **argv)
{
	const struct bench_subcommand *subcommand = argc > 1 ? find_bench_subcommand(argv[1]) : NULL;

	if (subcommand)
		return run_bench_subcommand(subcommand, argc, argv);
	/* These have options of their own. */
	if (bench_has_option(argc, argv, "--mpi") || bench_has_option(argc, argv, "--matrix"))
		return bench_matrix(argc, argv);
	return bench_perf(argc, argv);
}
