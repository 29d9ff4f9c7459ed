/* SPDX-License-Identifier: BSD-2-Clause */
/* The steps of one frame: received, computed on, looked at or served. */
#include <poll.h>
#include <string.h>

#include "bench/workflow/workflow.h"

#define BATCH 32

const char *flow_phase_name(enum flow_phase phase)
{
	static const char *const names[FLOW_PHASES] = {
		[FLOW_RECEIVE] = "receive", [FLOW_TO_DEVICE] = "to_device", [FLOW_COMPUTE] = "compute",
		[FLOW_TO_HOST] = "to_host", [FLOW_INSPECT] = "inspect",     [FLOW_SERVE] = "serve",
		[FLOW_OTHER] = "other",     [FLOW_WHOLE] = "whole",
	};

	return names[phase];
}

static struct flow_frame *frame_of(struct flow_run *run, uint64_t number)
{
	return &run->frames[number % run->depth];
}

static uint32_t slot_of(const struct flow_run *run, uint64_t number)
{
	return (uint32_t)(number % run->depth);
}

/* -- notifications --------------------------------------------------------------------------------- */

static int tell(struct flow_link *link, uint64_t value, struct pl_error *error)
{
	return pl_notify(link->peer, value, NULL, NULL, error);
}

/* Takes what has come on a link; the notifications of frames are noted by their slot. */
static int take(struct flow_run *run, struct flow_link *link, struct flow_arrivals *arrivals, struct pl_error *error)
{
	struct pl_completion completions[BATCH];
	int count = pl_poll(link->context, completions, BATCH);

	for (int i = 0; i < count; i++) {
		const struct pl_receipt *receipt = &completions[i].receipt;

		if (receipt->status < 0) {
			*error = completions[i].error;
			return receipt->status;
		}
		if (receipt->kind == PL_KIND_NOTIFIED && receipt->value)
			arrivals->seen[(receipt->value - 1) % run->depth] = receipt->value;
	}
	return count;
}

static int wait_for(struct flow_run *run, struct flow_link *link, struct flow_arrivals *arrivals, uint64_t number,
		    struct pl_error *error)
{
	struct pollfd ready = { .fd = pl_fd(link->context), .events = POLLIN };
	uint64_t deadline = cli_now() + link->timeout;
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	int rc = 0;

	while (rc >= 0 && arrivals->seen[slot_of(run, number)] != number + 1) {
		rc = take(run, link, arrivals, error);
		if (rc != 0 || poll(&ready, 1, FLOW_POLL_MS) != 0)
			continue;
		pl_peer_query(link->peer, &info);
		if (!info.connected)
			rc = cli_fail(error, -ECONNRESET, "PEER-LOST", info.address, NULL, "the connection is lost");
		else if (cli_now() > deadline)
			rc = cli_fail(error, -ETIMEDOUT, "BENCH-SILENT", info.address,
				      "see what it does; --timeout allows more time",
				      "frame %llu did not come for %.3g s", (unsigned long long)number,
				      (double)link->timeout / 1e9);
	}
	return rc < 0 ? rc : 0;
}

/* -- steps ----------------------------------------------------------------------------------------- */

int flow_receive_begin(struct flow_run *run, uint64_t number, struct pl_error *error)
{
	struct flow_ring *ring = flow_memory_in(run->memory, run->arm);
	uint64_t theirs = flow_content(number, run->memory->depth) * run->memory->stride;
	struct flow_frame *frame = frame_of(run, number);
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	memset(frame, 0, sizeof(*frame));
	frame->begun = cli_now();
	if (run->arm->push)
		return 0;
	attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	return pl_read(run->source->peer, run->remote, theirs, ring->region, slot_of(run, number) * ring->stride,
		       run->memory->size, &attributes, &frame->read, error);
}

int flow_receive_allow(struct flow_run *run, uint64_t frames, struct pl_error *error)
{
	return run->arm->push ? tell(run->source, frames, error) : 0;
}

int flow_receive_end(struct flow_run *run, uint64_t number, struct pl_error *error)
{
	struct flow_frame *frame = frame_of(run, number);
	struct pl_receipt receipt = { 0 };
	int rc;

	if (run->arm->push) {
		rc = wait_for(run, run->source, &run->pushed, number, error);
	} else {
		rc = pl_wait(frame->read, UINT64_MAX, &receipt, error);
		frame->read = NULL;
		if (rc == 0)
			flow_tally_add(&run->tally, &receipt);
	}
	frame->phases[FLOW_RECEIVE] = cli_now() - frame->begun;
	return rc;
}

int flow_device_begin(struct flow_run *run, uint64_t number, unsigned steps, struct pl_error *error)
{
	uint32_t slot = slot_of(run, number);
	struct pl_work work = { .steps = steps, .length = run->memory->size };

	/* The fault: a frame on which nothing is computed, so that what was there before stays. */
	if (run->options->fault == FLOW_FAULT_COMPUTE && run->damage && number > run->depth &&
	    steps & 1u << PL_STEP_KERNEL) {
		work.steps &= ~(1u << PL_STEP_KERNEL);
		run->damage = false;
	}
	work.in = flow_slot(&run->memory->device_in, slot);
	work.out = flow_slot(&run->memory->device_out, slot);
	if (!run->arm->direct)
		work.received = flow_slot(flow_memory_in(run->memory, run->arm), slot);
	if (steps & 1u << PL_STEP_TO_HOST)
		work.result = flow_slot(flow_memory_out(run->memory, run->arm), slot);
	return run->compute->ops->begin(run->compute, slot, &work, error);
}

int flow_device_end(struct flow_run *run, uint64_t number, struct pl_error *error)
{
	uint64_t times[PL_STEPS];
	int rc = run->compute->ops->wait(run->compute, slot_of(run, number), times, error);

	for (unsigned i = 0; rc == 0 && i < PL_STEPS; i++)
		frame_of(run, number)->phases[FLOW_TO_DEVICE + i] = times[i];
	return rc;
}

int flow_fail_content(const struct flow_run *run, struct pl_error *error)
{
	const struct flow_difference *difference = &run->difference;
	char object[80];

	snprintf(object, sizeof(object), "arm %s, frames of %llu bytes", run->arm->name,
		 (unsigned long long)run->memory->size);
	return cli_fail(error, -EBADMSG, "WORKFLOW-CONTENT", object,
			run->options->fault ? "this fault was asked for with --inject, and has been caught"
					    : "please report this, with the command and both versions",
			"frame %llu is wrong: byte %llu of its result begins a word that is 0x%08x and not 0x%08x",
			(unsigned long long)difference->frame, (unsigned long long)difference->word * 4,
			difference->found, difference->wanted);
}

int flow_inspect(struct flow_run *run, uint64_t number, struct pl_error *error)
{
	uint32_t *words = flow_slot(flow_memory_out(run->memory, run->arm), slot_of(run, number));
	uint64_t begun = cli_now();
	bool right;

	if (run->options->fault == FLOW_FAULT_RESULT && run->damage) {
		flow_frame_damage(words, run->memory->size, run->seed);
		run->damage = false;
	}
	right = flow_result_equal(words, run->memory->size, run->seed, flow_content(number, run->memory->depth),
				  run->verify, &run->difference);
	frame_of(run, number)->phases[FLOW_INSPECT] = cli_now() - begun;
	if (right)
		return 0;
	run->difference.frame = number;
	return flow_fail_content(run, error);
}

int flow_serve_begin(struct flow_run *run, uint64_t number, struct pl_error *error)
{
	struct flow_ring *ring = flow_memory_out(run->memory, run->arm);
	uint32_t word;
	int rc = 0;

	if (run->options->fault == FLOW_FAULT_RESULT && run->damage) {
		size_t offset = slot_of(run, number) * ring->stride + run->memory->size / 2 / 4 * 4;

		rc = pl_region_copy_out(ring->region, offset, &word, sizeof(word), error);
		word ^= 1u << run->seed % 32;
		if (rc == 0)
			rc = pl_region_copy_in(ring->region, offset, &word, sizeof(word), error);
		run->damage = false;
	}
	/* Until it is served: the end makes a duration of it. */
	frame_of(run, number)->phases[FLOW_SERVE] = cli_now();
	return rc < 0 ? rc : tell(run->sink, number + 1, error);
}

int flow_serve_end(struct flow_run *run, uint64_t number, struct pl_error *error)
{
	struct flow_frame *frame = frame_of(run, number);
	int rc = wait_for(run, run->sink, &run->taken, number, error);

	frame->phases[FLOW_SERVE] = cli_now() - frame->phases[FLOW_SERVE];
	return rc;
}

void flow_frame_done(struct flow_run *run, uint64_t number)
{
	struct flow_frame *frame = frame_of(run, number);
	uint64_t sum = 0, now = cli_now();

	run->ended = now;
	if (run->verify)
		return;
	for (unsigned i = 0; i < FLOW_OTHER; i++)
		sum += frame->phases[i];
	frame->phases[FLOW_WHOLE] = now - frame->begun;
	frame->phases[FLOW_OTHER] = frame->phases[FLOW_WHOLE] > sum ? frame->phases[FLOW_WHOLE] - sum : 0;
	for (unsigned i = 0; i < FLOW_PHASES; i++)
		stats_record(&run->phases[i], frame->phases[i]);
}

bool flow_run_more(struct flow_run *run)
{
	if (run->next > run->first && run->next < run->limit && run->deadline && cli_now() >= run->deadline)
		run->limit = run->next;
	return run->next < run->limit;
}
