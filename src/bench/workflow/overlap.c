/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several frames at once, in a ring: while one is received, another is computed on and a third copied out.  This
 * thread receives, and gives each frame to the device as soon as it is there; the device does its steps by itself; a
 * second thread looks at the results, or serves them, for which a third waits.  No thread ever looks again and again.
 */
#include <pthread.h>

#include "bench/workflow/workflow.h"

struct overlap {
	struct flow_run *run;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Frames that have come so far: begun >= received >= computed >= released; numbers of the next. */
	uint64_t begun, received, computed, released;
	bool finished; /* no more will be received */
	int rc;
	struct pl_error error;
};

static void fail(struct overlap *overlap, int rc, const struct pl_error *error)
{
	pthread_mutex_lock(&overlap->lock);
	if (overlap->rc == 0) {
		overlap->rc = rc;
		overlap->error = *error;
	}
	pthread_cond_broadcast(&overlap->changed);
	pthread_mutex_unlock(&overlap->lock);
}

static void count(struct overlap *overlap, uint64_t *counter)
{
	pthread_mutex_lock(&overlap->lock);
	++*counter;
	pthread_cond_broadcast(&overlap->changed);
	pthread_mutex_unlock(&overlap->lock);
}

/* Waits until a frame is there to be taken from those before; false if there will be none. */
static bool await_frame(struct overlap *overlap, const uint64_t *before, uint64_t number)
{
	bool there;

	pthread_mutex_lock(&overlap->lock);
	while (overlap->rc == 0 && *before <= number && !(overlap->finished && overlap->received == number))
		pthread_cond_wait(&overlap->changed, &overlap->lock);
	there = overlap->rc == 0 && *before > number;
	pthread_mutex_unlock(&overlap->lock);
	return there;
}

/* -- this thread ----------------------------------------------------------------------------------- */

/* Begins to receive into all slots that are free. */
static int receive_ahead(struct overlap *overlap, struct pl_error *error)
{
	struct flow_run *run = overlap->run;
	uint64_t released, before = overlap->begun;
	int rc = 0;

	pthread_mutex_lock(&overlap->lock);
	released = overlap->released;
	pthread_mutex_unlock(&overlap->lock);
	while (rc == 0 && overlap->begun - released < run->depth && flow_run_more(run)) {
		rc = flow_receive_begin(run, overlap->begun, error);
		if (rc == 0)
			overlap->begun = ++run->next;
	}
	/* One message for all of them. */
	if (rc == 0 && overlap->begun > before)
		rc = flow_receive_allow(run, overlap->begun, error);
	return rc;
}

/* False once all that were begun are released, or anything failed. */
static bool await_slot(struct overlap *overlap)
{
	bool good;

	pthread_mutex_lock(&overlap->lock);
	while (overlap->rc == 0 && overlap->begun - overlap->released >= overlap->run->depth)
		pthread_cond_wait(&overlap->changed, &overlap->lock);
	good = overlap->rc == 0;
	pthread_mutex_unlock(&overlap->lock);
	return good;
}

static bool failed(struct overlap *overlap)
{
	bool is;

	pthread_mutex_lock(&overlap->lock);
	is = overlap->rc != 0;
	pthread_mutex_unlock(&overlap->lock);
	return is;
}

static void receive_all(struct overlap *overlap)
{
	struct flow_run *run = overlap->run;
	struct pl_error error;
	int rc = 0;

	while (rc == 0 && !failed(overlap)) {
		rc = receive_ahead(overlap, &error);
		if (rc < 0)
			break;
		if (overlap->received == overlap->begun) {
			if (!flow_run_more(run) || !await_slot(overlap))
				break;
			continue;
		}
		rc = flow_receive_end(run, overlap->received, &error);
		if (rc == 0)
			rc = flow_device_begin(run, overlap->received, flow_arm_steps(run->arm), &error);
		if (rc == 0)
			count(overlap, &overlap->received);
	}
	if (rc < 0)
		fail(overlap, rc, &error);
	pthread_mutex_lock(&overlap->lock);
	overlap->finished = true;
	pthread_cond_broadcast(&overlap->changed);
	pthread_mutex_unlock(&overlap->lock);
}

/* -- the others ------------------------------------------------------------------------------------ */

static void *take_results(void *argument)
{
	struct overlap *overlap = argument;
	struct flow_run *run = overlap->run;
	struct pl_error error;
	uint64_t number = overlap->computed;
	int rc = 0;

	for (; rc == 0 && await_frame(overlap, &overlap->received, number); number++) {
		rc = flow_device_end(run, number, &error);
		if (rc == 0)
			rc = run->arm->proxy ? flow_serve_begin(run, number, &error)
					     : flow_inspect(run, number, &error);
		if (rc == 0 && !run->arm->proxy)
			flow_frame_done(run, number);
		if (rc == 0)
			count(overlap, &overlap->computed);
		if (rc == 0 && !run->arm->proxy)
			count(overlap, &overlap->released);
	}
	if (rc < 0)
		fail(overlap, rc, &error);
	return NULL;
}

static void *await_served(void *argument)
{
	struct overlap *overlap = argument;
	struct pl_error error;
	uint64_t number = overlap->released;
	int rc = 0;

	for (; rc == 0 && await_frame(overlap, &overlap->computed, number); number++) {
		rc = flow_serve_end(overlap->run, number, &error);
		if (rc == 0)
			flow_frame_done(overlap->run, number);
		if (rc == 0)
			count(overlap, &overlap->released);
	}
	if (rc < 0)
		fail(overlap, rc, &error);
	return NULL;
}

/* After a failure: nothing is under way any more when this returns. */
static void abandon(struct overlap *overlap)
{
	struct flow_run *run = overlap->run;
	uint64_t times[PL_STEPS];

	for (uint64_t number = overlap->computed; number < overlap->received; number++)
		run->compute->ops->wait(run->compute, (unsigned)(number % run->depth), times, NULL);
	for (uint64_t number = overlap->received; number < overlap->begun; number++) {
		struct flow_frame *frame = &run->frames[number % run->depth];

		if (!frame->read)
			continue;
		pl_cancel(frame->read);
		pl_wait(frame->read, UINT64_MAX, NULL, NULL);
		frame->read = NULL;
	}
}

int flow_run_overlapped(struct flow_run *run, struct pl_error *error)
{
	struct overlap overlap = { .run = run };
	pthread_t results, served;
	int rc;

	overlap.begun = overlap.received = overlap.computed = overlap.released = run->next;
	pthread_mutex_init(&overlap.lock, NULL);
	pthread_cond_init(&overlap.changed, NULL);
	rc = -pthread_create(&results, NULL, take_results, &overlap);
	if (rc == 0 && run->arm->proxy) {
		rc = -pthread_create(&served, NULL, await_served, &overlap);
		if (rc < 0) {
			cli_fail_errno(error, rc, "pthread_create", NULL);
			fail(&overlap, rc, error);
			pthread_join(results, NULL);
		}
	}
	if (rc == 0) {
		receive_all(&overlap);
		pthread_join(results, NULL);
		if (run->arm->proxy)
			pthread_join(served, NULL);
		rc = overlap.rc;
		if (rc < 0) {
			*error = overlap.error;
			abandon(&overlap);
		}
	} else if (!overlap.rc) {
		cli_fail_errno(error, rc, "pthread_create", NULL);
	}
	pthread_cond_destroy(&overlap.changed);
	pthread_mutex_destroy(&overlap.lock);
	return rc;
}
