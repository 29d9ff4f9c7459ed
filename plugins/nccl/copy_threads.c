/* SPDX-License-Identifier: BSD-2-Clause */
#include "copy_threads.h"
#include "quiet_thread.h"
#include "state.h"

/* Takes a piece of a job, if there is one and no other thread is at the queue. */
static struct copy_job *try_piece(struct copy_threads *threads, size_t *piece)
{
	struct copy_job *job;

	if (atomic_load_explicit(&threads->waiting, memory_order_relaxed) == 0 || !pl_latch_try(&threads->latch))
		return NULL;
	if (pl_list_empty(&threads->queue)) {
		pl_latch_release(&threads->latch);
		return NULL;
	}
	job = pl_list_first(&threads->queue, struct copy_job, link);
	*piece = job->next++;
	atomic_fetch_sub(&threads->waiting, 1);
	if (job->next == job->pieces)
		pl_list_remove(&job->link);
	pl_latch_release(&threads->latch);
	return job;
}

/*
 * A thread counts itself, and then looks for pieces; copy_threads_add() adds pieces, and then looks for sleeping threads. Both
 * orders are sequentially consistent, so that one of them sees the other.
 */
static void sleep_until_pieces(struct copy_threads *threads)
{
	pthread_mutex_lock(&threads->lock);
	atomic_fetch_add(&threads->sleeping, 1);
	while (atomic_load(&threads->waiting) == 0 && !atomic_load(&threads->ending))
		pthread_cond_wait(&threads->wake, &threads->lock);
	atomic_fetch_sub(&threads->sleeping, 1);
	pthread_mutex_unlock(&threads->lock);
}

/* Waits for a piece of a job. Polls first, because a sleeping thread needs tens of microseconds to wake. NULL: the end. */
static struct copy_job *take_piece(struct copy_threads *threads, size_t *piece)
{
	uint64_t end = pl_now() + threads->poll_time;

	while (!atomic_load_explicit(&threads->ending, memory_order_relaxed)) {
		struct copy_job *job = try_piece(threads, piece);

		if (job)
			return job;
		if (atomic_load_explicit(&threads->waiting, memory_order_relaxed) == 0 && pl_now() >= end) {
			sleep_until_pieces(threads);
			end = pl_now() + threads->poll_time;
		}
		pl_relax();
	}
	return NULL;
}

static void *run_copy_thread(void *argument)
{
	struct copy_threads *threads = argument;
	struct copy_job *job;
	size_t piece;

	pthread_setname_np(pthread_self(), "peerlane-copy");
	while ((job = take_piece(threads, &piece)))
		request_write_piece(pl_container_of(job, struct plugin_request, job), piece);
	return NULL;
}

int copy_threads_start(struct copy_threads *threads, unsigned count, uint64_t poll_time)
{
	int rc = 0;

	pthread_mutex_init(&threads->lock, NULL);
	pthread_cond_init(&threads->wake, NULL);
	pl_list_init(&threads->queue);
	pl_list_init(&threads->finished);
	/* A child of fork(2) may have a copy of a taken one. */
	threads->latch = (struct pl_latch){ false };
	atomic_store(&threads->sleeping, 0);
	atomic_store(&threads->ending, false);
	atomic_store(&threads->waiting, 0);
	atomic_store(&threads->any_finished, false);
	threads->poll_time = poll_time;
	for (threads->count = 0; threads->count < count; threads->count++) {
		rc = -quiet_thread_create(&threads->threads[threads->count], run_copy_thread, threads);
		if (rc < 0)
			break;
	}
	if (rc < 0)
		copy_threads_join(threads);
	return rc;
}

void copy_threads_join(struct copy_threads *threads)
{
	pthread_mutex_lock(&threads->lock);
	atomic_store(&threads->ending, true);
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
	pl_latch_take(&threads->latch);
	job->next = 0;
	job->pieces = pieces;
	pl_list_append(&threads->queue, &job->link);
	atomic_fetch_add(&threads->waiting, (unsigned)pieces);
	pl_latch_release(&threads->latch);
	if (atomic_load(&threads->sleeping) == 0)
		return;
	pthread_mutex_lock(&threads->lock);
	for (size_t i = PL_MIN(pieces, atomic_load(&threads->sleeping)); i > 0; i--)
		pthread_cond_signal(&threads->wake);
	pthread_mutex_unlock(&threads->lock);
}

size_t copy_threads_withdraw(struct copy_threads *threads, struct copy_job *job)
{
	size_t left = 0;

	pl_latch_take(&threads->latch);
	if (job->next < job->pieces) {
		left = job->pieces - job->next;
		job->next = job->pieces;
		atomic_fetch_sub(&threads->waiting, (unsigned)left);
		pl_list_remove(&job->link);
	}
	pl_latch_release(&threads->latch);
	return left;
}

void copy_threads_finish(struct copy_threads *threads, struct copy_job *job)
{
	pl_latch_take(&threads->latch);
	pl_list_append(&threads->finished, &job->link);
	atomic_store_explicit(&threads->any_finished, true, memory_order_release);
	pl_latch_release(&threads->latch);
}

struct copy_job *copy_threads_take_finished(struct copy_threads *threads)
{
	struct copy_job *job = NULL;

	if (!atomic_load_explicit(&threads->any_finished, memory_order_acquire))
		return NULL;
	pl_latch_take(&threads->latch);
	if (!pl_list_empty(&threads->finished)) {
		job = pl_list_first(&threads->finished, struct copy_job, link);
		pl_list_remove(&job->link);
	}
	if (pl_list_empty(&threads->finished))
		atomic_store_explicit(&threads->any_finished, false, memory_order_relaxed);
	pl_latch_release(&threads->latch);
	return job;
}
