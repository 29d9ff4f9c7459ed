/* SPDX-License-Identifier: BSD-2-Clause */
/* Helper threads of a context, for calls of the driver that wait. */
#ifndef PL_FABRIC_VERBS_HELPER_H
#define PL_FABRIC_VERBS_HELPER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/base.h"

/* Most helper threads of one purpose. */
#define VERBS_HELPERS 8
/* Longest wait of an engine for a job, except for the first look at the devices. */
#define VERBS_WAIT (50 * PL_NS_PER_MS)

/* Job of a helper thread. */
struct verbs_job {
	struct pl_list link;
	void (*run)(struct verbs_job *job); /* called without locks */
};

/* Helper threads of one purpose. */
struct verbs_helpers {
	pthread_mutex_t lock;
	pthread_cond_t work, ended;
	struct pl_list jobs;
	pthread_t threads[VERBS_HELPERS];
	unsigned count, idle, pending; /* threads, those without a job, and jobs in the list */
	bool stopping;
};

void verbs_helpers_open(struct verbs_helpers *helpers);
void verbs_helpers_close(struct verbs_helpers *helpers);
/* Gives a job to a thread. Returns false if no thread can be had. */
bool verbs_helpers_start(struct verbs_helpers *helpers, struct verbs_job *job);
/* Takes back a job that has not begun. Returns true if so. */
bool verbs_helpers_withdraw(struct verbs_helpers *helpers, struct verbs_job *job);
/* Waits until a job ends, at most 50 ms. */
void verbs_helpers_wait(struct verbs_helpers *helpers);
/* Waits until a job has cleared `busy`, for a limited time. */
void verbs_helpers_await(struct verbs_helpers *helpers, const atomic_bool *busy, uint64_t limit);

#endif
