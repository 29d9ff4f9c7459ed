/* SPDX-License-Identifier: BSD-2-Clause */
/* The end that measures: leads the server through all sizes. */
#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "bench/perf/results.h"
#include "cmd/common/output.h"

/* Bytes under way by default, and operations, of which a few are needed to keep the way busy. */
#define UNDER_WAY (64ull << 20)
#define UNDER_WAY_MIN 4u
#define WARMUP_BYTES (128ull << 20)
#define WARMUP_MAX 1000u
#define WARMUP_MIN 4u

static struct bench_plan plan_for(const struct bench_options *options, uint64_t size)
{
	struct bench_plan plan = options->plan;
	uint64_t bytes = size * plan.vector;

	plan.size = size;
	if (!options->depth_given)
		plan.depth = (uint32_t)CLI_MIN(BENCH_DEPTH_DEFAULT, CLI_MAX(UNDER_WAY / bytes, UNDER_WAY_MIN));
	if (plan.latency)
		plan.depth = bench_plan_pingpong(&plan) ? bench_plan_turns(size) : 1;
	/* A list for each connection. */
	if (!plan.latency && !options->depth_given)
		plan.depth = CLI_MAX(plan.depth, plan.peers * plan.post_list);
	return plan;
}

static struct bench_length length_for(const struct bench_options *options, const struct bench_plan *plan)
{
	struct bench_length length = options->length;
	uint64_t operations = WARMUP_BYTES / (plan->size * plan->vector);

	if (!options->warmup_given)
		length.warmup = CLI_MIN(CLI_MAX(operations, WARMUP_MIN), WARMUP_MAX);
	if (options->rate_bytes)
		length.rate = CLI_MAX(options->rate_bytes * 1000 / (plan->size * plan->vector), 1);
	if (getrandom(&length.seed, sizeof(length.seed), 0) != (ssize_t)sizeof(length.seed))
		length.seed = cli_now();
	return length;
}

/* The same of each server. */
static int each(struct bench_end *end, int (*one)(struct bench_end *end))
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < end->far_count; i++) {
		end->far = &end->fars[i];
		rc = one(end);
	}
	end->far = end->fars;
	return rc;
}

static int connect_further(struct bench_end *end)
{
	return bench_links_connect(end, end->plan.peers);
}

static int import(struct bench_end *end)
{
	int rc = bench_expect(end, BENCH_SETUP, end->timeout);

	return rc < 0 ? rc : bench_end_import(end, &end->far->inbox);
}

/* All servers get it before the first answers. */
static int send_all(struct bench_end *end, const struct bench_message *message)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < end->far_count; i++) {
		end->far = &end->fars[i];
		rc = bench_send(end, message);
	}
	end->far = end->fars;
	return rc;
}

/* Each with a token of its own. */
static int ask_for_memory(struct bench_end *end)
{
	struct bench_message request = { .type = BENCH_SETUP, .plan = end->plan };
	int rc = bench_end_share(end, &request);

	return rc < 0 ? rc : bench_send(end, &request);
}

static int set_up(struct bench_end *end, const struct bench_plan *plan)
{
	int rc;

	bench_end_free_memory(end);
	end->plan = *plan;
	rc = each(end, connect_further);
	if (rc == 0)
		rc = bench_end_memory(end);
	if (rc == 0)
		rc = each(end, ask_for_memory);
	return rc < 0 ? rc : each(end, import);
}

static int await_prepared(struct bench_end *end)
{
	return bench_expect(end, BENCH_PREPARE, end->timeout);
}

static int tell_go(struct bench_end *end)
{
	return send_all(end, &(struct bench_message){ .type = BENCH_GO });
}

static int await_result(struct bench_end *end)
{
	/* With both ways the server may still be at it. */
	uint64_t patience = end->timeout + (end->plan.both_ways ? end->length.duration : 0);
	int rc = bench_expect(end, BENCH_FINISH, patience);

	if (rc == 0)
		end->far->result = end->far->inbox.result;
	return rc;
}

static int finish(struct bench_end *end, struct bench_result *result)
{
	struct bench_message message = { .type = BENCH_FINISH, .result = *result };
	bool verified = true;
	int rc = 0;

	if (end->plan.op == BENCH_SEND)
		rc = each(end, bench_receives_release);
	for (uint32_t i = 0; rc == 0 && i < end->far_count; i++) {
		end->far = &end->fars[i];
		message.result.covered = bench_covered(end, end->far);
		rc = bench_send(end, &message);
	}
	if (rc == 0)
		rc = each(end, await_result);
	if (rc == 0)
		rc = bench_check(end, &result->verified);
	for (uint32_t i = 0; i < end->far_count; i++)
		verified = verified && end->fars[i].result.verified;
	result->verified = result->verified && verified;
	return rc;
}

static int say_hello(struct bench_end *end, const struct bench_options *options, struct bench_peer *peer)
{
	struct bench_message hello = { .type = BENCH_HELLO };
	char *memory = end->far->inbox.memory;
	int rc;

	if (options->peer_memory)
		snprintf(hello.memory, sizeof(hello.memory), "%s", options->peer_memory);
	rc = bench_send(end, &hello);
	if (rc == 0)
		rc = bench_expect(end, BENCH_HELLO, end->timeout);
	if (rc < 0)
		return rc;
	/* A word in tables and lines, whatever the other end says. */
	for (char *at = memory; *at; at++)
		if (!isalnum((unsigned char)*at) && *at != ':')
			*at = '?';
	peer->machine = end->far->inbox.machine;
	snprintf(peer->memory, sizeof(peer->memory), "%s", memory);
	return 0;
}

static int run(struct bench_end *end, const struct bench_options *options, struct bench_row *row)
{
	struct bench_message request = { .type = BENCH_PREPARE };
	struct bench_result result = { 0 };
	int rc;

	request.length = end->length = length_for(options, &end->plan);
	rc = bench_prepare(end);
	if (rc == 0)
		rc = send_all(end, &request);
	if (rc == 0)
		rc = each(end, await_prepared);
	end->busy = true;
	if (rc == 0 && bench_plan_single(&end->plan))
		rc = bench_single_lead(end, &result);
	else if (rc == 0)
		rc = bench_run(end, tell_go, &result);
	if (rc == 0)
		rc = finish(end, &result);
	end->busy = false;
	if (rc < 0)
		return rc;
	rc = bench_row_fill(end, &result, row);
	if (rc < 0)
		return rc;
	if (end->plan.validate && !row->verified)
		return bench_fail(end, -EBADMSG, "BENCH-CONTENT", bench_op_name(end->plan.op),
				  "please report this, with the command and both versions",
				  "what arrived is not what was sent, with messages of %llu bytes",
				  (unsigned long long)end->plan.size);
	return 0;
}

static int compare_bandwidth(const void *a, const void *b)
{
	const struct bench_row *left = a, *right = b;

	return left->bytes_per_second < right->bytes_per_second ? -1 : left->bytes_per_second > right->bytes_per_second;
}

static int compare_latency(const void *a, const void *b)
{
	const struct bench_row *left = a, *right = b;

	return left->latency.p50 < right->latency.p50 ? -1 : left->latency.p50 > right->latency.p50;
}

static void show_progress(const struct bench_options *options, uint32_t index, uint32_t turn)
{
	char size[32];

	if (options->common.quiet || options->common.json || options->csv || options->perftest ||
	    !isatty(STDERR_FILENO))
		return;
	if (index == options->size_count)
		fputs("\r\033[K", stderr);
	else
		fprintf(stderr, "\r\033[Kmeasuring %s (%u of %u), run %u of %u ...",
			bench_size_text(size, sizeof(size), options->sizes[index]), index + 1, options->size_count,
			turn + 1, options->repeat);
}

/* The run's row, which has now what belongs to it. */
static struct bench_row keep(struct bench_row *runs, uint32_t index)
{
	struct bench_row row = runs[index];

	runs[index].samples = NULL;
	runs[index].shares = NULL;
	return row;
}

/* One size: the median of its runs. */
static int measure_size(struct bench_end *end, const struct bench_options *options, struct bench_report *report,
			struct bench_row *runs)
{
	struct bench_plan plan = plan_for(options, options->sizes[report->count]);
	struct bench_row *row = &report->rows[report->count];
	double *values = calloc(options->repeat, sizeof(*values));
	int rc = set_up(end, &plan);

	if (!values && rc == 0)
		rc = bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u runs", options->repeat);
	report->pages = end->pages;
	for (uint32_t i = 0; rc == 0 && i < options->repeat; i++) {
		show_progress(options, report->count, i);
		rc = run(end, options, &runs[i]);
		if (rc == 0)
			values[i] = plan.latency ? (double)runs[i].latency.p50 / 1000 : runs[i].bytes_per_second;
		/* A row with the error's content is worth more than none. */
		if (rc == -EBADMSG)
			report->rows[report->count++] = keep(runs, i);
	}
	if (rc < 0) {
		free(values);
		return rc;
	}
	qsort(runs, options->repeat, sizeof(*runs), plan.latency ? compare_latency : compare_bandwidth);
	*row = keep(runs, options->repeat / 2);
	row->runs = values;
	row->run_count = options->repeat;
	report->count++;
	return 0;
}

static int begin_all(struct bench_end *end, const struct bench_options *options, struct bench_report *report)
{
	int rc = 0;

	snprintf(report->memory, sizeof(report->memory), "%s", end->memory);
	for (uint32_t i = 0; rc == 0 && i < end->far_count; i++) {
		end->far = &end->fars[i];
		rc = bench_end_begin(end);
		if (rc == 0)
			rc = say_hello(end, options, &report->peers[i]);
		pl_peer_query(end->far->peer, &report->peers[i].info);
	}
	end->far = end->fars;
	return rc;
}

static int measure_all(struct bench_end *end, const struct bench_options *options, struct bench_report *report)
{
	struct bench_row *runs = calloc(options->repeat, sizeof(*runs));
	int rc = begin_all(end, options, report);

	if (!runs)
		rc = bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u runs", options->repeat);
	while (rc == 0 && report->count < options->size_count)
		rc = measure_size(end, options, report, runs);
	show_progress(options, options->size_count, 0);
	for (uint32_t i = 0; runs && i < options->repeat; i++)
		bench_row_free(&runs[i]);
	free(runs);
	return rc;
}

/* In order, so that the servers do not see a lost connection. */
static int say_goodbye(struct bench_end *end)
{
	end->leaving = true;
	if (bench_send_type(end, BENCH_BYE) == 0)
		bench_expect(end, BENCH_BYE, CLI_NS_PER_S);
	return 0;
}

static int open_samples(struct bench_end *end, const struct bench_options *options, struct pl_error *error)
{
	if (!options->sample_interval)
		return 0;
	if (bench_samples_open(&end->samples, options->sample_interval) == 0)
		return 0;
	bench_end_close(end);
	return cli_fail_errno(error, -ENOMEM, "calloc", NULL);
}

static void show(const struct bench_options *options, const struct bench_report *report)
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

static void release(struct bench_report *report)
{
	for (uint32_t i = 0; report && i < report->count; i++) {
		free(report->rows[i].runs);
		bench_row_free(&report->rows[i]);
	}
	free(report);
}

/* One of several: its times are kept apart. */
static int open_far(struct bench_end *end, const char *text, struct pl_error *error)
{
	int rc = cli_address(text, end->far->address, sizeof(end->far->address), error);

	if (rc == 0 && end->far_count > 1) {
		end->far->stats = malloc(sizeof(*end->far->stats));
		if (!end->far->stats)
			return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	}
	return rc < 0 ? rc : pl_connect(end->context, end->far->address, end->timeout, &end->far->peer, error);
}

static int connect_all(struct bench_end *end, const char *const *addresses, struct pl_error *error)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < end->far_count; i++) {
		end->far = &end->fars[i];
		rc = open_far(end, addresses[i], error);
	}
	end->far = end->fars;
	return rc;
}

static void measure_with(struct bench_end *end, const struct bench_options *options, const char *const *addresses,
			 struct bench_report *report)
{
	struct pl_staging_info staging = PL_STAGING_INFO_INIT;
	int rc = bench_place(options, &report->error);

	if (rc == 0)
		rc = bench_end_open(end, options, report->peer_count, &report->error);
	if (rc == 0)
		rc = open_samples(end, options, &report->error);
	report->failed = rc < 0;
	if (rc < 0)
		return;
	rc = connect_all(end, addresses, &report->error);
	report->failed = rc < 0;
	if (rc == 0) {
		rc = measure_all(end, options, report);
		report->failed = rc < 0;
		report->error = end->error;
		report->cost = end->cost;
		pl_staging_query(end->context, &staging, NULL);
		report->staging = staging.locked;
		if (rc == 0)
			each(end, say_goodbye);
		else
			bench_send_failure(end);
	}
	bench_end_close(end);
}

int bench_measure(struct bench_options *options)
{
	struct bench_report *report = calloc(1, sizeof(*report));
	struct bench_end *end = bench_end_new();
	struct bench_child child = { .key = -1 };
	const char *own = child.process.address;
	struct pl_error error;
	int rc = report && end ? 0 : cli_fail_errno(&error, -ENOMEM, "malloc", NULL);

	if (rc == 0 && !options->address_count)
		rc = bench_child_start(&child, options, &error);
	if (rc < 0) {
		bench_child_stop(&child);
		free(end);
		free(report);
		return cli_report_for(&options->common, &error);
	}
	report->peer_count = CLI_MAX(options->address_count, 1u);
	for (uint32_t i = 0; i < report->peer_count; i++)
		report->peers[i].info = (struct pl_peer_info)PL_PEER_INFO_INIT;
	measure_with(end, options, options->address_count ? options->addresses : &own, report);
	/* Nobody came, so nobody's going ends it. */
	if (child.process.pid > 0 && !report->peers[0].info.address[0])
		kill(child.process.pid, SIGTERM);
	bench_child_stop(&child);
	show(options, report);
	rc = report->failed ? cli_report(&report->error) : CLI_OK;
	free(end);
	release(report);
	return rc;
}
