/* SPDX-License-Identifier: BSD-2-Clause */
/* Client: measures all sizes with one or several servers, and prints the results. */
#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/common/numbers.h"
#include "bench/common/process.h"
#include "bench/perf/card_ports.h"
#include "bench/perf/connections.h"
#include "bench/perf/control.h"
#include "bench/perf/local_server.h"
#include "bench/perf/make_plan.h"
#include "bench/perf/perf.h"
#include "bench/perf/pingpong.h"
#include "bench/perf/progress.h"
#include "bench/perf/receives.h"
#include "bench/perf/results.h"
#include "bench/perf/run.h"
#include "bench/perf/sequential.h"
#include "cmd/common/output.h"

/* Calls a function for each server. */
static int for_each_server(struct bench_endpoint *ep, int (*one)(struct bench_endpoint *ep))
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < ep->peer_count; i++) {
		ep->peer = &ep->peers[i];
		rc = one(ep);
	}
	ep->peer = ep->peers;
	return rc;
}

static int open_connections(struct bench_endpoint *ep)
{
	return bench_connections_open(ep, ep->plan.connections);
}

static int import_server_memory(struct bench_endpoint *ep)
{
	int rc = bench_control_expect(ep, BENCH_SETUP, ep->timeout);

	return rc < 0 ? rc : bench_endpoint_import(ep, &ep->peer->inbox);
}

/* Sends a message to all servers before any answer is awaited. */
static int send_to_servers(struct bench_endpoint *ep, const struct bench_message *message)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < ep->peer_count; i++) {
		ep->peer = &ep->peers[i];
		rc = bench_control_send(ep, message);
	}
	ep->peer = ep->peers;
	return rc;
}

/* Requests memory from a server, which gets a token of its own. */
static int request_server_memory(struct bench_endpoint *ep)
{
	struct bench_message request = { .type = BENCH_SETUP, .plan = ep->plan };
	int rc = bench_endpoint_grant(ep, &request);

	return rc < 0 ? rc : bench_control_send(ep, &request);
}

static int set_up_size(struct bench_endpoint *ep, const struct bench_plan *plan)
{
	int rc;

	bench_endpoint_free_memory(ep);
	ep->plan = *plan;
	rc = for_each_server(ep, open_connections);
	if (rc == 0)
		rc = bench_endpoint_allocate(ep);
	if (rc == 0)
		rc = for_each_server(ep, request_server_memory);
	return rc < 0 ? rc : for_each_server(ep, import_server_memory);
}

static int wait_server_prepared(struct bench_endpoint *ep)
{
	return bench_control_expect(ep, BENCH_PREPARE, ep->timeout);
}

static int send_run_start(struct bench_endpoint *ep)
{
	return send_to_servers(ep, &(struct bench_message){ .type = BENCH_GO });
}

static int wait_server_result(struct bench_endpoint *ep)
{
	/* A server that transmits too may still be measuring. */
	uint64_t timeout = ep->timeout + (ep->plan.both_ways ? ep->settings.duration : 0);
	int rc = bench_control_expect(ep, BENCH_FINISH, timeout);

	if (rc == 0)
		ep->peer->result = ep->peer->inbox.result;
	return rc;
}

static int finish_client_run(struct bench_endpoint *ep, struct bench_result *result)
{
	struct bench_message message = { .type = BENCH_FINISH, .result = *result };
	bool verified = true;
	int rc = 0;

	if (ep->plan.operation->needs_receive)
		rc = for_each_server(ep, bench_receives_flush);
	for (uint32_t i = 0; rc == 0 && i < ep->peer_count; i++) {
		ep->peer = &ep->peers[i];
		message.result.slots_covered = bench_slots_covered(ep, ep->peer);
		/* The server counts their notifications. */
		if (ep->plan.operation->scattered)
			message.result.operations = ep->peer->requests;
		rc = bench_control_send(ep, &message);
	}
	if (rc == 0)
		rc = for_each_server(ep, wait_server_result);
	if (rc == 0)
		rc = bench_run_verify(ep, &result->verified);
	for (uint32_t i = 0; i < ep->peer_count; i++)
		verified = verified && ep->peers[i].result.verified;
	result->verified = result->verified && verified;
	return rc;
}

static int exchange_hello(struct bench_endpoint *ep, const struct bench_options *options, struct bench_server *peer)
{
	struct bench_message hello = { .type = BENCH_HELLO };
	char *memory = ep->peer->inbox.memory;
	int rc;

	if (options->peer_memory)
		snprintf(hello.memory, sizeof(hello.memory), "%s", options->peer_memory);
	rc = bench_control_send(ep, &hello);
	if (rc == 0)
		rc = bench_control_expect(ep, BENCH_HELLO, ep->timeout);
	if (rc < 0)
		return rc;
	/* The text appears in tables and lines, so it must be one word. */
	for (char *at = memory; *at; at++)
		if (!isalnum((unsigned char)*at) && *at != ':')
			*at = '?';
	peer->machine = ep->peer->inbox.machine;
	snprintf(peer->memory, sizeof(peer->memory), "%s", memory);
	return 0;
}

static int measure_run(struct bench_endpoint *ep, const struct bench_options *options, struct bench_row *row)
{
	struct bench_message request = { .type = BENCH_PREPARE };
	struct bench_result result = { 0 };
	int rc;

	request.settings = ep->settings = bench_make_settings(options, &ep->plan);
	rc = bench_run_prepare(ep);
	if (rc == 0)
		rc = send_to_servers(ep, &request);
	if (rc == 0)
		rc = for_each_server(ep, wait_server_prepared);
	ep->in_run = true;
	if (rc == 0 && bench_operation_sequential(ep->plan.operation))
		rc = bench_sequential_client(ep, &result);
	else if (rc == 0)
		rc = bench_run_measure(ep, send_run_start, &result);
	if (rc == 0)
		rc = finish_client_run(ep, &result);
	ep->in_run = false;
	if (rc < 0)
		return rc;
	rc = bench_row_fill(ep, &result, row);
	if (rc < 0)
		return rc;
	if (ep->plan.validate && !row->verified)
		return bench_fail(ep, -EBADMSG, "BENCH-CONTENT", ep->plan.operation->name,
				  "report this with the command and the versions of client and server",
				  "the received content differs from the sent content, with messages of %llu bytes",
				  (unsigned long long)ep->plan.size);
	return 0;
}

static int compare_row_bandwidth(const void *a, const void *b)
{
	const struct bench_row *left = a, *right = b;

	return left->bytes_per_second < right->bytes_per_second ? -1 : left->bytes_per_second > right->bytes_per_second;
}

static int compare_row_latency(const void *a, const void *b)
{
	const struct bench_row *left = a, *right = b;

	return left->latency.p50 < right->latency.p50 ? -1 : left->latency.p50 > right->latency.p50;
}

static void show_bench_progress(const struct bench_options *options, uint32_t index, uint32_t turn)
{
	char size[32];

	if (options->common.quiet || options->common.json || options->csv || options->perftest ||
	    !isatty(STDERR_FILENO))
		return;
	if (index == options->size_count)
		fputs("\r\033[K", stderr);
	else
		fprintf(stderr, "\r\033[Kmeasuring size %s (%u of %u), run %u of %u ...",
			bench_size_text(size, sizeof(size), options->sizes[index]), index + 1, options->size_count,
			turn + 1, options->repeat);
}

/* Moves a run's row out of the array, with its samples and shares. */
static struct bench_row take_run_row(struct bench_row *runs, uint32_t index)
{
	struct bench_row row = runs[index];

	runs[index].samples = NULL;
	runs[index].shares = NULL;
	return row;
}

/* Measures one size; its result is the median run. */
static int measure_bench_size(struct bench_endpoint *ep, const struct bench_options *options,
			      struct bench_report *report, struct bench_row *runs)
{
	struct bench_plan plan = bench_make_plan(options, report, ep->memory, options->sizes[report->count]);
	struct bench_row *row = &report->rows[report->count];
	double *values = calloc(options->repeat, sizeof(*values));
	int rc = set_up_size(ep, &plan);

	if (!values && rc == 0)
		rc = bench_fail(ep, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u runs", options->repeat);
	report->pages = ep->pages;
	bench_watch_card_ports(ep, &report->cards);
	for (uint32_t i = 0; rc == 0 && i < options->repeat; i++) {
		show_bench_progress(options, report->count, i);
		rc = measure_run(ep, options, &runs[i]);
		if (rc == 0)
			values[i] = plan.latency ? (double)runs[i].latency.p50 / 1000 : runs[i].bytes_per_second;
		/* Keeps the row with wrong content, for the output. */
		if (rc == -EBADMSG) {
			*row = take_run_row(runs, i);
			row->counters = card_watch_end(&report->cards);
			report->count++;
		}
	}
	if (rc < 0) {
		free(values);
		return rc;
	}
	qsort(runs, options->repeat, sizeof(*runs), plan.latency ? compare_row_latency : compare_row_bandwidth);
	*row = take_run_row(runs, options->repeat / 2);
	row->counters = card_watch_end(&report->cards);
	row->runs = values;
	row->run_count = options->repeat;
	report->count++;
	return 0;
}

static int begin_servers(struct bench_endpoint *ep, const struct bench_options *options, struct bench_report *report)
{
	int rc = 0;

	snprintf(report->memory, sizeof(report->memory), "%s", ep->memory);
	for (uint32_t i = 0; rc == 0 && i < ep->peer_count; i++) {
		ep->peer = &ep->peers[i];
		rc = bench_endpoint_begin(ep);
		if (rc == 0)
			rc = exchange_hello(ep, options, &report->servers[i]);
		pl_peer_query(ep->peer->control, &report->servers[i].info);
	}
	ep->peer = ep->peers;
	return rc;
}

static int measure_bench_sizes(struct bench_endpoint *ep, const struct bench_options *options,
			       struct bench_report *report)
{
	struct bench_row *runs = calloc(options->repeat, sizeof(*runs));
	int rc = begin_servers(ep, options, report);

	if (!runs)
		rc = bench_fail(ep, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u runs", options->repeat);
	while (rc == 0 && report->count < options->size_count)
		rc = measure_bench_size(ep, options, report, runs);
	show_bench_progress(options, options->size_count, 0);
	for (uint32_t i = 0; runs && i < options->repeat; i++)
		bench_row_free(&runs[i]);
	free(runs);
	return rc;
}

/* Says goodbye, so that the servers do not report a lost connection. */
static int send_goodbye(struct bench_endpoint *ep)
{
	ep->closing = true;
	if (bench_control_send_type(ep, BENCH_BYE) == 0)
		bench_control_expect(ep, BENCH_BYE, CLI_NS_PER_S);
	return 0;
}

static int open_bench_samples(struct bench_endpoint *ep, const struct bench_options *options, struct pl_error *error)
{
	if (!options->sample_interval)
		return 0;
	if (bench_samples_open(&ep->samples, options->sample_interval) == 0)
		return 0;
	bench_endpoint_close(ep);
	return cli_fail_errno(error, -ENOMEM, "calloc", NULL);
}

static void print_bench_results(const struct bench_options *options, const struct bench_report *report)
{
	if (options->common.json)
		bench_render_json(options, report);
	else if (options->csv)
		bench_render_csv(options, report);
	else if (options->perftest)
		bench_render_perftest(options, report);
	else if (report->count)
		bench_render_table(options, report);
}

/* Warns if polling ends had too little of the processors, with the row that had least. */
static void warn_of_busy_processors(const struct bench_options *options, const struct bench_report *report)
{
	double least = INFINITY;

	for (uint32_t i = 0; i < report->count; i++)
		if (bench_row_starved(options, &report->rows[i]))
			least = CLI_MIN(least, bench_row_polling_share(options, &report->rows[i]));
	if (isfinite(least) && !options->common.json && !options->common.quiet)
		cli_warn("the processors were busy: an end that polls without pause had %.0f %% of one\n"
			 "  hint: try --progress thread, which sleeps until bytes arrive",
			 least);
}

/* Keeps the events of the connections, which the end of the endpoint closes. */
static void keep_bench_events(struct bench_endpoint *ep, const struct bench_options *options,
			      struct bench_report *report)
{
	for (uint32_t i = 0; options->events && i < ep->peer_count; i++) {
		struct cli_events **events = &report->servers[i].events;

		*events = malloc(sizeof(**events));
		if (*events)
			cli_events_read(*events, ep->peers[i].control);
	}
}

static void print_bench_events(const struct bench_options *options, const struct bench_report *report)
{
	for (uint32_t i = 0; !options->common.json && i < report->server_count; i++) {
		const struct bench_server *server = &report->servers[i];

		if (server->events)
			cli_events_print(stderr, server->events, server->info.address, true);
	}
}

static void free_bench_report(struct bench_report *report)
{
	for (uint32_t i = 0; report && i < report->server_count; i++)
		free(report->servers[i].events);
	for (uint32_t i = 0; report && i < report->count; i++) {
		free(report->rows[i].runs);
		card_counters_free(report->rows[i].counters);
		bench_row_free(&report->rows[i]);
	}
	free(report);
}

/* Connects to one server.  With several, each has times of its own. */
static int connect_server(struct bench_endpoint *ep, const char *text, struct pl_error *error)
{
	int rc = cli_address(text, ep->peer->address, sizeof(ep->peer->address), error);

	if (rc == 0 && ep->peer_count > 1) {
		ep->peer->stats = malloc(sizeof(*ep->peer->stats));
		if (!ep->peer->stats)
			return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	}
	if (rc == 0)
		rc = pl_connect(ep->context, ep->peer->address, ep->timeout, &ep->peer->control, error);
	return rc < 0 ? rc : cli_expect_program(ep->peer->control, CLI_PROGRAM_BENCH, ep->peer->address, error);
}

static int connect_servers(struct bench_endpoint *ep, const char *const *addresses, struct pl_error *error)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < ep->peer_count; i++) {
		ep->peer = &ep->peers[i];
		rc = connect_server(ep, addresses[i], error);
	}
	ep->peer = ep->peers;
	return rc;
}

static void measure_servers(struct bench_endpoint *ep, const struct bench_options *options,
			    const char *const *addresses, struct bench_report *report)
{
	struct pl_staging_info staging = PL_STAGING_INFO_INIT;
	int rc = bench_set_affinity(options, &report->error);

	if (rc == 0)
		rc = bench_endpoint_open(ep, options, report->server_count, &report->error);
	if (rc == 0)
		rc = open_bench_samples(ep, options, &report->error);
	report->failed = rc < 0;
	if (rc < 0)
		return;
	rc = connect_servers(ep, addresses, &report->error);
	report->failed = rc < 0;
	if (rc == 0) {
		rc = measure_bench_sizes(ep, options, report);
		report->failed = rc < 0;
		report->error = ep->error;
		report->cost = ep->cost;
		pl_staging_query(ep->context, &staging, NULL);
		report->staging = staging.locked;
		if (rc == 0)
			for_each_server(ep, send_goodbye);
		else
			bench_control_send_failure(ep);
	}
	keep_bench_events(ep, options, report);
	bench_endpoint_close(ep);
}

int bench_measure(struct bench_options *options)
{
	struct bench_report *report = calloc(1, sizeof(*report));
	struct bench_endpoint *ep = bench_endpoint_new();
	struct bench_local_server child = { .key = -1 };
	const char *own = child.process.address;
	struct pl_error error;
	int rc = report && ep ? 0 : cli_fail_errno(&error, -ENOMEM, "malloc", NULL);

	if (rc == 0 && !options->address_count)
		rc = bench_local_server_start(&child, options, &error);
	if (rc < 0) {
		bench_local_server_stop(&child);
		free(ep);
		free(report);
		return cli_report_for(&options->common, &error);
	}
	report->server_count = CLI_MAX(options->address_count, 1u);
	for (uint32_t i = 0; i < report->server_count; i++)
		report->servers[i].info = (struct pl_peer_info)PL_PEER_INFO_INIT;
	card_watch_open(&report->cards, NULL);
	measure_servers(ep, options, options->address_count ? options->addresses : &own, report);
	card_watch_close(&report->cards);
	/* The client never connected, so no closed connection will end the server. */
	if (child.process.pid > 0 && !report->servers[0].info.address[0])
		kill(child.process.pid, SIGTERM);
	bench_local_server_stop(&child);
	if (report->failed)
		bench_name_signal(&report->error);
	if (options->min_rate)
		bench_judge_rates(options, report);
	print_bench_results(options, report);
	print_bench_events(options, report);
	warn_of_busy_processors(options, report);
	rc = report->failed ? cli_report(&report->error) : CLI_OK;
	free(ep);
	free_bench_report(report);
	return rc;
}
