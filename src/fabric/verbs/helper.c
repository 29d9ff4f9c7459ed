/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Helper threads of a context, for calls of the driver that wait: an engine must not wait so long. Threads start when a
 * job finds none idle, and end with the context.
 */
#include <time.h>

#include "fabric/verbs/helper.h"
#include "rdma/driver_thread.h"

static void *run_jobs(void *argument)
{
	struct verbs_helpers *helpers = argument;

	pthread_mutex_lock(&helpers->lock);
	while (!helpers->stopping) {
		struct verbs_job *job;

		if (pl_list_empty(&helpers->jobs)) {
			helpers->idle++;
			pthread_cond_wait(&helpers->work, &helpers->lock);
			helpers->idle--;
			continue;
		}
		job = pl_list_first(&helpers->jobs, struct verbs_job, link);
		pl_list_remove(&job->link);
		helpers->pending--;
		pthread_mutex_unlock(&helpers->lock);
		/* The job may be gone after this. */
		job->run(job);
		pthread_mutex_lock(&helpers->lock);
		pthread_cond_broadcast(&helpers->ended);
	}
	pthread_mutex_unlock(&helpers->lock);
	return NULL;
}

bool verbs_helpers_start(struct verbs_helpers *helpers, struct verbs_job *job)
{
	bool started;

	pthread_mutex_lock(&helpers->lock);
	if (helpers->pending >= helpers->idle && helpers->count < VERBS_HELPERS &&
	    rdma_thread_create(&helpers->threads[helpers->count], run_jobs, helpers) == 0)
		helpers->count++;
	started = helpers->count;
	if (started) {
		pl_list_append(&helpers->jobs, &job->link);
		helpers->pending++;
		pthread_cond_signal(&helpers->work);
	}
	pthread_mutex_unlock(&helpers->lock);
	return started;
}

bool verbs_helpers_withdraw(struct verbs_helpers *helpers, struct verbs_job *job)
{
	bool waits = false;

	pthread_mutex_lock(&helpers->lock);
	pl_list_for_each(at, &helpers->jobs)
		waits |= at == &job->link;
	if (waits) {
		pl_list_remove(&job->link);
		helpers->pending--;
	}
	pthread_mutex_unlock(&helpers->lock);
	return waits;
}

static struct timespec end_of_wait(uint64_t limit)
{
	uint64_t end = pl_deadline(pl_now(), limit);

	return (struct timespec){ (time_t)(end / PL_NS_PER_S), (long)(end % PL_NS_PER_S) };
}

void verbs_helpers_wait(struct verbs_helpers *helpers)
{
	const struct timespec until = end_of_wait(VERBS_WAIT);

	pthread_mutex_lock(&helpers->lock);
	pthread_cond_timedwait(&helpers->ended, &helpers->lock, &until);
	pthread_mutex_unlock(&helpers->lock);
}

void verbs_helpers_await(struct verbs_helpers *helpers, const atomic_bool *busy, uint64_t limit)
{
	const struct timespec until = end_of_wait(limit);

	pthread_mutex_lock(&helpers->lock);
	while (atomic_load(busy) && !pthread_cond_timedwait(&helpers->ended, &helpers->lock, &until))
		;
	pthread_mutex_unlock(&helpers->lock);
}

void verbs_helpers_open(struct verbs_helpers *helpers)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&helpers->lock, NULL);
	pthread_cond_init(&helpers->work, NULL);
	pthread_cond_init(&helpers->ended, &attributes);
	pthread_condattr_destroy(&attributes);
	pl_list_init(&helpers->jobs);
}

void verbs_helpers_close(struct verbs_helpers *helpers)
{
	pthread_mutex_lock(&helpers->lock);
	helpers->stopping = true;
	pthread_cond_broadcast(&helpers->work);
	pthread_mutex_unlock(&helpers->lock);
	for (unsigned i = 0; i < helpers->count; i++)
		pthread_join(helpers->threads[i], NULL);
	pthread_cond_destroy(&helpers->ended);
	pthread_cond_destroy(&helpers->work);
	pthread_mutex_destroy(&helpers->lock);
}
