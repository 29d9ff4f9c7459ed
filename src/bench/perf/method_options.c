/* SPDX-License-Identifier: BSD-2-Clause */
/* Options of `peerlane bench` about the method: duration, rate, memory, affinity, output. */
#include <limits.h>
#include <string.h>

#include "bench/common/arguments.h"
#include "bench/common/min_rate.h"
#include "bench/perf/message.h"
#include "bench/perf/options.h"
#include "bench/perf/samples.h"
#include "cmd/common/units.h"

#define RATE_MAX (1ull << 50)
#define NODE_MAX 1023
/* Defaults of perftest, so that a command without options runs as long. */
#define PERFTEST_BANDWIDTH_ITERATIONS 5000
#define PERFTEST_LATENCY_ITERATIONS 1000
/* The best of these intervals is the peak. */
#define PERFTEST_INTERVAL (10 * CLI_NS_PER_MS)

enum {
	OPTION_DURATION = 0x280,
	OPTION_PROGRESS,
	OPTION_WARMUP,
	OPTION_VALIDATE,
	OPTION_REPEAT,
	OPTION_RATE,
	OPTION_MIN_RATE,
	OPTION_SAMPLES,
	OPTION_TOUCH,
	OPTION_MEMORY,
	OPTION_PEER_MEMORY,
	OPTION_HUGE,
	OPTION_WORKING_SET,
	OPTION_CPU,
	OPTION_PEER_CPU,
	OPTION_NUMA,
	OPTION_CSV,
	OPTION_PERFTEST,
	OPTION_GBITS,
	OPTION_WITH_MACHINE,
	OPTION_EVENTS,
};

static const struct argp_option method_options[] = {
	{ NULL, 0, NULL, 0, "Duration and method:", 2 },
	{ "duration", OPTION_DURATION, "SECONDS", 0, "Time for each size (default: 2)", 2 },
	{ "iterations", 'n', "N", 0, "Operations for each size, instead of a time", 2 },
	{ "warmup", OPTION_WARMUP, "N", 0, "Operations before the measured ones (default: up to 1000)", 2 },
	{ "repeat", OPTION_REPEAT, "N", 0, "Run each size N times and take the median run", 2 },
	{ "rate", OPTION_RATE, "RATE", 0, "Limit to this many bytes (10GB) or operations (5000op) per second", 2 },
	{ "min-rate", OPTION_MIN_RATE, "RATE", 0, "Fail if a result has fewer bytes per second, such as 20GB", 2 },
	{ "samples", OPTION_SAMPLES, "SECONDS", 0, "Show the rate in each interval, such as 0.1, and the lowest", 2 },
	{ "validate", OPTION_VALIDATE, NULL, 0, "Compare received with sent content, outside the measured time", 2 },
	{ "touch", OPTION_TOUCH, NULL, 0, "The receiver reads all bytes within the measured time", 2 },
	{ "progress", OPTION_PROGRESS, "MODE", 0,
	  "manual: this program polls; thread: library threads (default: manual; of kv: thread)", 2 },
	{ NULL, 0, NULL, 0, "Memory and cores:", 3 },
	{ "memory", OPTION_MEMORY, "KIND", 0,
	  "Memory of this process: host (default), cuda or cuda:1 for a GPU; also of a server started here", 3 },
	{ "peer-memory", OPTION_PEER_MEMORY, "KIND", 0, "Memory of the server (default: its own --memory)", 3 },
	{ "huge-pages", OPTION_HUGE, NULL, 0, "Use huge pages for host memory; also of a server started here", 3 },
	{ "working-set", OPTION_WORKING_SET, "SIZE", 0,
	  "Memory of each end that messages use in turn, up to 1G (default: 4M, or less with few in flight)", 3 },
	{ "cpu", OPTION_CPU, "LIST", 0, "Run on these cores only, such as 0-3,8", 3 },
	{ "peer-cpu", OPTION_PEER_CPU, "LIST", 0, "Cores of a server started here", 3 },
	{ "numa", OPTION_NUMA, "NODE", 0, "Use the cores and the memory of this NUMA node", 3 },
	{ NULL, 0, NULL, 0, "Output:", 4 },
	{ "with-machine", OPTION_WITH_MACHINE, NULL, 0,
	  "With --json: add the output of `peerlane topo` and `peerlane check`", 4 },
	{ "events", OPTION_EVENTS, NULL, 0, "Print the last events of each connection on standard error at the end",
	  4 },
	{ "csv", OPTION_CSV, NULL, 0, "Print comma-separated values, with names in the first line", 4 },
	{ "perftest", OPTION_PERFTEST, NULL, 0, "Print the columns of ib_write_bw and ib_write_lat, for their scripts",
	  4 },
	{ "gbits", OPTION_GBITS, NULL, 0, "With --perftest: Gb/sec instead of MB/sec", 4 },
	{ "report_gbits", OPTION_GBITS, NULL, OPTION_HIDDEN, NULL, 4 },
	{ 0 },
};

static void parse_progress_mode(struct bench_options *options, const char *text, struct argp_state *state)
{
	if (strcmp(text, "manual") && strcmp(text, "thread"))
		argp_error(state, "--progress takes manual or thread, not '%s'", text);
	options->manual = !strcmp(text, "manual");
}

/* Parses "5000op" or "10GB". */
static void parse_rate_limit(struct bench_options *options, const char *text, struct argp_state *state)
{
	size_t length = strlen(text);
	char number[24];
	unsigned operations;

	options->rate_bytes = options->settings.rate = 0;
	if (length > 2 && length < sizeof(number) && !strcmp(text + length - 2, "op")) {
		snprintf(number, sizeof(number), "%.*s", (int)length - 2, text);
		if (cli_parse_number(number, 1, UINT_MAX, &operations) == 0)
			options->settings.rate = operations * 1000ull;
	} else if (cli_parse_size(text, &options->rate_bytes) || options->rate_bytes > RATE_MAX) {
		options->rate_bytes = 0;
	}
	if (!options->rate_bytes && !options->settings.rate)
		argp_error(state,
			   "--rate takes bytes per second, such as 10GB, or operations, such as 5000op, not '%s'",
			   text);
}

static const char *parse_cpu_option(const char *name, const char *text, struct argp_state *state)
{
	if (!bench_cpu_list_valid(text))
		argp_error(state, "--%s takes cores such as 0-3,8, not '%s'", name, text);
	return text;
}

static uint64_t parse_working_set(const char *text, struct argp_state *state)
{
	uint64_t size = 0;

	if (cli_parse_size(text, &size) || size < BENCH_SIZE_MIN || size > BENCH_WORKING_SET_MAX)
		argp_error(state, "--working-set takes a size from 1 to 1G, such as 64M, not '%s'", text);
	return size;
}

static error_t parse_environment_option(int key, char *argument, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case OPTION_MEMORY:
		options->memory = cli_parse_memory_kind("memory", argument, state);
		return 0;
	case OPTION_PEER_MEMORY:
		options->peer_memory = cli_parse_memory_kind("peer-memory", argument, state);
		return 0;
	case OPTION_HUGE:
		options->huge = true;
		return 0;
	case OPTION_WORKING_SET:
		options->plan.working_set = parse_working_set(argument, state);
		return 0;
	case OPTION_CPU:
		options->cpus = parse_cpu_option("cpu", argument, state);
		return 0;
	case OPTION_PEER_CPU:
		options->peer_cpus = parse_cpu_option("peer-cpu", argument, state);
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
	case OPTION_EVENTS:
		options->events = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_method_option(int key, char *argument, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case 'n':
		options->settings.iterations = bench_parse_number("iterations", argument, 1, UINT_MAX, state);
		return 0;
	case OPTION_DURATION:
		options->settings.duration = bench_parse_interval("duration", argument, state);
		options->duration_given = true;
		return 0;
	case OPTION_WARMUP:
		options->settings.warmup = bench_parse_number("warmup", argument, 0, UINT_MAX, state);
		options->warmup_given = true;
		return 0;
	case OPTION_REPEAT:
		options->repeat = bench_parse_number("repeat", argument, 1, BENCH_REPEAT_MAX, state);
		return 0;
	case OPTION_RATE:
		parse_rate_limit(options, argument, state);
		return 0;
	case OPTION_MIN_RATE:
		options->min_rate = bench_parse_min_rate(argument, state);
		return 0;
	case OPTION_SAMPLES:
		options->sample_interval = bench_parse_interval("samples", argument, state);
		return 0;
	case OPTION_VALIDATE:
		options->plan.validate = true;
		return 0;
	case OPTION_TOUCH:
		options->plan.touch = true;
		return 0;
	case OPTION_PROGRESS:
		parse_progress_mode(options, argument, state);
		return 0;
	default:
		return parse_environment_option(key, argument, state);
	}
}

void bench_finish_method(struct bench_options *options, struct argp_state *state)
{
	const struct bench_plan *plan = &options->plan;
	struct bench_run_settings *settings = &options->settings;

	if (options->csv + options->perftest + options->common.json > 1)
		argp_error(state, "--json, --csv and --perftest exclude each other");
	if (options->with_machine && !options->common.json)
		argp_error(state, "--with-machine needs --json");
	if (options->gbits && !options->perftest)
		argp_error(state, "--gbits needs --perftest");
	if (options->peer_cpus && (options->address_count || options->server))
		argp_error(state, "--peer-cpu applies only to a server started here; use --cpu on your server");
	if (options->peer_memory && options->server)
		argp_error(state, "--peer-memory is an option of the client; use --memory on the server");
	if (plan->working_set && !bench_plan_allows_working_set(plan))
		argp_error(state, "--working-set is for read, and for the bandwidth of write and send");
	if (options->min_rate && options->server)
		argp_error(state, "--min-rate is an option of the client");
	if (options->min_rate && bench_operation_sequential(plan->operation))
		argp_error(state, "--min-rate: --op %s has no rate", plan->operation->name);
	if (options->min_rate && plan->latency)
		argp_error(state, "--min-rate: --latency has no rate");
	if (options->perftest && !plan->operation->perftest_title)
		argp_error(state, "--perftest: perftest has no test of --op %s", plan->operation->name);
	if (options->perftest && !settings->iterations && !options->duration_given)
		settings->iterations = plan->latency ? PERFTEST_LATENCY_ITERATIONS : PERFTEST_BANDWIDTH_ITERATIONS;
	/* Each end counts its own operations: intervals would show one of both directions. */
	if (options->sample_interval && plan->both_ways)
		argp_error(state, "--samples shows one direction: run it without --both-ways");
	if (options->perftest && !plan->latency && !plan->both_ways && !options->sample_interval)
		options->sample_interval = PERFTEST_INTERVAL;
	if (options->sample_interval && settings->duration / options->sample_interval >= BENCH_SAMPLES_MAX)
		argp_error(state, "--samples: at most %u intervals fit into --duration", BENCH_SAMPLES_MAX);
}

const struct argp bench_method_argp = { method_options, parse_method_option, NULL, NULL, NULL, NULL, NULL };
