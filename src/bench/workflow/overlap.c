/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several frames in flight, in a ring: one is received while the device computes on another and copies a third one.
 * The calling thread receives frames and passes each one to the device.  The device performs its steps by itself.  A
 * second thread inspects results, or offers them to the sink; a third one waits until the sink has read them.  No
 * thread spins.
 */
#include "bench/workflow/workflow.h"

#include <pthread.h>

struct overlap {
	struct workflow_run *run;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Counts of frames, begun >= received >= computed >= released. */
	uint64_t begun, received, computed, released;
	bool finished; /* no more frames will be received */
	int rc;
	struct pl_error error;
};

static void record_overlap_failure(struct overlap *overlap, int rc, const struct pl_error *error)
{
	pthread_mutex_lock(&overlap->lock);
	if (overlap->rc == 0) {
		overlap->rc = rc;
		overlap->error = *error;
	}
	pthread_cond_broadcast(&overlap->changed);
	pthread_mutex_unlock(&overlap->lock);
}

static void advance_counter(struct overlap *overlap, uint64_t *counter)
{
	pthread_mutex_lock(&overlap->lock);
	++*counter;
	pthread_cond_broadcast(&overlap->changed);
	pthread_mutex_unlock(&overlap->lock);
}

/* Waits until frame `number` has left the previous stage.  Returns false if it never will. */
static bool wait_for_frame(struct overlap *overlap, const uint64_t *before, uint64_t number)
{
	bool there;

	pthread_mutex_lock(&overlap->lock);
	while (overlap->rc == 0 && *before <= number && !(overlap->finished && overlap->received == number))
		pthread_cond_wait(&overlap->changed, &overlap->lock);
	there = overlap->rc == 0 && *before > number;
	pthread_mutex_unlock(&overlap->lock);
	return there;
}

/* Starts to receive into all free slots. */
static int receive_ahead(struct overlap *overlap, struct pl_error *error)
{
	struct workflow_run *run = overlap->run;
	uint64_t released, before = overlap->begun;
	int rc = 0;

	pthread_mutex_lock(&overlap->lock);
	released = overlap->released;
	pthread_mutex_unlock(&overlap->lock);
	while (rc == 0 && overlap->begun - released < run->depth && workflow_run_more(run)) {
		rc = workflow_receive_begin(run, overlap->begun, error);
		if (rc == 0)
			overlap->begun = ++run->next;
	}
	/* A single notification allows all new frames. */
	if (rc == 0 && overlap->begun > before)
		rc = workflow_receive_allow(run, overlap->begun, error);
	return rc;
}

/* Waits for a free slot.  Returns false after a failure. */
static bool wait_for_slot(struct overlap *overlap)
{
	bool good;

	pthread_mutex_lock(&overlap->lock);
	while (overlap->rc == 0 && overlap->begun - overlap->released >= overlap->run->depth)
		pthread_cond_wait(&overlap->changed, &overlap->lock);
	good = overlap->rc == 0;
	pthread_mutex_unlock(&overlap->lock);
	return good;
}

static bool overlap_failed(struct overlap *overlap)
{
	bool is;

	pthread_mutex_lock(&overlap->lock);
	is = overlap->rc != 0;
	pthread_mutex_unlock(&overlap->lock);
	return is;
}

static void receive_frames(struct overlap *overlap)
{
	struct workflow_run *run = overlap->run;
	struct pl_error error;
	int rc = 0;

	while (rc == 0 && !overlap_failed(overlap)) {
		rc = receive_ahead(overlap, &error);
		if (rc < 0)
			break;
		if (overlap->received == overlap->begun) {
			if (!workflow_run_more(run) || !wait_for_slot(overlap))
				break;
			continue;
		}
		rc = workflow_receive_end(run, overlap->received, &error);
		if (rc == 0)
			rc = workflow_device_begin(run, overlap->received, workflow_method_steps(run->method), &error);
		if (rc == 0)
			advance_counter(overlap, &overlap->received);
	}
	if (rc < 0)
		record_overlap_failure(overlap, rc, &error);
	pthread_mutex_lock(&overlap->lock);
	overlap->finished = true;
	pthread_cond_broadcast(&overlap->changed);
	pthread_mutex_unlock(&overlap->lock);
}

static void *process_results(void *argument)
{
	struct overlap *overlap = argument;
	struct workflow_run *run = overlap->run;
	struct pl_error error;
	uint64_t number = overlap->computed;
	int rc = 0;

	for (; rc == 0 && wait_for_frame(overlap, &overlap->received, number); number++) {
		rc = workflow_device_end(run, number, &error);
		if (rc == 0)
			rc = run->method->proxy ? workflow_serve_begin(run, number, &error)
						: workflow_inspect(run, number, &error);
		if (rc == 0 && !run->method->proxy)
			workflow_frame_done(run, number);
		if (rc == 0)
			advance_counter(overlap, &overlap->computed);
		if (rc == 0 && !run->method->proxy)
			advance_counter(overlap, &overlap->released);
	}
	if (rc < 0)
		record_overlap_failure(overlap, rc, &error);
	return NULL;
}

static void *wait_served_frames(void *argument)
{
	struct overlap *overlap = argument;
	struct pl_error error;
	uint64_t number = overlap->released;
	int rc = 0;

	for (; rc == 0 && wait_for_frame(overlap, &overlap->computed, number); number++) {
		rc = workflow_serve_end(overlap->run, number, &error);
		if (rc == 0)
			workflow_frame_done(overlap->run, number);
		if (rc == 0)
			advance_counter(overlap, &overlap->released);
	}
	if (rc < 0)
		record_overlap_failure(overlap, rc, &error);
	return NULL;
}

/* Ends all operations after a failure. */
static void drain_overlap(struct overlap *overlap)
{
	struct workflow_run *run = overlap->run;
	uint64_t times[PL_STEPS];

	for (uint64_t number = overlap->computed; number < overlap->received; number++)
		run->compute->ops->wait(run->compute, (unsigned)(number % run->depth), times, NULL);
	for (uint64_t number = overlap->received; number < overlap->begun; number++) {
		struct workflow_frame *frame = &run->frames[number % run->depth];

		if (!frame->read)
			continue;
		pl_cancel(frame->read);
		pl_wait(frame->read, UINT64_MAX, NULL, NULL);
		frame->read = NULL;
	}
}

int workflow_run_overlapped(struct workflow_run *run, struct pl_error *error)
{
	struct overlap overlap = { .run = run };
	pthread_t results, served;
	int rc;

	overlap.begun = overlap.received = overlap.computed = overlap.released = run->next;
	pthread_mutex_init(&overlap.lock, NULL);
	pthread_cond_init(&overlap.changed, NULL);
	rc = -pthread_create(&results, NULL, process_results, &overlap);
	if (rc == 0 && run->method->proxy) {
		rc = -pthread_create(&served, NULL, wait_served_frames, &overlap);
		if (rc < 0) {
			cli_fail_errno(error, rc, "pthread_create", NULL);
			record_overlap_failure(&overlap, rc, error);
			pthread_join(results, NULL);
		}
	}
	if (rc == 0) {
		receive_frames(&overlap);
		pthread_join(results, NULL);
		if (run->method->proxy)
			pthread_join(served, NULL);
		rc = overlap.rc;
		if (rc < 0) {
			*error = overlap.error;
			drain_overlap(&overlap);
		}
	} else if (!overlap.rc) {
		cli_fail_errno(error, rc, "pthread_create", NULL);
	}
	pthread_cond_destroy(&overlap.changed);
	pthread_mutex_destroy(&overlap.lock);
	return rc;
}
