/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stand-in for a GPU: host memory as its memory, and three threads that really copy and compute.  Like the engines of a
 * GPU, one thread copies in each direction and one runs kernels.  Its speed says nothing about a GPU, so all results
 * name the device "simulated".
 */
#include "bench/workflow/workflow.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Work of a stream, which engines pass on. */
struct job {
	struct job *next;
	struct pl_work work;
	uint64_t entered, times[PL_STEPS];
	bool busy;
};

struct engine {
	struct simulated *device;
	enum pl_compute_step step;
	pthread_t thread;
	bool started;
	pthread_cond_t work_queued;
	struct job *first, **last;
};

struct simulated {
	struct pl_compute compute;
	const struct pl_compute_kernel *kernel;
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool ending;
	struct engine engines[PL_STEPS];
	struct job jobs[];
};

/* Queues a job at the engine of its next step, or marks it as done.  Caller holds the lock. */
static void queue_next_step(struct simulated *device, struct job *job, unsigned from)
{
	unsigned step = from;

	while (step < PL_STEPS && !(job->work.steps & 1u << step))
		step++;
	if (step == PL_STEPS) {
		job->busy = false;
		pthread_cond_broadcast(&device->done);
		return;
	}
	job->next = NULL;
	job->entered = cli_now();
	*device->engines[step].last = job;
	device->engines[step].last = &job->next;
	pthread_cond_signal(&device->engines[step].work_queued);
}

static void perform_step(const struct simulated *device, enum pl_compute_step step, const struct pl_work *work)
{
	switch (step) {
	case PL_STEP_TO_DEVICE:
		memcpy(work->in, work->received, work->length);
		break;
	case PL_STEP_KERNEL:
		device->kernel->host(work->out, work->in, work->length / sizeof(uint32_t));
		break;
	default:
		memcpy(work->result, work->out, work->length);
		break;
	}
}

static void *run_engine_thread(void *argument)
{
	struct engine *engine = argument;
	struct simulated *device = engine->device;

	pthread_mutex_lock(&device->lock);
	for (;;) {
		struct job *job = engine->first;

		if (!job && device->ending)
			break;
		if (!job) {
			pthread_cond_wait(&engine->work_queued, &device->lock);
			continue;
		}
		engine->first = job->next;
		if (!engine->first)
			engine->last = &engine->first;
		pthread_mutex_unlock(&device->lock);
		perform_step(device, engine->step, &job->work);
		pthread_mutex_lock(&device->lock);
		job->times[engine->step] = cli_now() - job->entered;
		queue_next_step(device, job, engine->step + 1);
	}
	pthread_mutex_unlock(&device->lock);
	return NULL;
}

static int simulated_compute_begin(struct pl_compute *compute, unsigned stream, const struct pl_work *work,
				   struct pl_error *error)
{
	struct simulated *device = (struct simulated *)compute;
	struct job *job = &device->jobs[stream];

	(void)error;
	pthread_mutex_lock(&device->lock);
	job->work = *work;
	job->busy = true;
	memset(job->times, 0, sizeof(job->times));
	queue_next_step(device, job, 0);
	pthread_mutex_unlock(&device->lock);
	return 0;
}

static int simulated_compute_wait(struct pl_compute *compute, unsigned stream, uint64_t nanoseconds[PL_STEPS],
				  struct pl_error *error)
{
	struct simulated *device = (struct simulated *)compute;
	struct job *job = &device->jobs[stream];

	(void)error;
	pthread_mutex_lock(&device->lock);
	while (job->busy)
		pthread_cond_wait(&device->done, &device->lock);
	memcpy(nanoseconds, job->times, sizeof(job->times));
	pthread_mutex_unlock(&device->lock);
	return 0;
}

static void simulated_compute_close(struct pl_compute *compute)
{
	struct simulated *device = (struct simulated *)compute;

	pthread_mutex_lock(&device->lock);
	device->ending = true;
	for (unsigned i = 0; i < PL_STEPS; i++)
		pthread_cond_signal(&device->engines[i].work_queued);
	pthread_mutex_unlock(&device->lock);
	for (unsigned i = 0; i < PL_STEPS; i++) {
		if (device->engines[i].started)
			pthread_join(device->engines[i].thread, NULL);
		pthread_cond_destroy(&device->engines[i].work_queued);
	}
	pthread_cond_destroy(&device->done);
	pthread_mutex_destroy(&device->lock);
	free(device);
}

static const struct pl_compute_ops simulated_compute_ops = { .begin = simulated_compute_begin,
							     .wait = simulated_compute_wait,
							     .close = simulated_compute_close };

int workflow_simulated_open(unsigned streams, const struct pl_compute_kernel *kernel, struct pl_compute **compute,
			    struct pl_error *error)
{
	struct simulated *device = calloc(1, sizeof(*device) + streams * sizeof(device->jobs[0]));
	int rc = 0;

	if (!device)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	device->compute = (struct pl_compute){ .ops = &simulated_compute_ops, .name = "simulated", .memory = "host" };
	device->kernel = kernel;
	pthread_mutex_init(&device->lock, NULL);
	pthread_cond_init(&device->done, NULL);
	for (unsigned i = 0; i < PL_STEPS; i++) {
		struct engine *engine = &device->engines[i];

		engine->device = device;
		engine->step = (enum pl_compute_step)i;
		engine->last = &engine->first;
		pthread_cond_init(&engine->work_queued, NULL);
		if (rc == 0)
			rc = -pthread_create(&engine->thread, NULL, run_engine_thread, engine);
		engine->started = rc == 0;
	}
	if (rc < 0) {
		simulated_compute_close(&device->compute);
		return cli_fail_errno(error, rc, "pthread_create", NULL);
	}
	*compute = &device->compute;
	return 0;
}
