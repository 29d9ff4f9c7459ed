/* SPDX-License-Identifier: BSD-2-Clause */
/* The end that measures: leads the server through all sizes. */
#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "cli/output.h"

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
	plan.post_list = CLI_MIN(plan.post_list, plan.depth);
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

static int set_up(struct bench_end *end, const struct bench_plan *plan)
{
	struct bench_message request = { .type = BENCH_SETUP, .plan = *plan };
	int rc;

	bench_end_free_memory(end);
	end->plan = *plan;
	rc = bench_links_connect(end, plan->peers);
	if (rc == 0)
		rc = bench_end_memory(end, &request);
	if (rc == 0)
		rc = bench_send(end, &request);
	if (rc == 0)
		rc = bench_expect(end, BENCH_SETUP, end->timeout);
	return rc < 0 ? rc : bench_end_import(end, &end->inbox);
}

static int tell_go(struct bench_end *end)
{
	return bench_send_type(end, BENCH_GO);
}

static int finish(struct bench_end *end, struct bench_result *result)
{
	struct bench_message message = { .type = BENCH_FINISH, .result = *result };
	/* With both ways the server may still be at it. */
	uint64_t patience = end->timeout + (end->plan.both_ways ? end->length.duration : 0);
	int rc = 0;

	if (end->plan.op == BENCH_SEND)
		rc = bench_receives_release(end);
	if (rc == 0)
		rc = bench_send(end, &message);
	if (rc == 0)
		rc = bench_expect(end, BENCH_FINISH, patience);
	if (rc < 0)
		return rc;
	end->result = end->inbox.result;
	return bench_check(end, end->result.covered, &result->verified);
}

static int say_hello(struct bench_end *end, const struct bench_options *options, struct bench_report *report)
{
	struct bench_message hello = { .type = BENCH_HELLO };
	int rc;

	if (options->peer_memory)
		snprintf(hello.memory, sizeof(hello.memory), "%s", options->peer_memory);
	rc = bench_send(end, &hello);
	if (rc == 0)
		rc = bench_expect(end, BENCH_HELLO, end->timeout);
	if (rc < 0)
		return rc;
	/* A word in tables and lines, whatever the other end says. */
	for (char *at = end->inbox.memory; *at; at++)
		if (!isalnum((unsigned char)*at) && *at != ':')
			*at = '?';
	report->peer_machine = end->inbox.machine;
	snprintf(report->memory, sizeof(report->memory), "%s", end->memory);
	snprintf(report->peer_memory, sizeof(report->peer_memory), "%s", end->inbox.memory);
	return 0;
}

static double per_second(uint64_t count, uint64_t nanoseconds)
{
	return nanoseconds ? (double)count * 1e9 / (double)nanoseconds : 0;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100 * (double)part / (double)whole : 0;
}

static struct bench_latency latency_of(const struct stats *stats)
{
	return (struct bench_latency){
		.minimum = stats->count ? stats->minimum : 0,
		.p50 = stats_percentile(stats, 50),
		.p90 = stats_percentile(stats, 90),
		.p95 = stats_percentile(stats, 95),
		.p99 = stats_percentile(stats, 99),
		.p999 = stats_percentile(stats, 99.9),
		.p9999 = stats_percentile(stats, 99.99),
		.maximum = stats->count ? stats->maximum : 0,
		.mean = stats_mean(stats),
		.deviation = stats_deviation(stats),
	};
}

/* The last interval is not a whole one. */
static int fill_samples(struct bench_end *end, struct bench_row *row)
{
	const struct bench_samples *samples = &end->samples;
	double bytes = (double)(end->plan.size * end->plan.vector);

	row->sample_count = samples->used ? samples->used - 1 : 0;
	if (!samples->interval)
		return 0;
	row->samples = calloc(row->sample_count + 1, sizeof(*row->samples));
	if (!row->samples)
		return bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u samples", row->sample_count);
	for (uint32_t i = 0; i < row->sample_count; i++)
		row->samples[i] = (double)samples->counts[i] * bytes * 1e9 / (double)samples->interval;
	return 0;
}

static void fill_row(const struct bench_end *end, const struct bench_result *ours, struct bench_row *row)
{
	const struct bench_result *theirs = &end->result;
	double out = per_second(ours->operations, ours->elapsed), in = per_second(theirs->operations, theirs->elapsed);

	if (!end->plan.both_ways)
		in = 0;
	free(row->samples);
	*row = (struct bench_row){
		.plan = end->plan,
		.sample = end->sample,
		.streams = end->sample.streams,
		.operations = ours->operations,
		.elapsed = ours->elapsed,
		.operations_per_second = out + in,
		.bytes_per_second = (out + in) * (double)end->plan.size,
		.bytes_out = out * (double)end->plan.size,
		.bytes_in = in * (double)end->plan.size,
		.latency = latency_of(&end->stats),
		.cpu = percent(ours->cpu, ours->wall),
		.server_cpu = percent(theirs->cpu, theirs->wall),
		.verified = ours->verified && theirs->verified,
		.spent = end->spent,
		.cached = ours->cached,
		.operation = ours->operation,
	};
}

static int run(struct bench_end *end, const struct bench_options *options, struct bench_row *row)
{
	struct bench_message request = { .type = BENCH_PREPARE };
	struct bench_result result = { 0 };
	int rc;

	request.length = end->length = length_for(options, &end->plan);
	rc = bench_prepare(end);
	if (rc == 0)
		rc = bench_send(end, &request);
	if (rc == 0)
		rc = bench_expect(end, BENCH_PREPARE, end->timeout);
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
	fill_row(end, &result, row);
	rc = fill_samples(end, row);
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

/* The run's row, which has its samples now. */
static struct bench_row keep(struct bench_row *runs, uint32_t index)
{
	struct bench_row row = runs[index];

	runs[index].samples = NULL;
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

static int measure_all(struct bench_end *end, const struct bench_options *options, struct bench_report *report)
{
	struct bench_row *runs = calloc(options->repeat, sizeof(*runs));
	int rc = bench_end_begin(end);

	if (!runs)
		rc = bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u runs", options->repeat);
	if (rc == 0)
		rc = say_hello(end, options, report);
	while (rc == 0 && report->count < options->size_count)
		rc = measure_size(end, options, report, runs);
	show_progress(options, options->size_count, 0);
	for (uint32_t i = 0; runs && i < options->repeat; i++)
		free(runs[i].samples);
	free(runs);
	return rc;
}

/* In order, so that the server does not see a lost connection. */
static void say_goodbye(struct bench_end *end)
{
	end->leaving = true;
	if (bench_send_type(end, BENCH_BYE) == 0)
		bench_expect(end, BENCH_BYE, CLI_NS_PER_S);
}

static int open_samples(struct bench_end *end, const struct bench_options *options, struct pl_error *error)
{
	if (!options->sample_interval)
		return 0;
	end->samples.interval = options->sample_interval;
	end->samples.counts = calloc(BENCH_SAMPLES_MAX, sizeof(*end->samples.counts));
	if (end->samples.counts)
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
		free(report->rows[i].samples);
	}
	free(report);
}

static void measure_with(struct bench_end *end, const struct bench_options *options, const char *text,
			 struct bench_report *report)
{
	char address[300];
	int rc = cli_address(text, address, sizeof(address), &report->error);

	if (rc == 0)
		rc = bench_place(options, &report->error);
	if (rc == 0)
		rc = bench_end_open(end, options, &report->error);
	if (rc == 0)
		rc = open_samples(end, options, &report->error);
	if (rc < 0) {
		report->failed = true;
		return;
	}
	end->address = address;
	rc = pl_connect(end->context, address, options->common.timeout, &end->peer, &report->error);
	report->failed = rc < 0;
	if (rc == 0) {
		rc = measure_all(end, options, report);
		pl_peer_query(end->peer, &report->info);
		report->failed = rc < 0;
		report->error = end->error;
		report->cost = end->cost;
		if (rc == 0)
			say_goodbye(end);
		else
			bench_send_failure(end);
	}
	bench_end_close(end);
}

int bench_measure(struct bench_options *options)
{
	struct bench_report *report = calloc(1, sizeof(*report));
	struct bench_end *end = malloc(sizeof(*end));
	struct bench_child child = { .key = -1 };
	const char *address = options->address;
	struct pl_error error;
	int rc = report && end ? 0 : cli_fail_errno(&error, -ENOMEM, "malloc", NULL);

	if (rc == 0 && !address)
		rc = bench_child_start(&child, options, &error);
	if (rc < 0) {
		bench_child_stop(&child);
		free(end);
		free(report);
		return cli_report_for(&options->common, &error);
	}
	report->info = (struct pl_peer_info)PL_PEER_INFO_INIT;
	measure_with(end, options, address ? address : child.process.address, report);
	/* Nobody came, so nobody's going ends it. */
	if (child.process.pid > 0 && !report->info.address[0])
		kill(child.process.pid, SIGTERM);
	bench_child_stop(&child);
	show(options, report);
	rc = report->failed ? cli_report(&report->error) : CLI_OK;
	free(end);
	release(report);
	return rc;
}
