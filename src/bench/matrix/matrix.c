/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/matrix/matrix.h"

#include <stdlib.h>
#include <string.h>

#include "bench/common/arguments.h"
#include "bench/common/min_rate.h"
#include "bench/matrix/ending.h"
#include "bench/perf/plan.h"
#include "cmd/common/output.h"
#include "cmd/common/units.h"

#define SIZE_DEFAULT (1ull << 20)
#define DURATION_DEFAULT (100 * CLI_NS_PER_MS)

enum {
	OPTION_MPI = 0x100,
	OPTION_NETWORK,
	OPTION_MEMORY,
	OPTION_DURATION,
	OPTION_SAVE,
	OPTION_RESUME,
	OPTION_MIN_RATE,
};

static error_t parse_matrix_option(int key, char *argument, struct argp_state *state)
{
	struct matrix_options *options = state->input;

	switch (key) {
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
	case OPTION_SAVE:
		options->save = argument;
		return 0;
	case OPTION_RESUME:
		options->resume = argument;
		return 0;
	case OPTION_DURATION:
		options->duration = bench_parse_interval("duration", argument, state);
		return 0;
	case OPTION_MIN_RATE:
		options->min_rate = bench_parse_min_rate(argument, state);
		return 0;
	case 's':
		if (cli_parse_size(argument, &options->size) || options->size < BENCH_SIZE_MIN ||
		    options->size > BENCH_SIZE_MAX)
			argp_error(state, "--size takes one size from 1 to 1G, not '%s'", argument);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "--mpi takes no ADDRESS: ranks exchange their addresses");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option matrix_argp_options[] = {
	{ NULL, 0, NULL, 0, "All pairs of ranks:", 10 },
	{ "mpi", OPTION_MPI, NULL, 0, "Measure between all ranks that mpirun started", 10 },
	{ "size", 's', "SIZE", 0, "Size of a message (default: 1M)", 10 },
	{ "duration", OPTION_DURATION, "SECONDS", 0, "Time for each direction of a pair (default: 0.1)", 10 },
	{ "memory", OPTION_MEMORY, "KIND", 0, "host, cuda:N, or cuda: one GPU for each rank of a host (default: host)",
	  10 },
	{ "network", OPTION_NETWORK, "NAME", 0, "Interface such as ib0, or beginning of an address such as 10.1.", 10 },
	{ "min-rate", OPTION_MIN_RATE, "RATE", 0, "Fail if a pair has fewer bytes per second, such as 20GB", 10 },
	{ "save", OPTION_SAVE, "FILE", 0, "Write the results to a new FILE as they come, as JSON", 10 },
	{ "resume", OPTION_RESUME, "FILE", 0, "Measure only pairs that FILE of --save lacks, and add them to it", 10 },
	{ 0 },
};

static const struct cli_command matrix_command = {
	.arguments = "--mpi",
	.summary = "Measure rate and latency between all pairs of processes that Open MPI's mpirun started.",
	.examples = {
		"mpirun -n 8 peerlane bench --mpi",
		"mpirun -n 16 --host a:8,b:8 peerlane bench --mpi --key key --save all.json",
	},
	.notes = "MPI starts the processes and exchanges their addresses; Peerlane transfers the measured bytes.  Pairs "
		 "that share a host are measured one after the other.  Slow pairs are reported.\n",
	.options = matrix_argp_options,
	.parse = parse_matrix_option,
	.connection = true,
};

static bool any_cell_failed(const struct matrix *matrix)
{
	size_t rows = matrix->rank == 0 ? (size_t)matrix->size : 1;

	for (size_t i = 0; i < rows * (size_t)matrix->size; i++)
		if (matrix->cells[i].failed)
			return true;
	return false;
}

/* Saves and prints the results of rank 0.  They are printed also if they cannot be saved. */
static int show_results(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error)
{
	int rc = matrix_save_all(matrix->save, error), printed = 0;
	struct pl_error other;

	if (options->common.json)
		printed = matrix_print_json(matrix, options, rc < 0 ? &other : error);
	else
		matrix_print(matrix, options);
	rc = rc < 0 ? rc : printed;
	return rc < 0 ? rc : matrix_check_rates(matrix, options, error);
}

static int run_matrix(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error)
{
	int rc;

	matrix->rank = mpi_rank(matrix->mpi);
	matrix->size = mpi_size(matrix->mpi);
	if (matrix->size < 2 || matrix->size > MATRIX_RANKS_MAX)
		return cli_fail(error, -EINVAL, "MPI-RANKS", NULL, "start it as: mpirun -n N peerlane bench --mpi",
				"there %s %d rank%s; 2 to %d are needed", matrix->size == 1 ? "is" : "are",
				matrix->size, matrix->size == 1 ? "" : "s", MATRIX_RANKS_MAX);
	if (matrix->rank > 0 && (options->save || options->resume))
		ending_unblock_signals();
	rc = matrix_run(matrix, options, error);
	matrix->measured_all = rc == 0;
	matrix_stop_clock(matrix);
	return rc == 0 && matrix->rank == 0 ? show_results(matrix, options, error) : rc;
}

static void matrix_free(struct matrix *matrix)
{
	free(matrix->ranks);
	free(matrix->hosts);
	free(matrix->cells);
	free(matrix->measured);
	free(matrix->slow);
}

int bench_mpi(int argc, char **argv)
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

	cli_parse(&matrix_command, argc, argv, &options.common, &options);
	/* Threads of MPI must not receive the signals that rank 0 waits for. */
	if (options.save || options.resume)
		ending_block_signals();
	rc = mpi_open(&matrix.mpi, &error);
	if (rc == 0)
		rc = run_matrix(&matrix, &options, &error);
	matrix_save_close(matrix.save);
	if (rc < 0 && matrix.measured_all)
		status = cli_report(&error); /* standard output has the results */
	else
		status = rc < 0                     ? cli_report_for(&options.common, &error)
			 : any_cell_failed(&matrix) ? CLI_DEGRADED
						    : CLI_OK;
	/* Without MPI_Abort() the other ranks would wait for this one. */
	if (rc < 0 && matrix.mpi && matrix.size > 1 && !matrix.start_failed && !matrix.measured_all) {
		fflush(stdout);
		mpi_abort(matrix.mpi, status);
	}
	mpi_close(matrix.mpi);
	matrix_free(&matrix);
	return status;
}
