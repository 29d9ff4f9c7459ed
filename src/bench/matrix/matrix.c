/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/matrix/matrix.h"

#include <stdlib.h>
#include <string.h>

#include "bench/common/arguments.h"
#include "bench/common/min_rate.h"
#include "bench/matrix/ending.h"
#include "bench/matrix/mpi.h"
#include "bench/matrix/rendezvous.h"
#include "bench/perf/plan.h"
#include "cmd/common/output.h"
#include "cmd/common/units.h"

#define SIZE_DEFAULT (1ull << 20)
#define DURATION_DEFAULT (100 * CLI_NS_PER_MS)
#define JOIN_TIMEOUT_DEFAULT (60 * CLI_NS_PER_S)
#define STEP_TIMEOUT_DEFAULT (20 * CLI_NS_PER_S)
#define STEPS 3u /* timeouts in a turn, after which a rank is left out */

enum {
	OPTION_MPI = 0x100,
	OPTION_NETWORK,
	OPTION_MEMORY,
	OPTION_DURATION,
	OPTION_SAVE,
	OPTION_RESUME,
	OPTION_MIN_RATE,
	OPTION_MATRIX,
	OPTION_SCHEDULE,
	OPTION_ROUNDS,
	OPTION_RAILS_APART,
	OPTION_RANK,
	OPTION_RANKS,
	OPTION_HOSTS,
	OPTION_HOST,
	OPTION_RENDEZVOUS,
	OPTION_RUN,
	OPTION_JOIN_TIMEOUT,
	OPTION_MINIMUM,
};

static enum matrix_schedule parse_schedule(const char *text, struct argp_state *state)
{
	for (enum matrix_schedule i = MATRIX_PAIRS; i <= MATRIX_ONE_TO_ALL; i++)
		if (!strcmp(text, matrix_schedule_name(i)))
			return i;
	argp_error(state, "--schedule takes pairs, ring, all-to-all or one-to-all, not '%s'", text);
	return MATRIX_PAIRS;
}

/* Parses an option about the ranks and their rendezvous. */
static error_t parse_rank_option(int key, char *argument, struct argp_state *state)
{
	struct matrix_options *options = state->input;
	struct membership_options *membership = &options->membership;

	switch (key) {
	case OPTION_RANK:
		membership->rank = (int)bench_parse_number("rank", argument, 0, WORLD_RANKS_MAX - 1, state);
		break;
	case OPTION_RANKS:
		membership->ranks = (int)bench_parse_number("ranks", argument, 2, WORLD_RANKS_MAX, state);
		break;
	case OPTION_HOSTS:
		membership->hosts = argument;
		break;
	case OPTION_HOST:
		membership->host = argument;
		break;
	case OPTION_RENDEZVOUS:
		membership->rendezvous = argument;
		break;
	case OPTION_RUN:
		membership->run = argument;
		break;
	case OPTION_JOIN_TIMEOUT:
		options->join_timeout = bench_parse_interval("join-timeout", argument, state);
		break;
	case OPTION_MINIMUM:
		options->minimum = bench_parse_number("minimum", argument, 2, WORLD_RANKS_MAX, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	options->rank_options = true;
	return 0;
}

/* Counts the elements of a list that is divided by commas; 0 for NULL. */
static int count_elements(const char *list)
{
	int count = list != NULL;

	for (; list && *list; list++)
		count += *list == ',';
	return count;
}

/* Checks options that depend on each other. */
static void check_matrix_options(struct matrix_options *options, struct argp_state *state)
{
	int networks = count_elements(options->network), devices = count_elements(options->common.devices);

	if (options->mpi && (options->matrix || options->rank_options))
		argp_error(state, "with --mpi the ranks meet by MPI: omit it, or the options of the rendezvous");
	if (options->common.json && options->output && !strcmp(options->output, "-"))
		argp_error(state, "--json and --output - both write the document on standard output");
	if (options->rounds && options->schedule != MATRIX_PAIRS)
		argp_error(state, "--rounds needs --schedule pairs");
	options->rail_count = 1;
	if (!options->rails_apart)
		return;
	options->rail_count = CLI_MAX(networks, devices);
	if (options->rail_count < 2 || options->rail_count > MATRIX_RAILS_MAX ||
	    (networks && devices && networks != devices))
		argp_error(state, "--rails-apart needs 2 to %d names in --device or --network, equally many in both",
			   MATRIX_RAILS_MAX);
}

static error_t parse_matrix_option(int key, char *argument, struct argp_state *state)
{
	struct matrix_options *options = state->input;

	switch (key) {
	case OPTION_MPI:
		options->mpi = true;
		return 0;
	case OPTION_MATRIX:
		options->matrix = true;
		return 0;
	case OPTION_SCHEDULE:
		options->schedule = parse_schedule(argument, state);
		return 0;
	case OPTION_ROUNDS:
		options->rounds = bench_parse_number("rounds", argument, 1, WORLD_RANKS_MAX, state);
		return 0;
	case OPTION_RAILS_APART:
		options->rails_apart = true;
		return 0;
	case ARGP_KEY_END:
		check_matrix_options(options, state);
		return 0;
	case OPTION_NETWORK:
		options->network = argument;
		return 0;
	case OPTION_MEMORY:
		options->memory = cli_parse_memory_kind("memory", argument, state);
		return 0;
	case OPTION_SAVE:
		options->save = argument;
		return 0;
	case OPTION_RESUME:
		options->resume = argument;
		return 0;
	case 'o':
		options->output = argument;
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
		argp_error(state, "there is no ADDRESS: ranks exchange their addresses");
		return 0;
	default:
		return parse_rank_option(key, argument, state);
	}
}

static const struct argp_option matrix_argp_options[] = {
	{ NULL, 0, NULL, 0, "All pairs of ranks:", 10 },
	{ "matrix", OPTION_MATRIX, NULL, 0, "Measure between all ranks that any launcher started", 10 },
	{ "mpi", OPTION_MPI, NULL, 0, "Measure between all ranks that mpirun started; they meet by MPI", 10 },
	{ "size", 's', "SIZE", 0, "Size of a message (default: 1M)", 10 },
	{ "duration", OPTION_DURATION, "SECONDS", 0, "Time for each direction of a pair (default: 0.1)", 10 },
	{ "schedule", OPTION_SCHEDULE, "NAME", 0,
	  "pairs: disjoint pairs in rounds (default); all at once: ring, all-to-all, one-to-all", 10 },
	{ "rounds", OPTION_ROUNDS, "N", 0, "Measure N rounds of pairs only, spread over all (default: all)", 10 },
	{ "memory", OPTION_MEMORY, "KIND", 0, "host, cuda:N, or cuda: one GPU for each rank of a host (default: host)",
	  10 },
	{ "network", OPTION_NETWORK, "NAME", 0, "Interface such as ib0, or beginning of an address such as 10.1.", 10 },
	{ "rails-apart", OPTION_RAILS_APART, NULL, 0,
	  "Measure each device of --device, or each name of --network, by itself", 10 },
	{ "min-rate", OPTION_MIN_RATE, "RATE", 0, "Fail if a pair has fewer bytes per second, such as 20GB", 10 },
	{ "output", 'o', "FILE", 0, "Write the JSON document to FILE at the end, beside the table (-: behind it)", 10 },
	{ "save", OPTION_SAVE, "FILE", 0, "Write the results to a new FILE as they come, as JSON", 10 },
	{ "resume", OPTION_RESUME, "FILE", 0, "Measure only pairs that FILE of --save lacks, and add them to it", 10 },
	{ NULL, 0, NULL, 0, "Ranks of --matrix, by default from the launcher's environment:", 11 },
	{ "rendezvous", OPTION_RENDEZVOUS, "HOST:PORT", 0, "Address at which rank 0 listens (default port: 19876)",
	  11 },
	{ "rank", OPTION_RANK, "N", 0, "Rank of this process, from 0 on", 11 },
	{ "ranks", OPTION_RANKS, "N", 0, "Number of ranks", 11 },
	{ "hosts", OPTION_HOSTS, "LIST", 0, "Hosts by rank, such as node[001-032]", 11 },
	{ "host", OPTION_HOST, "NAME", 0, "Name of this host (default: its host name)", 11 },
	{ "run", OPTION_RUN, "NAME", 0, "Refuse ranks of other runs (default: the launcher's job)", 11 },
	{ "join-timeout", OPTION_JOIN_TIMEOUT, "SECONDS", 0,
	  "Begin without ranks that have not joined by then (default: 60)", 11 },
	{ "minimum", OPTION_MINIMUM, "N", 0, "Do not begin with fewer ranks (default: 2)", 11 },
	{ 0 },
};

static const struct cli_command matrix_command = {
	.arguments = "--matrix",
	.summary = "Measure rate and latency between all pairs of processes that srun, pdsh, Kubernetes, torchrun or "
		   "mpirun started.",
	.examples = {
		"srun -N32 --ntasks-per-node=1 peerlane bench --matrix --key key",
		"pdsh -w n[1-8] peerlane bench --matrix --key key --hosts 'n[1-8]'",
	},
	.notes = "Rank 0 listens at the rendezvous, and the others connect to it.  Ranks that do not come, or that die, are "
		 "left out and named; the exit status is 3 then.  Pairs that share a host are measured one after the "
		 "other.  Slow pairs are reported.\n",
	.options = matrix_argp_options,
	.parse = parse_matrix_option,
	.connection = true,
};

static const struct cli_command mpi_command = {
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

/* Parts of a run without MPI, which live as long as its world. */
struct matrix_run {
	const struct matrix_options *options;
	struct membership membership;
	struct rendezvous_options rendezvous;
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
	int rc = matrix_save_all(matrix->save, error), printed = 0, written = 0;
	struct pl_error other;

	if (options->common.json)
		printed = matrix_print_json(matrix, options, rc < 0 ? &other : error);
	else
		matrix_print(matrix, options);
	rc = rc < 0 ? rc : printed;
	if (options->output)
		written = matrix_write_output(matrix, options, rc < 0 ? &other : error);
	rc = rc < 0 ? rc : written;
	return rc < 0 ? rc : matrix_check_rates(matrix, options, error);
}

/* -- worlds ---------------------------------------------------------------------------------------- */

/* Opens the world of MPI's ranks. */
static int open_mpi_world(struct matrix *matrix, struct pl_error *error)
{
	int rc = mpi_open(&matrix->world, error);

	cli_host_name(matrix->host, sizeof(matrix->host));
	if (rc < 0 || (matrix->world->size >= 2 && matrix->world->size <= WORLD_RANKS_MAX))
		return rc;
	return cli_fail(error, -EINVAL, "MPI-RANKS", NULL, "start it as: mpirun -n N peerlane bench --mpi",
			"there %s %d rank%s; 2 to %d are needed", matrix->world->size == 1 ? "is" : "are",
			matrix->world->size, matrix->world->size == 1 ? "" : "s", WORLD_RANKS_MAX);
}

/* Describes what all ranks have to agree on. */
static void describe_terms(const struct matrix_options *options, char terms[RENDEZVOUS_TERMS])
{
	snprintf(terms, RENDEZVOUS_TERMS,
		 "version %s, --size %llu, --duration %g, --schedule %s, --rounds %u, %d rails", pl_version(),
		 (unsigned long long)options->size, (double)options->duration / CLI_NS_PER_S,
		 matrix_schedule_name(options->schedule), options->rounds, options->rail_count);
}

/* Opens the world of ranks that meet at one address. */
static int open_rendezvous_world(struct matrix *matrix, struct matrix_run *run, struct pl_error *error)
{
	const struct matrix_options *options = run->options;
	int rc = membership_find(&run->membership, &options->membership, error);

	if (rc < 0)
		return rc;
	if (run->membership.rank > 0 && (options->save || options->resume))
		ending_unblock_signals();
	run->rendezvous = (struct rendezvous_options){ .common = &options->common,
						       .membership = &run->membership,
						       .join_timeout = options->join_timeout,
						       .minimum = (int)options->minimum };
	describe_terms(options, run->rendezvous.terms);
	memcpy(matrix->host, run->membership.host, sizeof(matrix->host));
	rc = rendezvous_open(&matrix->world, &run->rendezvous, error);
	if (rc == 0)
		matrix->world->patience =
			2 * options->duration * (unsigned)options->rail_count + STEPS * options->step_timeout;
	return rc;
}

static int run_matrix(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error)
{
	int rc;

	matrix->rank = matrix->world->rank;
	matrix->size = matrix->world->size;
	matrix->rails = options->rail_count;
	if (matrix->rank > 0 && (options->save || options->resume))
		ending_unblock_signals();
	rc = matrix_run(matrix, options, error);
	matrix->measured_all = rc == 0;
	matrix->world->ended = rc == 0 || matrix->start_failed;
	matrix_stop_clock(matrix);
	return rc == 0 && matrix->rank == 0 ? show_results(matrix, options, error) : rc;
}

static void matrix_free(struct matrix *matrix)
{
	free(matrix->ranks);
	free(matrix->ends);
	free(matrix->rail_cells);
	free(matrix->failures);
	free(matrix->hosts);
	free(matrix->cells);
	free(matrix->measured);
	free(matrix->slow);
}

/* Ends this rank.  Returns the exit status. */
static int end_matrix(struct matrix *matrix, const struct matrix_options *options, int rc, const struct pl_error *error)
{
	struct world *world = matrix->world;
	int status;

	matrix_save_close(matrix->save);
	if (rc < 0 && matrix->measured_all)
		status = cli_report(error); /* standard output has the results */
	else if (rc < 0)
		status = cli_report_for(&options->common, error);
	else
		status = any_cell_failed(matrix) || matrix_lost_ranks(matrix) ? CLI_DEGRADED : CLI_OK;
	/* Without MPI_Abort() the other ranks would wait for this one. */
	if (rc < 0 && world && world->ops->abort && matrix->size > 1 && !world->ended) {
		fflush(stdout);
		world->ops->abort(world, status);
	}
	if (world)
		world->ops->close(world);
	matrix_free(matrix);
	return status;
}

int bench_matrix(int argc, char **argv)
{
	struct matrix_options options = {
		.memory = "host",
		.size = SIZE_DEFAULT,
		.duration = DURATION_DEFAULT,
		.join_timeout = JOIN_TIMEOUT_DEFAULT,
		.minimum = 2,
		.membership = { .rank = -1, .ranks = -1 },
		.command = argv,
		.command_count = argc,
	};
	struct matrix_run run = { .options = &options };
	struct matrix matrix = { .world = NULL };
	struct pl_error error;
	int rc;

	cli_parse(bench_has_option(argc, argv, "--mpi") ? &mpi_command : &matrix_command, argc, argv, &options.common,
		  &options);
	options.step_timeout = options.common.timeout ? options.common.timeout : STEP_TIMEOUT_DEFAULT;
	/* Connections with all ranks take descriptors. */
	cli_raise_descriptor_limit();
	/* Threads of the library and of MPI must not receive the signals that rank 0 waits for. */
	if (options.save || options.resume)
		ending_block_signals();
	rc = options.mpi ? open_mpi_world(&matrix, &error) : open_rendezvous_world(&matrix, &run, &error);
	if (rc == 0)
		rc = run_matrix(&matrix, &options, &error);
	rc = end_matrix(&matrix, &options, rc, &error);
	membership_free(&run.membership);
	return rc;
}
