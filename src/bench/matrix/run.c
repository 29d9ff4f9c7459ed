/* SPDX-License-Identifier: BSD-2-Clause */
/* Measures one pair after the other with Peerlane's transfers; MPI synchronises the ranks. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/matrix/matrix.h"
#include "cmd/common/stats.h"

#define DEPTH 8
#define LATENCY_SIZE 8 /* bytes of a message whose latency is measured */
#define STEP_TIMEOUT (20 * CLI_NS_PER_S)
#define LATENCY_SHARE 2 /* latency takes half of the duration, and its warm-up a quarter of that */

/* Result of a rank in one turn. */
struct turn_result {
	int32_t partner; /* -1: none */
	struct matrix_cell cell;
};

struct runner {
	struct matrix *matrix;
	const struct matrix_options *options;
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_region *region;
	struct stats *stats;
	struct turn_result *results; /* of a turn, by rank; NULL at other ranks than 0 */
};

/* Connection with the current partner. */
struct partner {
	int rank;
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct pl_error error;
	int rc;
};

/*
 * Finds the address of an interface, or an address with this beginning; without `network` the first one that is up and
 * not loopback.
 */
static int find_network_address(const char *network, char address[MATRIX_ADDRESS], struct pl_error *error)
{
	struct ifaddrs *all, *at;
	char text[INET_ADDRSTRLEN];
	bool found = false;

	if (getifaddrs(&all) < 0)
		return cli_fail_errno(error, -errno, "getifaddrs", NULL);
	for (at = all; at && !found; at = at->ifa_next) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)at->ifa_addr;

		if (!in || in->sin_family != AF_INET || !(at->ifa_flags & IFF_UP))
			continue;
		inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
		found = network ? !strcmp(at->ifa_name, network) || !strncmp(text, network, strlen(network))
				: !(at->ifa_flags & IFF_LOOPBACK);
	}
	freeifaddrs(all);
	if (!found)
		return cli_fail(error, -EADDRNOTAVAIL, "MPI-NETWORK", network,
				"use an interface such as ib0, or the beginning of an address such as 10.1.",
				"no address of this host matches");
	snprintf(address, MATRIX_ADDRESS, "%s:0", text);
	return 0;
}

static int gather_hosts(const struct runner *runner, bool *one, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	struct matrix_rank *own = calloc(1, sizeof(*own));
	int rc = own ? 0 : cli_fail_errno(error, -ENOMEM, "malloc", NULL);

	if (rc == 0) {
		gethostname(own->host, sizeof(own->host) - 1);
		rc = mpi_gather(matrix->mpi, own, sizeof(*own), matrix->ranks, error);
	}
	free(own);
	if (rc < 0)
		return rc;
	matrix_find_hosts(matrix);
	*one = true;
	for (int i = 0; i < matrix->size; i++)
		*one = *one && matrix->hosts[i] == 0;
	return 0;
}

/* Returns the number of earlier ranks on this host: "cuda" gives each rank a GPU of its own. */
static int local_rank(const struct matrix *matrix)
{
	int count = 0;

	for (int i = 0; i < matrix->rank; i++)
		count += matrix->hosts[i] == matrix->hosts[matrix->rank];
	return count;
}

static int open_rank_memory(struct runner *runner, struct matrix_rank *own, struct pl_error *error)
{
	size_t length = CLI_MAX(runner->options->size, (uint64_t)LATENCY_SIZE), token_length = sizeof(own->token);
	int rc;

	if (!strcmp(runner->options->memory, "cuda"))
		snprintf(own->memory, sizeof(own->memory), "cuda:%d", local_rank(runner->matrix));
	else
		snprintf(own->memory, sizeof(own->memory), "%s", runner->options->memory);
	rc = pl_region_allocate_in(runner->context, own->memory, length, PL_ACCESS_ALL, &runner->region, error);
	if (rc == 0)
		rc = pl_region_share(runner->region, NULL, own->token, &token_length, error);
	own->token_length = (uint32_t)token_length;
	return rc;
}

static int open_rank(struct runner *runner, bool one, struct matrix_rank *own, struct pl_error *error)
{
	int rc = 0;

	if (one && !runner->options->network)
		snprintf(own->address, sizeof(own->address), "127.0.0.1:0");
	else
		rc = find_network_address(runner->options->network, own->address, error);
	if (rc == 0)
		rc = cli_open(&runner->context, &runner->options->common, PL_PROGRESS_THREAD, error);
	if (rc == 0)
		rc = pl_listen(runner->context, own->address, &runner->listener, error);
	if (rc == 0)
		rc = open_rank_memory(runner, own, error);
	if (rc == 0)
		pl_listener_address(runner->listener, own->address, sizeof(own->address));
	return rc;
}

/* Starts this rank.  A rank that fails tells all others, so that all end in order. */
static int begin_ranks(struct runner *runner, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	struct matrix_rank own = { .host = "" };
	struct pl_error other;
	bool one;
	int rc = gather_hosts(runner, &one, error), gathered;

	if (rc < 0)
		return rc;
	memcpy(own.host, matrix->ranks[matrix->rank].host, sizeof(own.host));
	rc = open_rank(runner, one, &own, error);
	own.start_failed = rc < 0;
	gathered = mpi_gather(matrix->mpi, &own, sizeof(own), matrix->ranks, rc < 0 ? &other : error);
	for (int i = 0; gathered == 0 && i < matrix->size; i++) {
		if (!matrix->ranks[i].start_failed)
			continue;
		if (rc == 0)
			rc = cli_fail(error, -ECANCELED, "MPI-RANK", matrix->ranks[i].host,
				      "see the error message of that rank", "rank %d failed to start", i);
		matrix->start_failed = true;
	}
	return rc < 0 ? rc : gathered;
}

static void connect_partner(struct runner *runner, struct partner *partner)
{
	const struct matrix_rank *other = &runner->matrix->ranks[partner->rank];

	if (runner->matrix->rank < partner->rank)
		partner->rc =
			pl_connect(runner->context, other->address, STEP_TIMEOUT, &partner->peer, &partner->error);
	else
		partner->rc = pl_accept(runner->listener, STEP_TIMEOUT, &partner->peer, &partner->error);
	if (partner->rc == 0)
		partner->rc = pl_remote_import(partner->peer, other->token, other->token_length, STEP_TIMEOUT,
					       &partner->remote, &partner->error);
}

static int post_pair_write(struct runner *runner, struct partner *partner, uint64_t length,
			   struct pl_operation **operation)
{
	return pl_write(partner->peer, &(struct pl_transfer){ partner->remote, 0, runner->region, 0, length }, NULL,
			operation, &partner->error);
}

/*
 * Writes for `duration`, with `depth` operations in flight.  Returns bytes per second in *rate, times in runner->stats.
 */
static int measure_writes(struct runner *runner, struct partner *partner, uint64_t length, unsigned depth,
			  uint64_t duration, double *rate, struct pl_completion *last)
{
	struct pl_operation *operations[DEPTH];
	uint64_t begun = cli_now(), posted = 0, done = 0, ended = begun;
	struct pl_error later;
	int rc = 0;

	stats_reset(runner->stats);
	while (rc == 0 && (posted == 0 || cli_now() - begun < duration)) {
		while (rc == 0 && posted - done < depth) {
			rc = post_pair_write(runner, partner, length, &operations[posted % DEPTH]);
			posted += rc == 0;
		}
		if (posted == done)
			break;
		rc = pl_wait(operations[done++ % DEPTH], STEP_TIMEOUT, last, &partner->error);
		ended = cli_now();
		if (rc == 0)
			stats_record(runner->stats, last->completed - last->posted);
	}
	/* All operations end before the region is freed, also after a failure. */
	while (done < posted) {
		int one = pl_wait(operations[done++ % DEPTH], STEP_TIMEOUT, last, rc == 0 ? &partner->error : &later);

		ended = cli_now();
		rc = rc == 0 ? one : rc;
	}
	*rate = (double)length * (double)posted * 1e9 / (double)CLI_MAX(ended - begun, 1ull);
	return rc;
}

static void measure_cell(struct runner *runner, struct partner *partner, struct matrix_cell *cell)
{
	uint64_t duration = runner->options->duration, part = duration / LATENCY_SHARE;
	struct pl_completion last = { .status = 0 };
	double rate;

	if (partner->rc == 0)
		partner->rc = measure_writes(runner, partner, runner->options->size, DEPTH, duration / 8, &rate, &last);
	if (partner->rc == 0)
		partner->rc = measure_writes(runner, partner, runner->options->size, DEPTH, duration, &rate, &last);
	if (partner->rc == 0) {
		cell->bytes_per_second = rate;
		cell->staged = last.route == PL_ROUTE_STAGED;
		snprintf(cell->fabric, sizeof(cell->fabric), "%s", last.fabric ? last.fabric : "");
		snprintf(cell->reason, sizeof(cell->reason), "%s", last.reason ? last.reason : "");
		partner->rc = measure_writes(runner, partner, LATENCY_SIZE, 1, part / 4, &rate, &last);
	}
	if (partner->rc == 0)
		partner->rc = measure_writes(runner, partner, LATENCY_SIZE, 1, part, &rate, &last);
	if (partner->rc == 0)
		cell->latency_us = (double)stats_percentile(runner->stats, 50) / 1000;
	if (partner->rc < 0) {
		cell->failed = 1;
		snprintf(cell->reason, sizeof(cell->reason), "%.80s [%.12s]", partner->error.message,
			 partner->error.id);
	}
}

static void disconnect_partner(struct partner *partner)
{
	pl_remote_release(partner->remote);
	pl_peer_close(partner->peer);
	partner->remote = NULL;
	partner->peer = NULL;
}

/* Keeps the results of a turn: rank 0 those of all ranks, any other its own. */
static void keep_turn_results(struct runner *runner, const struct turn_result *own)
{
	struct matrix *matrix = runner->matrix;

	if (matrix->rank > 0 && own->partner >= 0)
		matrix->cells[own->partner] = own->cell;
	for (int i = 0; matrix->rank == 0 && i < matrix->size; i++)
		if (runner->results[i].partner >= 0)
			*matrix_cell(matrix, i, runner->results[i].partner) = runner->results[i].cell;
	matrix_save_part(matrix->save);
}

/*
 * Runs one turn of a round.  All ranks reach the same barriers, also those without a pair.  A failure of one pair does
 * not stop the others.
 */
static int run_pair_turn(struct runner *runner, int rank, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	struct partner partner = { .rank = rank };
	struct turn_result result = { .partner = rank, .cell = matrix_empty_cell() };
	int rc = 0;

	if (rank >= 0)
		connect_partner(runner, &partner);
	for (int direction = 0; direction < 2 && rc == 0; direction++) {
		rc = mpi_barrier(matrix->mpi, error);
		if (rc == 0 && rank >= 0 && (matrix->rank < rank) == (direction == 0))
			measure_cell(runner, &partner, &result.cell);
	}
	if (rc == 0)
		rc = mpi_collect(matrix->mpi, &result, sizeof(result), runner->results, error);
	if (rank >= 0)
		disconnect_partner(&partner);
	if (rc == 0)
		keep_turn_results(runner, &result);
	return rc;
}

static int measure_all_pairs(struct runner *runner, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	int rc = 0, turns = 0;

	for (int round = 0; round < matrix_rounds(matrix->size) && rc == 0; round++) {
		int mine = matrix_turn(matrix, round, matrix->rank, &turns);
		int partner = matrix_partner(matrix->size, round, matrix->rank);

		if (mine < 0)
			return cli_fail_errno(error, mine, "malloc", NULL);
		for (int turn = 0; turn < turns && rc == 0; turn++)
			rc = run_pair_turn(runner, turn == mine ? partner : -1, error);
	}
	return rc;
}

/*
 * Opens the files of results at rank 0, and tells all ranks which pairs an earlier run has measured.  All ranks fail if
 * rank 0 fails.
 */
static int open_results(struct runner *runner, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	size_t cells = (size_t)matrix->size * (size_t)matrix->size;
	bool first = matrix->rank == 0;
	uint8_t failed;
	int rc = 0, shared;
	struct pl_error other;

	if (!runner->options->save && !runner->options->resume)
		return 0;
	if (first && runner->options->resume)
		rc = matrix_resume(matrix, runner->options, error);
	if (first && rc == 0)
		rc = matrix_save_open(matrix, runner->options, error);
	failed = rc < 0;
	shared = mpi_share(matrix->mpi, &failed, sizeof(failed), rc < 0 ? &other : error);
	if (shared == 0 && failed) {
		matrix->start_failed = true;
		return rc < 0 ? rc
			      : cli_fail(error, -ECANCELED, "MPI-RANK", matrix->ranks[0].host,
					 "see the error message of that rank", "rank 0 failed to start");
	}
	return shared < 0 ? shared : mpi_share(matrix->mpi, matrix->measured, cells, error);
}

static int allocate_results(struct runner *runner, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	size_t ranks = (size_t)matrix->size, rows = matrix->rank == 0 ? ranks : 1;

	runner->stats = malloc(sizeof(*runner->stats));
	runner->results = calloc(rows, sizeof(*runner->results));
	matrix->ranks = calloc(ranks, sizeof(*matrix->ranks));
	matrix->hosts = calloc(ranks, sizeof(*matrix->hosts));
	matrix->measured = calloc(ranks * ranks, sizeof(*matrix->measured));
	matrix->cells = calloc(ranks * rows, sizeof(*matrix->cells));
	if (!runner->stats || !runner->results || !matrix->ranks || !matrix->hosts || !matrix->measured ||
	    !matrix->cells)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	for (size_t i = 0; i < ranks * rows; i++)
		matrix->cells[i] = matrix_empty_cell();
	return 0;
}

void matrix_stop_clock(struct matrix *matrix)
{
	matrix->seconds = matrix->earlier_seconds + (double)(cli_now() - matrix->begun) / 1e9;
}

int matrix_run(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error)
{
	struct runner runner = { .matrix = matrix, .options = options };
	int rc;

	matrix->begun = cli_now();
	rc = allocate_results(&runner, error);
	if (rc == 0)
		rc = begin_ranks(&runner, error);
	if (rc == 0)
		rc = open_results(&runner, error);
	if (rc == 0)
		rc = measure_all_pairs(&runner, error);
	if (rc == 0 && matrix->rank == 0)
		rc = matrix_judge(matrix) < 0 ? cli_fail_errno(error, -ENOMEM, "malloc", NULL) : 0;
	pl_listener_close(runner.listener);
	if (runner.region)
		pl_region_deregister(runner.region);
	pl_close(runner.context);
	free(runner.stats);
	free(runner.results);
	return rc;
}
