/* SPDX-License-Identifier: BSD-2-Clause */
/* Leads the servers through all sizes, rounds and arms. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cmd/common/output.h"
#include "bench/workflow/workflow.h"

/* The most that a ring of frames takes of each memory, where that allows two. */
#define RING_BYTES (256ull << 20)

struct measurement {
	struct flow_options *options;
	struct flow_report *report;
	struct flow_link source, sink;
	struct flow_memory memory;
	struct pl_remote *frames;
	uint32_t first; /* of the results of this size */
};

static uint32_t depth_for(const struct flow_options *options, uint64_t size)
{
	uint64_t fits = RING_BYTES / flow_stride(size);

	return (uint32_t)CLI_MAX(CLI_MIN((uint64_t)options->depth, fits), FLOW_DEPTH_MIN);
}

static uint64_t processor_time(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * CLI_NS_PER_S +
	       ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000;
}

static struct flow_link *sink_of(struct measurement *measurement)
{
	return measurement->options->proxy ? &measurement->sink : NULL;
}

/* -- one run --------------------------------------------------------------------------------------- */

static int share(struct flow_ring *ring, struct flow_message *message, struct pl_error *error)
{
	size_t length = sizeof(message->token);
	int rc = pl_region_share(ring->region, NULL, message->token, &length, error);

	message->token_length = (uint16_t)length;
	return rc;
}

/* Has the servers ready, with frames that there have never been. */
static int prepare(struct measurement *measurement, struct flow_run *run, struct flow_message *pushed,
		   struct flow_message *served, struct pl_error *error)
{
	uint64_t checked = run->limit;
	int rc = 0;

	if (getrandom(&run->seed, sizeof(run->seed), 0) != (ssize_t)sizeof(run->seed))
		run->seed = cli_now();
	*pushed = *served =
		(struct flow_message){ .type = FLOW_RUN, .seed = run->seed, .depth = run->depth, .checked = checked };
	pushed->fault = measurement->options->fault;
	if (run->arm->push)
		rc = share(flow_memory_in(run->memory, run->arm), pushed, error);
	if (rc == 0 && run->arm->proxy)
		rc = share(flow_memory_out(run->memory, run->arm), served, error);
	if (rc == 0)
		rc = flow_memory_poison(run->memory, run->arm, error);
	return rc;
}

/* The tokens of a run end with it. */
static void withdraw(struct flow_run *run, const struct flow_message *pushed, const struct flow_message *served)
{
	if (pushed->token_length)
		pl_region_revoke(flow_memory_in(run->memory, run->arm)->region, pushed->token, pushed->token_length);
	if (served->token_length)
		pl_region_revoke(flow_memory_out(run->memory, run->arm)->region, served->token, served->token_length);
}

static int run_frames(struct flow_run *run, struct pl_error *error)
{
	return run->arm->overlapped ? flow_run_overlapped(run, error) : flow_run_serial(run, error);
}

/* Every word of the results that are still in the ring, and all that the sink has seen. */
static int check_rest(struct flow_run *run, struct pl_error *error)
{
	struct flow_message message = { .type = FLOW_CHECK, .frames = run->next };
	uint64_t kept = CLI_MIN(run->next, (uint64_t)run->depth);
	int rc;

	run->verify = true;
	for (uint64_t i = 1; !run->arm->proxy && i <= kept; i++) {
		rc = flow_inspect(run, run->next - i, error);
		if (rc < 0)
			return rc;
	}
	if (!run->arm->proxy)
		return 0;
	rc = flow_ask(run->sink, &message, error);
	if (rc < 0 || message.right)
		return rc;
	run->difference = message.difference;
	return flow_fail_content(run, error);
}

static void tally_join(struct flow_tally *sum, const struct flow_tally *more)
{
	uint64_t direct = sum->direct + more->direct, staged = sum->staged + more->staged;

	if (more->route >= sum->route)
		*sum = *more;
	sum->direct = direct;
	sum->staged = staged;
}

static int measure_frames(const struct flow_options *options, struct flow_run *run, struct flow_result *result,
			  struct pl_error *error)
{
	uint64_t begun = cli_now(), cpu = processor_time(), first = run->next;
	int rc;

	run->first = first;
	run->verify = run->damage = false;
	run->limit = options->frames ? first + options->frames : UINT64_MAX;
	run->deadline = options->frames ? 0 : begun + options->duration;
	rc = run_frames(run, error);
	if (rc < 0)
		return rc;
	result->cpu += processor_time() - cpu;
	result->frames += run->next - first;
	result->elapsed += run->ended - begun;
	result->runs[result->rounds++] = (double)(run->next - first) * 1e9 / (double)(run->ended - begun);
	return 0;
}

/* First, frames of which every word is compared, which warms up; then what is measured; then what is left of that. */
static int run_arm(struct measurement *measurement, struct flow_result *result, struct pl_error *error)
{
	const struct flow_options *options = measurement->options;
	struct flow_memory *memory = &measurement->memory;
	struct flow_run run = {
		.options = options,
		.arm = result->arm,
		.compute = measurement->report->compute,
		.memory = memory,
		.source = &measurement->source,
		.sink = sink_of(measurement),
		.remote = measurement->frames,
		.depth = result->arm->overlapped ? memory->depth : 1,
		.limit = 2 * (memory->depth + 1),
		.phases = result->phases,
		.verify = true,
		.damage = true,
	};
	struct flow_message pushed, served, tally = { .type = FLOW_CHECK };
	int rc = prepare(measurement, &run, &pushed, &served, error);
	struct flow_message request = pushed;

	if (rc == 0)
		rc = flow_ask(run.source, &request, error);
	if (rc == 0 && run.sink) {
		request = served;
		rc = flow_ask(run.sink, &request, error);
	}
	if (rc < 0 && request.type == FLOW_FAILED) {
		result->left_out = true;
		result->reason = *error;
		withdraw(&run, &pushed, &served);
		return 0;
	}
	if (rc == 0)
		rc = run_frames(&run, error);
	if (rc == 0 && options->fault == FLOW_FAULT_NONE)
		rc = measure_frames(options, &run, result, error);
	if (rc == 0)
		rc = check_rest(&run, error);
	if (rc == 0 && run.arm->push)
		rc = flow_ask(run.source, &tally, error);
	if (rc == 0)
		withdraw(&run, &pushed, &served);
	tally_join(&result->tally, run.arm->push ? &tally.tally : &run.tally);
	if (rc == 0 && options->fault)
		return cli_fail(error, -EBADMSG, "WORKFLOW-FAULT-MISSED", result->arm->name, "please report this",
				"the fault that --inject made was not found");
	result->verified = rc == 0;
	return rc;
}

/* -- all of them ----------------------------------------------------------------------------------- */

static void show_progress(const struct measurement *measurement, const struct flow_result *result, uint32_t round)
{
	const struct flow_options *options = measurement->options;

	if (options->common.quiet || options->common.json || !isatty(STDERR_FILENO))
		return;
	if (!result)
		fputs("\r\033[K", stderr);
	else
		fprintf(stderr, "\r\033[Kframes of %llu KiB, round %u of %u, arm %s ...",
			(unsigned long long)result->size >> 10, round + 1, options->rounds, result->arm->name);
}

static int set_up(struct measurement *measurement, uint64_t size, struct pl_error *error)
{
	struct flow_message message = { .type = FLOW_SETUP, .size = size, .depth = measurement->memory.depth };
	struct flow_message for_sink = message;
	int rc = flow_ask(&measurement->source, &message, error);

	measurement->report->source_machine = message.machine;
	if (rc == 0)
		rc = pl_remote_import(measurement->source.peer, message.token, message.token_length, 0,
				      &measurement->frames, error);
	for_sink.sink = true;
	if (rc == 0 && measurement->options->proxy)
		rc = flow_ask(&measurement->sink, &for_sink, error);
	measurement->report->sink_machine = for_sink.machine;
	return rc;
}

static int add_results(struct measurement *measurement, uint64_t size, struct pl_error *error)
{
	const struct flow_options *options = measurement->options;
	struct flow_report *report = measurement->report;
	unsigned count;
	const struct flow_arm *arms = flow_arms(options->proxy, &count);

	measurement->first = report->count;
	for (unsigned i = 0; i < count; i++) {
		struct flow_result *result = &report->results[report->count];

		if (!options->arms[i])
			continue;
		result->arm = &arms[i];
		result->size = size;
		result->depth = arms[i].overlapped ? measurement->memory.depth : 1;
		result->phases = calloc(FLOW_PHASES, sizeof(*result->phases));
		if (!result->phases)
			return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
		for (unsigned phase = 0; phase < FLOW_PHASES; phase++)
			stats_reset(&result->phases[phase]);
		report->count++;
	}
	return 0;
}

static int compare_doubles(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

static void sum_up(struct flow_result *result)
{
	double sorted[FLOW_ROUNDS_MAX];

	if (!result->rounds)
		return;
	memcpy(sorted, result->runs, result->rounds * sizeof(sorted[0]));
	qsort(sorted, result->rounds, sizeof(sorted[0]), compare_doubles);
	result->low = sorted[0];
	result->median = sorted[result->rounds / 2];
	result->high = sorted[result->rounds - 1];
}

struct flow_ratio flow_ratio_of(const struct flow_result *result, const struct flow_result *over)
{
	double sorted[FLOW_ROUNDS_MAX];
	uint32_t rounds = CLI_MIN(result->rounds, over->rounds);

	if (!rounds)
		return (struct flow_ratio){ 0 };
	for (uint32_t i = 0; i < rounds; i++)
		sorted[i] = result->runs[i] / over->runs[i];
	qsort(sorted, rounds, sizeof(sorted[0]), compare_doubles);
	return (struct flow_ratio){ sorted[rounds / 2], sorted[0], sorted[rounds - 1] };
}

/* Each round has every arm, and begins with another, so that what comes and goes meets all of them alike. */
static int measure_size(struct measurement *measurement, uint64_t size, struct pl_error *error)
{
	const struct flow_options *options = measurement->options;
	struct flow_report *report = measurement->report;
	uint32_t count;
	int rc;

	measurement->memory = (struct flow_memory){ .depth = depth_for(options, size) };
	rc = add_results(measurement, size, error);
	if (rc == 0)
		rc = flow_memory_open(&measurement->memory, options, measurement->source.context,
				      options->proxy ? measurement->sink.context : NULL, report->compute, size, error);
	if (rc == 0)
		rc = set_up(measurement, size, error);
	count = report->count - measurement->first;
	for (uint32_t round = 0; rc == 0 && round < options->rounds; round++) {
		for (uint32_t i = 0; rc == 0 && i < count; i++) {
			struct flow_result *result = &report->results[measurement->first + (round + i) % count];

			if (result->left_out)
				continue;
			show_progress(measurement, result, round);
			rc = run_arm(measurement, result, error);
		}
	}
	for (uint32_t i = 0; i < count; i++)
		sum_up(&report->results[measurement->first + i]);
	pl_remote_release(measurement->frames);
	measurement->frames = NULL;
	return rc;
}

static int measure_all(struct measurement *measurement, struct pl_error *error)
{
	const struct flow_options *options = measurement->options;
	struct flow_message goodbye = { .type = FLOW_BYE };
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < options->size_count; i++) {
		rc = measure_size(measurement, options->sizes[i], error);
		/* After a failure the servers may still write: the connection ends before the memory. */
		if (rc == 0)
			flow_memory_close(&measurement->memory, measurement->report->compute);
	}
	show_progress(measurement, NULL, 0);
	if (rc == 0)
		rc = flow_ask(&measurement->source, &goodbye, error);
	goodbye.type = FLOW_BYE;
	if (rc == 0 && options->proxy)
		rc = flow_ask(&measurement->sink, &goodbye, error);
	return rc;
}

/* -- what it runs on ------------------------------------------------------------------------------- */

static int open_device(struct flow_options *options, struct flow_report *report, struct pl_error *error)
{
	const char *name = options->device;
	struct pl_gpu_info info = PL_GPU_INFO_INIT;
	unsigned number = 0;

	if (!strcmp(name, "auto"))
		name = pl_gpu_query(0, &info, NULL) == 0 ? "cuda" : "simulated";
	if (!strcmp(name, "simulated"))
		return flow_simulated_open(FLOW_DEPTH_MAX, &flow_kernel, &report->compute, error);
	if (name[4] == ':')
		number = (unsigned)atoi(name + 5);
	return cuda_compute_open(number, FLOW_DEPTH_MAX, &flow_kernel, &report->compute, error);
}

/* Where there is nothing to lock, arms that differ in that alone are measured once. */
static void drop_twins(struct flow_options *options, const struct pl_compute *compute)
{
	unsigned count;
	const struct flow_arm *arms = flow_arms(options->proxy, &count);

	for (unsigned i = 0; i < count && !options->arms_given && !compute->ops->pin && !options->proxy; i++)
		if (arms[i].pinned && !arms[i].overlapped)
			options->arms[i] = false;
}

static int measure_with(struct measurement *measurement, struct pl_error *error)
{
	struct flow_options *options = measurement->options;
	struct flow_report *report = measurement->report;
	int rc = open_device(options, report, error);

	if (rc < 0)
		return rc;
	drop_twins(options, report->compute);
	report->results = calloc((size_t)options->size_count * FLOW_ARMS_MAX, sizeof(*report->results));
	if (!report->results)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	rc = flow_link_open(&measurement->source, options, options->address, error);
	if (rc == 0 && options->proxy)
		rc = flow_link_open(&measurement->sink, options, options->sink, error);
	if (rc == 0) {
		report->source = report->sink = (struct pl_peer_info)PL_PEER_INFO_INIT;
		pl_peer_query(measurement->source.peer, &report->source);
		if (options->proxy)
			pl_peer_query(measurement->sink.peer, &report->sink);
		rc = measure_all(measurement, error);
	}
	return rc;
}

/* Memory that belongs to the contexts, and is locked, goes between the connections and the contexts. */
static void clean_up(struct measurement *measurement, struct flow_report *report)
{
	pl_peer_close(measurement->source.peer);
	pl_peer_close(measurement->sink.peer);
	if (report->compute)
		flow_memory_close(&measurement->memory, report->compute);
	flow_link_close(&measurement->source);
	flow_link_close(&measurement->sink);
}

int flow_measure(struct flow_options *options)
{
	struct flow_report report = { 0 };
	struct measurement measurement = { .options = options, .report = &report };
	char key_path[32];
	int key, rc = cli_child_key(&options->common, key_path, &key, &report.error);

	if (rc == 0)
		rc = measure_with(&measurement, &report.error);
	report.failed = rc < 0;
	clean_up(&measurement, &report);
	if (key >= 0)
		close(key);
	if (options->common.json)
		flow_render_json(options, &report);
	else if (report.count)
		flow_render_text(options, &report);
	if (report.failed)
		cli_report(&report.error);
	for (uint32_t i = 0; i < report.count; i++)
		free(report.results[i].phases);
	free(report.results);
	if (report.compute)
		report.compute->ops->close(report.compute);
	return report.failed ? CLI_FAILED : CLI_OK;
}
