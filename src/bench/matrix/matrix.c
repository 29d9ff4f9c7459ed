/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/matrix/matrix.h"

#include <stdlib.h>
#include <string.h>

#include "bench/perf/endpoint.h"
#include "cmd/common/output.h"
#include "cmd/common/units.h"

#define SIZE_DEFAULT (1ull << 20)
#define DURATION_DEFAULT (100 * CLI_NS_PER_MS)

enum { OPTION_MPI = 0x100, OPTION_NETWORK, OPTION_MEMORY, OPTION_DURATION };

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct matrix_options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->common;
		return 0;
	case OPTION_MPI:
		return 0;
	case OPTION_NETWORK:
		options->network = argument;
		return 0;
	case OPTION_MEMORY:
		options->memory = argument;
		if (strlen(argument) >= MATRIX_MEMORY)
			argp_error(state, "--memory takes host, cuda or cuda:N, not '%s'", argument);
		return 0;
	case OPTION_DURATION:
		if (cli_parse_seconds(argument, &options->duration) || !options->duration)
			argp_error(state, "--duration takes seconds, such as 0.1, not '%s'", argument);
		return 0;
	case 's':
		if (cli_parse_size(argument, &options->size) || options->size < BENCH_SIZE_MIN ||
		    options->size > BENCH_SIZE_MAX)
			argp_error(state, "--size takes one size from 8 to 1G, not '%s'", argument);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "with --mpi there is no ADDRESS: ranks tell each other where they are");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options_known[] = {
	{ NULL, 0, NULL, 0, "All pairs:", 10 },
	{ "mpi", OPTION_MPI, NULL, 0, "Measure between all ranks that mpirun started", 10 },
	{ "size", 's', "SIZE", 0, "The size of a message (default: 1M)", 10 },
	{ "duration", OPTION_DURATION, "SECONDS", 0, "Measure each direction of a pair for so long (default: 0.1)",
	  10 },
	{ "memory", OPTION_MEMORY, "KIND", 0, "host, cuda:N, or cuda: a GPU for each rank of a host (default: host)",
	  10 },
	{ "network", OPTION_NETWORK, "NAME", 0,
	  "Use the interface NAME, such as ib0, or the address that begins so, such as 10.1.", 10 },
	{ 0 },
};

static const struct argp_child children[] = {
	{ &cli_connection_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = {
	options_known,
	parse,
	"--mpi",
	"Measure rate and latency between all pairs of processes that Open MPI's mpirun started."
	"\v"
	"MPI only starts the processes and has them exchange addresses; the bytes go by Peerlane's own transfers. "
	"Pairs take turns, so that none disturbs another on the same host. Slow pairs are named.\n"
	"\n"
	"Examples:\n"
	"  mpirun -n 8 peerlane bench --mpi\n"
	"  mpirun -n 16 --host a:8,b:8 peerlane bench --mpi --key key --memory cuda\n"
	"  mpirun -n 8 peerlane bench --mpi --json > all.json\n"
	"  peerlane report all.json -o report.html\n",
	children,
	NULL,
	NULL
};

static bool any_failed(const struct matrix *matrix)
{
	for (size_t i = 0; i < (size_t)matrix->size * (size_t)matrix->size; i++)
		if (matrix->cells[i].failed)
			return true;
	return false;
}

static int run(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error)
{
	int rc;

	matrix->rank = mpi_rank(matrix->mpi);
	matrix->size = mpi_size(matrix->mpi);
	if (matrix->size < 2 || matrix->size > MATRIX_RANKS_MAX)
		return cli_fail(error, -EINVAL, "MPI-RANKS", NULL, "start it as: mpirun -n N peerlane bench --mpi",
				"there %s %d rank%s, and 2 to %d are wanted", matrix->size == 1 ? "is" : "are",
				matrix->size, matrix->size == 1 ? "" : "s", MATRIX_RANKS_MAX);
	rc = matrix_run(matrix, options, error);
	if (rc == 0 && matrix->rank == 0)
		(options->common.json ? matrix_print_json : matrix_print)(matrix, options);
	return rc;
}

static void matrix_free(struct matrix *matrix)
{
	free(matrix->ranks);
	free(matrix->hosts);
	free(matrix->cells);
	free(matrix->slow);
}

int pl_cli_matrix(int argc, char **argv)
{
	struct matrix_options options = {
		.memory = "host",
		.size = SIZE_DEFAULT,
		.duration = DURATION_DEFAULT,
		.command = argv,
		.command_count = argc,
	};
	struct matrix matrix = { .mpi = NULL };
	struct pl_error error;
	int rc, status;

	cli_parse(&arguments, argc, argv, &options);
	rc = mpi_open(&matrix.mpi, &error);
	if (rc == 0)
		rc = run(&matrix, &options, &error);
	status = rc < 0 ? cli_report_for(&options.common, &error) : any_failed(&matrix) ? CLI_DEGRADED : CLI_OK;
	/* The others would wait for this one, if they do not know. */
	if (rc < 0 && matrix.mpi && matrix.size > 1 && !matrix.unfit) {
		fflush(stdout);
		mpi_abort(matrix.mpi, status);
	}
	mpi_close(matrix.mpi);
	matrix_free(&matrix);
	return status;
}
