/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that write the pieces of requests, so that NCCL's threads do not copy. */
#ifndef PLUGIN_COPY_THREADS_H
#define PLUGIN_COPY_THREADS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/lock.h"

#define COPY_THREADS_MAX 32

/* Part of a request. */
struct copy_job {
	struct pl_list link; /* of the queue, or of the finished requests */
	size_t next, pieces; /* in the queue: pieces that were taken, and all */
};

struct copy_threads {
	/* A latch: threads that poll all want it when a job comes, and none may sleep for it. */
	struct pl_latch latch; /* protects both lists, and the jobs in them */
	struct pl_list queue, finished;
	atomic_uint waiting; /* pieces in the queue: changed under the latch */
	atomic_bool any_finished;
	pthread_mutex_t lock; /* of threads that sleep until there are pieces */
	pthread_cond_t wake;
	atomic_uint sleeping; /* changed under the lock */
	atomic_bool ending;
	uint64_t poll_time; /* nanoseconds that a thread polls before it sleeps */
	unsigned count;
	pthread_t threads[COPY_THREADS_MAX];
};

/* Starts threads. Returns 0 or a negative errno. */
int copy_threads_start(struct copy_threads *threads, unsigned count, uint64_t poll_time);
void copy_threads_join(struct copy_threads *threads);
/* Queues `pieces` pieces. */
void copy_threads_add(struct copy_threads *threads, struct copy_job *job, size_t pieces);
/* Takes a job out of the queue. Returns the number of pieces that no thread has taken. */
size_t copy_threads_withdraw(struct copy_threads *threads, struct copy_job *job);
/* Any thread: the last piece of a job ended. */
void copy_threads_finish(struct copy_threads *threads, struct copy_job *job);
/* Returns a finished job; NULL: there is none. */
struct copy_job *copy_threads_take_finished(struct copy_threads *threads);

#endif
