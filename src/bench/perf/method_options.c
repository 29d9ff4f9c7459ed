/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of the command line that says how to measure, where, and what to print. */
#include <limits.h>
#include <string.h>

#include "bench/perf/endpoint.h"
#include "cmd/common/units.h"

#define RATE_MAX (1ull << 50)
#define NODE_MAX 1023
/* As perftest's, so that a command without options takes as long. */
#define PERFTEST_BANDWIDTH_ITERATIONS 5000
#define PERFTEST_LATENCY_ITERATIONS 1000
/* Of these, the best is the peak. */
#define PERFTEST_INTERVAL (10 * CLI_NS_PER_MS)

enum {
	OPTION_DURATION = 0x280,
	OPTION_PROGRESS,
	OPTION_WARMUP,
	OPTION_VALIDATE,
	OPTION_REPEAT,
	OPTION_RATE,
	OPTION_SAMPLES,
	OPTION_TOUCH,
	OPTION_MEMORY,
	OPTION_PEER_MEMORY,
	OPTION_HUGE,
	OPTION_CPU,
	OPTION_PEER_CPU,
	OPTION_NUMA,
	OPTION_CSV,
	OPTION_PERFTEST,
	OPTION_GBITS,
	OPTION_WITH_MACHINE,
};

static const struct argp_option how_options[] = {
	{ NULL, 0, NULL, 0, "How long, and how:", 2 },
	{ "duration", OPTION_DURATION, "SECONDS", 0, "Measure each size for so long (default: 2)", 2 },
	{ "iterations", 'n', "N", 0, "Measure so many operations instead", 2 },
	{ "warmup", OPTION_WARMUP, "N", 0, "Operations before, not measured (default: up to 1000)", 2 },
	{ "repeat", OPTION_REPEAT, "N", 0, "Run each size N times and take the median run", 2 },
	{ "rate", OPTION_RATE, "RATE", 0, "No faster than so many bytes (10GB) or operations (5000op) per second", 2 },
	{ "samples", OPTION_SAMPLES, "SECONDS", 0, "Tell the rate in every interval, such as 0.1, and the least", 2 },
	{ "validate", OPTION_VALIDATE, NULL, 0, "Compare what arrived with what was sent, outside the time measured",
	  2 },
	{ "touch", OPTION_TOUCH, NULL, 0, "Whoever receives reads all the bytes, within the time measured", 2 },
	{ "progress", OPTION_PROGRESS, "HOW", 0, "manual: this program polls (default); thread: the library's threads",
	  2 },
	{ NULL, 0, NULL, 0, "Where:", 3 },
	{ "memory", OPTION_MEMORY, "KIND", 0,
	  "Where this end's bytes are: host (default), cuda or cuda:1 for a GPU; the same for a server started here",
	  3 },
	{ "peer-memory", OPTION_PEER_MEMORY, "KIND", 0, "Where the server's bytes are (default: as it was told)", 3 },
	{ "huge-pages", OPTION_HUGE, NULL, 0, "Host memory in huge pages; the same for a server started here", 3 },
	{ "cpu", OPTION_CPU, "LIST", 0, "Run on these cores only, such as 0-3,8", 3 },
	{ "peer-cpu", OPTION_PEER_CPU, "LIST", 0, "Cores of a server that is started here", 3 },
	{ "numa", OPTION_NUMA, "NODE", 0, "Run on the cores of this node, with its memory", 3 },
	{ NULL, 0, NULL, 0, "What is printed:", 4 },
	{ "with-machine", OPTION_WITH_MACHINE, NULL, 0,
	  "With --json: what `peerlane topo` and `peerlane check` say, too", 4 },
	{ "csv", OPTION_CSV, NULL, 0, "Lines of values with commas, the first with their names", 4 },
	{ "perftest", OPTION_PERFTEST, NULL, 0, "Columns as ib_write_bw and ib_write_lat have them, for their scripts",
	  4 },
	{ "gbits", OPTION_GBITS, NULL, 0, "Of --perftest: Gb/sec in place of MB/sec", 4 },
	{ "report_gbits", OPTION_GBITS, NULL, OPTION_HIDDEN, NULL, 4 },
	{ 0 },
};

uint32_t bench_parse_number(const char *name, const char *text, unsigned min, unsigned max, struct argp_state *state)
{
	unsigned value = min;

	if (cli_parse_number(text, min, max, &value))
		argp_error(state, "--%s takes a number from %u to %u, not '%s'", name, min, max, text);
	return value;
}

static void parse_progress(struct bench_options *options, const char *text, struct argp_state *state)
{
	if (strcmp(text, "manual") && strcmp(text, "thread"))
		argp_error(state, "--progress takes manual or thread, not '%s'", text);
	options->manual = !strcmp(text, "manual");
}

static uint64_t parse_time(const char *name, const char *text, struct argp_state *state)
{
	uint64_t time = 0;

	if (cli_parse_seconds(text, &time) || !time)
		argp_error(state, "--%s takes seconds, such as 5 or 0.5, not '%s'", name, text);
	return time;
}

/* "5000op", "10GB" */
static void parse_rate(struct bench_options *options, const char *text, struct argp_state *state)
{
	size_t length = strlen(text);
	char number[24];
	unsigned operations;

	options->rate_bytes = options->length.rate = 0;
	if (length > 2 && length < sizeof(number) && !strcmp(text + length - 2, "op")) {
		snprintf(number, sizeof(number), "%.*s", (int)length - 2, text);
		if (cli_parse_number(number, 1, UINT_MAX, &operations) == 0)
			options->length.rate = operations * 1000ull;
	} else if (cli_parse_size(text, &options->rate_bytes) || options->rate_bytes > RATE_MAX) {
		options->rate_bytes = 0;
	}
	if (!options->rate_bytes && !options->length.rate)
		argp_error(state,
			   "--rate takes bytes per second, such as 10GB, or operations, such as 5000op, not '%s'",
			   text);
}

static const char *parse_kind(const char *name, const char *text, struct argp_state *state)
{
	if (strlen(text) >= BENCH_KIND)
		argp_error(state, "--%s takes host, cuda or cuda:N, not '%s'", name, text);
	return text;
}

static const char *parse_cpus(const char *name, const char *text, struct argp_state *state)
{
	if (!bench_cpus_valid(text))
		argp_error(state, "--%s takes cores such as 0-3,8, not '%s'", name, text);
	return text;
}

static error_t parse_where(int key, char *argument, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case OPTION_MEMORY:
		options->memory = parse_kind("memory", argument, state);
		return 0;
	case OPTION_PEER_MEMORY:
		options->peer_memory = parse_kind("peer-memory", argument, state);
		return 0;
	case OPTION_HUGE:
		options->huge = true;
		return 0;
	case OPTION_CPU:
		options->cpus = parse_cpus("cpu", argument, state);
		return 0;
	case OPTION_PEER_CPU:
		options->peer_cpus = parse_cpus("peer-cpu", argument, state);
		return 0;
	case OPTION_NUMA:
		options->node = (int)bench_parse_number("numa", argument, 0, NODE_MAX, state);
		return 0;
	case OPTION_CSV:
		options->csv = true;
		return 0;
	case OPTION_PERFTEST:
		options->perftest = true;
		return 0;
	case OPTION_WITH_MACHINE:
		options->with_machine = true;
		return 0;
	case OPTION_GBITS:
		options->gbits = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_how(int key, char *argument, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case 'n':
		options->length.iterations = bench_parse_number("iterations", argument, 1, UINT_MAX, state);
		return 0;
	case OPTION_DURATION:
		options->length.duration = parse_time("duration", argument, state);
		options->duration_given = true;
		return 0;
	case OPTION_WARMUP:
		options->length.warmup = bench_parse_number("warmup", argument, 0, UINT_MAX, state);
		options->warmup_given = true;
		return 0;
	case OPTION_REPEAT:
		options->repeat = bench_parse_number("repeat", argument, 1, BENCH_REPEAT_MAX, state);
		return 0;
	case OPTION_RATE:
		parse_rate(options, argument, state);
		return 0;
	case OPTION_SAMPLES:
		options->sample_interval = parse_time("samples", argument, state);
		return 0;
	case OPTION_VALIDATE:
		options->plan.validate = true;
		return 0;
	case OPTION_TOUCH:
		options->plan.touch = true;
		return 0;
	case OPTION_PROGRESS:
		parse_progress(options, argument, state);
		return 0;
	default:
		return parse_where(key, argument, state);
	}
}

void bench_finish_how(struct bench_options *options, struct argp_state *state)
{
	const struct bench_plan *plan = &options->plan;
	struct bench_length *length = &options->length;

	if (options->csv + options->perftest + options->common.json > 1)
		argp_error(state, "--json, --csv and --perftest: one of them");
	if (options->with_machine && !options->common.json)
		argp_error(state, "--with-machine goes with --json");
	if (options->gbits && !options->perftest)
		argp_error(state, "--gbits goes with --perftest");
	if (options->peer_cpus && (options->address_count || options->server))
		argp_error(state, "--peer-cpu is for a server that is started here: give --cpu to yours");
	if (options->peer_memory && options->server)
		argp_error(state, "--peer-memory is for the client; this server's own is --memory");
	if (options->perftest && bench_plan_single(plan))
		argp_error(state, "perftest has no --op %s", bench_op_name(plan->op));
	if (options->perftest && !length->iterations && !options->duration_given)
		length->iterations = plan->latency ? PERFTEST_LATENCY_ITERATIONS : PERFTEST_BANDWIDTH_ITERATIONS;
	if (options->perftest && !plan->latency && !options->sample_interval)
		options->sample_interval = PERFTEST_INTERVAL;
	if (options->sample_interval && length->duration / options->sample_interval >= BENCH_SAMPLES_MAX)
		argp_error(state, "--samples takes at most %u intervals within --duration", BENCH_SAMPLES_MAX);
}

const struct argp bench_how_argp = { how_options, parse_how, NULL, NULL, NULL, NULL, NULL };
