/* SPDX-License-Identifier: BSD-2-Clause */
/* Steps of one frame: receive it, compute on it, inspect or serve the result. */
#include "bench/common/process.h"
#include "bench/workflow/workflow.h"

#include <poll.h>
#include <string.h>

#define BATCH 32

const char *workflow_phase_name(enum workflow_phase phase)
{
	static const char *const names[WORKFLOW_PHASES] = {
		[WORKFLOW_RECEIVE] = "receive", [WORKFLOW_TO_DEVICE] = "to_device", [WORKFLOW_COMPUTE] = "compute",
		[WORKFLOW_TO_HOST] = "to_host", [WORKFLOW_INSPECT] = "inspect",     [WORKFLOW_SERVE] = "serve",
		[WORKFLOW_OTHER] = "other",     [WORKFLOW_WHOLE] = "whole",
	};

	return names[phase];
}

static struct workflow_frame *run_frame(struct workflow_run *run, uint64_t number)
{
	return &run->frames[number % run->depth];
}

static uint32_t frame_slot(const struct workflow_run *run, uint64_t number)
{
	return (uint32_t)(number % run->depth);
}

static int notify_server(struct workflow_connection *connection, uint64_t value, struct pl_error *error)
{
	return pl_notify(connection->peer, value, NULL, 0, NULL, NULL, error);
}

/* Polls a connection and stores notifications of frames by slot. */
static int poll_connection(struct workflow_run *run, struct workflow_connection *connection,
			   struct workflow_arrivals *arrivals, struct pl_error *error)
{
	struct pl_completion completions[BATCH];
	int count = pl_poll(connection->context, completions, BATCH);

	for (int i = 0; i < count; i++) {
		const struct pl_completion *receipt = &completions[i];

		if (receipt->status < 0)
			return pl_completion_error(connection->context, receipt, error);
		if (receipt->kind == PL_KIND_NOTIFIED && receipt->value)
			arrivals->seen[(receipt->value - 1) % run->depth] = receipt->value;
	}
	return count;
}

static int wait_for_arrival(struct workflow_run *run, struct workflow_connection *connection,
			    struct workflow_arrivals *arrivals, uint64_t number, struct pl_error *error)
{
	struct pollfd ready = { .fd = pl_fd(connection->context), .events = POLLIN };
	uint64_t deadline = cli_now() + connection->timeout;
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	int rc = 0;

	while (rc >= 0 && arrivals->seen[frame_slot(run, number)] != number + 1) {
		rc = poll_connection(run, connection, arrivals, error);
		if (rc != 0 || poll(&ready, 1, WORKFLOW_POLL_MS) > 0)
			continue;
		pl_peer_query(connection->peer, &info);
		if (!info.connected)
			rc = cli_fail(error, -ECONNRESET, "PEER-LOST", info.address, NULL, "the connection is lost");
		else if (cli_now() > deadline)
			rc = cli_fail(error, -ETIMEDOUT, "BENCH-SILENT", info.address,
				      "check the server, or allow more time with --timeout",
				      "frame %llu did not arrive within %.3g s", (unsigned long long)number,
				      (double)connection->timeout / 1e9);
	}
	return rc < 0 ? rc : 0;
}

int workflow_receive_begin(struct workflow_run *run, uint64_t number, struct pl_error *error)
{
	struct workflow_ring *ring = workflow_memory_in(run->memory, run->method);
	uint64_t remote_offset = workflow_content_slot(number, run->memory->depth) * run->memory->stride;
	struct workflow_frame *frame = run_frame(run, number);
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	memset(frame, 0, sizeof(*frame));
	frame->begun = cli_now();
	if (run->method->push || run->method->stream)
		return 0;
	attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	return pl_read(run->source->peer,
		       &(struct pl_transfer){ run->remote, remote_offset, ring->region,
					      frame_slot(run, number) * ring->stride, run->memory->size },
		       &attributes, &frame->read, error);
}

int workflow_receive_allow(struct workflow_run *run, uint64_t frames, struct pl_error *error)
{
	return run->method->push ? notify_server(run->source, frames, error) : 0;
}

int workflow_receive_end(struct workflow_run *run, uint64_t number, struct pl_error *error)
{
	struct workflow_frame *frame = run_frame(run, number);
	struct pl_completion receipt = { 0 };
	int rc;

	if (run->method->push) {
		rc = wait_for_arrival(run, run->source, &run->pushed, number, error);
	} else if (run->method->stream) {
		rc = workflow_stream_take(run, number, error);
	} else {
		rc = pl_wait(frame->read, UINT64_MAX, &receipt, error);
		frame->read = NULL;
		if (rc == 0)
			workflow_totals_add(&run->totals, &receipt);
	}
	frame->phases[WORKFLOW_RECEIVE] = cli_now() - frame->begun;
	return rc;
}

int workflow_device_begin(struct workflow_run *run, uint64_t number, unsigned steps, struct pl_error *error)
{
	uint32_t slot = frame_slot(run, number);
	struct pl_work work = { .steps = steps, .length = run->memory->size };

	/* Injected fault: a frame without computation, so that the previous result stays. */
	if (run->options->fault == WORKFLOW_FAULT_COMPUTE && run->inject && number > run->depth &&
	    steps & 1u << PL_STEP_KERNEL) {
		work.steps &= ~(1u << PL_STEP_KERNEL);
		run->inject = false;
	}
	work.in = run->method->stream ? workflow_stream_data(run_frame(run, number))
				      : workflow_slot(&run->memory->device_in, slot);
	work.out = workflow_slot(&run->memory->device_out, slot);
	if (!run->method->direct)
		work.received = workflow_slot(workflow_memory_in(run->memory, run->method), slot);
	if (steps & 1u << PL_STEP_TO_HOST)
		work.result = workflow_slot(workflow_memory_out(run->memory, run->method), slot);
	return run->compute->ops->begin(run->compute, slot, &work, error);
}

int workflow_device_end(struct workflow_run *run, uint64_t number, struct pl_error *error)
{
	uint64_t times[PL_STEPS];
	int rc = run->compute->ops->wait(run->compute, frame_slot(run, number), times, error);

	for (unsigned i = 0; rc == 0 && i < PL_STEPS; i++)
		run_frame(run, number)->phases[WORKFLOW_TO_DEVICE + i] = times[i];
	/* The device has read the frame. */
	if (rc == 0)
		workflow_stream_release(run_frame(run, number));
	return rc;
}

int workflow_fail_content(const struct workflow_run *run, struct pl_error *error)
{
	const struct workflow_difference *difference = &run->difference;
	char object[80];

	snprintf(object, sizeof(object), "method %s, frames of %llu bytes", run->method->name,
		 (unsigned long long)run->memory->size);
	return cli_fail(error, -EBADMSG, "WORKFLOW-CONTENT", object,
			run->options->fault ? "the fault of --inject was detected"
					    : "report this with the command and the versions of client and server",
			"frame %llu is wrong: the word at byte %llu of its result is 0x%08x, expected 0x%08x",
			(unsigned long long)difference->frame, (unsigned long long)difference->word * 4,
			difference->found, difference->wanted);
}

int workflow_inspect(struct workflow_run *run, uint64_t number, struct pl_error *error)
{
	uint32_t *words = workflow_slot(workflow_memory_out(run->memory, run->method), frame_slot(run, number));
	uint64_t begun = cli_now();
	bool right;

	if (run->options->fault == WORKFLOW_FAULT_RESULT && run->inject) {
		workflow_frame_damage(words, run->memory->size, run->seed);
		run->inject = false;
	}
	right = workflow_result_equal(words, run->memory->size, run->seed,
				      workflow_content_slot(number, run->memory->depth), run->verify, &run->difference);
	run_frame(run, number)->phases[WORKFLOW_INSPECT] = cli_now() - begun;
	if (right)
		return 0;
	run->difference.frame = number;
	return workflow_fail_content(run, error);
}

int workflow_serve_begin(struct workflow_run *run, uint64_t number, struct pl_error *error)
{
	struct workflow_ring *ring = workflow_memory_out(run->memory, run->method);
	uint32_t word;
	int rc = 0;

	if (run->options->fault == WORKFLOW_FAULT_RESULT && run->inject) {
		size_t offset = frame_slot(run, number) * ring->stride + run->memory->size / 2 / 4 * 4;

		rc = pl_region_copy_out(ring->region, offset, &word, sizeof(word), error);
		word ^= 1u << run->seed % 32;
		if (rc == 0)
			rc = pl_region_copy_in(ring->region, offset, &word, sizeof(word), error);
		run->inject = false;
	}
	/* Holds the start time until workflow_serve_end() replaces it by the duration. */
	run_frame(run, number)->phases[WORKFLOW_SERVE] = cli_now();
	return rc < 0 ? rc : notify_server(run->sink, number + 1, error);
}

int workflow_serve_end(struct workflow_run *run, uint64_t number, struct pl_error *error)
{
	struct workflow_frame *frame = run_frame(run, number);
	int rc = wait_for_arrival(run, run->sink, &run->taken, number, error);

	frame->phases[WORKFLOW_SERVE] = cli_now() - frame->phases[WORKFLOW_SERVE];
	return rc;
}

void workflow_frame_done(struct workflow_run *run, uint64_t number)
{
	struct workflow_frame *frame = run_frame(run, number);
	uint64_t sum = 0, now = cli_now();

	run->ended = now;
	if (run->verify)
		return;
	for (unsigned i = 0; i < WORKFLOW_OTHER; i++)
		sum += frame->phases[i];
	frame->phases[WORKFLOW_WHOLE] = now - frame->begun;
	frame->phases[WORKFLOW_OTHER] = frame->phases[WORKFLOW_WHOLE] > sum ? frame->phases[WORKFLOW_WHOLE] - sum : 0;
	for (unsigned i = 0; i < WORKFLOW_PHASES; i++)
		stats_record(&run->phases[i], frame->phases[i]);
}

bool workflow_run_more(struct workflow_run *run)
{
	bool measured = run->next > run->first && run->next < run->limit && !run->verify;

	/* A signal ends the round: the round counts with the frames so far. */
	if (measured && ((run->deadline && cli_now() >= run->deadline) || bench_signal_pending()))
		run->limit = run->next;
	return run->next < run->limit;
}
