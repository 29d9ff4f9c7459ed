/* SPDX-License-Identifier: BSD-2-Clause */
/* Client of a workflow: measures all sizes, rounds and methods. */
#include "bench/workflow/workflow.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "bench/common/numbers.h"
#include "bench/common/process.h"
#include "cmd/common/output.h"

/* Limit of a ring in each kind of memory, unless two frames are larger. */
#define RING_BYTES (256ull << 20)

struct measurement {
	struct workflow_options *options;
	struct workflow_report *report;
	struct workflow_connection source, sink;
	struct workflow_memory memory;
	struct pl_remote *frames;
	uint32_t first; /* of the results of this size */
};

static uint32_t ring_depth(const struct workflow_options *options, uint64_t size)
{
	uint64_t fits = RING_BYTES / workflow_stride(size);

	return (uint32_t)CLI_MAX(CLI_MIN((uint64_t)options->depth, fits), WORKFLOW_DEPTH_MIN);
}

static struct workflow_connection *select_sink(struct measurement *measurement)
{
	return measurement->options->proxy ? &measurement->sink : NULL;
}

static int grant_ring(struct workflow_ring *ring, struct workflow_message *message, struct pl_error *error)
{
	size_t length = sizeof(message->token);
	int rc = pl_region_share(ring->region, NULL, message->token, &length, error);

	message->token_length = (uint16_t)length;
	return rc;
}

/* Prepares the requests to both servers, with a new seed, and poisons the memory. */
static int prepare_method_run(struct measurement *measurement, struct workflow_run *run,
			      struct workflow_message *pushed, struct workflow_message *served, struct pl_error *error)
{
	uint64_t checked = run->limit;
	int rc = 0;

	if (getrandom(&run->seed, sizeof(run->seed), 0) != (ssize_t)sizeof(run->seed))
		run->seed = cli_now();
	*pushed = *served = (struct workflow_message){
		.type = WORKFLOW_RUN, .seed = run->seed, .depth = run->depth, .checked = checked
	};
	pushed->fault = measurement->options->fault;
	pushed->stream = run->method->stream;
	if (run->method->push)
		rc = grant_ring(workflow_memory_in(run->memory, run->method), pushed, error);
	if (rc == 0 && run->method->proxy)
		rc = grant_ring(workflow_memory_out(run->memory, run->method), served, error);
	if (rc == 0)
		rc = workflow_memory_poison(run->memory, run->method, error);
	return rc;
}

/* Revokes the tokens of a run. */
static void revoke_run_tokens(struct workflow_run *run, const struct workflow_message *pushed,
			      const struct workflow_message *served)
{
	if (pushed->token_length)
		pl_region_revoke(workflow_memory_in(run->memory, run->method)->region, pushed->token,
				 pushed->token_length);
	if (served->token_length)
		pl_region_revoke(workflow_memory_out(run->memory, run->method)->region, served->token,
				 served->token_length);
}

static int run_method_frames(struct workflow_run *run, struct pl_error *error)
{
	return run->method->overlapped ? workflow_run_overlapped(run, error) : workflow_run_serial(run, error);
}

/* Verifies every word of the results that are still in the ring, or asks the sink for its verdict. */
static int verify_remaining_frames(struct workflow_run *run, struct pl_error *error)
{
	struct workflow_message message = { .type = WORKFLOW_CHECK, .frames = run->next };
	uint64_t kept = CLI_MIN(run->next, (uint64_t)run->depth);
	int rc;

	run->verify = true;
	for (uint64_t i = 1; !run->method->proxy && i <= kept; i++) {
		rc = workflow_inspect(run, run->next - i, error);
		if (rc < 0)
			return rc;
	}
	if (!run->method->proxy)
		return 0;
	rc = workflow_request(run->sink, &message, error);
	if (rc < 0 || message.right)
		return rc;
	run->difference = message.difference;
	return workflow_fail_content(run, error);
}

static void merge_totals(struct workflow_totals *sum, const struct workflow_totals *more)
{
	uint64_t direct = sum->direct + more->direct, staged = sum->staged + more->staged;

	if (more->route >= sum->route)
		*sum = *more;
	sum->direct = direct;
	sum->staged = staged;
}

static int measure_method_frames(const struct workflow_options *options, struct workflow_run *run,
				 struct workflow_result *result, struct pl_error *error)
{
	uint64_t begun = cli_now(), cpu = bench_processor_time(), first = run->next;
	int rc;

	run->first = first;
	run->verify = run->inject = false;
	run->limit = options->frames ? first + options->frames : UINT64_MAX;
	run->deadline = options->frames ? 0 : begun + options->duration;
	rc = run_method_frames(run, error);
	if (rc < 0)
		return rc;
	result->cpu += bench_processor_time() - cpu;
	result->frames += run->next - first;
	result->elapsed += run->ended - begun;
	result->runs[result->rounds++] = (double)(run->next - first) * 1e9 / (double)(run->ended - begun);
	return 0;
}

/* True if there is no memory of the device for the frames of a subscriber. */
static bool lacks_memory(int rc)
{
	return rc == -ENOMEM || rc == -EMSGSIZE || rc == -ENODEV || rc == -ENOTSUP;
}

/*
 * Runs a method: first frames of which every word is compared, which also warms up; then the measured ones; then the
 * check of the last ones.
 */
static int run_method_round(struct measurement *measurement, struct workflow_result *result, struct pl_error *error)
{
	const struct workflow_options *options = measurement->options;
	struct workflow_memory *memory = &measurement->memory;
	struct workflow_run run = {
		.options = options,
		.method = result->method,
		.compute = measurement->report->compute,
		.memory = memory,
		.source = &measurement->source,
		.sink = select_sink(measurement),
		.remote = measurement->frames,
		.depth = result->method->overlapped ? memory->depth : 1,
		.limit = 2 * (memory->depth + 1),
		.phases = result->phases,
		.verify = true,
		.inject = true,
	};
	struct workflow_message pushed, served, totals = { .type = WORKFLOW_CHECK };
	int rc = prepare_method_run(measurement, &run, &pushed, &served, error);
	struct workflow_message request = pushed;
	uint32_t rounds = result->rounds;

	if (rc == 0)
		rc = workflow_request(run.source, &request, error);
	if (rc == 0 && run.sink) {
		request = served;
		rc = workflow_request(run.sink, &request, error);
	}
	if (rc == 0 && run.method->stream)
		rc = workflow_subscribe(&run, error);
	if (rc < 0 && (request.type == WORKFLOW_FAILED || (run.method->stream && lacks_memory(rc)))) {
		result->skipped = true;
		result->reason = *error;
		revoke_run_tokens(&run, &pushed, &served);
		return 0;
	}
	if (rc == 0)
		rc = run_method_frames(&run, error);
	if (rc == 0 && options->fault == WORKFLOW_FAULT_NONE)
		rc = measure_method_frames(options, &run, result, error);
	workflow_unsubscribe(&run);
	if (rc == 0)
		rc = verify_remaining_frames(&run, error);
	if (rc == 0 && (run.method->push || run.method->stream))
		rc = workflow_request(run.source, &totals, error);
	if (rc == 0)
		revoke_run_tokens(&run, &pushed, &served);
	merge_totals(&result->totals, run.method->push ? &totals.totals : &run.totals);
	if (rc == 0 && options->fault)
		return cli_fail(error, -EBADMSG, "WORKFLOW-FAULT-MISSED", result->method->name,
				"report this with the command and both versions",
				"the fault of --inject was not detected");
	/* A lost connection or a signal says nothing about the content: an unverified round does not count. */
	if (rc == 0 || rc == -EBADMSG)
		result->verified = rc == 0;
	else
		result->rounds = rounds;
	return rc;
}

static void show_workflow_progress(const struct measurement *measurement, const struct workflow_result *result,
				   uint32_t round)
{
	const struct workflow_options *options = measurement->options;

	if (options->common.quiet || options->common.json || !isatty(STDERR_FILENO))
		return;
	if (!result)
		fputs("\r\033[K", stderr);
	else
		fprintf(stderr, "\r\033[Kframes of %llu KiB, round %u of %u, method %s ...",
			(unsigned long long)result->size >> 10, round + 1, options->rounds, result->method->name);
}

static int set_up_frame_size(struct measurement *measurement, uint64_t size, struct pl_error *error)
{
	struct workflow_message message = { .type = WORKFLOW_SETUP, .size = size, .depth = measurement->memory.depth };
	struct workflow_message for_sink = message;
	int rc = workflow_request(&measurement->source, &message, error);

	measurement->report->source_machine = message.machine;
	if (rc == 0)
		rc = pl_remote_import(measurement->source.peer, message.token, message.token_length, 0,
				      &measurement->frames, error);
	for_sink.sink = true;
	if (rc == 0 && measurement->options->proxy)
		rc = workflow_request(&measurement->sink, &for_sink, error);
	measurement->report->sink_machine = for_sink.machine;
	return rc;
}

static int add_size_results(struct measurement *measurement, uint64_t size, struct pl_error *error)
{
	const struct workflow_options *options = measurement->options;
	struct workflow_report *report = measurement->report;
	unsigned count;
	const struct workflow_method *methods = workflow_methods(options->proxy, &count);

	measurement->first = report->count;
	for (unsigned i = 0; i < count; i++) {
		struct workflow_result *result = &report->results[report->count];

		if (!options->methods[i])
			continue;
		result->method = &methods[i];
		result->size = size;
		result->depth = methods[i].overlapped ? measurement->memory.depth : 1;
		result->phases = calloc(WORKFLOW_PHASES, sizeof(*result->phases));
		if (!result->phases)
			return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
		for (unsigned phase = 0; phase < WORKFLOW_PHASES; phase++)
			stats_reset(&result->phases[phase]);
		report->count++;
	}
	return 0;
}

static void summarise_rounds(struct workflow_result *result)
{
	double sorted[WORKFLOW_ROUNDS_MAX];

	if (!result->rounds)
		return;
	memcpy(sorted, result->runs, result->rounds * sizeof(sorted[0]));
	qsort(sorted, result->rounds, sizeof(sorted[0]), bench_compare_doubles);
	result->low = sorted[0];
	result->median = sorted[result->rounds / 2];
	result->high = sorted[result->rounds - 1];
}

struct workflow_ratio workflow_ratio_of(const struct workflow_result *result, const struct workflow_result *over)
{
	double sorted[WORKFLOW_ROUNDS_MAX];
	uint32_t rounds = CLI_MIN(result->rounds, over->rounds);

	if (!rounds)
		return (struct workflow_ratio){ 0 };
	for (uint32_t i = 0; i < rounds; i++)
		sorted[i] = result->runs[i] / over->runs[i];
	qsort(sorted, rounds, sizeof(sorted[0]), bench_compare_doubles);
	return (struct workflow_ratio){ sorted[rounds / 2], sorted[0], sorted[rounds - 1] };
}

/* Measures one size.  Each round has all methods and begins with another one, so that disturbances affect all alike. */
static int measure_frame_size(struct measurement *measurement, uint64_t size, struct pl_error *error)
{
	const struct workflow_options *options = measurement->options;
	struct workflow_report *report = measurement->report;
	uint32_t count;
	int rc;

	measurement->memory = (struct workflow_memory){ .depth = ring_depth(options, size) };
	rc = add_size_results(measurement, size, error);
	if (rc == 0)
		rc = workflow_memory_open(&measurement->memory, options, measurement->source.context,
					  options->proxy ? measurement->sink.context : NULL, report->compute, size,
					  error);
	if (rc == 0)
		rc = set_up_frame_size(measurement, size, error);
	count = report->count - measurement->first;
	for (uint32_t round = 0; rc == 0 && round < options->rounds; round++) {
		for (uint32_t i = 0; rc == 0 && i < count; i++) {
			struct workflow_result *result = &report->results[measurement->first + (round + i) % count];

			if (result->skipped)
				continue;
			show_workflow_progress(measurement, result, round);
			rc = run_method_round(measurement, result, error);
			if (rc == 0 && bench_signal_pending())
				rc = -EINTR;
		}
	}
	for (uint32_t i = 0; i < count; i++)
		summarise_rounds(&report->results[measurement->first + i]);
	pl_remote_release(measurement->frames);
	measurement->frames = NULL;
	return rc;
}

static int measure_frame_sizes(struct measurement *measurement, struct pl_error *error)
{
	const struct workflow_options *options = measurement->options;
	struct workflow_message goodbye = { .type = WORKFLOW_BYE };
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < options->size_count; i++) {
		rc = measure_frame_size(measurement, options->sizes[i], error);
		/*
		 * After a failure the servers may still write, so clean_up() closes the connection before the memory.
		 */
		if (rc == 0)
			workflow_memory_close(&measurement->memory, measurement->report->compute);
	}
	show_workflow_progress(measurement, NULL, 0);
	if (rc == 0)
		rc = workflow_request(&measurement->source, &goodbye, error);
	goodbye.type = WORKFLOW_BYE;
	if (rc == 0 && options->proxy)
		rc = workflow_request(&measurement->sink, &goodbye, error);
	return rc;
}

static int open_compute_device(struct workflow_options *options, struct workflow_report *report, struct pl_error *error)
{
	const char *name = options->device;
	struct pl_gpu_info info = PL_GPU_INFO_INIT;
	unsigned number = 0;

	if (!strcmp(name, "auto"))
		name = pl_gpu_query(0, &info, NULL) == 0 ? "cuda" : "simulated";
	if (!strcmp(name, "simulated"))
		return workflow_simulated_open(WORKFLOW_DEPTH_MAX, &pl_word_kernel, &report->compute, error);
	if (name[4] == ':')
		number = (unsigned)atoi(name + 5);
	return cuda_compute_open(number, WORKFLOW_DEPTH_MAX, &pl_word_kernel, &report->compute, error);
}

/* If the device cannot pin memory, methods that differ only in pinning are measured once. */
static void skip_duplicate_methods(struct workflow_options *options, const struct pl_compute *compute)
{
	unsigned count;
	const struct workflow_method *methods = workflow_methods(options->proxy, &count);

	for (unsigned i = 0; i < count && !options->methods_given && !compute->ops->pin && !options->proxy; i++)
		if (methods[i].pinned && !methods[i].overlapped)
			options->methods[i] = false;
}

static int measure_workflow(struct measurement *measurement, struct pl_error *error)
{
	struct workflow_options *options = measurement->options;
	struct workflow_report *report = measurement->report;
	int rc = open_compute_device(options, report, error);

	if (rc < 0)
		return rc;
	skip_duplicate_methods(options, report->compute);
	report->results = calloc((size_t)options->size_count * WORKFLOW_METHODS_MAX, sizeof(*report->results));
	if (!report->results)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	rc = workflow_connection_open(&measurement->source, options, options->address, error);
	if (rc == 0 && options->proxy)
		rc = workflow_connection_open(&measurement->sink, options, options->sink, error);
	if (rc == 0) {
		report->source = report->sink = (struct pl_peer_info)PL_PEER_INFO_INIT;
		pl_peer_query(measurement->source.peer, &report->source);
		if (options->proxy)
			pl_peer_query(measurement->sink.peer, &report->sink);
		rc = measure_frame_sizes(measurement, error);
	}
	return rc;
}

/* Closes everything in order: connections, memory that belongs to the contexts and is pinned, contexts. */
static void close_measurement(struct measurement *measurement, struct workflow_report *report)
{
	pl_peer_close(measurement->source.peer);
	pl_peer_close(measurement->sink.peer);
	if (report->compute)
		workflow_memory_close(&measurement->memory, report->compute);
	workflow_connection_close(&measurement->source);
	workflow_connection_close(&measurement->sink);
}

int workflow_measure(struct workflow_options *options)
{
	struct workflow_report report = { 0 };
	struct measurement measurement = { .options = options, .report = &report };
	char key_path[32];
	int key, rc;

	bench_block_signals();
	rc = cli_child_key(&options->common, key_path, &key, &report.error);
	if (rc == 0)
		rc = measure_workflow(&measurement, &report.error);
	report.failed = rc < 0;
	if (report.failed)
		bench_name_signal(&report.error);
	close_measurement(&measurement, &report);
	if (key >= 0)
		close(key);
	if (options->common.json)
		workflow_render_json(options, &report);
	else if (report.count)
		workflow_render_text(options, &report);
	if (report.failed)
		cli_report(&report.error);
	for (uint32_t i = 0; i < report.count; i++)
		free(report.results[i].phases);
	free(report.results);
	if (report.compute)
		report.compute->ops->close(report.compute);
	return report.failed ? CLI_FAILED : CLI_OK;
}
