/* SPDX-License-Identifier: BSD-2-Clause */
#include "copy_threads.h"

#include <signal.h>

#include "state.h"

/* Polls for work, because a sleeping thread needs tens of microseconds to wake. The lock is not held. */
static void poll_queue(struct copy_threads *threads)
{
	uint64_t end = pl_now() + threads->poll_time;

	while (atomic_load_explicit(&threads->waiting, memory_order_relaxed) == 0 && pl_now() < end) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
	}
}

/* Waits for a piece of a job. Returns NULL when the threads end. The lock is held. */
static struct copy_job *take_piece(struct copy_threads *threads, size_t *piece)
{
	struct copy_job *job;

	if (pl_list_empty(&threads->queue) && threads->poll_time) {
		pthread_mutex_unlock(&threads->lock);
		poll_queue(threads);
		pthread_mutex_lock(&threads->lock);
	}
	while (pl_list_empty(&threads->queue) && !threads->ending) {
		threads->sleeping++;
		pthread_cond_wait(&threads->wake, &threads->lock);
		threads->sleeping--;
	}
	if (threads->ending)
		return NULL;
	job = pl_list_first(&threads->queue, struct copy_job, link);
	*piece = job->next++;
	atomic_fetch_sub_explicit(&threads->waiting, 1, memory_order_relaxed);
	if (job->next == job->pieces)
		pl_list_remove(&job->link);
	return job;
}

static void *run_copy_thread(void *argument)
{
	struct copy_threads *threads = argument;
	struct copy_job *job;
	size_t piece;

	pthread_setname_np(pthread_self(), "peerlane-copy");
	pthread_mutex_lock(&threads->lock);
	while ((job = take_piece(threads, &piece))) {
		pthread_mutex_unlock(&threads->lock);
		request_write_piece(pl_container_of(job, struct plugin_request, job), piece);
		pthread_mutex_lock(&threads->lock);
	}
	pthread_mutex_unlock(&threads->lock);
	return NULL;
}

int copy_threads_start(struct copy_threads *threads, unsigned count, uint64_t poll_time)
{
	sigset_t all, old;
	int rc = 0;

	pthread_mutex_init(&threads->lock, NULL);
	pthread_cond_init(&threads->wake, NULL);
	pl_list_init(&threads->queue);
	pl_list_init(&threads->finished);
	threads->sleeping = 0;
	threads->ending = false;
	atomic_store(&threads->waiting, 0);
	atomic_store(&threads->any_finished, false);
	threads->poll_time = poll_time;
	/* The program's signal handlers run on its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	for (threads->count = 0; threads->count < count; threads->count++) {
		rc = -pthread_create(&threads->threads[threads->count], NULL, run_copy_thread, threads);
		if (rc < 0)
			break;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc < 0)
		copy_threads_join(threads);
	return rc;
}

void copy_threads_join(struct copy_threads *threads)
{
	pthread_mutex_lock(&threads->lock);
	threads->ending = true;
	pthread_cond_broadcast(&threads->wake);
	pthread_mutex_unlock(&threads->lock);
	for (unsigned i = 0; i < threads->count; i++)
		pthread_join(threads->threads[i], NULL);
	threads->count = 0;
	pthread_cond_destroy(&threads->wake);
	pthread_mutex_destroy(&threads->lock);
}

void copy_threads_add(struct copy_threads *threads, struct copy_job *job, size_t pieces)
{
	pthread_mutex_lock(&threads->lock);
	job->next = 0;
	job->pieces = pieces;
	pl_list_append(&threads->queue, &job->link);
	atomic_fetch_add_explicit(&threads->waiting, (unsigned)pieces, memory_order_relaxed);
	for (size_t i = PL_MIN(pieces, threads->sleeping); i > 0; i--)
		pthread_cond_signal(&threads->wake);
	pthread_mutex_unlock(&threads->lock);
}

size_t copy_threads_withdraw(struct copy_threads *threads, struct copy_job *job)
{
	size_t left = 0;

	pthread_mutex_lock(&threads->lock);
	if (job->next < job->pieces) {
		left = job->pieces - job->next;
		job->next = job->pieces;
		atomic_fetch_sub_explicit(&threads->waiting, (unsigned)left, memory_order_relaxed);
		pl_list_remove(&job->link);
	}
	pthread_mutex_unlock(&threads->lock);
	return left;
}

void copy_threads_finish(struct copy_threads *threads, struct copy_job *job)
{
	pthread_mutex_lock(&threads->lock);
	pl_list_append(&threads->finished, &job->link);
	atomic_store_explicit(&threads->any_finished, true, memory_order_release);
	pthread_mutex_unlock(&threads->lock);
}

struct copy_job *copy_threads_take_finished(struct copy_threads *threads)
{
	struct copy_job *job = NULL;

	if (!atomic_load_explicit(&threads->any_finished, memory_order_acquire))
		return NULL;
	pthread_mutex_lock(&threads->lock);
	if (!pl_list_empty(&threads->finished)) {
		job = pl_list_first(&threads->finished, struct copy_job, link);
		pl_list_remove(&job->link);
	}
	if (pl_list_empty(&threads->finished))
		atomic_store_explicit(&threads->any_finished, false, memory_order_relaxed);
	pthread_mutex_unlock(&threads->lock);
	return job;
}
